// Package server is a broker on the network: the process around a service (package
// service), with its settings, its logging, the JSON protocol (package wire), links to the
// other brokers (package peer), limits, TLS and an orderly end.
//
// A Server has a link to each peer and a session for each connection that was made to it.
// What a broker can do is the service's; here requests are read, translated, and their
// replies written. Serve owns every goroutine and returns when they have ended.
package server

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"logbook/engine/commitlog"
	"logbook/engine/controller"
	"logbook/engine/metadata"
	"logbook/engine/replica"
	"logbook/engine/topic"
)

// External are second listeners, for clients that reach the brokers under other addresses than
// the brokers reach each other: from outside of containers, or through forwarded ports. Whoever
// comes in by one is told the addresses that the brokers advertise for it.
type External struct {
	ExternalPort      int    // LOGBOOK_EXTERNAL_PORT: of the protocol; -1 is none
	ExternalHost      string // LOGBOOK_EXTERNAL_ADVERTISE: host:port; empty: what is bound
	KafkaExternalPort int    // LOGBOOK_KAFKA_EXTERNAL_PORT: for Kafka's clients; -1 is none
	KafkaExternalHost string // LOGBOOK_KAFKA_EXTERNAL_ADVERTISE
	// ExternalAuthenticate, LOGBOOK_EXTERNAL_AUTHENTICATE, asks clients of these for a user's name
	// and password, or the token, also where the others are not asked.
	ExternalAuthenticate bool
}

// Settings configure a broker process. They come from LOGBOOK_* environment variables;
// see LoadSettings.
type Settings struct {
	AppName   string     // LOGBOOK_APP_NAME: the service name that health reports
	Host      string     // LOGBOOK_HOST: the address to bind, loopback unless told otherwise
	Port      int        // LOGBOOK_PORT: of HTTP; 0 lets the system pick one
	LogLevel  slog.Level // LOGBOOK_LOG_LEVEL: debug, info, warn or error
	LogFormat string     // LOGBOOK_LOG_FORMAT: text or json

	BrokerID   int                         // LOGBOOK_BROKER_ID
	BrokerPort int                         // LOGBOOK_BROKER_PORT: of the protocol; 0 lets the system pick one
	KafkaPort  int                         // LOGBOOK_KAFKA_PORT: for Kafka's clients; 0 lets the system pick one, -1 is none
	KafkaHost  string                      // LOGBOOK_KAFKA_ADVERTISE: host:port that Kafka's clients are told; empty: what is bound
	External                               // second listeners, for clients to which brokers have other addresses
	AutoCreate bool                        // LOGBOOK_AUTO_CREATE: make topics that Kafka's clients ask for
	Partitions int                         // LOGBOOK_PARTITIONS: of topics that do not say
	Data       string                      // LOGBOOK_DATA: directory
	Advertise  string                      // LOGBOOK_ADVERTISE: host:port that others are told; empty: what is bound
	Peers      map[replica.BrokerID]string // LOGBOOK_PEERS: 1=host:port,2=host:port; this broker may be among them
	Roles      metadata.Role               // LOGBOOK_ROLES: broker, controller, or both
	Rack       string                      // LOGBOOK_RACK: where this broker is
	Controller string                      // LOGBOOK_CONTROLLER: quorum, manual or first-alive; empty: manual for one broker, else quorum
	Acks       replica.Acks                // LOGBOOK_ACKS: leader, all or quorum
	MinInSync  int                         // LOGBOOK_MIN_IN_SYNC: for quorum and all; 0: 2 with three brokers or more, else 1
	Retention  commitlog.Retention         // LOGBOOK_RETENTION_AGE, LOGBOOK_RETENTION_BYTES: 0 keeps all
	// MaintainEvery, LOGBOOK_MAINTAIN_EVERY, is how often retention and compaction are looked at.
	MaintainEvery time.Duration
	CheckEvery    time.Duration // LOGBOOK_HEALTH_EVERY: between checks of a peer
	WebHosts      []string      // LOGBOOK_WEB_HOSTS: names by which HTTP may be asked for, besides localhost and addresses
	Lag           time.Duration // LOGBOOK_LAG_TIMEOUT: an in-sync follower that lags so long counts no more
	Gone          time.Duration // LOGBOOK_UNREACHABLE_TIMEOUT: likewise one that cannot be reached
	// CatchUpRate, LOGBOOK_CATCH_UP_RATE, is how many bytes a second replicas copy that are not in
	// sync, as those of partitions that move here; 0: as many as they can.
	CatchUpRate int64
	Lifetime    time.Duration // LOGBOOK_LIFETIME: shut down after so long; 0: never
	Token       string        // LOGBOOK_TOKEN: clients must have it; empty: none
	// Authenticate, LOGBOOK_AUTHENTICATE, asks all clients for the token, or a user's name and
	// password. It is so where there is a token.
	Authenticate bool
	PeerToken    string // LOGBOOK_PEER_TOKEN: the brokers must have it; empty: they are asked back
	TLSCert      string // LOGBOOK_TLS_CERT, LOGBOOK_TLS_KEY: PEM files; empty: no TLS
	TLSKey       string
	TLSCA        string // LOGBOOK_TLS_CA: PEM file of those who sign the peers' certificates
	// TLSClientCA, LOGBOOK_TLS_CLIENT_CA, is a PEM file of those who sign clients' certificates;
	// where it is given, clients and peers must have one. HTTP asks for none.
	TLSClientCA string
}

// DefaultSettings are what an empty environment gives.
func DefaultSettings() Settings {
	return Settings{
		AppName: "logbook", Host: "127.0.0.1", Port: 8000, LogLevel: slog.LevelInfo, LogFormat: "text",
		BrokerID: 1, BrokerPort: 9400, KafkaPort: 9092, External: External{ExternalPort: -1, KafkaExternalPort: -1}, AutoCreate: true, Partitions: 1, Data: "logbook-data", Acks: replica.Quorum, CheckEvery: 500 * time.Millisecond, MaintainEvery: 30 * time.Second,
		Lag: 10 * time.Second, Gone: 500 * time.Millisecond,
	}
}

// SettingError says which variable holds what it may not hold, and what it may.
type SettingError struct {
	Variable string
	Value    string
	Want     string
}

func (e *SettingError) Error() string {
	if strings.HasSuffix(e.Variable, "TOKEN") { // a secret, if not a good one
		return fmt.Sprintf("%s has %d characters, it must be %s", e.Variable, len(e.Value), e.Want)
	}
	return fmt.Sprintf("%s is %q, it must be %s", e.Variable, e.Value, e.Want)
}

// setting is one variable: set stores a value, or returns false when it is not a valid one.
type setting struct {
	variable  string
	want      string
	otherwise string // the default, where it is not empty
	set       func(*Settings, string) bool
}

var settings = []setting{
	{"LOGBOOK_APP_NAME", "1 to 100 printable characters", "logbook", func(s *Settings, v string) bool {
		s.AppName = v
		return v != "" && len(v) <= 100 && !strings.ContainsFunc(v, func(r rune) bool { return !unicode.IsPrint(r) })
	}},
	{"LOGBOOK_HOST", "an IP address or a host name", "127.0.0.1", func(s *Settings, v string) bool {
		s.Host = v
		return v != "" && !strings.ContainsAny(v, " /[]\t\n") && (net.ParseIP(v) != nil || !strings.Contains(v, ":"))
	}},
	{"LOGBOOK_PORT", "a port from 0 (any free one) to 65535", "8000", func(s *Settings, v string) bool { return setPort(&s.Port, v) }},
	{"LOGBOOK_LOG_LEVEL", "debug, info, warning, error or critical", "info", func(s *Settings, v string) bool {
		switch strings.ToLower(v) { // the words that other systems have for these
		case "warning":
			s.LogLevel = slog.LevelWarn
			return true
		case "critical":
			s.LogLevel = slog.LevelError
			return true
		}
		return s.LogLevel.UnmarshalText([]byte(v)) == nil
	}},
	{"LOGBOOK_LOG_FORMAT", "text or json", "text", func(s *Settings, v string) bool {
		s.LogFormat = v
		return v == "text" || v == "json"
	}},
	{"LOGBOOK_BROKER_ID", "a positive number", "1", func(s *Settings, v string) bool {
		n, err := strconv.ParseInt(v, 10, 32)
		s.BrokerID = int(n)
		return err == nil && n > 0
	}},
	{"LOGBOOK_BROKER_PORT", "a port from 0 (any free one) to 65535", "9400", func(s *Settings, v string) bool { return setPort(&s.BrokerPort, v) }},
	{"LOGBOOK_KAFKA_PORT", portOrOff, "9092", func(s *Settings, v string) bool { return setPortOrOff(&s.KafkaPort, v) }},
	{"LOGBOOK_EXTERNAL_PORT", portOrOff, "off", func(s *Settings, v string) bool { return setPortOrOff(&s.ExternalPort, v) }},
	{"LOGBOOK_EXTERNAL_ADVERTISE", "host:port that clients of the external port are told", "", func(s *Settings, v string) bool { s.ExternalHost = v; return isAddress(v) }},
	{"LOGBOOK_EXTERNAL_AUTHENTICATE", "true or false: LOGBOOK_AUTHENTICATE for the external ports", "false", func(s *Settings, v string) bool {
		s.ExternalAuthenticate = v == "true"
		return v == "true" || v == "false"
	}},
	{"LOGBOOK_KAFKA_EXTERNAL_PORT", portOrOff, "off", func(s *Settings, v string) bool { return setPortOrOff(&s.KafkaExternalPort, v) }},
	{"LOGBOOK_KAFKA_EXTERNAL_ADVERTISE", "host:port that Kafka's clients of the external port are told", "", func(s *Settings, v string) bool { s.KafkaExternalHost = v; return isAddress(v) }},
	{"LOGBOOK_KAFKA_ADVERTISE", "host:port", "", func(s *Settings, v string) bool { s.KafkaHost = v; return isAddress(v) }},
	{"LOGBOOK_AUTO_CREATE", "true or false", "true", func(s *Settings, v string) bool {
		s.AutoCreate = v == "true"
		return v == "true" || v == "false"
	}},
	{"LOGBOOK_PARTITIONS", "a positive number", "1", func(s *Settings, v string) bool {
		n, err := strconv.Atoi(v)
		s.Partitions = n
		return err == nil && n > 0 && n <= topic.MaxPartitions
	}},
	{"LOGBOOK_DATA", "a directory", "logbook-data", func(s *Settings, v string) bool { s.Data = v; return true }},
	{"LOGBOOK_ADVERTISE", "host:port", "", func(s *Settings, v string) bool { s.Advertise = v; return isAddress(v) }},
	{"LOGBOOK_PEERS", "a list like 1=host:port,2=host:port", "", setPeers},
	{"LOGBOOK_CONTROLLER", controller.KindNames(), "", func(s *Settings, v string) bool {
		s.Controller = v
		_, err := controller.KindByName(v, 0)
		return v != "" && err == nil
	}},
	{"LOGBOOK_ROLES", "broker (it stores records), controller (it decides, and stores none), or both, with a comma; for clusters with the quorum controller", "broker,controller", func(s *Settings, v string) bool {
		var ok bool
		s.Roles, ok = metadata.ParseRole(v)
		return ok
	}},
	{"LOGBOOK_RACK", "1 to 100 printable characters: where this broker is, for replicas that are spread and clients that read what is near; for clusters with the quorum controller", "", func(s *Settings, v string) bool {
		s.Rack = v
		return len(v) <= 100 && !strings.ContainsFunc(v, func(r rune) bool { return !unicode.IsPrint(r) })
	}},
	{"LOGBOOK_ACKS", "leader, all or quorum", "quorum", func(s *Settings, v string) bool {
		var err error
		s.Acks, err = replica.ParseAcks(v)
		return err == nil
	}},
	{"LOGBOOK_MIN_IN_SYNC", "a positive number", "", func(s *Settings, v string) bool {
		n, err := strconv.Atoi(v)
		s.MinInSync = n
		return err == nil && n > 0
	}},
	{"LOGBOOK_RETENTION_AGE", "a duration like 168h, or 0", "0", func(s *Settings, v string) bool { return setDuration(&s.Retention.Age, v) }},
	{"LOGBOOK_RETENTION_BYTES", "a number of bytes, or 0", "0", func(s *Settings, v string) bool {
		n, err := strconv.ParseInt(v, 10, 64)
		s.Retention.Bytes = n
		return err == nil && n >= 0
	}},
	{"LOGBOOK_MAINTAIN_EVERY", "a duration from 100ms on: how often retention and compaction are looked at", "30s", func(s *Settings, v string) bool {
		return setDuration(&s.MaintainEvery, v) && s.MaintainEvery >= 100*time.Millisecond
	}},
	{"LOGBOOK_HEALTH_EVERY", "a duration from 10ms to 1m", "500ms", func(s *Settings, v string) bool {
		return setDuration(&s.CheckEvery, v) && s.CheckEvery >= 10*time.Millisecond && s.CheckEvery <= time.Minute
	}},
	{"LOGBOOK_WEB_HOSTS", "host names, with commas", "", func(s *Settings, v string) bool {
		for name := range strings.SplitSeq(v, ",") {
			s.WebHosts = append(s.WebHosts, strings.TrimSpace(name))
		}
		return !slices.ContainsFunc(s.WebHosts, func(h string) bool { return h == "" || strings.ContainsAny(h, " /:") })
	}},
	{"LOGBOOK_LAG_TIMEOUT", "a duration from 100ms on", "10s", func(s *Settings, v string) bool {
		return setDuration(&s.Lag, v) && s.Lag >= 100*time.Millisecond
	}},
	{"LOGBOOK_UNREACHABLE_TIMEOUT", "a duration from 10ms on", "500ms", func(s *Settings, v string) bool {
		return setDuration(&s.Gone, v) && s.Gone >= 10*time.Millisecond
	}},
	{"LOGBOOK_CATCH_UP_RATE", "a number of bytes a second, for replicas that are not in sync, or 0: as many as they can copy", "0", func(s *Settings, v string) bool {
		n, err := strconv.ParseInt(v, 10, 64)
		s.CatchUpRate = n
		return err == nil && n >= 0
	}},
	{"LOGBOOK_LIFETIME", "a duration after which the broker shuts down, or 0", "0", func(s *Settings, v string) bool { return setDuration(&s.Lifetime, v) }},
	{"LOGBOOK_TOKEN", "at least 16 characters", "", func(s *Settings, v string) bool { s.Token = v; return len(v) >= 16 }},
	{"LOGBOOK_AUTHENTICATE", "true or false: whether clients must be users, or have the token; true where there is a token", "false", func(s *Settings, v string) bool {
		s.Authenticate = v == "true"
		return v == "true" || v == "false"
	}},
	{"LOGBOOK_PEER_TOKEN", "at least 16 characters", "", func(s *Settings, v string) bool { s.PeerToken = v; return len(v) >= 16 }},
	{"LOGBOOK_TLS_CERT", "a PEM file", "", func(s *Settings, v string) bool { s.TLSCert = v; return true }},
	{"LOGBOOK_TLS_KEY", "a PEM file", "", func(s *Settings, v string) bool { s.TLSKey = v; return true }},
	{"LOGBOOK_TLS_CLIENT_CA", "a PEM file: those who sign clients' certificates, which are asked for then", "", func(s *Settings, v string) bool { s.TLSClientCA = v; return true }},
	{"LOGBOOK_TLS_CA", "a PEM file", "", func(s *Settings, v string) bool { s.TLSCA = v; return true }},
}

const portOrOff = "a port from 0 (any free one) to 65535, or off"

func setPortOrOff(port *int, v string) bool {
	if v == "off" {
		*port = -1
		return true
	}
	return setPort(port, v)
}

func setPort(port *int, v string) bool {
	n, err := strconv.Atoi(v)
	*port = n
	return err == nil && n >= 0 && n <= 65535
}

func setDuration(d *time.Duration, v string) bool {
	n, err := time.ParseDuration(v)
	*d = n
	return err == nil && n >= 0
}

func isAddress(v string) bool {
	host, port, err := net.SplitHostPort(v)
	n, perr := strconv.Atoi(port)
	return err == nil && host != "" && perr == nil && n > 0 && n <= 65535
}

func setPeers(s *Settings, v string) bool {
	s.Peers = map[replica.BrokerID]string{}
	for part := range strings.SplitSeq(v, ",") {
		id, address, ok := strings.Cut(strings.TrimSpace(part), "=")
		n, err := strconv.ParseInt(id, 10, 32)
		if !ok || err != nil || n <= 0 || !isAddress(address) || s.Peers[replica.BrokerID(n)] != "" {
			return false
		}
		s.Peers[replica.BrokerID(n)] = address
	}
	return true
}

// LoadSettings reads the settings with lookup, which has the shape of os.LookupEnv. It
// reports every bad variable, each as a *SettingError, not only the first. A variable
// that is not set, or empty, leaves the default.
func LoadSettings(lookup func(string) (string, bool)) (Settings, error) {
	s := DefaultSettings()
	var problems []error
	for _, v := range settings {
		value, _ := lookup(v.variable)
		if value != "" && !v.set(&s, value) {
			problems = append(problems, &SettingError{Variable: v.variable, Value: value, Want: v.want})
		}
	}
	if len(problems) > 0 {
		return Settings{}, fmt.Errorf("server: bad settings: %w", errors.Join(problems...))
	}
	return s, nil
}

// Variable is an environment variable that LoadSettings reads.
type Variable struct {
	Name, Want string
	Default    string // empty: none
}

// Variables lists them.
func Variables() []Variable {
	var out []Variable
	for _, v := range settings {
		out = append(out, Variable{v.variable, v.want, v.otherwise})
	}
	return out
}

// Address is host and port of HTTP.
func (s Settings) Address() string { return net.JoinHostPort(s.Host, strconv.Itoa(s.Port)) }

// KafkaAddress is host and port for Kafka's clients.
func (s Settings) KafkaAddress() string {
	return net.JoinHostPort(s.Host, strconv.Itoa(max(0, s.KafkaPort)))
}

// BrokerAddress is host and port of the protocol.
func (s Settings) BrokerAddress() string { return net.JoinHostPort(s.Host, strconv.Itoa(s.BrokerPort)) }

// NewLogger returns the process's logger, which every part of the broker is handed.
func (s Settings) NewLogger(w io.Writer) *slog.Logger {
	opt := &slog.HandlerOptions{Level: s.LogLevel}
	var h slog.Handler = slog.NewTextHandler(w, opt)
	if s.LogFormat == "json" {
		h = slog.NewJSONHandler(w, opt)
	}
	return slog.New(h).With("service", s.AppName)
}

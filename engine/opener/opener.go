// Package opener opens a log wherever it is: in a directory, on Logbook's brokers, or on a
// Kafka cluster. What a program does with one it can do with the others, by changing a line.
package opener

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"logbook/engine"
	"logbook/engine/client"
	"logbook/engine/kafkaclient"
	"logbook/engine/server"
	"logbook/engine/stream"
)

// Log is an open log. Its client makes topics, producers, consumers and members.
type Log struct {
	*stream.Client
	kind  Kind
	close func() error
}

// Kind is where a log is.
type Kind string

// The kinds.
const (
	Directory Kind = "directory" // of this process alone
	Brokers   Kind = "logbook"   // Logbook's, by its JSON protocol
	Kafka     Kind = "kafka"     // Apache Kafka, or whoever speaks its protocol: Logbook's brokers do
)

// Kind is where the log is.
func (l *Log) Kind() Kind { return l.kind }

// Close makes members leave, sends what producers hold, and closes files and connections.
func (l *Log) Close() error { return l.close() }

// Capabilities is what may differ between logs. Where one is missing, what needs it gets a
// failure.Error that says so, or is weaker as described.
type Capabilities struct {
	// Partitioners: a topic may be made with another rule for keys than murmur2.
	Partitioners bool
	// WholeBatches: the records of one append are stored wholly or not at all, however many
	// there are. Without it that holds for a megabyte.
	WholeBatches bool
	// CommitsOnlyGrow: a member's commit that goes back, or beyond the log's end, is refused.
	// Without it, it is taken.
	CommitsOnlyGrow bool
	// ShortSessions: a member's session may be shorter than six seconds.
	ShortSessions bool
	// Survives: what is acknowledged survives the loss of a machine, where topics have
	// several replicas.
	Survives bool
}

// Capabilities tells what the log can do.
func (l *Log) Capabilities() Capabilities {
	switch l.kind {
	case Directory:
		return Capabilities{Partitioners: true, WholeBatches: true, CommitsOnlyGrow: true, ShortSessions: true}
	case Brokers:
		return Capabilities{Partitioners: true, WholeBatches: true, CommitsOnlyGrow: true, ShortSessions: true, Survives: true}
	}
	return Capabilities{Survives: true}
}

// Open opens a log:
//
//	data                                        a directory, which it makes where there is none
//	logbook://host:9400,host:9401               Logbook's brokers; :token@ before the hosts
//	kafka://host:9092,host:9093                 a Kafka cluster; user:password@ before the hosts
//
// Brokers may be followed by ?tls=true, and ca=FILE with the certificates of those who sign
// theirs; Kafka also by sasl=plain, scram-sha-256 or scram-sha-512 (plain where a user is
// given and nothing is said). Connections are made when there is something to ask.
//
// Errors: what is wrong with the address; for a directory, those of engine.Open.
func Open(where string) (*Log, error) {
	scheme, _, ok := strings.Cut(where, "://")
	if !ok {
		e, err := engine.Open(where, engine.Options{})
		if err != nil {
			return nil, err
		}
		return &Log{Client: e.Client, kind: Directory, close: e.Close}, nil
	}
	a, err := parse(where)
	if err != nil {
		return nil, err
	}
	switch Kind(scheme) {
	case Brokers:
		s, err := client.Dial(client.Options{Brokers: a.hosts, Token: a.password, TLS: a.tls})
		if err != nil {
			return nil, err
		}
		return &Log{Client: s.Client, kind: Brokers, close: s.Close}, nil
	case Kafka:
		k, err := kafkaclient.Dial(kafkaclient.Options{Brokers: a.hosts, TLS: a.tls, SASL: a.sasl})
		if err != nil {
			return nil, err
		}
		return &Log{Client: k.Client, kind: Kafka, close: k.Close}, nil
	}
	return nil, fmt.Errorf("opener: a log at %s://: it must be a directory, logbook:// or kafka://", scheme)
}

// address is a parsed address.
type address struct {
	hosts          []string
	user, password string
	tls            *tls.Config
	sasl           sasl.Mechanism
}

func parse(where string) (a address, err error) {
	u, err := url.Parse(where)
	if err != nil {
		return a, errors.New("opener: the address is no URL: it must be like kafka://host:9092,host:9093?tls=true") // it may hold a password
	}
	if u.Path != "" && u.Path != "/" || u.Fragment != "" {
		return a, fmt.Errorf("opener: nothing comes after the hosts but settings, and here is %q", u.Path+u.Fragment)
	}
	for h := range strings.SplitSeq(u.Host, ",") {
		if _, _, err := net.SplitHostPort(h); err != nil {
			return a, fmt.Errorf("opener: %q is no host:port", h)
		}
		a.hosts = append(a.hosts, h)
	}
	a.user = u.User.Username()
	a.password, _ = u.User.Password()
	known := []string{"tls", "ca"}
	if u.Scheme == string(Kafka) {
		known = append(known, "sasl")
	}
	q := u.Query()
	for name := range q {
		if !slices.Contains(known, name) {
			return a, fmt.Errorf("opener: there is no setting %q for %s://; there are %s", name, u.Scheme, strings.Join(known, ", "))
		}
	}
	switch use := q.Get("tls"); {
	case use == "true" || use == "" && q.Get("ca") != "":
		if a.tls, err = server.ClientTLS(q.Get("ca")); err != nil {
			return a, err
		}
	case use != "" && use != "false":
		return a, fmt.Errorf("opener: tls=%s; it must be true or false", use)
	}
	switch mechanism := q.Get("sasl"); {
	case u.Scheme != string(Kafka) || mechanism == "" && a.user == "":
	case mechanism == "plain" || mechanism == "":
		a.sasl = plain.Auth{User: a.user, Pass: a.password}.AsMechanism()
	case mechanism == "scram-sha-256":
		a.sasl = scram.Auth{User: a.user, Pass: a.password}.AsSha256Mechanism()
	case mechanism == "scram-sha-512":
		a.sasl = scram.Auth{User: a.user, Pass: a.password}.AsSha512Mechanism()
	default:
		return a, fmt.Errorf("opener: sasl=%s; it must be plain, scram-sha-256 or scram-sha-512", mechanism)
	}
	return a, nil
}

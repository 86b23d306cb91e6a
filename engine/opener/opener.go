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
	"logbook/engine/foreign"
	"logbook/engine/kafkaclient"
	"logbook/engine/server"
	"logbook/engine/stream"
)

// Log is an open log. Its client makes topics, producers, consumers and members.
type Log struct {
	*stream.Client
	kind  Kind
	close func() error
	tails []foreign.Tail
}

// Tails are the unfinished records at the ends of a foreign directory's logs, which are not read.
func (l *Log) Tails() []foreign.Tail { return l.tails }

// Kind is where a log is.
type Kind string

// The kinds.
const (
	Directory Kind = "directory" // of this process alone
	Brokers   Kind = "logbook"   // Logbook's, by its JSON protocol
	Kafka     Kind = "kafka"     // Apache Kafka, or whoever speaks its protocol: Logbook's brokers do
	Foreign   Kind = "foreign"   // a directory that another program laid out, which is only read
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
	// Writes: it can be written to.
	Writes bool
}

// Capabilities tells what the log can do.
func (l *Log) Capabilities() Capabilities {
	switch l.kind {
	case Directory:
		return Capabilities{Partitioners: true, WholeBatches: true, CommitsOnlyGrow: true, ShortSessions: true, Writes: true}
	case Brokers:
		return Capabilities{Partitioners: true, WholeBatches: true, CommitsOnlyGrow: true, ShortSessions: true, Survives: true, Writes: true}
	case Foreign:
		return Capabilities{}
	}
	return Capabilities{Survives: true, Writes: true}
}

// Open opens a log:
//
//	data                                        a directory, which it makes where there is none
//	logbook://host:9400,host:9401               Logbook's brokers; user:password@, or :token@, before the hosts
//	kafka://host:9092,host:9093                 a Kafka cluster; user:password@ before the hosts
//	pystream://data?offsets=offsets             PyStream's directory, and its offsets'; only read
//	kafka-lite://data                           kafka-lite's directory; only read
//
// Brokers may be followed by ?tls=true, and ca=FILE with the certificates of those who sign
// theirs, and cert=FILE&key=FILE, where the brokers ask for one; Kafka also by sasl=plain, scram-sha-256 or scram-sha-512 (plain where a user is
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
	if kind := foreign.Kind(scheme); kind == foreign.PyStream || kind == foreign.KafkaLite {
		return parseForeign(kind, strings.TrimPrefix(where, scheme+"://"))
	}
	a, err := parse(where)
	if err != nil {
		return nil, err
	}
	switch Kind(scheme) {
	case Brokers:
		s, err := client.Dial(client.Options{Brokers: a.hosts, User: a.user, Token: a.password, TLS: a.tls})
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
	return nil, fmt.Errorf("opener: a log at %s://: it must be a directory, logbook://, kafka://, pystream:// or kafka-lite://", scheme)
}

// parseForeign opens DIR?offsets=DIR.
func parseForeign(kind foreign.Kind, rest string) (*Log, error) {
	dir, query, _ := strings.Cut(rest, "?")
	q, err := url.ParseQuery(query)
	if err != nil {
		return nil, fmt.Errorf("opener: %s:// takes a directory, and ?offsets=DIRECTORY: %w", kind, err)
	}
	for name := range q {
		if name != "offsets" {
			return nil, fmt.Errorf("opener: there is no setting %q for %s://; there is offsets", name, kind)
		}
	}
	return OpenForeign(kind, dir, foreign.Options{Offsets: q.Get("offsets")})
}

// OpenForeign opens what another program laid out.
//
// Errors: those of foreign.Open.
func OpenForeign(kind foreign.Kind, dir string, opt foreign.Options) (*Log, error) {
	d, err := foreign.Open(kind, dir, opt)
	if err != nil {
		return nil, err
	}
	c := stream.New(d)
	return &Log{Client: c, kind: Foreign, close: func() error { return errors.Join(c.Close(), d.Close()) }, tails: d.Tails()}, nil
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
	known := []string{"tls", "ca", "cert", "key"}
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
		if a.tls, err = server.ClientTLS(q.Get("ca")); err == nil {
			err = server.WithCertificate(a.tls, q.Get("cert"), q.Get("key"))
		}
		if err != nil {
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

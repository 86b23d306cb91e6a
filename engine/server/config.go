package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"logbook/engine/commitlog"
	"logbook/engine/metadata"
	"logbook/engine/replica"
)

// Config configures a broker. ID and Data must be set; every other zero value is usable.
type Config struct {
	ID   replica.BrokerID
	Data string // directory
	// Advertise is the host:port that clients and peers are told; empty is the listener's.
	Advertise string
	// Peers are the other brokers' addresses.
	Peers map[replica.BrokerID]string
	// Controller is "quorum" (most of the brokers agree on each decision), "manual" (decisions are
	// calls, kept by the broker with the lowest id) or "first-alive" (each broker reckons). Empty
	// is manual for one broker, else quorum.
	Controller string
	// Role and Rack are for the quorum controller; see service.Config.
	Role metadata.Role
	Rack string
	// Acks is what a produce that does not say waits for. MinInSync is for quorum and all;
	// see service.Config.
	Acks      replica.Acks
	MinInSync int
	// Retention is applied to each topic's partitions, now and then.
	Retention commitlog.Retention
	// MaintainEvery is how often retention and compaction are looked at; 0 is 30 s.
	MaintainEvery time.Duration

	HealthEvery time.Duration // between checks of a peer; 0 is 500 ms
	FailAfter   int           // failed checks in a row that make a peer dead; 0 is 3
	LagTimeout  time.Duration // an in-sync follower that lags so long counts no more; 0 is 10 s
	// UnreachableTimeout: one that cannot be reached counts no more after this; 0 is 500 ms.
	UnreachableTimeout time.Duration
	// CatchUpRate is for replicas that are not in sync; see service.Config.
	CatchUpRate  int64
	WriteTimeout time.Duration // longest that a write waits for followers; 0 is 10 s

	// AutoCreate makes topics that Kafka's clients ask for, with so many Partitions; 0 is 1.
	AutoCreate bool
	Partitions int
	// KafkaAdvertise is the host:port that Kafka's clients are told; empty is the listener's.
	KafkaAdvertise string

	Token string // clients must say it in their hello, unless they are users; empty: none
	// Authenticate asks all clients to prove who they are, also where there is no Token.
	Authenticate bool
	// ExternalAuthenticate is that for clients of external listeners.
	ExternalAuthenticate bool
	PeerToken            string      // the other brokers say it in theirs; empty: they are asked back (vouch.go)
	ServerTLS            *tls.Config // nil: no TLS
	PeerTLS              *tls.Config // for connections to peers

	MaxConnections int           // 0 is 4096
	MaxFrame       int           // bytes of a request; 0 is wire.DefaultMaxFrame
	MaxMemory      int64         // bytes of requests and replies under way, all connections together, Kafka's too; 0 is 256 MiB
	IdleTimeout    time.Duration // a connection that says nothing is closed; 0 is 10 min
	RequestTimeout time.Duration // to send a request's bytes, or take a reply's; 0 is 30 s

	Logger *slog.Logger
	Now    func() time.Time
	Log    commitlog.Options
	// Dial, if set, takes the place of net.Dialer.DialContext for connections to peers.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// syncPatience is how long the other partitions' writes wait for one whose sync hangs.
const syncPatience = 100 * time.Millisecond

func (c Config) withDefaults() (Config, error) {
	// LagTimeout and WriteTimeout are the service's alone, and so are their defaults.
	c.HealthEvery = cmp.Or(c.HealthEvery, 500*time.Millisecond)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, 10*time.Minute)
	c.RequestTimeout = cmp.Or(c.RequestTimeout, 30*time.Second)
	c.MaxConnections = cmp.Or(c.MaxConnections, 4096)
	c.MaxFrame = cmp.Or(c.MaxFrame, 16<<20)
	c.MaxMemory = cmp.Or(c.MaxMemory, 256<<20)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log.Committer == nil {
		c.Log.Committer = commitlog.NewPatientCommitter(syncPatience)
	}
	c.Log.Now, c.Log.Logger = c.Now, c.Logger
	switch {
	case c.ID <= replica.None:
		return c, fmt.Errorf("server: the id is %d; ids are positive", c.ID)
	case c.Data == "":
		return c, fmt.Errorf("server: no data directory is given")
	case c.Peers[c.ID] != "":
		return c, fmt.Errorf("server: broker %d is among its own peers; list the others only", c.ID)
	case int64(c.MaxFrame) > c.MaxMemory:
		return c, fmt.Errorf("server: a frame may have %d bytes, and all of them together %d", c.MaxFrame, c.MaxMemory)
	}
	return c, nil
}

// Config returns what a Broker is opened with. It reads the certificates.
func (s Settings) Config(logger *slog.Logger) (Config, error) {
	c := Config{
		ID: replica.BrokerID(s.BrokerID), Data: s.Data, Advertise: s.Advertise, Peers: map[replica.BrokerID]string{}, Controller: s.Controller, Role: s.Roles, Rack: s.Rack,
		Acks: s.Acks, MinInSync: s.MinInSync, Retention: s.Retention, MaintainEvery: s.MaintainEvery, HealthEvery: s.CheckEvery, LagTimeout: s.Lag, CatchUpRate: s.CatchUpRate, UnreachableTimeout: s.Gone, AutoCreate: s.AutoCreate, Partitions: s.Partitions, KafkaAdvertise: s.KafkaHost, Token: s.Token, Authenticate: s.Authenticate, ExternalAuthenticate: s.ExternalAuthenticate, PeerToken: s.PeerToken, Logger: logger,
	}
	for id, address := range s.Peers {
		if id != c.ID {
			c.Peers[id] = address
		} else if c.Advertise == "" {
			c.Advertise = address
		}
	}
	if (s.TLSCert == "") != (s.TLSKey == "") {
		return c, fmt.Errorf("server: LOGBOOK_TLS_CERT and LOGBOOK_TLS_KEY go together")
	}
	if s.TLSCert == "" && s.TLSClientCA != "" {
		return c, fmt.Errorf("server: LOGBOOK_TLS_CLIENT_CA asks for clients' certificates, and there is no TLS without LOGBOOK_TLS_CERT and LOGBOOK_TLS_KEY")
	}
	if s.TLSCert == "" {
		return c, nil
	}
	cert, err := tls.LoadX509KeyPair(s.TLSCert, s.TLSKey)
	if err != nil {
		return c, fmt.Errorf("server: LOGBOOK_TLS_CERT and LOGBOOK_TLS_KEY: %w", err)
	}
	c.ServerTLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	if s.TLSClientCA != "" {
		if c.ServerTLS.ClientCAs, err = signers(s.TLSClientCA); err != nil {
			return c, err
		}
		c.ServerTLS.ClientAuth = tls.RequireAndVerifyClientCert
	}
	if c.PeerTLS, err = ClientTLS(s.TLSCA); err == nil {
		c.PeerTLS.Certificates = c.ServerTLS.Certificates // for peers that ask for one
	}
	return c, err
}

// ClientTLS returns the configuration of who connects: it trusts the certificates signed
// by those in a PEM file, or the system's if that is empty.
func ClientTLS(file string) (cfg *tls.Config, err error) {
	cfg = &tls.Config{MinVersion: tls.VersionTLS12}
	if file != "" {
		cfg.RootCAs, err = signers(file)
	}
	return cfg, err
}

// WithCertificate adds what a client proves itself with, where files are given.
func WithCertificate(cfg *tls.Config, certFile, keyFile string) error {
	if certFile == "" && keyFile == "" {
		return nil
	}
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return fmt.Errorf("server: the client's certificate and key: %w", err)
	}
	cfg.Certificates = []tls.Certificate{cert}
	return nil
}

// signers reads certificates of those who sign others.
func signers(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("server: reading the signers of certificates: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("server: %s holds no certificate in PEM", file)
	}
	return pool, nil
}

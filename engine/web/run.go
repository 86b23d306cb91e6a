package web

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"syscall"

	"logbook/engine/server"
)

// Run runs a broker process: both protocols and HTTP, until ctx ends or one of them fails.
func Run(ctx context.Context, s server.Settings, logger *slog.Logger) error {
	cfg, err := s.Config(logger)
	if err != nil {
		return err
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", s.BrokerAddress())
	if err != nil {
		return fmt.Errorf("cannot listen on %s (set LOGBOOK_HOST and LOGBOOK_BROKER_PORT): %w", s.BrokerAddress(), err)
	}
	web, err := lc.Listen(ctx, "tcp", s.Address())
	if err != nil {
		ln.Close()
		return fmt.Errorf("cannot listen on %s (set LOGBOOK_HOST and LOGBOOK_PORT): %w", s.Address(), err)
	}
	b, err := server.Open(cfg)
	if err != nil {
		return errors.Join(err, ln.Close(), web.Close())
	}
	if s.KafkaPort >= 0 && cfg.Role.Stores() { // a broker that only decides has nothing for Kafka's clients
		kln, err := lc.Listen(ctx, "tcp", s.KafkaAddress())
		switch {
		case err == nil:
			b.ServeKafka(kln)
		case errors.Is(err, syscall.EADDRINUSE) && s.KafkaPort == server.DefaultSettings().KafkaPort:
			// Another broker on this machine has the usual port: the rest is of use without it.
			logger.Warn("Kafka's clients are not served: the port is in use; choose another with LOGBOOK_KAFKA_PORT, or turn it off", "address", s.KafkaAddress())
		default:
			return errors.Join(fmt.Errorf("cannot listen on %s (set LOGBOOK_HOST and LOGBOOK_KAFKA_PORT): %w", s.KafkaAddress(), err), b.Close(), ln.Close(), web.Close())
		}
	}
	for _, x := range []struct {
		port     int
		variable string
		serve    func(net.Listener)
	}{
		{s.ExternalPort, "LOGBOOK_EXTERNAL_PORT", func(ln net.Listener) { b.ServeExternal(ln, s.ExternalHost) }},
		{s.KafkaExternalPort, "LOGBOOK_KAFKA_EXTERNAL_PORT", func(ln net.Listener) { b.ServeKafkaExternal(ln, s.KafkaExternalHost) }},
	} {
		if x.port < 0 {
			continue
		}
		address := net.JoinHostPort(s.Host, strconv.Itoa(x.port))
		further, err := lc.Listen(ctx, "tcp", address)
		if err != nil {
			return errors.Join(fmt.Errorf("cannot listen on %s (set LOGBOOK_HOST and %s): %w", address, x.variable, err), b.Close(), ln.Close(), web.Close())
		}
		x.serve(further)
	}
	if ip := net.ParseIP(s.Host); s.Token == "" && ip != nil && ip.IsUnspecified() {
		logger.Warn("everybody who can reach this machine can read and write: set LOGBOOK_TOKEN, or bind to one address with LOGBOOK_HOST")
	}
	if cfg.ServerTLS != nil {
		open := cfg.ServerTLS.Clone()
		open.ClientAuth = tls.NoClientCert // browsers have none
		web = tls.NewListener(web, open)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if s.Lifetime > 0 {
		ctx, stop = context.WithTimeout(ctx, s.Lifetime)
		defer stop()
	}
	var both sync.WaitGroup
	var problems [2]error
	both.Go(func() { defer stop(); problems[0] = b.Serve(ctx, ln) })
	both.Go(func() { defer stop(); problems[1] = Serve(ctx, web, b, s, logger) })
	both.Wait()
	return errors.Join(problems[:]...)
}

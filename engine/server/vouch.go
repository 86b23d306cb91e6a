package server

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"time"

	"logbook/engine/replica"
	"logbook/engine/wire"
)

// A connection that says it is a broker proves it. Where the brokers have a token of their
// own, that is the proof. Where they have none, the broker that was called asks back: it
// connects to the address that LOGBOOK_PEERS gives for the caller, and asks whether that
// broker is making this connection. Only who answers at a broker's address can be that broker.

// begin makes the nonce of a connection that is about to be made.
func (l *link) begin() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nonce = rand.Text()
	return l.nonce
}

// begun: the connection was made, or not. Nothing more is vouched for.
func (l *link) begun() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nonce = ""
}

// vouch says whether this broker is making a connection with a nonce.
func (l *link) vouch(nonce string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.nonce != "" && subtle.ConstantTimeCompare([]byte(nonce), []byte(l.nonce)) == 1
}

// vouching is how many connections may be asked about at the same time.
const vouching = 32

// verify asks a peer whether a connection is its own.
func (s *session) verify(caller replica.BrokerID, nonce string) error {
	b := s.b
	ctx, cancel := context.WithTimeout(s.ctx, max(2*b.cfg.HealthEvery, 200*time.Millisecond))
	defer cancel()
	select {
	case b.vouching <- struct{}{}:
		defer func() { <-b.vouching }()
	case <-ctx.Done():
		return ctx.Err()
	}
	address := b.AddressOf(caller)
	d := wire.Dialer{
		Silent: true, // whoever asks need not prove anything
		TLS:    b.cfg.PeerTLS, Dial: b.cfg.Dial,
	}
	c, err := d.Connect(ctx, address)
	if err != nil {
		return fmt.Errorf("it cannot be asked back at %s: %w", address, err)
	}
	defer c.Close()
	var reply wire.VouchReply
	if err := c.Call(ctx, "vouch", wire.Vouch{Broker: wire.BrokerID(b.cfg.ID), Nonce: nonce}, &reply); err != nil {
		return fmt.Errorf("it was asked back at %s: %w", address, err)
	}
	if reply.Broker != wire.BrokerID(caller) || !reply.Mine {
		return fmt.Errorf("the broker at %s does not vouch for this connection", address)
	}
	return nil
}

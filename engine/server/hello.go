package server

import (
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"net"

	"logbook/engine/replica"
	"logbook/engine/wire"
)

// mustProve reports whether clients of a listener are asked who they are, also without a token.
func (b *Server) mustProve(listener string) bool {
	return b.cfg.Authenticate || listener != "" && b.cfg.ExternalAuthenticate
}

// full says why there is no place.
func (b *Server) full() string {
	return fmt.Sprintf("there are %d connections, the limit; close some, or raise it", b.cfg.MaxConnections)
}

// mayStay reports whether a session has a place, or is one of those for whom some are kept: other
// brokers, who prove it next, and one operator, on this machine.
func (s *session) mayStay(e wire.Envelope) bool {
	if !s.place.Spare() {
		return true
	}
	var h wire.Hello
	if e.Type == "vouch" || e.Type == "hello" && json.Unmarshal(e.Payload, &h) == nil && h.Broker != 0 {
		return true
	}
	host, _, _ := net.SplitHostPort(s.net.RemoteAddr().String())
	return net.ParseIP(host).IsLoopback() && s.place.Operate()
}

// hello learns who is there, and lets them in if they prove it.
func (s *session) hello(e wire.Envelope) error {
	var h wire.Hello
	if err := json.Unmarshal(e.Payload, &h); err != nil {
		return s.explain(&wire.FrameError{Reason: "a hello that cannot be read", Err: err})
	}
	refuse := func(format string, args ...any) error {
		we := &wire.Error{Code: wire.Unauthorized, Message: fmt.Sprintf(format, args...)}
		s.explained = true
		s.error(e.ID, we)
		return we
	}
	caller := replica.BrokerID(h.Broker)
	known := s.b.link(caller) != nil
	same := func(token string) bool { return subtle.ConstantTimeCompare([]byte(h.Token), []byte(token)) == 1 }
	switch {
	case caller != replica.None && !known:
		return refuse("broker %d is not one of broker %d's peers; check the lists of peers", h.Broker, s.b.cfg.ID)
	case known && s.b.cfg.PeerToken != "":
		if !same(s.b.cfg.PeerToken) {
			return refuse("the token is not the brokers' own; set LOGBOOK_PEER_TOKEN to the same for all of them")
		}
	case known && s.b.cfg.Token != "" && !same(s.b.cfg.Token):
		return refuse("the token is not the broker's")
	case known:
		if err := s.verify(caller, h.Nonce); err != nil {
			return refuse("this is not known to be broker %d: %v", h.Broker, err)
		}
	case h.User != "" && !s.b.service.IsUser(h.User, h.Token) && (s.b.cfg.Token == "" || !same(s.b.cfg.Token)):
		return refuse("name or password are wrong")
	case h.User != "":
	case s.b.cfg.Token != "" && !same(s.b.cfg.Token):
		return refuse("the token is not the broker's")
	case s.b.cfg.Token == "" && s.b.mustProve(s.listener):
		return refuse("give a user's name and password")
	}
	s.authenticated = true
	s.reply(e.ID, e.Type, wire.HelloReply{Broker: wire.BrokerID(s.b.cfg.ID), Version: wire.Version})
	if known {
		s.place.Keep()
		s.b.mu.Lock()
		s.peer = replica.BrokerID(h.Broker) // from here on it speaks the brokers' protocol
		s.b.mu.Unlock()
	}
	return nil
}

// addressOf is a broker's address for whoever came by this session's listener.
func (s *session) addressOf(id wire.BrokerID) string {
	if s.listener != "" {
		if address := s.b.service.Endpoint(replica.BrokerID(id), s.listener); address != "" {
			return address
		}
	}
	return s.b.AddressOf(replica.BrokerID(id))
}

// addressed is a reply with the addresses for whoever came by this session's listener.
func (s *session) addressed(reply any) any {
	if s.listener == "" {
		return reply
	}
	switch r := reply.(type) {
	case wire.MetadataReply:
		for i := range r.Brokers {
			r.Brokers[i].Address = s.addressOf(r.Brokers[i].ID)
		}
	case wire.ClusterReply:
		for i := range r.Brokers {
			r.Brokers[i].Address = s.addressOf(r.Brokers[i].ID)
		}
	case wire.FindCoordinatorReply:
		r.Broker.Address = s.addressOf(r.Broker.ID)
		return r
	}
	return reply
}

package kafka

import (
	"bytes"
	"crypto/subtle"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// mechanisms are the ways in which clients can prove who they are.
var mechanisms = []string{"PLAIN"}

func (c *conn) saslHandshake(q *kmsg.SASLHandshakeRequest) *kmsg.SASLHandshakeResponse {
	r := q.ResponseKind().(*kmsg.SASLHandshakeResponse)
	r.SupportedMechanisms = mechanisms
	if q.Mechanism != mechanisms[0] {
		r.ErrorCode = kerr.UnsupportedSaslMechanism.Code
		return r
	}
	c.mechanism = q.Mechanism
	return r
}

// saslAuthenticate checks a password: the brokers' token, whatever the user's name (RFC 4616).
func (c *conn) saslAuthenticate(req kmsg.Request) (kmsg.Response, error) {
	q := req.(*kmsg.SASLAuthenticateRequest)
	r := q.ResponseKind().(*kmsg.SASLAuthenticateResponse)
	refuse := func(code int16, why string) (kmsg.Response, error) {
		r.ErrorCode, r.ErrorMessage = code, &why
		return r, nil
	}
	if c.mechanism == "" {
		return refuse(kerr.IllegalSaslState.Code, "say which mechanism first, with SaslHandshake")
	}
	parts := bytes.Split(q.SASLAuthBytes, []byte{0})
	if len(parts) != 3 {
		return refuse(kerr.SaslAuthenticationFailed.Code, "PLAIN is an identity, a name and a password, with a zero byte between them")
	}
	if c.f.cfg.Token != "" && subtle.ConstantTimeCompare(parts[2], []byte(c.f.cfg.Token)) != 1 {
		c.f.cfg.Logger.Warn("a Kafka client gave a wrong password", "remote", c.net.RemoteAddr().String(), "client", c.name)
		return refuse(kerr.SaslAuthenticationFailed.Code, fmt.Sprintf("the password of user %q is not the brokers' token", parts[1]))
	}
	c.trusted, c.user, c.mechanism = true, string(parts[1]), ""
	return r, nil
}

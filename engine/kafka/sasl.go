package kafka

import (
	"bytes"
	"crypto/subtle"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/xdg-go/scram"

	"logbook/engine/metadata"
)

const plain = "PLAIN"

// mechanisms are the ways in which clients can prove who they are.
var mechanisms = []string{plain, string(metadata.ScramSHA256), string(metadata.ScramSHA512)}

// hashes are the functions of the mechanisms that do not say the password.
var hashes = map[string]scram.HashGeneratorFcn{
	string(metadata.ScramSHA256): scram.SHA256,
	string(metadata.ScramSHA512): scram.SHA512,
}

func (c *conn) saslHandshake(q *kmsg.SASLHandshakeRequest) *kmsg.SASLHandshakeResponse {
	r := q.ResponseKind().(*kmsg.SASLHandshakeResponse)
	r.SupportedMechanisms = mechanisms
	c.mechanism, c.scram = "", nil
	if q.Mechanism == plain {
		c.mechanism = plain
		return r
	}
	hash, known := hashes[q.Mechanism]
	if !known {
		r.ErrorCode = kerr.UnsupportedSaslMechanism.Code
		return r
	}
	server, err := hash.NewServer(func(user string) (scram.StoredCredentials, error) {
		kept, ok := c.f.svc.Credential(user, metadata.Mechanism(q.Mechanism))
		if !ok {
			return scram.StoredCredentials{}, errors.New("no such user")
		}
		return scram.StoredCredentials{KeyFactors: scram.KeyFactors{Salt: string(kept.Salt), Iters: kept.Iterations}, StoredKey: kept.StoredKey, ServerKey: kept.ServerKey}, nil
	})
	if err != nil {
		r.ErrorCode = kerr.UnknownServerError.Code
		return r
	}
	c.mechanism, c.scram = q.Mechanism, server.NewConversation()
	return r
}

// saslAuthenticate takes the next message of the exchange that the handshake has begun.
func (c *conn) saslAuthenticate(req kmsg.Request) (kmsg.Response, error) {
	q := req.(*kmsg.SASLAuthenticateRequest)
	r := q.ResponseKind().(*kmsg.SASLAuthenticateResponse)
	refuse := func(code int16, why string) (kmsg.Response, error) {
		r.ErrorCode, r.ErrorMessage = code, &why
		c.mechanism, c.scram = "", nil
		return r, nil
	}
	var user string
	var err error
	switch {
	case c.mechanism == "":
		return refuse(kerr.IllegalSaslState.Code, "say which mechanism first, with SaslHandshake")
	case c.scram != nil:
		var say string
		say, err = c.scram.Step(string(q.SASLAuthBytes))
		r.SASLAuthBytes = []byte(say)
		if err == nil && !c.scram.Done() {
			return r, nil
		}
		user = c.scram.Username()
		if err == nil && !c.scram.Valid() {
			err = errors.New("it does not end as it should")
		}
	default:
		user, err = c.plain(q.SASLAuthBytes)
	}
	if err != nil {
		c.f.cfg.Logger.Warn("a Kafka client did not prove who it is", "remote", c.net.RemoteAddr().String(), "client", c.name, "mechanism", c.mechanism, "user", user)
		r.SASLAuthBytes = nil
		return refuse(kerr.SaslAuthenticationFailed.Code, fmt.Sprintf("%s: name or password are wrong", c.mechanism))
	}
	c.trusted, c.user, c.mechanism, c.scram = true, user, "", nil
	return r, nil
}

// plain checks a name and a password (RFC 4616): the user's, or the brokers' token, with any name.
func (c *conn) plain(said []byte) (user string, err error) {
	parts := bytes.Split(said, []byte{0})
	if len(parts) != 3 {
		return "", errors.New("PLAIN is an identity, a name and a password, with a zero byte between them")
	}
	user = string(parts[1])
	token := c.f.cfg.Token
	open := token == "" && !c.f.mustProve(c.listener) && len(c.f.svc.Image().User(user)) == 0
	if open || token != "" && subtle.ConstantTimeCompare(parts[2], []byte(token)) == 1 || c.f.svc.IsUser(user, string(parts[2])) {
		return user, nil
	}
	return user, errors.New("a wrong password")
}

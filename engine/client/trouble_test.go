package client_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/client"
	"logbook/engine/wire"
)

// listen accepts connections at a free port and hands them to serve.
func listen(t *testing.T, serve func(net.Conn)) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
	return ln.Addr().String()
}

// fake is a broker that answers every request by a rule.
func fake(t *testing.T, answer func(self string, e wire.Envelope) (string, any)) string {
	self := make(chan string, 1)
	address := listen(t, func(c net.Conn) {
		defer c.Close()
		me := <-self
		self <- me
		for {
			e, err := wire.Read(c, wire.DefaultMaxFrame)
			if err != nil {
				return
			}
			kind, reply := e.Type, any(wire.HelloReply{Broker: 1, Version: wire.Version})
			if e.Type != "hello" {
				kind, reply = answer(me, e)
			}
			if wire.Write(c, e.ID, kind, reply) != nil {
				return
			}
		}
	})
	self <- address
	return address
}

func metadata(self string) wire.MetadataReply {
	return wire.MetadataReply{Brokers: []wire.Broker{{ID: 1, Address: self, Alive: true}}, Topics: []wire.Topic{{Name: "t", Partitions: []wire.Partition{{Leader: 1}}}}}
}

func dial(t *testing.T, opt client.Options, brokers ...string) *client.Client {
	opt.Brokers = brokers
	c, err := client.New(opt)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// A broker that hangs, at the head of the list, costs one call a moment and the next nothing.
func TestAHungBrokerAtTheHead(t *testing.T) {
	t.Parallel()
	var waiting atomic.Int32
	hung := listen(t, func(net.Conn) { waiting.Add(1) }) // takes the connection, and says nothing
	good := fake(t, func(self string, _ wire.Envelope) (string, any) { return "metadata", metadata(self) })
	c := dial(t, client.Options{Timeout: 10 * time.Second, Patience: 10 * time.Second}, hung, " "+good+" ")
	for range 20 {
		_, err := c.Metadata(t.Context())
		require.NoError(t, err)
	}
	assert.EqualValues(t, 1, waiting.Load())
}

// Brokers that name each other are not asked without a pause.
func TestRedirectsInACircle(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	var other [2]atomic.Pointer[string]
	serve := func(i int) string {
		return fake(t, func(self string, e wire.Envelope) (string, any) {
			if e.Type == "metadata" {
				return "metadata", metadata(self)
			}
			asked.Add(1)
			return "error", &wire.Error{Code: wire.NotLeader, Message: "ask the other", Leader: 2, Address: *other[1-i].Load()}
		})
	}
	a, b := serve(0), serve(1)
	other[0].Store(&a)
	other[1].Store(&b)
	c := dial(t, client.Options{Patience: 2 * time.Second}, a)
	_, err := c.Produce(t.Context(), "t", 0, "", wire.Record{Value: []byte("x")})
	require.ErrorContains(t, err, "no success in 2s")
	assert.Less(t, asked.Load(), int32(30))
}

// Who answers, if it is no broker, is said at once.
func TestStrangers(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	broker := fake(t, func(self string, _ wire.Envelope) (string, any) { return "metadata", metadata(self) })
	for name, c := range map[string]struct {
		address string
		tls     *tls.Config
		want    string
	}{
		"HTTP":                        {strings.TrimPrefix(web.URL, "http://"), nil, "an HTTP server answers there"},
		"TLS":                         {strings.TrimPrefix(secure.URL, "https://"), nil, "does it want TLS?"},
		"no TLS":                      {strings.TrimPrefix(web.URL, "http://"), &tls.Config{InsecureSkipVerify: true}, "does not speak TLS"},
		"a broker without TLS":        {broker, &tls.Config{InsecureSkipVerify: true}, ""},
		"a certificate of nobody":     {strings.TrimPrefix(secure.URL, "https://"), &tls.Config{}, "certificate is not trusted"},
		"HTTP, of which TLS is asked": {strings.TrimPrefix(secure.URL, "https://"), &tls.Config{InsecureSkipVerify: true}, "an HTTP server answers there"},
	} {
		patience := time.Minute
		if c.want == "" || strings.HasSuffix(c.want, "?") {
			patience = 100 * time.Millisecond // it hangs up: that may pass
		}
		cl := dial(t, client.Options{Patience: patience, TLS: c.tls}, c.address)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		_, err := cl.Metadata(ctx)
		cancel()
		require.Error(t, err, name)
		assert.NotErrorIs(t, err, context.DeadlineExceeded, name)
		assert.Contains(t, err.Error(), c.want, name)
	}
}

// An address that a broker gives of itself, and that is not known here, is its own word.
func TestAnAdvertisedNameThatNobodyKnows(t *testing.T) {
	t.Parallel()
	const name = "broker-7.example.invalid:9400"
	seed := fake(t, func(string, wire.Envelope) (string, any) { return "metadata", metadata(name) })
	c := dial(t, client.Options{Patience: 500 * time.Millisecond, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		if address == name {
			return nil, &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "broker-7.example.invalid", IsNotFound: true}}
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}}, seed)
	_, err := c.Produce(t.Context(), "t", 0, "", wire.Record{Value: []byte("x")})
	require.ErrorContains(t, err, "LOGBOOK_ADVERTISE")
	var dns *net.DNSError
	assert.True(t, errors.As(err, &dns))
}

func TestAddressesAreChecked(t *testing.T) {
	for _, bad := range []string{"", "host", "host:", ":9400", "host:port", "host:0", "host:70000", "a:1,b:2"} {
		_, err := client.New(client.Options{Brokers: []string{bad}})
		assert.ErrorContains(t, err, "is not host:port", fmt.Sprintf("%q", bad))
	}
}

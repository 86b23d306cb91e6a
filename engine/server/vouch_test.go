package server_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/client"
	"logbook/engine/server"
	"logbook/engine/wire"
)

// Neither the clients' token nor none makes a broker: whoever says that it is one is asked
// back at that broker's address, or has the brokers' own token.
func TestNobodyPassesForABroker(t *testing.T) {
	const clients, brokers = "the clients' own token", "the brokers' own token"
	for name, c := range map[string]struct {
		mod   func(*server.Config)
		hello wire.Hello
		want  string
	}{
		"no tokens":             {nil, wire.Hello{Broker: 2}, "does not vouch"},
		"a nonce of its own":    {nil, wire.Hello{Broker: 2, Nonce: "AAAAAAAAAAAAAAAAAAAAAAAAAA"}, "does not vouch"},
		"the clients' token":    {func(c *server.Config) { c.Token = clients }, wire.Hello{Broker: 2, Token: clients}, "does not vouch"},
		"the clients' for both": {func(c *server.Config) { c.Token, c.PeerToken = clients, brokers }, wire.Hello{Broker: 2, Token: clients}, "brokers' own"},
		"itself":                {nil, wire.Hello{Broker: 1}, "not one of"},
	} {
		t.Run(name, func(t *testing.T) {
			token := ""
			w := newNetwork(t, 3, func(cfg *server.Config) {
				if c.mod != nil {
					c.mod(cfg)
				}
				token = cfg.Token
			})
			cl, err := client.New(client.Options{Brokers: w.Addresses(), Token: token})
			require.NoError(t, err)
			defer cl.Close()
			_, err = cl.CreateTopic(t.Context(), wire.CreateTopic{Name: "t", Partitions: 1, Replication: 3})
			require.NoError(t, err)
			_, err = cl.Produce(t.Context(), "t", 0, "all", value("the brokers have found one another"))
			require.NoError(t, err)
			_, err = wire.Dialer{Hello: c.hello}.Connect(t.Context(), w.Address(1))
			var we *wire.Error
			require.ErrorAs(t, err, &we)
			assert.Equal(t, wire.Unauthorized, we.Code)
			assert.Contains(t, we.Message, c.want)
		})
	}
}

// What a broker vouches for is a connection that it makes, to whom it makes it, once.
func TestABrokerVouchesForItsOwnConnections(t *testing.T) {
	w := newNetwork(t, 2, nil)
	conn, err := wire.Dialer{}.Connect(t.Context(), w.Address(2))
	require.NoError(t, err)
	defer conn.Close()
	for _, q := range []wire.Vouch{{Broker: 1}, {Broker: 1, Nonce: "x"}, {Broker: 9, Nonce: "x"}, {Broker: 2}} {
		var r wire.VouchReply
		require.NoError(t, conn.Call(context.WithoutCancel(t.Context()), "vouch", q, &r))
		assert.False(t, r.Mine, "%+v", q)
	}
}

// When all places are taken, other brokers still find one another, and one operator is let in.
func TestFullBrokersLetBrokersIn(t *testing.T) {
	w := newNetwork(t, 2, func(c *server.Config) { c.MaxConnections, c.MinInSync = 4, 2 })
	cl, err := client.New(client.Options{Brokers: w.Addresses()})
	require.NoError(t, err)
	defer cl.Close()
	_, err = cl.CreateTopic(t.Context(), wire.CreateTopic{Name: "t", Partitions: 1, Replication: 2})
	require.NoError(t, err)
	busy := func(id wire.BrokerID) {
		c, err := wire.Dialer{}.Connect(t.Context(), w.Address(id))
		if err == nil {
			t.Cleanup(func() { c.Close() })
			go func() { _ = c.Call(t.Context(), "fetch", wire.Fetch{Topic: "t", WaitMS: 60_000}, nil) }()
		}
	}
	w.stop(2)
	for range 12 {
		busy(1)
	}
	w.start(2) // which must get to broker 1, although its places are taken
	w.eventually("both have it", func() bool {
		_, err := cl.Produce(t.Context(), "t", 0, "all", value("both have it"))
		return err == nil
	})
}

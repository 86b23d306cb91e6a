package server_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/client"
	"logbook/engine/server"
	"logbook/engine/server/servertest"
	"logbook/engine/stream"
	"logbook/engine/wire"
)

// network is a cluster of brokers in this process, and a test.
type network struct {
	t *testing.T
	*servertest.Network
}

func newNetwork(t *testing.T, n int, mod func(*server.Config)) *network {
	w, err := servertest.Start(t.TempDir(), n, mod)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, w.Close()) })
	return &network{t, w}
}

func (w *network) start(id wire.BrokerID) { require.NoError(w.t, w.Restart(id)) }
func (w *network) stop(id wire.BrokerID)  { require.NoError(w.t, w.Stop(id)) }

func (w *network) client(ids ...wire.BrokerID) *client.Client {
	var addresses []string
	for _, id := range ids {
		addresses = append(addresses, w.Address(id))
	}
	if len(ids) == 0 {
		addresses = w.Addresses()
	}
	c, err := client.New(client.Options{Brokers: addresses})
	require.NoError(w.t, err)
	w.t.Cleanup(func() { c.Close() })
	return c
}

// eventually waits for a condition, not for a time.
func (w *network) eventually(what string, condition func() bool) {
	w.t.Helper()
	require.Eventually(w.t, condition, 30*time.Second, 5*time.Millisecond, what)
}

func value(v string) wire.Record { return wire.Record{Value: []byte(v)} }

func (w *network) values(c *client.Client, topic string, partition int) []string {
	w.t.Helper()
	var out []string
	for offset := int64(0); ; {
		r, err := c.Fetch(w.t.Context(), topic, partition, offset, 0, 0)
		require.NoError(w.t, err)
		if len(r.Records) == 0 {
			return out
		}
		for _, rec := range r.Records {
			out = append(out, string(rec.Value))
		}
		offset = r.NextOffset
	}
}

func eachController(t *testing.T, test func(t *testing.T, mod func(*server.Config))) {
	for _, name := range []string{"first-alive", "manual", "quorum"} {
		t.Run(name, func(t *testing.T) { test(t, func(c *server.Config) { c.Controller = name }) })
	}
}

func TestOneBroker(t *testing.T) {
	w := newNetwork(t, 1, nil)
	c := w.client()
	ctx := t.Context()
	topic, err := c.CreateTopic(ctx, wire.CreateTopic{Name: "flights", Partitions: 4})
	require.NoError(t, err)
	assert.Len(t, topic.Partitions, 4)
	at, err := c.Produce(ctx, "flights", 2, "", wire.Record{Key: []byte{}, Value: nil, Timestamp: new(int64(0)), Headers: []wire.Header{{Key: "h", Value: []byte("v")}}}, value("b"))
	require.NoError(t, err)
	assert.Equal(t, []any{2, int64(0)}, []any{at.Partition, at.Offset})
	r, err := c.Fetch(ctx, "flights", 2, 0, 0, 0)
	require.NoError(t, err)
	require.Len(t, r.Records, 2)
	assert.Equal(t, []any{[]byte{}, []byte(nil), int64(0)}, []any{r.Records[0].Key, r.Records[0].Value, *r.Records[0].Timestamp}, "the beginning of 1970 is a time like any other")
	assert.Equal(t, []wire.Header{{Key: "h", Value: []byte("v")}}, r.Records[0].Headers)
	assert.Equal(t, []int64{2, 2, 0}, []int64{r.NextOffset, r.HighWatermark, r.LogStartOffset})

	end, err := c.Latest(ctx, "flights", 2)
	require.NoError(t, err)
	assert.Equal(t, int64(2), end)
	_, err = c.Fetch(ctx, "flights", 2, 7, 0, 0)
	var we *wire.Error
	require.ErrorAs(t, err, &we)
	assert.Equal(t, wire.Error{Code: wire.OutOfRange, Message: we.Message, LogEndOffset: 2}, *we)
	_, err = c.Produce(ctx, "nothing", 0, "", value("x"))
	require.ErrorAs(t, err, &we)
	assert.Equal(t, wire.UnknownTopic, we.Code)
	_, err = c.CreateTopic(ctx, wire.CreateTopic{Name: "flights", Partitions: 1})
	require.ErrorAs(t, err, &we)
	assert.Equal(t, wire.TopicExists, we.Code)

	// A waiting fetch is answered when a record comes.
	got := make(chan wire.FetchReply, 1)
	go func() {
		r, err := c.Fetch(ctx, "flights", 2, 2, 0, time.Minute)
		assert.NoError(t, err)
		got <- r
	}()
	_, err = c.Produce(ctx, "flights", 2, "", value("c"))
	require.NoError(t, err)
	assert.Equal(t, "c", string((<-got).Records[0].Value))

	// And everything is there after a restart.
	w.stop(1)
	w.start(1)
	assert.Equal(t, []string{"", "b", "c"}, w.values(w.client(), "flights", 2))
}

func TestClusterReplicatesAndRedirects(t *testing.T) {
	eachController(t, func(t *testing.T, mod func(*server.Config)) {
		w := newNetwork(t, 3, mod)
		c := w.client()
		ctx := t.Context()
		w.eventually("the topic can be made", func() bool {
			_, err := c.CreateTopic(ctx, wire.CreateTopic{Name: "flights", Partitions: 3, Replication: 3})
			return err == nil
		})
		leaders := map[wire.BrokerID]bool{}
		for p := range 3 {
			for i := range 10 {
				_, err := c.Produce(ctx, "flights", p, "all", value(fmt.Sprint(p, "-", i)))
				require.NoError(t, err)
			}
			s, err := c.Status(ctx, "flights", p)
			require.NoError(t, err)
			leaders[s.Leader] = true
			require.Len(t, s.Replicas, 3)
			for _, r := range s.Replicas {
				assert.True(t, r.Known)
				assert.Equal(t, int64(10), r.LogEndOffset)
			}
		}
		assert.Len(t, leaders, 3, "leadership is spread over the brokers")
		for id := wire.BrokerID(1); id <= 3; id++ {
			assert.Len(t, w.values(w.client(id), "flights", 0), 10, "any broker sends the client to the leader")
		}
	})
}

// K4b: what was replicated survives the leader, which comes back as a follower.
func TestLeaderDiesAndComesBack(t *testing.T) {
	w := newNetwork(t, 3, nil)
	c := w.client()
	ctx := t.Context()
	w.eventually("the topic can be made", func() bool {
		_, err := c.CreateTopic(ctx, wire.CreateTopic{Name: "flights", Partitions: 1, Replication: 3})
		return err == nil
	})
	for i := range 5 {
		_, err := c.Produce(ctx, "flights", 0, "all", value(fmt.Sprint(i)))
		require.NoError(t, err)
	}
	before, err := c.Status(ctx, "flights", 0)
	require.NoError(t, err)
	w.stop(before.Leader)
	_, err = c.Produce(ctx, "flights", 0, "all", value("after"))
	require.NoError(t, err)
	after, err := c.Status(ctx, "flights", 0)
	require.NoError(t, err)
	assert.NotEqual(t, before.Leader, after.Leader)
	assert.Greater(t, after.LeaderEpoch, before.LeaderEpoch)
	w.start(before.Leader)
	w.eventually("it is caught up, as a follower", func() bool {
		s, err := c.Status(ctx, "flights", 0)
		require.NoError(t, err)
		for _, r := range s.Replicas {
			if r.Broker == before.Leader && (r.LogEndOffset != 6 || !r.InSync) {
				return false // it may lead again by then: it is the preferred leader
			}
		}
		return s.Leader != 0
	})
	assert.Equal(t, []string{"0", "1", "2", "3", "4", "after"}, w.values(c, "flights", 0))
}

func TestManualFailoverByCommand(t *testing.T) {
	w := newNetwork(t, 3, func(c *server.Config) { c.Controller = "manual" })
	c := w.client()
	ctx := t.Context()
	w.eventually("the topic can be made", func() bool {
		_, err := c.CreateTopic(ctx, wire.CreateTopic{Name: "flights", Partitions: 3, Replication: 3})
		return err == nil
	})
	// Partition 1 is led by broker 2; broker 1 keeps the decisions.
	_, err := c.Produce(ctx, "flights", 1, "all", value("a"))
	require.NoError(t, err)
	var we *wire.Error
	_, err = c.Failover(ctx, "flights", 1)
	require.ErrorAs(t, err, &we)
	assert.Equal(t, wire.LeaderAvailable, we.Code)
	w.stop(2)
	var f wire.FailoverReply
	w.eventually("failover goes through", func() bool { f, err = c.Failover(ctx, "flights", 1); return err == nil })
	assert.Equal(t, []any{wire.BrokerID(2), wire.BrokerID(1), int64(1)}, []any{f.Old, f.New, f.LogEndOffset})
	_, err = c.Produce(ctx, "flights", 1, "all", value("b"))
	require.NoError(t, err)
	w.start(2)
	require.NoError(t, c.Recover(ctx, 2, "flights", 1))
	s, err := c.Status(ctx, "flights", 1)
	require.NoError(t, err)
	assert.Equal(t, []wire.BrokerID{1, 2, 3}, s.ISR)
	assert.Equal(t, wire.BrokerID(1), s.Leader)
	assert.Equal(t, []string{"a", "b"}, w.values(c, "flights", 1))
}

func TestGroupOfTwo(t *testing.T) {
	eachController(t, func(t *testing.T, mod func(*server.Config)) {
		w := newNetwork(t, 3, mod)
		c := w.client()
		ctx := t.Context()
		w.eventually("the topic can be made", func() bool {
			_, err := c.CreateTopic(ctx, wire.CreateTopic{Name: "flights", Partitions: 4, Replication: 3})
			return err == nil
		})
		opt := stream.MemberOptions{Topics: []string{"flights"}, SessionTimeout: 600 * time.Millisecond}
		a, err := c.Stream().JoinGroup(ctx, "dashboards", opt)
		require.NoError(t, err)
		assert.Len(t, a.Assignment(), 4)
		b, err := w.client().Stream().JoinGroup(ctx, "dashboards", opt)
		require.NoError(t, err)
		w.eventually("the partitions are shared", func() bool { return len(a.Assignment()) == 2 && len(b.Assignment()) == 2 })
		for i := range 8 {
			_, err := c.Produce(ctx, "flights", i%4, "all", value(fmt.Sprint(i)))
			require.NoError(t, err)
		}
		seen := map[string]bool{}
		for _, m := range []*stream.Member{a, b} {
			for n := 0; n < 4; {
				records, err := m.Fetch(ctx, 10)
				require.NoError(t, err)
				for _, r := range records {
					seen[string(r.Value)] = true
					n++
				}
			}
			require.NoError(t, m.Commit(ctx))
		}
		assert.Len(t, seen, 8)
		d, err := c.Group(ctx, "dashboards")
		require.NoError(t, err)
		assert.Len(t, d.Members, 2)
		require.Len(t, d.Offsets, 4)
		for _, o := range d.Offsets {
			assert.Equal(t, []int64{2, 2, 0}, []int64{o.Offset, o.HighWatermark, o.Lag})
		}
		names, err := c.Groups(ctx)
		require.NoError(t, err)
		assert.Equal(t, []string{"dashboards"}, names)
		require.NoError(t, b.Close())
		w.eventually("the one that stays takes all", func() bool { return len(a.Assignment()) == 4 })
		require.NoError(t, a.Close())
		var we *wire.Error
		require.ErrorAs(t, c.ResetOffsets(ctx, "dashboards", wire.CommitOffset{Topic: "flights", Partition: 9, Offset: 0}), &we)
		require.NoError(t, c.ResetOffsets(ctx, "dashboards", wire.CommitOffset{Topic: "flights", Partition: 1, Offset: 0}))
		committed, err := c.Committed(ctx, "dashboards")
		require.NoError(t, err)
		assert.Equal(t, int64(0), committed[1].Offset)
	})
}

// cutLeader makes a topic with a record in it, and cuts its leader off from the others.
func (w *network) cutLeader() wire.BrokerID {
	c, ctx := w.client(), w.t.Context()
	w.eventually("the topic can be made", func() bool {
		_, err := c.CreateTopic(ctx, wire.CreateTopic{Name: "flights", Partitions: 1, Replication: 3})
		return err == nil
	})
	_, err := c.Produce(ctx, "flights", 0, "quorum", value("before"))
	require.NoError(w.t, err)
	s, err := c.Status(ctx, "flights", 0)
	require.NoError(w.t, err)
	w.Cut(s.Leader)
	return s.Leader
}

// Two parts of a network that each reckon: both lead, and what the lower epoch took alone
// is lost, acknowledged or not. Demanding two in-sync replicas keeps the promise.
func TestSplitBrain(t *testing.T) {
	for _, acks := range []string{"leader", "quorum"} {
		t.Run(acks, func(t *testing.T) {
			w := newNetwork(t, 3, func(c *server.Config) { c.Controller, c.MinInSync = "first-alive", 2 })
			ctx := t.Context()
			old := w.cutLeader()
			other := old%3 + 1
			w.eventually("the others elect one", func() bool {
				s, err := w.client(other).Status(ctx, "flights", 0)
				return err == nil && s.Leader != old && s.Leader != 0
			})
			w.eventually("the old leader is alone", func() bool {
				s, err := w.client(old).Status(ctx, "flights", 0)
				return err == nil && len(s.ISR) == 1
			})
			alone, err := client.New(client.Options{Brokers: []string{w.Address(old)}, Patience: 200 * time.Millisecond})
			require.NoError(t, err)
			defer alone.Close()
			_, aloneErr := alone.Produce(ctx, "flights", 0, acks, value("to the old leader"))
			_, err = w.client(other).Produce(ctx, "flights", 0, acks, value("to the new leader"))
			require.NoError(t, err)
			w.Heal()
			w.eventually("there is one leader again", func() bool {
				s, err := w.client(old).Status(ctx, "flights", 0)
				return err == nil && s.Leader != old && len(s.ISR) == 3
			})
			assert.Equal(t, []string{"before", "to the new leader"}, w.values(w.client(), "flights", 0))
			if acks == "leader" {
				assert.NoError(t, aloneErr, "acknowledged, and lost")
			} else {
				assert.ErrorContains(t, aloneErr, "at least 2", "nobody was promised anything")
			}
		})
	}
}

// The same with a controller that agrees: the part with fewer brokers has no leader that takes
// writes or serves reads once the other may have one, whatever is asked for.
func TestNoSplitBrainWithAQuorum(t *testing.T) {
	for _, acks := range []string{"leader", "quorum"} {
		t.Run(acks, func(t *testing.T) {
			w := newNetwork(t, 3, func(c *server.Config) { c.Controller = "quorum" })
			ctx := t.Context()
			old := w.cutLeader()
			alone, err := client.New(client.Options{Brokers: []string{w.Address(old)}, Patience: 200 * time.Millisecond})
			require.NoError(t, err)
			defer alone.Close()
			other := old%3 + 1
			w.eventually("the others elect one", func() bool {
				s, err := w.client(other).Status(ctx, "flights", 0)
				return err == nil && s.Leader != old && s.Leader != 0
			})
			_, err = alone.Produce(ctx, "flights", 0, acks, value("to the old leader"))
			require.ErrorContains(t, err, "controller")
			_, err = alone.Fetch(ctx, "flights", 0, 0, 0, 0)
			require.ErrorContains(t, err, "controller", "reads would not show what the new leader takes")
			_, err = w.client(other).Produce(ctx, "flights", 0, acks, value("to the new leader"))
			require.NoError(t, err)
			w.Heal()
			w.eventually("all are in sync again", func() bool {
				s, err := w.client(old).Status(ctx, "flights", 0)
				return err == nil && len(s.ISR) == 3
			})
			assert.Equal(t, []string{"before", "to the new leader"}, w.values(w.client(), "flights", 0))
		})
	}
}

package service_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/controller"
	"logbook/engine/group"
	"logbook/engine/metadata"
	"logbook/engine/node"
	"logbook/engine/replica"
	"logbook/engine/service"
)

var flights = service.Partition{Topic: "flights"}

func TestProduceAndFetch(t *testing.T) {
	b := start(t, 3, nil)
	b.topic("flights", 1, 3)
	leader := b.leader(1, flights)
	at, err := b.produce(leader, flights, "a", "b")
	require.NoError(t, err)
	assert.Equal(t, service.Produced{BaseOffset: 0, Timestamp: b.now}, at)
	_, err = b.produce(leader, flights, "c")
	require.NoError(t, err)

	f := b.fetch(leader, service.Fetch{Partitions: []service.FetchPartition{{Partition: flights, MaxBytes: 1 << 20}}})[0]
	assert.Equal(t, []string{"a", "b", "c"}, values(t, f))
	assert.EqualValues(t, 3, f.Next)
	assert.Equal(t, []int64{0, 3, 1}, []int64{f.Look.LogStartOffset, f.Look.HighWatermark, int64(f.Look.LeaderEpoch)})
}

// A produce has its place when Produce returns, and nothing waits inside.
func TestRequestsOfOneCallerKeepTheirOrder(t *testing.T) {
	b := start(t, 3, nil)
	b.topic("flights", 1, 3)
	leader := b.leader(1, flights)
	var answered []int64
	for i := range 20 {
		q := service.Produce{Topic: "flights", Batch: b.batch(fmt.Sprint(i))}
		b.all[leader].Produce(q, func(at service.Produced, err error) {
			require.NoError(t, err)
			answered = append(answered, at.BaseOffset)
		})
	}
	assert.Empty(t, answered, "work is for Config.Go")
	b.until("all are answered", func() bool { return len(answered) == 20 })
	for i, offset := range answered {
		require.EqualValues(t, i, offset)
	}
}

// One fetch watches many partitions: it is answered when the first of them has a record.
func TestFetchWaitsForAnyOfManyPartitions(t *testing.T) {
	b := start(t, 1, nil)
	b.topic("flights", 50, 1)
	var q service.Fetch
	for i := range 50 {
		q.Partitions = append(q.Partitions, service.FetchPartition{Partition: service.Partition{Topic: "flights", ID: i}, MaxBytes: 1 << 20})
	}
	q.MaxWait = 10 * time.Second
	began := b.now
	for _, f := range b.fetch(1, q) {
		require.Empty(t, values(t, f), "nothing came")
	}
	assert.Equal(t, 10*time.Second, b.now.Sub(began))

	var got reply[[]service.Fetched]
	b.all[1].Fetch(q, func(f []service.Fetched) { got.set(f, nil) })
	b.until("the fetch looks", func() bool { return len(b.queue) == 0 })
	require.Zero(t, got.done)
	began = b.now
	_, err := b.produce(1, service.Partition{Topic: "flights", ID: 33}, "x")
	require.NoError(t, err)
	b.until("an answer", func() bool { return got.done > 0 })
	assert.Less(t, b.now.Sub(began), time.Second)
	assert.Equal(t, []string{"x"}, values(t, got.value[33]))
	assert.Empty(t, values(t, got.value[32]))

	cancel := b.all[1].Fetch(service.Fetch{Partitions: q.Partitions[:1], MaxWait: time.Minute}, func(f []service.Fetched) { got.set(f, nil) })
	began = b.now
	cancel()
	b.until("an answer", func() bool { return got.done > 1 })
	assert.Zero(t, b.now.Sub(began), "who gives up is answered at once")
}

func TestRefusalsHaveCodes(t *testing.T) {
	b := start(t, 3, nil)
	b.topic("flights", 2, 2)
	leader := b.leader(1, flights)
	other := service.BrokerID(1)
	if leader == other {
		other = 2
	}
	produce := func(id service.BrokerID, p service.Partition) error {
		_, err := b.produce(id, p, "x")
		return err
	}
	fetch := func(id service.BrokerID, p service.FetchPartition) error {
		return b.fetch(id, service.Fetch{Partitions: []service.FetchPartition{p}})[0].Err
	}
	create := func(spec controller.TopicSpec) error {
		_, err := await(b, "an answer", func(done func(*metadata.Topic, error)) { b.all[1].CreateTopic(spec, done) })
		return err
	}
	_, err := await(b, "a coordinator", func(done func(service.BrokerID, error)) { b.all[1].FindCoordinator("dashboards", done) })
	if err != nil { // groups' topic was made for it just now
		b.until("the coordinator is ready", func() bool { return len(b.queue) == 0 })
	}
	ask := func(name string, r group.Request) error {
		_, err := await(b, "an answer", func(done func(service.GroupReply, error)) { b.all[1].Group(name, r, done) })
		return err
	}
	for name, c := range map[string]struct {
		err  error
		want service.Code
	}{
		"produce to no topic":        {produce(1, service.Partition{Topic: "trains"}), service.UnknownTopic},
		"produce to no partition":    {produce(1, service.Partition{Topic: "flights", ID: 2}), service.UnknownPartition},
		"produce to below none":      {produce(1, service.Partition{Topic: "flights", ID: -2}), service.UnknownPartition},
		"produce to a follower":      {produce(other, flights), service.NotLeader},
		"produce to the broker's":    {produce(1, service.Partition{Topic: service.GroupsTopic}), service.BadRequest},
		"fetch no topic":             {fetch(1, service.FetchPartition{Partition: service.Partition{Topic: "trains"}}), service.UnknownTopic},
		"fetch from a follower":      {fetch(other, service.FetchPartition{Partition: flights}), service.NotLeader},
		"fetch beyond the end":       {fetch(leader, service.FetchPartition{Partition: flights, Offset: 9}), service.OutOfRange},
		"fetch below zero":           {fetch(leader, service.FetchPartition{Partition: flights, Offset: -1}), service.OutOfRange},
		"a topic twice":              {create(controller.TopicSpec{Name: "flights", Partitions: 1}), service.TopicExists},
		"a topic with a bad name":    {create(controller.TopicSpec{Name: "../up", Partitions: 1}), service.BadRequest},
		"a topic of none":            {create(controller.TopicSpec{Name: "none", Partitions: -1}), service.BadRequest},
		"more replicas than brokers": {create(controller.TopicSpec{Name: "wide", Partitions: 1, Replication: 4}), service.BadRequest},
		"a group with a bad name":    {ask("a/b", group.Request{Kind: group.Heartbeat}), service.BadRequest},
		"a member of no group":       {ask("dashboards", group.Request{Kind: group.Heartbeat, Member: "m"}), service.UnknownMember},
	} {
		assert.Equal(t, c.want, code(t, c.err).Code, "%s: %v", name, c.err)
	}
	assert.EqualValues(t, leader, code(t, produce(other, flights)).Leader, "it says whom to ask")
	e := code(t, fetch(leader, service.FetchPartition{Partition: flights, Offset: 9}))
	assert.Equal(t, []int64{0, 0}, []int64{e.LogStartOffset, e.LogEndOffset}, "it says what there is")
	require.NotContains(t, b.all[1].Image().Topics(), "none")
}

// A group's life: members share partitions, commits are checked against the log, and all of
// it is there after the coordinator's death, on another broker.
func TestGroupSurvivesItsCoordinator(t *testing.T) {
	b := start(t, 3, func(c *service.Config) { c.GroupPartitions = 3 })
	b.topic("flights", 2, 3)
	for i := range 2 {
		p := service.Partition{Topic: "flights", ID: i}
		_, err := b.produce(b.leader(1, p), p, "a", "b", "c")
		require.NoError(t, err)
	}
	name := ""
	find := func(id service.BrokerID) service.BrokerID {
		for range 1000 {
			at, err := await(b, "a coordinator", func(done func(service.BrokerID, error)) { b.all[id].FindCoordinator(name, done) })
			if err == nil {
				return at
			}
			b.turn()
		}
		require.Fail(t, "nobody coordinates", name)
		return replica.None
	}
	at := service.BrokerID(1)
	for i := 0; at == 1; i++ { // broker 1 decides, and must stay
		name = fmt.Sprint("dashboards-", i)
		at = find(1)
	}
	require.Equal(t, at, find(at), "all say the same")
	b.until("it leads the group's partition", func() bool { return len(b.queue) == 0 })
	joined, err := await(b, "a join", func(done func(service.GroupReply, error)) {
		b.all[at].Join(name, group.Request{Topics: []string{"flights"}, SessionTimeout: 10 * time.Second}, done)
	})
	require.NoError(t, err)
	ask := func(r group.Request) (service.GroupReply, error) {
		r.Member, r.Generation = joined.Member, joined.Generation
		return await(b, "an answer", func(done func(service.GroupReply, error)) { b.all[at].Group(name, r, done) })
	}
	synced, err := ask(group.Request{Kind: group.Sync})
	require.NoError(t, err)
	assert.Len(t, synced.Partitions, 2)
	_, err = ask(group.Request{Kind: group.Commit, Offsets: map[service.Partition]int64{flights: 2}})
	require.NoError(t, err)
	_, err = ask(group.Request{Kind: group.Commit, Offsets: map[service.Partition]int64{flights: 1}})
	assert.Equal(t, service.Regression, code(t, err).Code)
	_, err = await(b, "an answer", func(done func(struct{}, error)) {
		b.all[at].SetOffsets(name, map[service.Partition]int64{flights: 0}, true, func(err error) { done(struct{}{}, err) })
	})
	assert.Equal(t, service.BadRequest, code(t, err).Code, "it has a member: %v", err)

	names, _ := await(b, "groups", func(done func([]string, error)) { b.all[1].Groups(func(all []string) { done(all, nil) }) })
	assert.Equal(t, []string{name}, names, "as another broker hears")
	d, err := await(b, "a group", func(done func(service.GroupDescription, error)) { b.all[at].DescribeGroup(name, done) })
	require.NoError(t, err)
	require.Len(t, d.Members, 1)
	assert.Equal(t, joined.Member, d.Members[0].ID)

	var internal service.Partition
	for i := range 3 {
		p := service.Partition{Topic: service.GroupsTopic, ID: i}
		if b.leader(1, p) == at {
			internal = p
		}
	}
	b.kill(at)
	failover, err := await(b, "a failover", func(done func(controller.FailoverResult, error)) { b.all[1].Failover(internal, done) })
	require.NoError(t, err)
	require.NotEqual(t, at, failover.New)
	b.until("it leads", func() bool { return b.leader(failover.New, internal) == failover.New && len(b.queue) == 0 })
	old := joined.Epoch
	at = find(find(1))
	beat, err := ask(group.Request{Kind: group.Heartbeat})
	require.NoError(t, err, "the member did not notice")
	assert.Greater(t, beat.Epoch, old)
	committed, err := await(b, "offsets", func(done func(map[service.Partition]int64, error)) {
		b.all[at].Committed(name, beat.Epoch, done)
	})
	require.NoError(t, err)
	assert.Equal(t, map[service.Partition]int64{flights: 2}, committed)
}

// Manual failover: the records that were acknowledged are there, the old leader follows
// when it is back, and is in sync again when it is told to recover.
func TestFailoverAndRecovery(t *testing.T) {
	b := start(t, 3, func(c *service.Config) { c.Acks, c.MinInSync = replica.Quorum, 2 })
	b.topic("flights", 3, 3)
	var p service.Partition
	for i := range 3 { // one that the deciding broker does not lead
		if p = (service.Partition{Topic: "flights", ID: i}); b.leader(1, p) != 1 {
			break
		}
	}
	old := b.leader(1, p)
	_, err := b.produce(old, p, "a", "b")
	require.NoError(t, err)
	_, err = await(b, "a failover", func(done func(controller.FailoverResult, error)) { b.all[1].Failover(p, done) })
	assert.Equal(t, service.LeaderAvailable, code(t, err).Code)

	b.kill(old)
	f, err := await(b, "a failover", func(done func(controller.FailoverResult, error)) { b.all[1].Failover(p, done) })
	require.NoError(t, err)
	assert.Equal(t, []any{old, int64(2), int32(2)}, []any{f.Old, f.LogEndOffset, f.LeaderEpoch})
	b.until("the new leader knows", func() bool { return b.leader(f.New, p) == f.New && len(b.queue) == 0 })
	_, err = b.produce(f.New, p, "c")
	require.NoError(t, err)

	b.open(old)
	b.until("the old leader knows", func() bool { return b.leader(old, p) == f.New })
	_, err = b.produce(old, p, "x")
	assert.Equal(t, service.NotLeader, code(t, err).Code)
	b.until("it is in sync again", func() bool {
		a, _ := b.all[1].Image().Assignment(p)
		return len(a.ISR) == 3
	})
	got := b.fetch(f.New, service.Fetch{Partitions: []service.FetchPartition{{Partition: p, MaxBytes: 1 << 20}}})[0]
	assert.Equal(t, []string{"a", "b", "c"}, values(t, got))
}

// Whoever waits when the service closes is answered, once.
func TestCloseAnswersWhoeverWaits(t *testing.T) {
	b := start(t, 3, func(c *service.Config) { c.Acks = replica.AllInSync })
	b.topic("flights", 1, 3)
	leader := b.leader(1, flights)
	b.mute = true
	var wrote reply[service.Produced]
	b.all[leader].Produce(service.Produce{Topic: "flights", Batch: b.batch("x")}, wrote.set)
	var read reply[[]service.Fetched]
	q := service.Fetch{Partitions: []service.FetchPartition{{Partition: flights}}, MaxWait: time.Minute}
	b.all[leader].Fetch(q, func(f []service.Fetched) { read.set(f, nil) })
	b.until("all work is done", func() bool { return len(b.queue) == 0 })
	require.Zero(t, wrote.done+read.done, "they wait")
	require.NoError(t, b.close(leader))
	assert.Equal(t, 1, wrote.done)
	require.Error(t, wrote.err)
	assert.Equal(t, 1, read.done)
	require.ErrorIs(t, b.all[leader].Close(), service.ErrClosed)
}

// Offsets are found, and records removed, up to the high watermark and no further.
func TestOffsetsAndDeletion(t *testing.T) {
	b := start(t, 1, nil)
	b.topic("flights", 1, 1)
	var times []time.Time
	for i := range 5 {
		b.now = b.now.Add(time.Minute)
		times = append(times, b.now)
		_, err := b.produce(1, flights, fmt.Sprint(i))
		require.NoError(t, err)
	}
	find := func(where service.Where, at time.Time) int64 {
		offset, err := await(b, "an offset", func(done func(int64, error)) {
			b.all[1].ListOffset(flights, where, at, func(offset int64, _ node.Look, err error) { done(offset, err) })
		})
		require.NoError(t, err)
		return offset
	}
	remove := func(below int64) int64 {
		first, err := await(b, "a deletion", func(done func(int64, error)) { b.all[1].DeleteRecords(flights, below, done) })
		require.NoError(t, err)
		return first
	}
	assert.EqualValues(t, 0, find(service.Earliest, time.Time{}))
	assert.EqualValues(t, 5, find(service.Latest, time.Time{}))
	assert.EqualValues(t, 3, find(service.AtTime, times[3]))
	assert.EqualValues(t, 3, find(service.AtTime, times[2].Add(time.Second)))
	assert.EqualValues(t, 5, find(service.AtTime, times[4].Add(time.Second)))
	assert.EqualValues(t, 0, find(service.AtTime, time.Time{}))
	assert.EqualValues(t, 2, remove(2))
	assert.EqualValues(t, 2, find(service.Earliest, time.Time{}))
	assert.EqualValues(t, 2, remove(1), "it never goes back")
	assert.EqualValues(t, 5, remove(99))
	f := b.fetch(1, service.Fetch{Partitions: []service.FetchPartition{{Partition: flights, Offset: 4}}})[0]
	assert.Equal(t, []int64{5, 5}, []int64{code(t, f.Err).LogStartOffset, code(t, f.Err).LogEndOffset})
}

// A leader that was away may have lost records that were not synced, and gives their offsets
// out again: the epoch tells the new ones from the old.
func TestLeaderThatStartsAgainBeginsAnEpoch(t *testing.T) {
	b := start(t, 1, nil)
	b.topic("flights", 1, 1)
	_, err := b.produce(1, flights, "a")
	require.NoError(t, err)
	before, _ := b.all[1].Image().Assignment(flights)
	b.kill(1)
	b.open(1)
	b.until("it has started", func() bool { _, err := b.all[1].Topics("flights"); return err == nil && len(b.queue) == 0 })
	after, _ := b.all[1].Image().Assignment(flights)
	assert.Equal(t, before.LeaderEpoch+1, after.LeaderEpoch)
	at, err := b.produce(1, flights, "b")
	require.NoError(t, err)
	assert.EqualValues(t, 1, at.BaseOffset)
}

package service_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/commitlog"
	"logbook/engine/controller"
	"logbook/engine/metadata"
	"logbook/engine/replica"
	"logbook/engine/service"
	"logbook/engine/topic"
	"logbook/engine/vfs"
)

func (b *brokers) change(c controller.TopicChange) error {
	b.t.Helper()
	_, err := await(b, "a change", func(done func(int, error)) { b.all[1].ChangeTopic(c, func(err error) { done(0, err) }) })
	return err
}

// settled waits until all who are up know what is so.
func (b *brokers) settled(what string, so func(*metadata.Image) bool) {
	b.t.Helper()
	b.until(what, func() bool {
		for id, s := range b.all {
			if !b.down[id] && !so(s.Image()) {
				return false
			}
		}
		return len(b.queue) == 0
	})
}

// put stores a value with whoever leads, perhaps more than once.
func (b *brokers) put(p service.Partition, value string) {
	b.t.Helper()
	b.until("somebody takes records", func() bool {
		leader := b.leader(1, p)
		if leader == replica.None || b.down[leader] {
			return false
		}
		_, err := b.produce(leader, p, value)
		return err == nil
	})
}

func value(s string) *string { return &s }

// Topics are deleted, made again, widened and set, with every controller, and broker 3 may
// be away meanwhile.
func TestTopicsChange(t *testing.T) {
	for _, kind := range []string{"manual", "first-alive"} {
		t.Run(kind, func(t *testing.T) {
			b := start(t, 3, func(c *service.Config) { c.Controller = kind })
			b.topic("flights", 2, 3)
			for i := range 3 {
				b.put(flights, fmt.Sprint("old ", i))
			}
			require.NoError(t, b.change(controller.TopicChange{Name: "flights", Partitions: 5, Settings: map[string]*string{"retention.ms": value("60000")}}))
			b.settled("five partitions", func(i *metadata.Image) bool {
				t := i.Topic("flights")
				return t != nil && len(t.Partitions) == 5 && t.Settings["retention.ms"] == "60000"
			})
			last := service.Partition{Topic: "flights", ID: 4}
			b.put(last, "x")

			for what, err := range map[string]error{
				"fewer":       b.change(controller.TopicChange{Name: "flights", Partitions: 3}),
				"no setting":  b.change(controller.TopicChange{Name: "flights", Settings: map[string]*string{"retention": value("1")}}),
				"bad value":   b.change(controller.TopicChange{Name: "flights", Settings: map[string]*string{"retention.ms": value("soon")}}),
				"the brokers": b.change(controller.TopicChange{Name: "__groups", Delete: true}),
			} {
				assert.Equal(t, service.BadRequest, code(t, err).Code, what)
			}
			assert.Equal(t, service.UnknownTopic, code(t, b.change(controller.TopicChange{Name: "nothing", Delete: true})).Code)

			b.kill(3)
			b.pass(3 * time.Second)
			require.NoError(t, b.change(controller.TopicChange{Name: "flights", Delete: true}))
			b.settled("it is gone", func(i *metadata.Image) bool { return i.Topic("flights") == nil })
			_, err := b.produce(1, flights, "x")
			assert.Equal(t, service.UnknownTopic, code(t, err).Code)
			for id := service.BrokerID(1); id <= 2; id++ {
				for _, f := range b.disks[id].Files("data") {
					require.NotContains(t, f, "flights", "its files go too")
				}
			}
			b.open(3)
			b.until("broker 3 hears of it", func() bool {
				return b.all[3].Image().Topic("flights") == nil && !slices.ContainsFunc(b.disks[3].Files("data"), func(f string) bool { return strings.Contains(f, "flights") })
			})

			b.topic("flights", 1, 3)
			b.put(flights, "new")
			assert.Equal(t, []string{"new"}, slices.Compact(b.read(flights)))

			for id := service.BrokerID(1); id <= 3; id++ { // and all of it lasts
				require.NoError(t, b.close(id))
			}
			for id := service.BrokerID(1); id <= 3; id++ {
				b.open(id)
			}
			b.put(flights, "after")
			assert.Equal(t, []string{"new", "after"}, slices.Compact(b.read(flights)))
		})
	}
}

// One topic made on both sides of a cut becomes one when the sides hear each other again.
func TestTwoTopicsOfOneNameBecomeOne(t *testing.T) {
	b := start(t, 2, func(c *service.Config) { c.Controller = "first-alive" })
	b.mute = true
	b.pass(5 * time.Second)
	for id, n := range map[service.BrokerID]int{1: 1, 2: 3} {
		_, err := await(b, "a topic", func(done func(*metadata.Topic, error)) {
			b.all[id].CreateTopic(controller.TopicSpec{Name: "dup", Partitions: n, Replication: 2}, done)
		})
		require.NoError(t, err)
	}
	b.mute = false
	var ids []topic.ID
	b.settled("both know the same", func(*metadata.Image) bool {
		one, two := b.all[1].Image().Topic("dup"), b.all[2].Image().Topic("dup")
		ids = []topic.ID{one.ID, two.ID}
		return len(one.Partitions) == 3 && len(two.Partitions) == 3 && one.ID == two.ID
	})
	assert.Equal(t, ids[0], ids[1])
	for i := range 3 {
		p := service.Partition{Topic: "dup", ID: i}
		b.put(p, "x")
	}
}

// Clients that write to a topic that is not there yet do it on several brokers at once: those
// make one topic, whose id no client sees change. Made again after it was deleted, it is another.
func TestTopicsMadeByClientsAreOne(t *testing.T) {
	b := start(t, 2, func(c *service.Config) { c.Controller = "first-alive" })
	make := func() topic.ID {
		var made []topic.ID
		for id := service.BrokerID(1); id <= 2; id++ {
			b.all[id].AutoCreateTopic("flights", 2, func(err error) {
				if err == nil { // or it has heard of the other's already
					made = append(made, b.all[id].Image().Topic("flights").ID)
				}
			})
		}
		b.settled("it is there", func(i *metadata.Image) bool { return i.Topic("flights") != nil })
		b.until("one has made it", func() bool { return len(made) > 0 })
		for _, id := range append(made, b.all[1].Image().Topic("flights").ID, b.all[2].Image().Topic("flights").ID) {
			require.Equal(t, made[0], id)
		}
		return made[0]
	}
	first := make()
	require.NoError(t, b.change(controller.TopicChange{Name: "flights", Delete: true}))
	b.settled("it is gone", func(i *metadata.Image) bool { return i.Topic("flights") == nil })
	assert.NotEqual(t, first, make())

	_, err := await(b, "an answer", func(done func(int, error)) {
		b.all[1].AutoCreateTopic("__groups", 1, func(err error) { done(0, err) })
	})
	assert.Equal(t, service.BadRequest, code(t, err).Code)
}

// Where one broker makes topics, a client may write to any: it is asked.
func TestTopicsMadeByClientsOfAnyBroker(t *testing.T) {
	for _, controller := range []string{"manual", "quorum"} {
		b := start(t, 3, func(c *service.Config) { c.Controller = controller })
		b.until("the brokers count", func() bool {
			return b.all[1].Image().Usable(1) && b.all[1].Image().Usable(2) && b.all[1].Image().Usable(3)
		})
		for id := service.BrokerID(1); id <= 3; id++ {
			name := fmt.Sprint("topic-", id)
			_, err := await(b, "an answer", func(done func(int, error)) {
				b.all[id].AutoCreateTopic(name, 1, func(err error) { done(0, err) })
			})
			require.NoError(t, err, "%s, through broker %d", controller, id)
			b.settled("all know it", func(i *metadata.Image) bool { return i.Topic(name) != nil })
			_, err = await(b, "an answer", func(done func(int, error)) {
				b.all[id].AutoCreateTopic(name, 1, func(err error) { done(0, err) })
			})
			assert.Equal(t, service.TopicExists, code(t, err).Code)
		}
	}
}

// Listeners may be open before a broker starts, and a client quicker than it is.
func TestCommandsOfBeforeTheStart(t *testing.T) {
	for _, kind := range []string{"manual", "first-alive"} {
		s, err := service.Open(service.Config{
			ID: 1, Dir: "data", Brokers: []service.BrokerID{1}, Controller: kind, Acks: replica.Quorum, Log: commitlog.Options{FS: vfs.NewMem()},
		})
		require.NoError(t, err)
		made := make(chan error, 1)
		s.CreateTopic(controller.TopicSpec{Name: "flights", Partitions: 1, Replication: 1}, func(_ *metadata.Topic, err error) { made <- err })
		s.Start()
		require.NoError(t, <-made, kind)
		s.CreateTopic(controller.TopicSpec{Name: "flights", Partitions: 1, Replication: 1}, func(_ *metadata.Topic, err error) { made <- err })
		assert.Equal(t, service.TopicExists, code(t, <-made).Code, kind)
		require.NoError(t, s.Close())
	}
}

// Who waits for a start that never comes is answered.
func TestCommandsOfABrokerThatNeverStarts(t *testing.T) {
	s, err := service.Open(service.Config{ID: 1, Dir: "data", Brokers: []service.BrokerID{1}, Controller: "manual", Log: commitlog.Options{FS: vfs.NewMem()}})
	require.NoError(t, err)
	made := make(chan error, 1)
	s.CreateTopic(controller.TopicSpec{Name: "flights", Partitions: 1, Replication: 1}, func(_ *metadata.Topic, err error) { made <- err })
	require.NoError(t, s.Close())
	assert.Error(t, <-made)
}

// An article's experiment: segments of 2 KB and 5 KB to keep, through a broker.
func TestRetentionOfATopicActs(t *testing.T) {
	b := start(t, 1, nil)
	spec := controller.TopicSpec{Name: "flights", Partitions: 1, Settings: topic.Settings{"segment.bytes": "2048", "retention.bytes": "5120"}}
	_, err := await(b, "a topic", func(done func(*metadata.Topic, error)) { b.all[1].CreateTopic(spec, done) })
	require.NoError(t, err)
	for i := range 100 {
		_, err := b.produce(1, flights, fmt.Sprintf("%0100d", i))
		require.NoError(t, err)
	}
	look := func() (start, end int64) {
		f := b.fetch(1, service.Fetch{Partitions: []service.FetchPartition{{Partition: flights, Offset: 99, MaxBytes: 1}}})[0]
		require.NoError(t, f.Err)
		return f.Look.LogStartOffset, f.Look.LogEndOffset
	}
	b.pass(time.Minute)
	start, end := look()
	assert.Equal(t, int64(100), end)
	assert.InDelta(t, 100-5120/170-5, start, 8, "about 5 KB are left, of 170 bytes a batch")

	// By age: also what is in the active segment, once it is old.
	require.NoError(t, b.change(controller.TopicChange{Name: "flights", Settings: map[string]*string{"retention.ms": value("60000"), "retention.bytes": nil}}))
	b.pass(5 * time.Minute)
	start, end = look99(b)
	assert.Equal(t, end, start)
}

func look99(b *brokers) (start, end int64) {
	f := b.fetch(1, service.Fetch{Partitions: []service.FetchPartition{{Partition: flights, Offset: 100, MaxBytes: 1}}})[0]
	return f.Look.LogStartOffset, f.Look.LogEndOffset
}

// A compacted topic keeps the last record of each key, on every replica.
func TestCompactedTopic(t *testing.T) {
	b := start(t, 3, nil)
	spec := controller.TopicSpec{Name: "flights", Partitions: 1, Settings: topic.Settings{"cleanup.policy": "compact", "segment.bytes": "1024"}}
	_, err := await(b, "a topic", func(done func(*metadata.Topic, error)) { b.all[1].CreateTopic(spec, done) })
	require.NoError(t, err)
	for i := range 100 {
		b.until("it is stored", func() bool {
			q := service.Produce{Topic: "flights", Batch: b.keyed(fmt.Sprint("k", i%5), fmt.Sprint(i))}
			_, err := await(b, "a produce", func(done func(service.Produced, error)) { b.all[b.leader(1, flights)].Produce(q, done) })
			return err == nil
		})
	}
	b.pass(2 * time.Minute)
	got := b.read(flights)
	assert.Less(t, len(got), 40)
	for _, want := range []string{"95", "96", "97", "98", "99"} {
		assert.Contains(t, got, want)
	}
	for id := range b.all {
		n := 0
		for _, err := range b.all[id].Own(flights) {
			require.NoError(t, err)
			n++
		}
		assert.Less(t, n, 40, "broker %d", id)
	}
}

// A commit below one that is beyond the end of the log is no step back: those records are
// gone. The coordinator asks the partition's leader, who may be another broker.
func TestCommitBelowOneThatIsBeyondTheEnd(t *testing.T) {
	for _, brokersUp := range []int{1, 3} {
		b := start(t, brokersUp, nil)
		b.topic("flights", 3, 1)
		b.until("groups have their topic", func() bool {
			_, err := await(b, "a coordinator", func(done func(service.BrokerID, error)) { b.all[1].FindCoordinator("g", done) })
			return err == nil
		})
		var at service.BrokerID
		b.until("somebody coordinates", func() bool {
			var err error
			at, err = await(b, "a coordinator", func(done func(service.BrokerID, error)) { b.all[1].FindCoordinator("g", done) })
			return err == nil && at != 0
		})
		set := func(reset bool, offset int64) error {
			offsets := map[service.Partition]int64{}
			for i := range 3 { // led by different brokers, where there are some
				offsets[service.Partition{Topic: "flights", ID: i}] = offset
			}
			_, err := await(b, "a commit", func(done func(int, error)) {
				b.all[at].SetOffsets("g", offsets, reset, func(err error) { done(0, err) })
			})
			return err
		}
		for i := range 3 {
			for range 10 {
				b.put(service.Partition{Topic: "flights", ID: i}, "x")
			}
		}
		b.until("it is committed", func() bool { return set(false, 10) == nil })
		assert.Equal(t, service.Regression, code(t, set(false, 5)).Code, "progress never goes back")
		require.NoError(t, b.change(controller.TopicChange{Name: "flights", Delete: true}))
		b.settled("it is gone", func(i *metadata.Image) bool { return i.Topic("flights") == nil })
		b.topic("flights", 3, 1)
		for i := range 3 {
			for range 3 {
				b.put(service.Partition{Topic: "flights", ID: i}, "y")
			}
		}
		require.NoError(t, set(false, 3), "with %d brokers", brokersUp)
		assert.Equal(t, service.Regression, code(t, set(false, 1)).Code)
	}
}

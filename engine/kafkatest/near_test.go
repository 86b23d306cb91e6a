package kafkatest_test

import (
	"crypto/rand"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"logbook/engine/kafkatest"
	"logbook/engine/server"
)

// fetches counts the bytes of fetches by the broker that answered.
type fetches struct {
	mu    sync.Mutex
	bytes map[int32]int
}

var _ kgo.HookBrokerRead = (*fetches)(nil)

// OnBrokerRead implements kgo.HookBrokerRead.
func (f *fetches) OnBrokerRead(b kgo.BrokerMetadata, key int16, n int, _, _ time.Duration, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if key == 1 && err == nil {
		f.bytes[b.NodeID] += n
	}
}

func (f *fetches) from(id int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bytes[int32(id)]
}

// A consumer reads from the replica in its own rack, and gets there all that the leader has; when
// that replica's broker is gone, or the rack has none, it reads from the leader.
func TestConsumersReadWhatIsNear(t *testing.T) {
	c := kafkatest.Start(t, kafkatest.Options{Brokers: 3, Configure: func(id int, c *server.Config) { c.Rack = fmt.Sprint("rack-", id) }})
	p := client(t, c)
	value := make([]byte, 1000)
	_, err := rand.Read(value) // which no compression makes smaller
	require.NoError(t, err)
	write := func(n int) {
		for range n {
			require.NoError(t, p.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: value}).FirstErr())
		}
	}
	require.NoError(t, p.Ping(t.Context()))
	require.Eventually(t, func() bool {
		image := c.Server(1).Service().Image()
		return image.Usable(1) && image.Usable(2) && image.Usable(3)
	}, 20*time.Second, 5*time.Millisecond)
	write(50)
	leader := c.Leader("t", 0)
	near := leader%3 + 1
	require.Eventually(t, func() bool {
		a := c.Server(leader).Service().Image().Topic("t").Partitions[0]
		return len(a.ISR) == 3
	}, 20*time.Second, 5*time.Millisecond)

	count := &fetches{bytes: map[int32]int{}}
	k := client(t, c, kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.Rack(fmt.Sprint("rack-", near)), kgo.WithHooks(count),
		kgo.RecheckPreferredReplicaInterval(time.Second)) // this client asks the leader again by that alone
	assert.Len(t, readAll(t, k, 50)[0], 50)
	write(50) // while it waits there
	assert.Len(t, readAll(t, k, 50)[0], 50)
	assert.Greater(t, count.from(near), 100*len(value), "from broker %d", near)
	assert.Less(t, count.from(leader), 10*len(value), "from the leader, %d", leader)

	c.Crash(near)
	write(50)
	assert.Len(t, readAll(t, k, 50)[0], 50, "it goes to the leader")
	assert.Greater(t, count.from(leader), 50*len(value))

	other := &fetches{bytes: map[int32]int{}}
	far := client(t, c, kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.Rack("elsewhere"), kgo.WithHooks(other))
	assert.Len(t, readAll(t, far, 150)[0], 150)
	assert.Greater(t, other.from(c.Leader("t", 0)), 150*len(value))
}

// What a follower does not know to be safe it does not serve, and it takes no offset for one that
// does not exist because it lags: whoever is ahead of it waits, or goes to the leader.
func TestAFollowerServesOnlyWhatIsSafe(t *testing.T) {
	c := kafkatest.Start(t, kafkatest.Options{Brokers: 3, Configure: func(id int, c *server.Config) {
		c.Rack = fmt.Sprint("rack-", id)
		c.LagTimeout = time.Minute // who lags stays in sync
	}})
	p := client(t, c)
	require.NoError(t, p.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: []byte("a")}).FirstErr())
	leader := c.Leader("t", 0)
	near := leader%3 + 1
	require.Eventually(t, func() bool { return len(c.Server(leader).Service().Image().Topic("t").Partitions[0].ISR) == 3 }, 20*time.Second, 5*time.Millisecond)
	k := client(t, c, kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.Rack(fmt.Sprint("rack-", near)))
	assert.Len(t, readAll(t, k, 1)[0], 1)
	for range 20 {
		require.NoError(t, p.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: []byte("a")}).FirstErr())
	}
	got := readAll(t, k, 20)[0]
	assert.Len(t, got, 20)
}

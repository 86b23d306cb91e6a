package stream_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"logbook/engine"
	"logbook/engine/client"
	"logbook/engine/kafkaclient"
	"logbook/engine/kafkatest"
	"logbook/engine/server/servertest"
	"logbook/engine/stream"
	"logbook/engine/streamtest"
)

// Everything that a program sees must be the same, whatever a stream.Client is over.
func TestEveryLogIsTheSame(t *testing.T) {
	whole := streamtest.Traits{Partitioners: true, ShortSessions: true}
	t.Run("a directory", func(t *testing.T) { streamtest.Test(t, openDirectory, whole) })
	t.Run("brokers", func(t *testing.T) { streamtest.Test(t, openBrokers, whole) })
	t.Run("Kafka's protocol", func(t *testing.T) { streamtest.Test(t, openListener, streamtest.Traits{}) })
	t.Run("Apache Kafka", func(t *testing.T) {
		if apacheKafka == "" {
			t.Skip("LOGBOOK_TEST_KAFKA is not set; make kafka runs this")
		}
		streamtest.Test(t, openKafka, streamtest.Traits{})
	})
}

func openDirectory(t *testing.T) *stream.Client {
	e, err := engine.Open(t.TempDir(), engine.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { e.Close() })
	return e.Client
}

func openBrokers(t *testing.T) *stream.Client {
	n, err := servertest.Start(t.TempDir(), 1, nil)
	require.NoError(t, err)
	s, err := client.Dial(client.Options{Brokers: n.Addresses()})
	require.NoError(t, err)
	t.Cleanup(func() {
		s.Close()
		require.NoError(t, n.Close())
	})
	return s.Client
}

func openListener(t *testing.T) *stream.Client {
	c := kafkatest.Start(t, kafkatest.Options{Brokers: 1})
	k, err := kafkaclient.Dial(kafkaclient.Options{Brokers: c.Addrs()})
	require.NoError(t, err)
	t.Cleanup(func() { k.Close() })
	return k.Client
}

// apacheKafka is the address of a Kafka broker to try all this on as well. Its topics and
// groups are deleted. make kafka starts one, where Java is there.
var apacheKafka = os.Getenv("LOGBOOK_TEST_KAFKA")

// openKafka empties the broker, and connects.
func openKafka(t *testing.T) *stream.Client {
	c, err := kgo.NewClient(kgo.SeedBrokers(apacheKafka))
	require.NoError(t, err)
	defer c.Close()
	admin := kadm.NewClient(c)
	groups, err := admin.ListGroups(t.Context())
	require.NoError(t, err)
	for _, g := range groups.Groups() {
		_, err := admin.DeleteGroup(t.Context(), g)
		require.NoError(t, err)
	}
	topics, err := admin.ListTopics(t.Context())
	require.NoError(t, err)
	_, err = admin.DeleteTopics(t.Context(), topics.Names()...)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		topics, err := admin.ListTopics(t.Context())
		return err == nil && len(topics) == 0
	}, 20*time.Second, 20*time.Millisecond)
	k, err := kafkaclient.Dial(kafkaclient.Options{Brokers: []string{apacheKafka}})
	require.NoError(t, err)
	t.Cleanup(func() { k.Close() })
	return k.Client
}

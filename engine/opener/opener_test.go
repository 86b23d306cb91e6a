package opener_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/failure"
	"logbook/engine/kafkatest"
	"logbook/engine/opener"
	"logbook/engine/record"
	"logbook/engine/server/servertest"
	"logbook/engine/stream"
	"logbook/engine/topic"
)

// The same program, on three logs: only the address differs.
func TestOneProgramOnEach(t *testing.T) {
	brokers, err := servertest.Start(t.TempDir(), 1, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, brokers.Close()) })
	kafka := kafkatest.Start(t, kafkatest.Options{Brokers: 1})
	for kind, where := range map[opener.Kind]string{
		opener.Directory: filepath.Join(t.TempDir(), "data"),
		opener.Brokers:   "logbook://" + brokers.Addresses()[0],
		opener.Kafka:     "kafka://" + kafka.Bootstrap(),
	} {
		t.Run(string(kind), func(t *testing.T) {
			log, err := opener.Open(where)
			require.NoError(t, err)
			assert.Equal(t, kind, log.Kind())
			flights, err := log.CreateTopic(t.Context(), "flights", 2, nil)
			require.NoError(t, err)
			for i := range 10 {
				_, err := flights.AppendTo(t.Context(), i%2, record.Record{Value: fmt.Append(nil, i)})
				require.NoError(t, err)
			}
			member, err := log.JoinGroup(t.Context(), "dashboards", stream.MemberOptions{Topics: []string{"flights"}, Reset: stream.ResetToEarliest})
			require.NoError(t, err)
			seen := map[string]bool{}
			for len(seen) < 10 {
				records, err := member.Fetch(t.Context(), 100)
				require.NoError(t, err)
				for _, r := range records {
					seen[string(r.Value)] = true
				}
			}
			require.NoError(t, member.Commit(t.Context()))
			require.NoError(t, member.Close())
			offset, ok, err := log.Committed(t.Context(), "dashboards", "flights", 1)
			require.NoError(t, err)
			assert.Equal(t, []any{int64(5), true}, []any{offset, ok})

			_, err = log.CreateTopic(t.Context(), "hashed", 1, topic.SHA256)
			if log.Capabilities().Partitioners {
				require.NoError(t, err)
			} else {
				var e *failure.Error
				require.ErrorAs(t, err, &e)
				assert.Equal(t, failure.BadRequest, e.Code)
			}
			require.NoError(t, log.Close())
		})
	}
}

func TestAddresses(t *testing.T) {
	secret := "very-secret-indeed"
	for where, want := range map[string]string{
		"mysql://host:1":                                "a directory, logbook://, kafka://",
		"kafka://host":                                  `"host" is no host:port`,
		"kafka://a,b:1":                                 `"a" is no host:port`,
		"kafka://a:1/topic":                             `here is "/topic"`,
		"kafka://a:1?tsl=true":                          `no setting "tsl"`,
		"logbook://a:1?sasl=plain":                      `no setting "sasl" for logbook://`,
		"kafka://a:1?tls=yes":                           "true or false",
		"kafka://u:" + secret + "@a:1?sasl=kerberos":    "sasl=kerberos",
		"kafka://u:" + secret + "@a:1?ca=/no/such/file": "no such file",
		"kafka://u:" + secret + "@a b:1":                "no URL",
		"":                                              "no directory is given",
	} {
		_, err := opener.Open(where)
		require.ErrorContains(t, err, want, where)
		assert.NotContains(t, err.Error(), secret, "a password is nobody's business")
	}
	for _, where := range []string{"kafka://u:p@a:9092,b:9092?sasl=scram-sha-512", "logbook://:token@a:1", "kafka://a:1?tls=false"} {
		log, err := opener.Open(where)
		require.NoError(t, err, where)
		require.NoError(t, log.Close())
	}
}

func TestForeignDirectories(t *testing.T) {
	for where, want := range map[string]string{
		"pystream://" + t.TempDir():               "no topic",
		"kafka-lite:///nowhere":                   "no such file",
		"pystream://x?compression=none":           `no setting "compression"`,
		"pystream://" + t.TempDir() + "?offsets=": "no topic",
	} {
		_, err := opener.Open(where)
		require.ErrorContains(t, err, want, where)
	}
}

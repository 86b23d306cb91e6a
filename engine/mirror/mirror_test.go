package mirror_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/kafkatest"
	"logbook/engine/mirror"
	"logbook/engine/opener"
	"logbook/engine/record"
	"logbook/engine/server/servertest"
	"logbook/engine/stream"
)

func open(t *testing.T, where string) *opener.Log {
	t.Helper()
	log, err := opener.Open(where)
	require.NoError(t, err)
	t.Cleanup(func() { log.Close() })
	return log
}

func directory(t *testing.T) *opener.Log { return open(t, filepath.Join(t.TempDir(), "data")) }

// fill makes a topic of three partitions, with everything that a record may have. The front
// of one partition is gone, and a group has committed.
func fill(t *testing.T, log *opener.Log, n int) {
	t.Helper()
	h, err := log.CreateTopic(t.Context(), "flights", 3, nil)
	require.NoError(t, err)
	began := time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range n {
		r := record.Record{Timestamp: began.Add(time.Duration(i) * time.Second), Value: fmt.Appendf(nil, "value %d", i)}
		switch i % 4 {
		case 1:
			r.Key = fmt.Appendf(nil, "key %d", i)
		case 2:
			r.Key, r.Value = []byte{}, nil // a tombstone with an empty key
		case 3:
			r.Headers = []record.Header{{Key: "h", Value: []byte{0xff, 0}}, {Key: "h", Value: nil}}
		}
		_, err := h.AppendTo(t.Context(), i%3, r)
		require.NoError(t, err)
	}
	_, err = log.DeleteRecords(t.Context(), "flights", 1, 4)
	require.NoError(t, err)
	require.NoError(t, log.SetOffsets(t.Context(), "dashboards", map[stream.Partition]int64{{Topic: "flights", ID: 0}: 5, {Topic: "flights", ID: 1}: 6, {Topic: "flights", ID: 2}: int64(n / 3)}))
}

func digests(t *testing.T, log *opener.Log) []mirror.Digest {
	t.Helper()
	d, err := mirror.Digests(t.Context(), log.Client)
	require.NoError(t, err)
	return d
}

// A log goes out into the world and comes home as it was.
func TestThereAndBack(t *testing.T) {
	home := directory(t)
	fill(t, home, 300)
	brokers, err := servertest.Start(t.TempDir(), 1, nil)
	require.NoError(t, err)
	t.Cleanup(func() { brokers.Close() })
	kafka := kafkatest.Start(t, kafkatest.Options{Brokers: 1})
	from := home
	for _, to := range []*opener.Log{open(t, "logbook://"+brokers.Addresses()[0]), open(t, "kafka://"+kafka.Bootstrap()), directory(t)} {
		report, err := mirror.Copy(t.Context(), from.Client, to.Client, mirror.Options{})
		require.NoError(t, err)
		require.Len(t, report.Partitions, 3)
		assert.Equal(t, mirror.Partition{Topic: "flights", Partition: 1, Records: 96}, report.Partitions[1])
		assert.Equal(t, digests(t, home), digests(t, to))
		for p, want := range []int64{5, 2, 100} { // what is gone in partition 1 has no offsets in the copy
			got, ok, err := to.Committed(t.Context(), "dashboards", "flights", p)
			require.NoError(t, err)
			assert.Equal(t, []any{want, true}, []any{got, ok}, "partition %d", p)
		}
		from = to
	}
}

// A copy that is killed goes on where it was, and a second one finds nothing to do.
func TestACopyGoesOn(t *testing.T) {
	home, away := directory(t), directory(t)
	fill(t, home, 9000)
	for kills := range 5 {
		ctx, kill := context.WithCancel(t.Context())
		var n atomic.Int64
		_, err := mirror.Copy(ctx, home.Client, away.Client, mirror.Options{Copied: func(_ string, records int) {
			if n.Add(int64(records)) > int64(1500*(kills+1)) {
				kill()
			}
		}})
		kill()
		require.ErrorIs(t, err, context.Canceled)
	}
	report, err := mirror.Copy(t.Context(), home.Client, away.Client, mirror.Options{})
	require.NoError(t, err)
	assert.Positive(t, report.Partitions[0].Before)
	assert.Equal(t, digests(t, home), digests(t, away))
	report, err = mirror.Copy(t.Context(), home.Client, away.Client, mirror.Options{Topics: []string{"flights"}})
	require.NoError(t, err)
	for _, p := range report.Partitions {
		assert.Equal(t, p.Records, p.Before, "nothing is copied twice")
	}
	assert.Equal(t, digests(t, home), digests(t, away))
}

func TestConflicts(t *testing.T) {
	home := directory(t)
	fill(t, home, 30)
	for name, spoil := range map[string]func(h *stream.TopicHandle) error{
		"another record is there": func(h *stream.TopicHandle) error {
			_, err := h.AppendTo(t.Context(), 0, record.Record{Value: []byte("something else")})
			return err
		},
		"the source has no more records": func(h *stream.TopicHandle) error {
			for range 50 {
				if _, err := h.AppendTo(t.Context(), 2, record.Record{Value: []byte("more")}); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			away := directory(t)
			h, err := away.CreateTopic(t.Context(), "flights", 3, nil)
			require.NoError(t, err)
			require.NoError(t, spoil(h))
			_, err = mirror.Copy(t.Context(), home.Client, away.Client, mirror.Options{})
			var conflict *mirror.ConflictError
			require.ErrorAs(t, err, &conflict)
			assert.Equal(t, name, conflict.Reason)
			_, ok, err := away.Committed(t.Context(), "dashboards", "flights", 0)
			require.NoError(t, err)
			assert.False(t, ok, "offsets of what is no copy are not carried over")
		})
	}
	narrow := directory(t)
	_, err := narrow.CreateTopic(t.Context(), "flights", 2, nil)
	require.NoError(t, err)
	_, err = mirror.Copy(t.Context(), home.Client, narrow.Client, mirror.Options{})
	require.ErrorContains(t, err, "has 3 partitions, in the target 2")
}

package consumer_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/commitlog"
	"logbook/engine/consumer"
	"logbook/engine/record"
	"logbook/engine/topic"
)

var epoch = time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)

// events is a topic of one partition with n records, one a minute.
func events(t testing.TB, n int, opt commitlog.Options) *topic.Topic {
	t.Helper()
	tp, err := topic.Create(t.TempDir(), "events", topic.Options{Partitions: 1, Log: opt})
	require.NoError(t, err)
	t.Cleanup(func() { tp.Close() })
	add(t, tp, 0, n)
	return tp
}

func add(t testing.TB, tp *topic.Topic, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		_, err := tp.Append(record.Record{Timestamp: epoch.Add(time.Duration(i) * time.Minute), Value: fmt.Appendf(nil, "%d", i)})
		require.NoError(t, err)
	}
}

func start(t testing.TB, tp *topic.Topic, store consumer.OffsetStore, reset consumer.Reset) *consumer.Consumer {
	t.Helper()
	c, err := consumer.New(consumer.Config{ID: "worker", Topic: tp, Store: store, Reset: reset})
	require.NoError(t, err)
	return c
}

func values(t testing.TB, records []record.Record) string {
	t.Helper()
	var out []byte
	for _, r := range records {
		out = append(append(out, r.Value...), ' ')
	}
	return string(out)
}

func fetch(t testing.TB, c *consumer.Consumer, max int) string {
	t.Helper()
	records, err := c.Fetch(max)
	require.NoError(t, err)
	return values(t, records)
}

func TestFetchProcessCommit(t *testing.T) {
	tp := events(t, 8, commitlog.Options{})
	store := consumer.NewFileStore(nil, t.TempDir())
	c := start(t, tp, store, consumer.ResetError)
	_, ok := c.Committed()
	assert.False(t, ok, "unset differs from 0")
	assert.Equal(t, "0 1 2 3 4 ", fetch(t, c, 5))
	assert.Equal(t, int64(5), c.Position())
	assert.Equal(t, int64(3), c.Lag())
	_, ok = c.Committed()
	assert.False(t, ok, "nothing is committed by itself")
	require.NoError(t, c.Commit())
	assert.Equal(t, "5 6 7 ", fetch(t, c, 100))
	assert.Equal(t, "", fetch(t, c, 100))
	assert.Zero(t, c.Lag())

	// The process dies here: 5 to 7 were processed and not committed.
	c = start(t, tp, store, consumer.ResetError)
	committed, ok := c.Committed()
	assert.True(t, ok)
	assert.Equal(t, int64(5), committed)
	assert.Equal(t, "5 6 7 ", fetch(t, c, 100), "at least once")
}

func TestSeekMovesThePositionOnly(t *testing.T) {
	tp := events(t, 8, commitlog.Options{})
	store := consumer.NewFileStore(nil, t.TempDir())
	c := start(t, tp, store, consumer.ResetError)
	fetch(t, c, 6)
	require.NoError(t, c.Commit())
	require.NoError(t, c.SeekTo(2))
	assert.Equal(t, "2 3 ", fetch(t, c, 2))
	committed, _ := c.Committed()
	assert.Equal(t, int64(6), committed)
	var re *consumer.OffsetRegressionError
	require.ErrorAs(t, c.Commit(), &re)
	assert.Equal(t, []int64{6, 4}, []int64{re.Committed, re.Wanted})

	require.NoError(t, c.SeekTo(100), "beyond the end is allowed")
	assert.Equal(t, "", fetch(t, c, 10))
	var beyond *consumer.CommitBeyondEndError
	require.ErrorAs(t, c.Commit(), &beyond)
	assert.Equal(t, int64(8), beyond.End)
	var negative *consumer.NegativeOffsetError
	require.ErrorAs(t, c.SeekTo(-1), &negative)
	require.NoError(t, c.SeekTo(9))
	add(t, tp, 8, 11)
	assert.Equal(t, "9 10 ", fetch(t, c, 10), "until the log gets there")
	require.NoError(t, c.SeekToStart())
	assert.Zero(t, c.Position())
	require.NoError(t, c.SeekToEnd())
	assert.Equal(t, int64(11), c.Position())
	require.NoError(t, c.SeekToTime(epoch.Add(3*time.Minute+time.Second)))
	assert.Equal(t, "4 ", fetch(t, c, 1))
}

func TestResetWhenTheCommittedOffsetHasExpired(t *testing.T) {
	for _, policy := range []consumer.Reset{consumer.ResetError, consumer.ResetToStart, consumer.ResetToEnd} {
		tp := events(t, 20, commitlog.Options{SegmentBytes: 160})
		store := consumer.NewFileStore(nil, t.TempDir())
		c := start(t, tp, store, policy)
		fetch(t, c, 1)
		require.NoError(t, c.Commit())
		l, err := tp.Partition(0)
		require.NoError(t, err)
		require.NoError(t, l.AdvanceLogStart(10))
		for _, c := range []*consumer.Consumer{c, start(t, tp, store, policy)} { // under way, and restarted
			records, err := c.Fetch(2)
			switch policy {
			case consumer.ResetError:
				var oor *commitlog.OffsetOutOfRangeError
				require.ErrorAs(t, err, &oor)
				assert.Equal(t, commitlog.OffsetOutOfRangeError{Offset: 1, Start: 10, End: 20}, *oor)
			case consumer.ResetToStart:
				require.NoError(t, err)
				assert.Equal(t, "10 11 ", values(t, records))
			case consumer.ResetToEnd:
				require.NoError(t, err)
				assert.Empty(t, records)
				assert.Equal(t, int64(20), c.Position())
			}
		}
	}
}

func TestWaitingForRecords(t *testing.T) {
	tp := events(t, 2, commitlog.Options{})
	c := start(t, tp, consumer.NewFileStore(nil, t.TempDir()), consumer.ResetError)
	ctx, stop := context.WithCancel(t.Context())
	got := make(chan string)
	go func() {
		defer close(got)
		for rec, err := range c.Records(ctx) {
			if !assert.NoError(t, err) {
				return
			}
			got <- string(rec.Value)
		}
	}()
	for i := range 5 {
		assert.Equal(t, fmt.Sprint(i), <-got)
		if i >= 1 {
			add(t, tp, i+1, i+2)
		}
	}
	assert.Equal(t, "5", <-got)
	stop()
	_, open := <-got
	assert.False(t, open, "the end of the context ends the iteration")

	require.NoError(t, c.SeekToEnd())
	_, err := c.FetchWait(ctx, 1)
	require.ErrorIs(t, err, context.Canceled)
	go add(t, tp, 6, 7)
	records, err := c.FetchWait(t.Context(), 10)
	require.NoError(t, err)
	assert.Equal(t, "6 ", values(t, records))
}

func TestBatchesAreReadRecordByRecord(t *testing.T) {
	tp := events(t, 0, commitlog.Options{})
	batch := make([]record.Record, 10)
	for i := range batch {
		batch[i].Value = fmt.Appendf(nil, "%d", i)
	}
	_, err := tp.AppendTo(0, batch...)
	require.NoError(t, err)
	store := consumer.NewFileStore(nil, t.TempDir())
	c := start(t, tp, store, consumer.ResetError)
	assert.Equal(t, "0 1 2 ", fetch(t, c, 3))
	require.NoError(t, c.Commit())
	assert.Equal(t, "3 4 ", fetch(t, c, 2))
	c = start(t, tp, store, consumer.ResetError)
	assert.Equal(t, "3 4 5 6 7 8 9 ", fetch(t, c, 100), "from the middle of a batch")
}

func TestClosedConsumerAndBadConfigs(t *testing.T) {
	tp := events(t, 1, commitlog.Options{})
	store := consumer.NewFileStore(nil, t.TempDir())
	c := start(t, tp, store, consumer.ResetError)
	require.NoError(t, c.Close())
	_, err := c.Fetch(1)
	require.ErrorIs(t, err, consumer.ErrClosed)
	require.ErrorIs(t, c.Commit(), consumer.ErrClosed)
	require.ErrorIs(t, c.SeekTo(0), consumer.ErrClosed)
	require.ErrorIs(t, c.Close(), consumer.ErrClosed)
	_, err = consumer.New(consumer.Config{ID: "worker", Topic: tp})
	require.Error(t, err)
	var ne *topic.NameError
	_, err = consumer.New(consumer.Config{ID: "../x", Topic: tp, Store: store})
	require.ErrorAs(t, err, &ne)
	var pe *topic.PartitionError
	_, err = consumer.New(consumer.Config{ID: "worker", Topic: tp, Partition: 1, Store: store})
	require.ErrorAs(t, err, &pe)
}

func TestDamagedOffsetFilesAreReportedAndLeftAlone(t *testing.T) {
	tp := events(t, 5, commitlog.Options{})
	root := t.TempDir()
	store := consumer.NewFileStore(nil, root)
	c := start(t, tp, store, consumer.ResetError)
	fetch(t, c, 3)
	require.NoError(t, c.Commit())
	file := filepath.Join(root, "worker", "events", "partition-000000.offset")
	good, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.JSONEq(t, `{"version":1,"offset":3}`, string(good))
	for name, bad := range map[string]string{
		"not JSON": "{", "empty": "", "missing field": `{"version":1}`, "wrong type": `{"version":1,"offset":"3"}`,
		"negative": `{"version":1,"offset":-3}`, "unknown version": `{"version":2,"offset":3}`,
		"a fraction": `{"version":1,"offset":3.5}`, "trailing": string(good) + "x", "unknown field": `{"version":1,"offset":3,"x":0}`,
	} {
		require.NoError(t, os.WriteFile(file, []byte(bad), 0o644))
		var ce *consumer.OffsetCorruptionError
		require.ErrorAs(t, c.Commit(), &ce, name)
		assert.Equal(t, file, ce.File)
		_, err := consumer.New(consumer.Config{ID: "worker", Topic: tp, Store: store})
		require.ErrorAs(t, err, &ce, name)
		after, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Equal(t, bad, string(after), name)
	}
}

func TestLogStoreCompacts(t *testing.T) {
	dir := t.TempDir()
	s, err := consumer.OpenLogStore(dir, commitlog.Options{SegmentBytes: 2000})
	require.NoError(t, err)
	p := consumer.Progress{Consumer: "worker", Topic: "events"}
	for offset := range int64(200) {
		require.NoError(t, s.Commit(p, offset))
	}
	done, err := s.Compact()
	require.NoError(t, err)
	assert.Greater(t, done.Removed, 150)
	require.NoError(t, s.Close())
	s, err = consumer.OpenLogStore(dir, commitlog.Options{})
	require.NoError(t, err)
	offset, ok, err := s.Committed(p)
	require.NoError(t, err)
	assert.True(t, ok)
	assert.Equal(t, int64(199), offset)
	require.NoError(t, s.Close())

	l, err := commitlog.Open(dir, commitlog.Options{})
	require.NoError(t, err)
	_, err = l.Append(record.Record{Key: []byte("no JSON"), Value: []byte("{}")})
	require.NoError(t, err)
	require.NoError(t, l.Close())
	_, err = consumer.OpenLogStore(dir, commitlog.Options{})
	var ce *consumer.OffsetCorruptionError
	require.ErrorAs(t, err, &ce)
}

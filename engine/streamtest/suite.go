package streamtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/consumer"
	"logbook/engine/failure"
	"logbook/engine/record"
	"logbook/engine/stream"
	"logbook/engine/topic"
)

var began = time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)

// events is a topic of one partition with n records, one a minute.
func events(t *testing.T, c *stream.Client, n int) *stream.TopicHandle {
	t.Helper()
	h, err := c.CreateTopic(t.Context(), "events", 1, nil)
	require.NoError(t, err)
	add(t, h, 0, n)
	return h
}

func add(t *testing.T, h *stream.TopicHandle, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		_, err := h.Append(t.Context(), record.Record{Timestamp: began.Add(time.Duration(i) * time.Minute), Value: fmt.Appendf(nil, "%d", i)})
		require.NoError(t, err)
	}
}

func start(t *testing.T, c *stream.Client, reset stream.Reset) *stream.Consumer {
	t.Helper()
	r, err := c.Consumer(t.Context(), stream.ConsumerOptions{ID: "worker", Topic: "events", Reset: reset})
	require.NoError(t, err)
	return r
}

func values(records []record.Record) string {
	var out []byte
	for _, r := range records {
		out = append(append(out, r.Value...), ' ')
	}
	return string(out)
}

func fetch(t *testing.T, c *stream.Consumer, max int) string {
	t.Helper()
	records, err := c.Fetch(t.Context(), max)
	require.NoError(t, err)
	return values(records)
}

func (s *suite) topicsAreTheSameEverywhere(t *testing.T) {
	c := s.open(t)
	var e *failure.Error
	rule := topic.SHA256
	if !s.traits.Partitioners {
		_, err := c.CreateTopic(t.Context(), "flights", 3, rule)
		require.ErrorAs(t, err, &e)
		assert.Equal(t, failure.BadRequest, e.Code)
		rule = topic.Murmur2
	}
	h, err := c.CreateTopic(t.Context(), "flights", 3, rule)
	require.NoError(t, err)
	assert.Equal(t, []any{"flights", 3, rule}, []any{h.Name(), h.Partitions(), h.Partitioner()})
	_, err = c.CreateTopic(t.Context(), "flights", 3, nil)
	require.ErrorAs(t, err, &e)
	assert.Equal(t, failure.TopicExists, e.Code)
	for _, bad := range []int{0, -1, topic.MaxPartitions + 1} {
		_, err = c.CreateTopic(t.Context(), "wide", bad, nil)
		require.ErrorAs(t, err, &e)
		assert.Equal(t, failure.BadRequest, e.Code, "%d partitions", bad)
	}
	_, err = c.CreateTopic(t.Context(), "__groups", 1, nil)
	require.ErrorAs(t, err, &e)
	assert.Equal(t, failure.BadRequest, e.Code)
	_, err = c.Topic(t.Context(), "nothing")
	require.ErrorAs(t, err, &e)
	assert.Equal(t, failure.UnknownTopic, e.Code)
	names, err := c.Topics(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"flights"}, names)

	for i := range 4 { // no key: in turn
		at, err := h.Append(t.Context(), record.Record{Value: []byte("x")})
		require.NoError(t, err)
		assert.Equal(t, []any{i % 3, int64(i / 3)}, []any{at.Partition, at.Offset})
	}
	want := rule.Partition([]byte("DTW"), 3)
	at, err := h.Append(t.Context(), record.Record{
		Key: []byte("DTW"), Value: nil, Timestamp: began, Headers: []record.Header{{Key: "h", Value: []byte{0xff}}},
	})
	require.NoError(t, err)
	assert.Equal(t, want, at.Partition)
	for r, err := range h.Records(t.Context(), want, at.Offset) {
		require.NoError(t, err)
		assert.Nil(t, r.Value)
		assert.Equal(t, []record.Header{{Key: "h", Value: []byte{0xff}}}, r.Headers)
		assert.True(t, began.Equal(r.Timestamp))
	}
	_, err = h.AppendTo(t.Context(), 9, record.Record{})
	require.ErrorAs(t, err, &e)
	assert.Equal(t, failure.UnknownPartition, e.Code)
	_, err = h.AppendTo(t.Context(), 0, record.Record{Value: make([]byte, 2<<20)})
	require.ErrorAs(t, err, &e)
	assert.Equal(t, failure.TooLarge, e.Code)
}

func (s *suite) fetchProcessCommit(t *testing.T) {
	c := s.open(t)
	events(t, c, 8)
	r := start(t, c, stream.ResetError)
	_, ok := r.Committed()
	assert.False(t, ok, "unset differs from 0")
	assert.Equal(t, "0 1 2 3 4 ", fetch(t, r, 5))
	assert.Equal(t, int64(5), r.Position())
	lag, err := r.Lag(t.Context())
	require.NoError(t, err)
	assert.Equal(t, int64(3), lag)
	_, ok = r.Committed()
	assert.False(t, ok, "nothing is committed by itself")
	require.NoError(t, r.Commit(t.Context()))
	assert.Equal(t, "5 6 7 ", fetch(t, r, 100))
	assert.Equal(t, "", fetch(t, r, 100))

	// The process dies here: 5 to 7 were processed and not committed.
	r = start(t, c, stream.ResetError)
	committed, ok := r.Committed()
	assert.True(t, ok)
	assert.Equal(t, int64(5), committed)
	assert.Equal(t, "5 6 7 ", fetch(t, r, 100), "at least once")
}

func (s *suite) seekMovesThePositionOnly(t *testing.T) {
	c := s.open(t)
	h := events(t, c, 8)
	r := start(t, c, stream.ResetError)
	fetch(t, r, 6)
	require.NoError(t, r.Commit(t.Context()))
	require.NoError(t, r.SeekTo(2))
	assert.Equal(t, "2 3 ", fetch(t, r, 2))
	committed, _ := r.Committed()
	assert.Equal(t, int64(6), committed)
	var e *failure.Error
	require.ErrorAs(t, r.Commit(t.Context()), &e)
	assert.Equal(t, failure.Regression, e.Code)

	require.NoError(t, r.SeekTo(100), "beyond the end is allowed")
	assert.Equal(t, "", fetch(t, r, 10))
	require.ErrorAs(t, r.Commit(t.Context()), &e)
	assert.Equal(t, failure.BadRequest, e.Code)
	var negative *consumer.NegativeOffsetError
	require.ErrorAs(t, r.SeekTo(-1), &negative)
	require.NoError(t, r.SeekTo(9))
	add(t, h, 8, 11)
	assert.Equal(t, "9 10 ", fetch(t, r, 10), "until the log gets there")
	require.NoError(t, r.SeekToStart(t.Context()))
	assert.Zero(t, r.Position())
	require.NoError(t, r.SeekToEnd(t.Context()))
	assert.Equal(t, int64(11), r.Position())
	require.NoError(t, r.SeekToTime(t.Context(), began.Add(3*time.Minute+time.Second)))
	assert.Equal(t, "4 ", fetch(t, r, 1))
	for at, want := range map[time.Time]int64{time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC): 11, time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC): 0} {
		require.NoError(t, r.SeekToTime(t.Context(), at))
		assert.Equal(t, want, r.Position(), "%v", at)
	}
}

func (s *suite) waitingForRecords(t *testing.T) {
	c := s.open(t)
	h := events(t, c, 2)
	r := start(t, c, stream.ResetError)
	ctx, stop := context.WithCancel(t.Context())
	got := make(chan string)
	go func() {
		defer close(got)
		for rec, err := range r.Records(ctx) {
			if !assert.NoError(t, err) {
				return
			}
			got <- string(rec.Value)
		}
	}()
	for i := range 5 {
		assert.Equal(t, fmt.Sprint(i), <-got)
		if i >= 1 {
			add(t, h, i+1, i+2)
		}
	}
	assert.Equal(t, "5", <-got)
	stop()
	_, open := <-got
	assert.False(t, open, "the end of the context ends the iteration")
	require.NoError(t, r.SeekToEnd(t.Context()))
	_, err := r.FetchWait(ctx, 1)
	require.ErrorIs(t, err, context.Canceled)
}

func (s *suite) batchesAreReadRecordByRecord(t *testing.T) {
	c := s.open(t)
	h := events(t, c, 0)
	batch := make([]record.Record, 10)
	for i := range batch {
		batch[i].Value = fmt.Appendf(nil, "%d", i)
	}
	_, err := h.AppendTo(t.Context(), 0, batch...)
	require.NoError(t, err)
	r := start(t, c, stream.ResetError)
	assert.Equal(t, "0 1 2 ", fetch(t, r, 3))
	require.NoError(t, r.Commit(t.Context()))
	assert.Equal(t, "3 4 ", fetch(t, r, 2))
	r = start(t, c, stream.ResetError)
	assert.Equal(t, "3 4 5 6 7 8 9 ", fetch(t, r, 100), "from the middle of a batch")

	// A member commits up to the record that it was handed, also within a batch.
	m, err := c.JoinGroup(t.Context(), "workers", stream.MemberOptions{Topics: []string{"events"}})
	require.NoError(t, err)
	some, err := m.Fetch(t.Context(), 4)
	require.NoError(t, err)
	assert.Len(t, some, 4)
	require.NoError(t, m.Commit(t.Context()))
	offset, ok, err := c.Committed(t.Context(), "workers", "events", 0)
	require.NoError(t, err)
	assert.Equal(t, []any{int64(4), true}, []any{offset, ok})
	require.NoError(t, m.Close())
	g, err := c.DescribeGroup(t.Context(), "workers")
	require.NoError(t, err)
	assert.Equal(t, []stream.GroupOffset{{Partition: stream.Partition{Topic: "events"}, Offset: 4, HighWatermark: 10, Lag: 6}}, g.Offsets)
	require.NoError(t, c.SetOffsets(t.Context(), "workers", map[stream.Partition]int64{{Topic: "events"}: 1}), "a reset may go back")
	names, err := c.Groups(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"worker", "workers"}, names)
}

// A join that is given up leaves no member behind.
func (s *suite) aJoinThatIsGivenUp(t *testing.T) {
	c := s.open(t)
	events(t, c, 1)
	opt := stream.MemberOptions{Topics: []string{"events"}, SessionTimeout: 30 * time.Second}
	a, err := c.JoinGroup(t.Context(), "workers", opt)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) // a does not rejoin so soon
	defer cancel()
	_, err = c.JoinGroup(ctx, "workers", opt)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, a.Close())
	require.Eventually(t, func() bool {
		g, err := c.DescribeGroup(t.Context(), "workers")
		var e *failure.Error // Kafka forgets a group that has neither members nor offsets
		return len(g.Members) == 0 && (err == nil || errors.As(err, &e) && e.Code == failure.BadRequest)
	}, 20*time.Second, 10*time.Millisecond)
}

// A member whose handler hangs gives up its partitions, and gets some again when it goes on.
func (s *suite) aHandlerThatHangs(t *testing.T) {
	c := s.open(t)
	if !s.traits.ShortSessions {
		t.Skip("sessions are long here; what is tried is the member's own, and the same")
	}
	events(t, c, 4)
	opt := stream.MemberOptions{Topics: []string{"events"}, SessionTimeout: 300 * time.Millisecond, HandlingTimeout: 200 * time.Millisecond}
	hung, err := c.JoinGroup(t.Context(), "workers", opt)
	require.NoError(t, err)
	got, err := hung.Fetch(t.Context(), 1)
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.Eventually(t, func() bool { return len(hung.Assignment()) == 0 }, 20*time.Second, time.Millisecond)
	other, err := c.JoinGroup(t.Context(), "workers", stream.MemberOptions{Topics: []string{"events"}, SessionTimeout: 300 * time.Millisecond})
	require.NoError(t, err)
	got, err = other.Fetch(t.Context(), 1)
	require.NoError(t, err)
	assert.Equal(t, "0", string(got[0].Value), "what was not committed comes again")
	require.NoError(t, other.Commit(t.Context()))
	var f *failure.Error
	require.ErrorAs(t, hung.Commit(t.Context()), &f)
	assert.Equal(t, failure.UnknownMember, f.Code)
	require.NoError(t, other.Close())
	got, err = hung.Fetch(t.Context(), 1)
	require.NoError(t, err)
	assert.Equal(t, "1", string(got[0].Value), "it has joined again, and goes on where the other was")
	require.NoError(t, hung.Close())
}

// A consumer may keep its offsets in a store of its own.
func (s *suite) offsetsElsewhere(t *testing.T) {
	c := s.open(t)
	events(t, c, 5)
	store := consumer.NewFileStore(nil, t.TempDir())
	open := func() *stream.Consumer {
		r, err := c.Consumer(t.Context(), stream.ConsumerOptions{ID: "worker", Topic: "events", Store: store})
		require.NoError(t, err)
		return r
	}
	r := open()
	fetch(t, r, 3)
	require.NoError(t, r.Commit(t.Context()))
	assert.Equal(t, "3 4 ", fetch(t, open(), 9))
	require.NoError(t, r.SeekTo(9))
	var beyond *consumer.CommitBeyondEndError
	require.ErrorAs(t, r.Commit(t.Context()), &beyond)
	require.NoError(t, r.Close())
	require.ErrorIs(t, r.Commit(t.Context()), stream.ErrClosed)
}

func (s *suite) manySenders(t *testing.T) {
	c := s.open(t)
	h, err := c.CreateTopic(t.Context(), "flights", 4, nil)
	require.NoError(t, err)
	var acknowledged sync.Map
	p, err := c.Producer(t.Context(), "flights", stream.ProducerOptions{BufferBytes: 20_000, Acknowledged: func(at stream.Appended, n int) { acknowledged.Store(at, n) }})
	require.NoError(t, err)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 50 {
				at, err := p.Send(t.Context(), record.Record{Key: fmt.Appendf(nil, "%d", w), Value: fmt.Appendf(nil, "%d/%d", w, i)})
				if !assert.NoError(t, err) {
					return
				}
				for rec, err := range h.Records(t.Context(), at.Partition, at.Offset) {
					assert.NoError(t, err)
					assert.Equal(t, fmt.Sprintf("%d/%d", w, i), string(rec.Value))
					break
				}
			}
		})
	}
	wg.Wait()
	require.NoError(t, p.Close())
	require.ErrorIs(t, p.Close(), stream.ErrClosed)
	total := 0
	acknowledged.Range(func(_, n any) bool { total += n.(int); return true })
	st := p.Stats()
	assert.Equal(t, []int64{400, 400, 0}, []int64{st.Sent, st.Acknowledged, st.Failed})
	assert.Equal(t, 400, total)
}

func (s *suite) orderWithinAPartitionIsTheOrderOfTheCalls(t *testing.T) {
	c := s.open(t)
	h, err := c.CreateTopic(t.Context(), "flights", 2, nil)
	require.NoError(t, err)
	p, err := c.Producer(t.Context(), "flights", stream.ProducerOptions{Linger: time.Millisecond, BatchRecords: 7})
	require.NoError(t, err)
	for i := range 500 {
		_, err := p.SendAsync(t.Context(), record.Record{Key: []byte("k"), Value: fmt.Appendf(nil, "%d", i)})
		require.NoError(t, err)
	}
	require.NoError(t, p.Close())
	i := 0
	for r, err := range h.Records(t.Context(), h.Partitioner().Partition([]byte("k"), 2), 0) {
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(i), string(r.Value))
		i++
	}
	require.Equal(t, 500, i)
}

// Nothing is skipped in silence: by default the error names both offsets, for a consumer and
// for a member, under way and when it starts.
func (s *suite) resetWhenRetentionHasOvertakenThePosition(t *testing.T) {
	for _, policy := range []stream.Reset{stream.ResetError, stream.ResetToEarliest, stream.ResetToLatest} {
		t.Run(fmt.Sprint("reset ", int(policy)), func(t *testing.T) {
			c := s.open(t)
			events(t, c, 20)
			r := start(t, c, stream.ResetError)
			fetch(t, r, 1)
			require.NoError(t, r.Commit(t.Context()))
			first, err := c.DeleteRecords(t.Context(), "events", 0, 10)
			require.NoError(t, err)
			require.EqualValues(t, 10, first)
			records, err := start(t, c, policy).Fetch(t.Context(), 2)
			member, merr := c.JoinGroup(t.Context(), "worker", stream.MemberOptions{Topics: []string{"events"}, Reset: policy})
			require.NoError(t, merr)
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			delivered, merr := member.Fetch(ctx, 2)
			switch policy {
			case stream.ResetError:
				for _, err := range []error{err, merr} {
					var oor *stream.OutOfRangeError
					require.ErrorAs(t, err, &oor)
					assert.Equal(t, []int64{1, 10, 20}, []int64{oor.Position, oor.First, oor.After})
				}
				require.NoError(t, member.Seek(stream.Partition{Topic: "events"}, 15))
				delivered, err := member.Fetch(t.Context(), 2)
				require.NoError(t, err)
				assert.Equal(t, int64(15), delivered[0].Offset)
				var f *failure.Error
				require.ErrorAs(t, member.Seek(stream.Partition{Topic: "events", ID: 9}, 0), &f)
				assert.Equal(t, failure.BadRequest, f.Code)
			case stream.ResetToEarliest:
				require.NoError(t, err)
				assert.Equal(t, "10 11 ", values(records))
				require.NoError(t, merr)
				assert.Equal(t, int64(10), delivered[0].Offset)
			case stream.ResetToLatest:
				require.NoError(t, err)
				assert.Empty(t, records)
				require.ErrorIs(t, merr, context.DeadlineExceeded)
			}
			require.NoError(t, member.Close())
		})
	}
}

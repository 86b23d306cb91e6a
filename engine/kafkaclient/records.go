package kafkaclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"logbook/engine/failure"
	"logbook/engine/record"
	"logbook/engine/stream"
	"logbook/engine/topic"
)

func (t *transport) Topics(ctx context.Context, names ...string) ([]stream.Topic, error) {
	return retry(ctx, t, func(ctx context.Context) ([]stream.Topic, error) { return t.topics(ctx, names) })
}

func (t *transport) topics(ctx context.Context, names []string) ([]stream.Topic, error) {
	details, err := t.admin.ListTopics(ctx, names...)
	if err != nil {
		return nil, failed(err)
	}
	var out []stream.Topic
	for _, d := range details {
		if d.Err != nil && len(names) == 0 {
			continue // one that somebody asked for, and that is not there
		}
		if d.Err != nil {
			err := failed(d.Err)
			if e, ok := errors.AsType[*failure.Error](err); ok {
				e.Message = fmt.Sprintf("topic %q: %s", d.Topic, e.Message)
			}
			return nil, err
		}
		out = append(out, stream.Topic{Name: d.Topic, Partitions: len(d.Partitions), Replication: d.Partitions.NumReplicas(), Partitioner: topic.Murmur2.Name()})
	}
	slices.SortFunc(out, func(a, b stream.Topic) int { return cmp.Compare(a.Name, b.Name) })
	if len(names) > 0 && len(out) < len(names) {
		return nil, &failure.Error{Code: failure.UnknownTopic, Message: fmt.Sprintf("some of the topics %q do not exist", names)}
	}
	return out, nil
}

func (t *transport) CreateTopic(ctx context.Context, q stream.Topic) (stream.Topic, error) {
	if q.Partitioner != "" && q.Partitioner != topic.Murmur2.Name() {
		return q, badRequest(fmt.Sprintf("a topic of Kafka's has no partitioner of its own: keys go by %s, not by %s", topic.Murmur2.Name(), q.Partitioner))
	}
	if q.Partitions < 1 || q.Partitions > topic.MaxPartitions {
		return q, badRequest(fmt.Sprintf("%d partitions; it must be from 1 to %d", q.Partitions, topic.MaxPartitions))
	}
	if strings.HasPrefix(q.Name, "__") {
		return q, badRequest(fmt.Sprintf("topic %q: names that begin with __ are the brokers' own", q.Name))
	}
	replication := int16(-1)
	if q.Replication > 0 {
		replication = int16(q.Replication)
	}
	_, err := retry(ctx, t, func(ctx context.Context) (kadm.CreateTopicResponse, error) {
		r, err := t.admin.CreateTopic(ctx, int32(q.Partitions), replication, nil, q.Name)
		if err = failed(err); r.ErrMessage != "" {
			if e, ok := errors.AsType[*failure.Error](err); ok {
				e.Message += " (" + r.ErrMessage + ")"
			}
		}
		return r, err
	})
	if err != nil {
		return q, err
	}
	t.spread(ctx, q.Name)
	made, err := t.Topics(ctx, q.Name)
	if err != nil {
		return q, err
	}
	return made[0], nil
}

// spread waits until every broker that answers has heard of a topic, and no longer than a
// moment: who asks another broker next finds it there.
func (t *transport) spread(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	brokers, err := t.admin.ListBrokers(ctx)
	if err != nil {
		return
	}
	for _, b := range brokers.NodeIDs() {
		for ctx.Err() == nil {
			q := kmsg.NewPtrMetadataRequest()
			rt := kmsg.NewMetadataRequestTopic()
			rt.Topic = kmsg.StringPtr(name)
			q.Topics = append(q.Topics, rt)
			resp, err := t.c.Broker(int(b)).Request(ctx, q)
			if err != nil {
				break
			}
			r := resp.(*kmsg.MetadataResponse)
			if len(r.Topics) == 1 && r.Topics[0].ErrorCode == 0 && !slices.ContainsFunc(r.Topics[0].Partitions, func(p kmsg.MetadataResponseTopicPartition) bool { return p.Leader < 0 }) {
				break
			}
			select {
			case <-ctx.Done():
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
}

func (t *transport) Produce(ctx context.Context, p stream.Partition, acks stream.Acks, records []record.Record) (stream.Appended, error) {
	at := stream.Appended{Topic: p.Topic, Partition: p.ID}
	c, err := t.producer(acks)
	if err != nil {
		return at, failed(err)
	}
	if _, err := retry(ctx, t, func(ctx context.Context) (leader, error) { return t.leader(ctx, p) }); err != nil {
		return at, err // what does not exist is named
	}
	out := make([]*kgo.Record, len(records))
	for i, r := range records {
		out[i] = &kgo.Record{Topic: p.Topic, Partition: int32(p.ID), Key: r.Key, Value: r.Value, Timestamp: r.Timestamp}
		if r.Timestamp.IsZero() {
			out[i].Timestamp = time.Now()
		}
		for _, h := range r.Headers {
			out[i].Headers = append(out[i].Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
	}
	ctx, cancel := t.within(ctx)
	defer cancel()
	done := c.ProduceSync(ctx, out...)
	if err := done.FirstErr(); err != nil {
		return at, failed(err)
	}
	first := done[0].Record
	for _, d := range done {
		if d.Record.Offset < first.Offset {
			first = d.Record
		}
	}
	at.Offset, at.Timestamp = first.Offset, first.Timestamp.Truncate(time.Millisecond)
	return at, nil
}

// leaders are who leads what, as metadata says.
type leaders struct {
	mu sync.Mutex
	of map[stream.Partition]leader
}

type leader struct {
	broker int32
	topic  [16]byte
}

// leader finds out who leads a partition.
func (t *transport) leader(ctx context.Context, p stream.Partition) (leader, error) {
	t.leaders.mu.Lock()
	l, ok := t.leaders.of[p]
	t.leaders.mu.Unlock()
	if ok {
		return l, nil
	}
	q := kmsg.NewPtrMetadataRequest()
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = kmsg.StringPtr(p.Topic)
	q.Topics = append(q.Topics, rt)
	r, err := q.RequestWith(ctx, t.c)
	if err != nil {
		return l, failed(err)
	}
	for _, rt := range r.Topics {
		if err := kerr.ErrorForCode(rt.ErrorCode); err != nil {
			return l, failed(err)
		}
		for _, rp := range rt.Partitions {
			if int(rp.Partition) != p.ID {
				continue
			}
			if err := kerr.ErrorForCode(rp.ErrorCode); err != nil || rp.Leader < 0 {
				return l, failed(cmp.Or[error](err, kerr.LeaderNotAvailable))
			}
			l = leader{broker: rp.Leader, topic: rt.TopicID}
			t.leaders.mu.Lock()
			defer t.leaders.mu.Unlock()
			if t.leaders.of == nil {
				t.leaders.of = map[stream.Partition]leader{}
			}
			t.leaders.of[p] = l
			return l, nil
		}
	}
	return l, &failure.Error{Code: failure.UnknownPartition, Message: fmt.Sprintf("there is no partition %s", p)}
}

func (t *transport) forget(p stream.Partition) {
	t.leaders.mu.Lock()
	defer t.leaders.mu.Unlock()
	delete(t.leaders.of, p)
}

func (t *transport) Fetch(ctx context.Context, q stream.Fetch) (stream.Fetched, error) {
	deadline := time.Now().Add(t.opt.Patience + q.MaxWait)
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		f, err := t.fetch(ctx, q)
		e, ok := errors.AsType[*failure.Error](err)
		moved := ok && (e.Code == failure.Unavailable || e.Code == failure.UnknownTopic && time.Until(deadline) > t.opt.Patience)
		if err == nil || !moved && ok || ctx.Err() != nil || errors.Is(err, stream.ErrClosed) || time.Now().After(deadline) {
			return f, err
		}
		t.forget(q.Partition)
		select {
		case <-ctx.Done():
			return f, ctx.Err()
		case <-time.After(pause):
		}
	}
}

func (t *transport) fetch(ctx context.Context, q stream.Fetch) (stream.Fetched, error) {
	out := stream.Fetched{NextOffset: q.Offset}
	l, err := t.leader(ctx, q.Partition)
	if err != nil {
		return out, err
	}
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(q.MaxWait.Milliseconds()), 1, int32(cmp.Or(q.MaxBytes, 1<<20))
	req.IsolationLevel = 1 // what was aborted, or may yet be, is not shown
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID = q.Partition.Topic, l.topic
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes, rp.CurrentLeaderEpoch = int32(q.Partition.ID), q.Offset, req.MaxBytes, -1
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := t.c.Broker(int(l.broker)).Request(ctx, req)
	if err != nil {
		if e := failed(err); !errors.Is(e, stream.ErrClosed) && ctx.Err() == nil {
			return out, &failure.Error{Code: failure.Unavailable, Message: fmt.Sprintf("broker %d cannot be asked: %v", l.broker, err), Err: err}
		}
		return out, failed(err)
	}
	r := resp.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
		return out, failed(err)
	}
	if len(r.Topics) == 0 || len(r.Topics[0].Partitions) == 0 {
		return out, nil
	}
	got := &r.Topics[0].Partitions[0]
	out.HighWatermark, out.LogStartOffset = got.LastStableOffset, got.LogStartOffset
	if err := kerr.ErrorForCode(got.ErrorCode); err != nil {
		return out, t.explain(ctx, q, failed(err))
	}
	return out, read(got, q.Offset, &out)
}

// explain adds to an offset out of range where the log begins and ends.
func (t *transport) explain(ctx context.Context, q stream.Fetch, err error) error {
	e, ok := errors.AsType[*failure.Error](err)
	if !ok || e.Code != failure.OutOfRange {
		return err
	}
	first, ferr := t.Offset(ctx, q.Partition, stream.Earliest, time.Time{})
	next, nerr := t.Offset(ctx, q.Partition, stream.Latest, time.Time{})
	if ferr != nil || nerr != nil {
		return cmp.Or(ferr, nerr)
	}
	e.Offset, e.LogStartOffset, e.LogEndOffset = q.Offset, first, next
	where := "below the log start"
	if q.Offset > next {
		where = "after the log end"
	}
	e.Message = fmt.Sprintf("offset %d of %s is %s: there are %d to %d", q.Offset, q.Partition, where, first, next)
	return err
}

// read decodes what was fetched, from an offset on.
func read(got *kmsg.FetchResponseTopicPartition, from int64, out *stream.Fetched) error {
	aborted := abortedProducers(got.AbortedTransactions)
	data := got.RecordBatches
	var it record.Iterator
	for len(data) > 0 {
		size, err := record.V2.FrameSize(data)
		if err != nil || size > len(data) {
			return nil // the last batch may be cut
		}
		f, err := record.V2.Parse(data[:size])
		if err != nil {
			return &failure.Error{Code: failure.Damaged, Message: fmt.Sprintf("the batch at offset %d cannot be read: %v", out.NextOffset, err), Err: err}
		}
		data = data[size:]
		hidden := aborted.hides(f)
		if f.NextOffset() <= from {
			continue
		}
		out.NextOffset, out.LeaderEpoch = f.NextOffset(), max(out.LeaderEpoch, f.LeaderEpoch)
		if f.Attributes.Control() || hidden {
			continue
		}
		for it.Reset(f); it.Next(); {
			if r := it.Record(); r.Offset >= from {
				out.Records = append(out.Records, r.Clone())
			}
		}
		if err := it.Err(); err != nil {
			return &failure.Error{Code: failure.Damaged, Message: err.Error(), Err: err}
		}
	}
	return nil
}

// aborting tells which producers' batches belong to transactions that were aborted.
type aborting struct {
	begins []kmsg.FetchResponseTopicPartitionAbortedTransaction // by first offset
	now    map[int64]bool
}

func abortedProducers(all []kmsg.FetchResponseTopicPartitionAbortedTransaction) *aborting {
	slices.SortFunc(all, func(a, b kmsg.FetchResponseTopicPartitionAbortedTransaction) int {
		return cmp.Compare(a.FirstOffset, b.FirstOffset)
	})
	return &aborting{begins: all, now: map[int64]bool{}}
}

// hides reports whether a batch is of an aborted transaction. Batches come in order.
func (a *aborting) hides(f record.Frame) bool {
	for len(a.begins) > 0 && a.begins[0].FirstOffset <= f.LastOffset {
		a.now[a.begins[0].ProducerID] = true
		a.begins = a.begins[1:]
	}
	if f.Attributes.Control() && f.Attributes.Transactional() { // its end
		delete(a.now, f.ProducerID)
		return true
	}
	return f.Attributes.Transactional() && a.now[f.ProducerID]
}

func (t *transport) Offset(ctx context.Context, p stream.Partition, where stream.Where, at time.Time) (int64, error) {
	return retry(ctx, t, func(ctx context.Context) (int64, error) { return t.offset(ctx, p, where, at) })
}

func (t *transport) offset(ctx context.Context, p stream.Partition, where stream.Where, at time.Time) (int64, error) {
	var listed kadm.ListedOffsets
	var err error
	switch where {
	case stream.Earliest:
		listed, err = t.admin.ListStartOffsets(ctx, p.Topic)
	case stream.Latest:
		listed, err = t.admin.ListCommittedOffsets(ctx, p.Topic)
	case stream.AtTime:
		listed, err = t.admin.ListOffsetsAfterMilli(ctx, max(0, at.UnixMilli()), p.Topic) // below zero are words of the protocol
	default:
		return 0, badRequest(fmt.Sprintf("an offset of kind %q", where))
	}
	if err != nil {
		return 0, failed(err)
	}
	o, ok := listed.Lookup(p.Topic, int32(p.ID))
	switch {
	case !ok && len(listed[p.Topic]) > 0:
		return 0, &failure.Error{Code: failure.UnknownPartition, Message: fmt.Sprintf("there is no partition %s", p)}
	case !ok:
		return 0, &failure.Error{Code: failure.UnknownTopic, Message: fmt.Sprintf("topic %q does not exist", p.Topic)}
	case o.Err != nil:
		return 0, failed(o.Err)
	}
	return o.Offset, nil
}

func (t *transport) DeleteRecords(ctx context.Context, p stream.Partition, below int64) (int64, error) {
	return retry(ctx, t, func(ctx context.Context) (int64, error) { return t.deleteRecords(ctx, p, below) })
}

func (t *transport) deleteRecords(ctx context.Context, p stream.Partition, below int64) (int64, error) {
	var q kadm.Offsets
	q.AddOffset(p.Topic, int32(p.ID), below, -1)
	r, err := t.admin.DeleteRecords(ctx, q)
	if err != nil {
		return 0, failed(err)
	}
	one, ok := r.Lookup(p.Topic, int32(p.ID))
	switch {
	case !ok:
		return 0, &failure.Error{Code: failure.UnknownPartition, Message: fmt.Sprintf("there is no partition %s", p)}
	case one.Err != nil:
		return 0, t.explain(ctx, stream.Fetch{Partition: p, Offset: below}, failed(one.Err))
	}
	return one.LowWatermark, nil
}

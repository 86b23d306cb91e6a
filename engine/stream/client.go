package stream

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"logbook/engine/failure"
	"logbook/engine/record"
	"logbook/engine/topic"
)

// ErrClosed: the client, or what was made from it, was closed.
var ErrClosed = errors.New("stream: closed")

// code returns an error's code, "" if it has none.
func code(err error) failure.Code {
	if e, ok := errors.AsType[*failure.Error](err); ok {
		return e.Code
	}
	return ""
}

// Client hands out producers, consumers and members. It is safe for concurrent use. Close
// it, and everything made from it ends.
type Client struct {
	t     Transport
	turns topic.Turns
	ctx   context.Context // ends when the client is closed
	end   context.CancelFunc

	mu     sync.Mutex
	closed bool
	parts  map[part]bool // producers and members that are open
}

// part is something that a client has handed out, and closes.
type part interface{ Close() error }

// New returns a client over a transport, which stays the caller's.
func New(t Transport) *Client {
	c := &Client{t: t, parts: map[part]bool{}}
	c.ctx, c.end = context.WithCancel(context.Background())
	return c
}

// Transport is what the client is over.
func (c *Client) Transport() Transport { return c.t }

// keep notes something that Close is to close.
func (c *Client) keep(p part) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	c.parts[p] = true
	return nil
}

func (c *Client) forget(p part) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.parts, p)
}

// within returns a context that ends with ctx, and with the client.
func (c *Client) within(ctx context.Context) (context.Context, context.CancelFunc) {
	inner, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(c.ctx, cancel)
	return inner, func() { stop(); cancel() }
}

// check returns ErrClosed once the client is closed.
func (c *Client) check(err error) error {
	if c.ctx.Err() != nil && (err == nil || errors.Is(err, context.Canceled)) {
		return ErrClosed
	}
	return err
}

// Close makes members leave, sends what producers hold, and ends everything.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return ErrClosed
	}
	c.closed = true
	var parts []part
	for p := range c.parts {
		parts = append(parts, p)
	}
	c.mu.Unlock()
	var problems []error
	for _, p := range parts {
		if err := p.Close(); !errors.Is(err, ErrClosed) {
			problems = append(problems, err)
		}
	}
	c.end()
	return errors.Join(problems...)
}

// CreateTopic makes a topic. A nil partitioner is topic.Murmur2.
//
// Errors: failure.TopicExists, failure.BadRequest, failure.Unavailable, ErrClosed.
func (c *Client) CreateTopic(ctx context.Context, name string, partitions int, p topic.Partitioner) (*TopicHandle, error) {
	t := Topic{Name: name, Partitions: partitions}
	if p != nil {
		t.Partitioner = p.Name()
	}
	return c.Create(ctx, t)
}

// Create is CreateTopic with every detail.
func (c *Client) Create(ctx context.Context, t Topic) (*TopicHandle, error) {
	if c.ctx.Err() != nil {
		return nil, ErrClosed
	}
	made, err := c.t.CreateTopic(ctx, t)
	if err != nil {
		return nil, c.check(err)
	}
	return c.handle(made)
}

// OpenTopic returns a topic, and makes it first where there is none: what a program does that
// runs more than once.
//
// Errors: as those of CreateTopic and Topic; failure.TopicExists where it has another number of
// partitions, or keys follow another rule.
func (c *Client) OpenTopic(ctx context.Context, name string, partitions int, p topic.Partitioner) (*TopicHandle, error) {
	for {
		t, err := c.Topic(ctx, name)
		if isCode(err, failure.UnknownTopic) {
			t, err = c.CreateTopic(ctx, name, partitions, p)
			if isCode(err, failure.TopicExists) {
				continue // somebody else has made it meanwhile
			}
		}
		if err != nil {
			return nil, err
		}
		if t.Partitions() != partitions {
			return nil, &failure.Error{Code: failure.TopicExists, Message: fmt.Sprintf("topic %q has %d partitions, not %d", name, t.Partitions(), partitions)}
		}
		if rule := t.Partitioner(); p != nil && rule != nil && rule.Name() != p.Name() {
			return nil, &failure.Error{Code: failure.TopicExists, Message: fmt.Sprintf("keys of topic %q follow the rule %s, not %s", name, rule.Name(), p.Name())}
		}
		return t, nil
	}
}

func isCode(err error, code failure.Code) bool {
	e, ok := errors.AsType[*failure.Error](err)
	return ok && e.Code == code
}

// Topic returns a topic that exists.
//
// Errors: failure.UnknownTopic, failure.Unavailable, ErrClosed.
func (c *Client) Topic(ctx context.Context, name string) (*TopicHandle, error) {
	if c.ctx.Err() != nil {
		return nil, ErrClosed
	}
	all, err := c.t.Topics(ctx, name)
	if err != nil {
		return nil, c.check(err)
	}
	return c.handle(all[0])
}

// Topics lists the topics' names, sorted.
//
// Errors: failure.Unavailable, ErrClosed.
func (c *Client) Topics(ctx context.Context) ([]string, error) {
	if c.ctx.Err() != nil {
		return nil, ErrClosed
	}
	all, err := c.t.Topics(ctx)
	names := []string{}
	for _, t := range all {
		names = append(names, t.Name)
	}
	slices.Sort(names)
	return names, c.check(err)
}

// DeleteRecords makes an offset the first that can be read of a partition: what lies below
// is gone for good. It returns the first that is left, which is lower where not every
// replica has the records yet.
//
// Errors: failure.OutOfRange, failure.UnknownTopic, failure.Unavailable.
func (c *Client) DeleteRecords(ctx context.Context, topicName string, partition int, below int64) (int64, error) {
	start, err := c.t.DeleteRecords(ctx, Partition{Topic: topicName, ID: partition}, below)
	return start, c.check(err)
}

// Committed returns the committed offset of a consumer or group in a partition; ok is false
// where none ever was.
//
// Errors: failure.BadRequest, failure.Unavailable.
func (c *Client) Committed(ctx context.Context, id, topicName string, partition int) (offset int64, ok bool, err error) {
	all, err := c.t.Committed(ctx, id, 0)
	offset, ok = all[Partition{Topic: topicName, ID: partition}]
	return offset, ok, c.check(err)
}

// SetOffsets stores committed offsets of a group that has no members, where it is to go on
// from. Unlike a member's commit it may go back.
//
// Errors: failure.BadRequest (there are members, or an offset that there is not),
// failure.UnknownTopic, failure.UnknownPartition, failure.Unavailable.
func (c *Client) SetOffsets(ctx context.Context, group string, offsets map[Partition]int64) error {
	return c.check(c.t.SetOffsets(ctx, group, offsets, true))
}

// Groups lists the groups, sorted.
func (c *Client) Groups(ctx context.Context) ([]string, error) { return c.t.Groups(ctx) }

// DescribeGroup describes a group: its members, their partitions, committed offsets and lag.
func (c *Client) DescribeGroup(ctx context.Context, name string) (Group, error) {
	return c.t.DescribeGroup(ctx, name)
}

// TopicHandle is a topic to be written to and looked at.
type TopicHandle struct {
	c           *Client
	t           Topic
	partitioner topic.Partitioner
}

func (c *Client) handle(t Topic) (*TopicHandle, error) {
	p, err := topic.PartitionerByName(t.Partitioner)
	return &TopicHandle{c: c, t: t, partitioner: p}, err
}

// Name is the topic's name.
func (t *TopicHandle) Name() string { return t.t.Name }

// Partitions is the partition count.
func (t *TopicHandle) Partitions() int { return t.t.Partitions }

// Partitioner is the rule that keys follow.
func (t *TopicHandle) Partitioner() topic.Partitioner { return t.partitioner }

// choose returns the partition for a record: by its key, or, where that is nil, in turn.
func (t *TopicHandle) choose(r record.Record) int {
	return t.c.turns.Choose(t.t.Name, t.partitioner, r.Key, t.t.Partitions)
}

// Append stores a record in the partition that its key leads to, and returns when it is
// acknowledged.
//
// Errors: see AppendTo.
func (t *TopicHandle) Append(ctx context.Context, r record.Record) (Appended, error) {
	return t.AppendTo(ctx, t.choose(r), r)
}

// AppendTo stores records in a partition of the caller's choice, as one batch, and says
// where the first of them landed.
//
// Errors: failure.UnknownPartition, failure.TooLarge, failure.BadRequest,
// failure.NotEnough, failure.Replication, failure.Unavailable, failure.Damaged, ErrClosed.
func (t *TopicHandle) AppendTo(ctx context.Context, partition int, records ...record.Record) (Appended, error) {
	if t.c.ctx.Err() != nil {
		return Appended{}, ErrClosed
	}
	at, err := t.c.t.Produce(ctx, Partition{Topic: t.t.Name, ID: partition}, AcksDefault, records)
	return at, t.c.check(err)
}

// Offsets returns the first offset of a partition, and the offset after its last record
// that can be read.
//
// Errors: failure.UnknownPartition, failure.Unavailable.
func (t *TopicHandle) Offsets(ctx context.Context, partition int) (first, next int64, err error) {
	p := Partition{Topic: t.t.Name, ID: partition}
	if first, err = t.c.t.Offset(ctx, p, Earliest, time.Time{}); err == nil {
		next, err = t.c.t.Offset(ctx, p, Latest, time.Time{})
	}
	return first, next, t.c.check(err)
}

// Records iterates over the records of a partition from an offset on, to where it ends now.
//
// Errors: failure.OutOfRange, failure.UnknownPartition, failure.Unavailable, failure.Damaged.
func (t *TopicHandle) Records(ctx context.Context, partition int, from int64) iter.Seq2[record.Record, error] {
	return func(yield func(record.Record, error) bool) {
		q := Fetch{Partition: Partition{Topic: t.t.Name, ID: partition}, Offset: from}
		for {
			f, err := t.c.t.Fetch(ctx, q)
			if err != nil {
				yield(record.Record{}, t.c.check(err))
				return
			}
			for _, r := range f.Records {
				if !yield(r, nil) {
					return
				}
			}
			q.LeaderEpoch = max(q.LeaderEpoch, f.LeaderEpoch)
			if f.NextOffset == q.Offset {
				return
			}
			q.Offset = f.NextOffset
		}
	}
}

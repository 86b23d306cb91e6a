// Package mirror copies topics, records and committed offsets from one log to another,
// whatever they are: directories, Logbook's brokers, Kafka clusters.
//
// A copy can be killed at any time and run again: what the target has is counted, compared
// where it ends, and not copied twice. So nothing else may write to the target's topics
// before the copy is done. Offsets begin at 0 in the target, and have no gaps; committed
// offsets are translated.
package mirror

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"logbook/engine/failure"
	"logbook/engine/record"
	"logbook/engine/stream"
	"logbook/engine/topic"
)

// Options configure a copy. The zero value copies everything.
type Options struct {
	Topics []string // none: all that are not internal
	Groups []string // none: all
	// Replication of topics that are made; 0 is the target's default.
	Replication int
	// Copied, if set, is told of records that are in the target, those included that were
	// there before. It is called from several goroutines.
	Copied func(topic string, records int)
}

// Partition is what became of a partition.
type Partition struct {
	Topic     string
	Partition int
	Records   int64 // in the target, when it was done
	Before    int64 // of these, found there
}

// Offset is a committed offset that was carried over.
type Offset struct {
	Group     string
	Partition stream.Partition
	From, To  int64
}

// Report is what a copy did, in order.
type Report struct {
	Partitions []Partition
	Offsets    []Offset
}

// ConflictError: the target holds something else than a copy of the source.
type ConflictError struct {
	Partition stream.Partition
	Offset    int64 // in the target
	Reason    string
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("mirror: %s of the target is no copy of the source: offset %d: %s; copy into topics that nobody else writes to", e.Partition, e.Offset, e.Reason)
}

// batchRecords and batchBytes bound what is sent together.
const (
	batchRecords = 1000
	batchBytes   = 512 << 10
)

// atOnce is how many partitions are copied at the same time.
const atOnce = 4

// Copy copies what is in from when it begins.
//
// Errors: *ConflictError, *stream.OutOfRangeError (the source's retention was faster), those
// of the logs.
func Copy(ctx context.Context, from, to *stream.Client, opt Options) (Report, error) {
	names, err := topics(ctx, from, opt.Topics)
	if err != nil {
		return Report{}, err
	}
	wanted, err := committed(ctx, from, names, opt.Groups)
	if err != nil {
		return Report{}, err
	}
	var parts []stream.Partition
	for _, name := range names {
		source, err := from.Topic(ctx, name)
		if err == nil {
			err = prepare(ctx, to, source, opt.Replication)
		}
		if err != nil {
			return Report{}, err
		}
		for id := range source.Partitions() {
			parts = append(parts, stream.Partition{Topic: name, ID: id})
		}
	}
	if err := settle(ctx, to.Transport(), parts); err != nil {
		return Report{}, err
	}
	report := Report{Partitions: make([]Partition, len(parts))}
	translated := make([]map[int64]int64, len(parts))
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	slots := make(chan struct{}, atOnce)
	var group sync.WaitGroup
	for i, p := range parts {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			if ctx.Err() != nil {
				return
			}
			c := copying{from: from.Transport(), to: to.Transport(), p: p, offsets: wanted.of(p), copied: opt.Copied}
			var err error
			if report.Partitions[i], translated[i], err = c.run(ctx); err != nil {
				stop(fmt.Errorf("mirror: copying %s: %w", p, err))
			}
		})
	}
	group.Wait()
	if err := context.Cause(ctx); err != nil {
		return report, err
	}
	report.Offsets, err = wanted.store(ctx, to, parts, translated)
	return report, err
}

func topics(ctx context.Context, from *stream.Client, names []string) ([]string, error) {
	if len(names) > 0 {
		return names, nil
	}
	return from.Topics(ctx)
}

// prepare makes sure that the target has the topic.
func prepare(ctx context.Context, to *stream.Client, source *stream.TopicHandle, replication int) error {
	t, err := to.Topic(ctx, source.Name())
	if e, ok := errors.AsType[*failure.Error](err); ok && e.Code == failure.UnknownTopic {
		q := stream.Topic{Name: source.Name(), Partitions: source.Partitions(), Replication: replication}
		if rule := source.Partitioner(); rule != nil && rule.Name() != topic.Murmur2.Name() {
			q.Partitioner = rule.Name()
		}
		t, err = to.Create(ctx, q)
	}
	if err != nil {
		return err
	}
	if t.Partitions() != source.Partitions() {
		return fmt.Errorf("mirror: topic %q has %d partitions, in the target %d: keys would find other records", source.Name(), source.Partitions(), t.Partitions())
	}
	return nil
}

// settled is how long the target must not grow before what it has is counted: a copy that was
// killed may have sent what is not stored yet.
const settled = 300 * time.Millisecond

// settle waits until the target is at rest.
func settle(ctx context.Context, to stream.Transport, parts []stream.Partition) error {
	var before []int64
	for {
		var ends []int64
		sum := int64(0)
		for _, p := range parts {
			end, err := to.Offset(ctx, p, stream.Latest, timeless)
			if err != nil {
				return err
			}
			ends, sum = append(ends, end), sum+end
		}
		if sum == 0 || slices.Equal(before, ends) {
			return nil
		}
		before = ends
		select {
		case <-time.After(settled):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// offsets are committed ones, by group.
type offsets map[string]map[stream.Partition]int64

func committed(ctx context.Context, from *stream.Client, topics, groups []string) (offsets, error) {
	if len(groups) == 0 {
		var err error
		if groups, err = from.Groups(ctx); err != nil {
			return nil, err
		}
	}
	out := offsets{}
	for _, name := range groups {
		all, err := from.Transport().Committed(ctx, name, 0)
		if err != nil {
			return nil, err
		}
		maps.DeleteFunc(all, func(p stream.Partition, _ int64) bool { return !slices.Contains(topics, p.Topic) })
		if len(all) > 0 {
			out[name] = all
		}
	}
	return out, nil
}

// of lists the offsets in a partition, in order.
func (o offsets) of(p stream.Partition) []int64 {
	var out []int64
	for _, all := range o {
		if at, ok := all[p]; ok {
			out = append(out, at)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// store commits what was translated.
func (o offsets) store(ctx context.Context, to *stream.Client, parts []stream.Partition, translated []map[int64]int64) ([]Offset, error) {
	var out []Offset
	for _, name := range slices.Sorted(maps.Keys(o)) {
		set := map[stream.Partition]int64{}
		for i, p := range parts {
			if at, ok := o[name][p]; ok {
				set[p] = translated[i][at]
				out = append(out, Offset{Group: name, Partition: p, From: at, To: set[p]})
			}
		}
		if err := to.SetOffsets(ctx, name, set); err != nil {
			return out, fmt.Errorf("mirror: storing what group %q has committed: %w", name, err)
		}
	}
	return out, nil
}

// copying copies a partition.
type copying struct {
	from, to stream.Transport
	p        stream.Partition
	offsets  []int64 // to be translated, in order
	copied   func(topic string, records int)

	n     int64 // records read of the source
	there int64 // records that the target has already
	last  record.Record
	batch []record.Record
	bytes int
}

// run copies, and translates the offsets.
func (c *copying) run(ctx context.Context) (Partition, map[int64]int64, error) {
	done := Partition{Topic: c.p.Topic, Partition: c.p.ID}
	translated := map[int64]int64{}
	var err error
	if c.there, c.last, err = count(ctx, c.to, c.p); err != nil {
		return done, nil, err
	}
	done.Before = c.there
	waiting := c.offsets
	err = scan(ctx, c.from, c.p, func(r record.Record) error {
		for len(waiting) > 0 && waiting[0] <= r.Offset {
			translated[waiting[0]], waiting = c.n, waiting[1:]
		}
		return c.take(ctx, r)
	})
	if err == nil {
		err = c.flush(ctx)
	}
	if err == nil && c.n < c.there {
		err = &ConflictError{Partition: c.p, Offset: c.n, Reason: "the source has no more records"}
	}
	for _, at := range waiting {
		translated[at] = c.n
	}
	done.Records = c.n
	return done, translated, err
}

// take passes over a record that the target has, or sends it.
func (c *copying) take(ctx context.Context, r record.Record) error {
	c.n++
	if c.n <= c.there {
		if c.n == c.there && !same(r, c.last) {
			return &ConflictError{Partition: c.p, Offset: c.n - 1, Reason: "another record is there"}
		}
		c.tell(1)
		return nil
	}
	c.batch = append(c.batch, r)
	if c.bytes += r.Size() + 32; len(c.batch) < batchRecords && c.bytes < batchBytes {
		return nil
	}
	return c.flush(ctx)
}

func (c *copying) flush(ctx context.Context) error {
	if len(c.batch) == 0 {
		return nil
	}
	at, err := c.to.Produce(ctx, c.p, stream.AcksDefault, c.batch)
	if err != nil {
		return err
	}
	if want := c.n - int64(len(c.batch)); at.Offset != want {
		return &ConflictError{Partition: c.p, Offset: at.Offset, Reason: fmt.Sprintf("offset %d was due: somebody else writes there, or a record was stored twice", want)}
	}
	c.tell(len(c.batch))
	c.batch, c.bytes = c.batch[:0:0], 0
	return nil
}

func (c *copying) tell(records int) {
	if c.copied != nil {
		c.copied(c.p.Topic, records)
	}
}

// count returns how many records the target has, and the last of them.
func count(ctx context.Context, to stream.Transport, p stream.Partition) (n int64, last record.Record, err error) {
	first, err := to.Offset(ctx, p, stream.Earliest, timeless)
	if err != nil {
		return 0, last, err
	}
	end, err := to.Offset(ctx, p, stream.Latest, timeless)
	if err != nil || end == 0 {
		return 0, last, err
	}
	if first > 0 {
		return 0, last, &ConflictError{Partition: p, Offset: first, Reason: "the target's log begins there: records of it are gone"}
	}
	f, err := to.Fetch(ctx, stream.Fetch{Partition: p, Offset: end - 1})
	if err == nil && (len(f.Records) == 0 || f.Records[0].Offset != end-1) {
		err = &ConflictError{Partition: p, Offset: end - 1, Reason: "it holds no record"}
	}
	if err != nil {
		return 0, last, err
	}
	return end, f.Records[0], nil
}

// same compares what a copy keeps.
func same(a, b record.Record) bool {
	return bytes.Equal(a.Key, b.Key) && (a.Key == nil) == (b.Key == nil) && bytes.Equal(a.Value, b.Value) && (a.Value == nil) == (b.Value == nil) &&
		a.Timestamp.UnixMilli() == b.Timestamp.UnixMilli() &&
		slices.EqualFunc(a.Headers, b.Headers, func(x, y record.Header) bool {
			return x.Key == y.Key && bytes.Equal(x.Value, y.Value)
		})
}

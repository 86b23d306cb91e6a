package foreign

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"logbook/engine/failure"
	"logbook/engine/record"
	"logbook/engine/stream"
)

var _ stream.Transport = (*Directory)(nil)

// readOnly refuses what would write.
func (d *Directory) readOnly() error {
	return &failure.Error{Code: failure.BadRequest, Message: fmt.Sprintf("%s is %s's directory, and is only read; copy it to a log of your own (logbook copy)", d.dir, d.kind)}
}

// Topics implements stream.Transport.
func (d *Directory) Topics(_ context.Context, names ...string) ([]stream.Topic, error) {
	if len(names) == 0 {
		names = slices.Sorted(maps.Keys(d.topics))
	}
	var out []stream.Topic
	for _, name := range names {
		t := d.topics[name]
		if t == nil {
			return nil, &failure.Error{Code: failure.UnknownTopic, Message: fmt.Sprintf("there is no topic %q in %s", name, d.dir)}
		}
		out = append(out, t.Topic)
	}
	return out, nil
}

func (d *Directory) log(p stream.Partition) (*log, error) {
	ts, err := d.Topics(context.Background(), p.Topic)
	if err != nil {
		return nil, err
	}
	if p.ID < 0 || p.ID >= ts[0].Partitions {
		return nil, &failure.Error{Code: failure.UnknownPartition, Message: fmt.Sprintf("topic %q has no partition %d", p.Topic, p.ID)}
	}
	return d.topics[p.Topic].logs[p.ID], nil
}

// Fetch implements stream.Transport. It never waits: nothing comes.
func (d *Directory) Fetch(_ context.Context, q stream.Fetch) (stream.Fetched, error) {
	l, err := d.log(q.Partition)
	if err != nil {
		return stream.Fetched{}, err
	}
	if q.Offset < l.start() || q.Offset > l.end {
		return stream.Fetched{}, &failure.Error{
			Code: failure.OutOfRange, Message: fmt.Sprintf("offset %d of %s is not from %d to %d", q.Offset, q.Partition, l.start(), l.end),
			LogStartOffset: l.start(), LogEndOffset: l.end,
		}
	}
	most := q.MaxBytes
	if most <= 0 {
		most = 1 << 20
	}
	out := stream.Fetched{NextOffset: q.Offset, HighWatermark: l.end, LogStartOffset: l.start()}
	if q.Offset < l.end {
		if out.Records, err = l.read(q.Offset, most); err != nil {
			return stream.Fetched{}, &failure.Error{Code: failure.Damaged, Message: err.Error(), Err: err}
		}
		out.NextOffset += int64(len(out.Records))
	}
	return out, nil
}

// Offset implements stream.Transport.
func (d *Directory) Offset(_ context.Context, p stream.Partition, where stream.Where, at time.Time) (int64, error) {
	l, err := d.log(p)
	if err != nil {
		return 0, err
	}
	switch where {
	case stream.Earliest:
		return l.start(), nil
	case stream.AtTime:
		return l.offsetAt(at)
	}
	return l.end, nil
}

// Groups implements stream.Transport: consumers with committed offsets.
func (d *Directory) Groups(context.Context) ([]string, error) {
	return slices.Sorted(maps.Keys(d.groups)), nil
}

// Committed implements stream.Transport.
func (d *Directory) Committed(_ context.Context, group string, _ int32) (map[stream.Partition]int64, error) {
	return maps.Clone(d.groups[group]), nil
}

// DescribeGroup implements stream.Transport.
func (d *Directory) DescribeGroup(_ context.Context, name string) (stream.Group, error) {
	offsets, ok := d.groups[name]
	if !ok {
		return stream.Group{}, &failure.Error{Code: failure.BadRequest, Message: fmt.Sprintf("there is no group %q in %s", name, d.dir)}
	}
	out := stream.Group{Name: name, State: "Empty", Members: map[string][]stream.Partition{}}
	for p, offset := range offsets {
		g := stream.GroupOffset{Partition: p, Offset: offset, HighWatermark: -1, Lag: -1}
		if l, err := d.log(p); err == nil {
			g.HighWatermark, g.Lag = l.end, l.end-offset
		}
		out.Offsets = append(out.Offsets, g)
	}
	slices.SortFunc(out.Offsets, func(a, b stream.GroupOffset) int { return a.Partition.Compare(b.Partition) })
	return out, nil
}

// CreateTopic implements stream.Transport; it refuses, as do the others below.
func (d *Directory) CreateTopic(context.Context, stream.Topic) (stream.Topic, error) {
	return stream.Topic{}, d.readOnly()
}

// Produce implements stream.Transport.
func (d *Directory) Produce(context.Context, stream.Partition, stream.Acks, []record.Record) (stream.Appended, error) {
	return stream.Appended{}, d.readOnly()
}

// DeleteRecords implements stream.Transport.
func (d *Directory) DeleteRecords(context.Context, stream.Partition, int64) (int64, error) {
	return 0, d.readOnly()
}

// Join implements stream.Transport.
func (d *Directory) Join(context.Context, string, stream.Join) (stream.Joined, error) {
	return stream.Joined{}, d.readOnly()
}

// Sync implements stream.Transport.
func (d *Directory) Sync(context.Context, string, stream.Membership) ([]stream.Partition, error) {
	return nil, d.readOnly()
}

// Heartbeat implements stream.Transport.
func (d *Directory) Heartbeat(context.Context, string, stream.Membership) (int32, error) {
	return 0, d.readOnly()
}

// Leave implements stream.Transport.
func (d *Directory) Leave(context.Context, string, stream.Membership) error { return d.readOnly() }

// Commit implements stream.Transport.
func (d *Directory) Commit(context.Context, string, stream.Membership, map[stream.Partition]int64) error {
	return d.readOnly()
}

// SetOffsets implements stream.Transport.
func (d *Directory) SetOffsets(context.Context, string, map[stream.Partition]int64, bool) error {
	return d.readOnly()
}

package engine

import (
	"context"
	"errors"
	"time"

	"logbook/engine/commitlog"
	"logbook/engine/controller"
	"logbook/engine/failure"
	"logbook/engine/group"
	"logbook/engine/metadata"
	"logbook/engine/node"
	"logbook/engine/record"
	"logbook/engine/replica"
	"logbook/engine/service"
	"logbook/engine/stream"
)

// local is the transport to a service in this process.
type local struct{ s *service.Service }

// patience is how long what may succeed later is tried again: the service begins to lead,
// or loads its groups.
const patience = 10 * time.Second

// retry calls until it succeeds, fails for good, or patience or ctx end.
func retry[T any](ctx context.Context, call func() (T, error)) (T, error) {
	deadline := time.Now().Add(patience)
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		v, err := call()
		e, ok := errors.AsType[*failure.Error](err)
		if !ok || !e.Retriable() || errors.Is(err, service.ErrClosed) || is[*commitlog.PoisonedError](err) || time.Now().After(deadline) {
			if errors.Is(err, service.ErrClosed) || errors.Is(err, node.ErrClosed) {
				err = ErrClosed
			}
			return v, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return v, ctx.Err()
		}
	}
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// call is retry for a request of the service that cannot be cancelled.
func call[T any](ctx context.Context, begin func(done func(T, error))) (T, error) {
	return retry(ctx, func() (T, error) {
		return await(ctx, func(done func(T, error)) func() { begin(done); return nil })
	})
}

func fromTopic(t *metadata.Topic) stream.Topic {
	return stream.Topic{Name: t.Name, Partitions: len(t.Partitions), Replication: t.Replication, Partitioner: t.Partitioner}
}

func (l *local) Topics(_ context.Context, names ...string) ([]stream.Topic, error) {
	all, err := l.s.Topics(names...)
	var out []stream.Topic
	for _, t := range all {
		if len(names) > 0 || !service.IsInternal(t.Name) {
			out = append(out, fromTopic(t))
		}
	}
	return out, err
}

func (l *local) CreateTopic(ctx context.Context, t stream.Topic) (stream.Topic, error) {
	spec := controller.TopicSpec{Name: t.Name, Partitions: t.Partitions, Replication: t.Replication, Partitioner: t.Partitioner}
	made, err := call(ctx, func(done func(*metadata.Topic, error)) { l.s.CreateTopic(spec, done) })
	if err != nil {
		return stream.Topic{}, err
	}
	return fromTopic(made), nil
}

func (l *local) Produce(ctx context.Context, p stream.Partition, acks stream.Acks, records []record.Record) (stream.Appended, error) {
	q := service.Produce{Topic: p.Topic, Partition: p.ID}
	if acks != stream.AcksDefault {
		a, err := replica.ParseAcks(string(acks))
		if err != nil {
			return stream.Appended{}, &failure.Error{Code: failure.BadRequest, Message: err.Error(), Err: err}
		}
		q.Acks = &a
	}
	at, err := call(ctx, func(done func(service.Produced, error)) {
		var err error
		if q.Batch, err = l.s.NewBatch(records); err != nil { // the service keeps each
			done(service.Produced{}, err)
			return
		}
		l.s.Produce(q, done)
	})
	return stream.Appended{Topic: p.Topic, Partition: at.Partition, Offset: at.BaseOffset, Timestamp: at.Timestamp}, err
}

func (l *local) Fetch(ctx context.Context, q stream.Fetch) (stream.Fetched, error) {
	if q.MaxBytes == 0 {
		q.MaxBytes = 1 << 20
	}
	request := service.Fetch{
		Partitions: []service.FetchPartition{{Partition: q.Partition, Offset: q.Offset, MaxBytes: q.MaxBytes, LeaderEpoch: q.LeaderEpoch}}, MaxWait: q.MaxWait,
	}
	f, err := retry(ctx, func() (service.Fetched, error) {
		return await(ctx, func(done func(service.Fetched, error)) func() {
			return l.s.Fetch(request, func(all []service.Fetched) { done(all[0], all[0].Err) })
		})
	})
	out := stream.Fetched{NextOffset: f.Next, HighWatermark: f.Look.HighWatermark, LogStartOffset: f.Look.LogStartOffset, LeaderEpoch: f.Look.LeaderEpoch}
	if err != nil {
		return out, err
	}
	for r, err := range f.Records(q.Offset) {
		if err != nil {
			out.Records = nil
			return out, err
		}
		out.Records = append(out.Records, r.Clone())
	}
	return out, nil
}

func (l *local) Offset(ctx context.Context, p stream.Partition, where stream.Where, at time.Time) (int64, error) {
	return call(ctx, func(done func(int64, error)) {
		l.s.ListOffset(p, service.Where(where), at, func(offset int64, _ node.Look, err error) { done(offset, err) })
	})
}

func (l *local) DeleteRecords(ctx context.Context, p stream.Partition, below int64) (int64, error) {
	return call(ctx, func(done func(int64, error)) { l.s.DeleteRecords(p, below, done) })
}

// coordinated calls a group's coordinator, which is made ready first if need be.
func coordinated[T any](ctx context.Context, l *local, group string, begin func(done func(T, error)) (cancel func())) (T, error) {
	return retry(ctx, func() (T, error) {
		_, err := await(ctx, func(done func(service.BrokerID, error)) func() { l.s.FindCoordinator(group, done); return nil })
		if err != nil {
			var none T
			return none, err
		}
		return await(ctx, begin)
	})
}

func (l *local) Join(ctx context.Context, name string, q stream.Join) (stream.Joined, error) {
	r := group.Request{
		Member: q.Member, NewMember: q.NewMember, Instance: q.Instance, Topics: q.Topics, Assignor: q.Assignor, SessionTimeout: q.SessionTimeout, RebalanceTimeout: q.RebalanceTimeout, Owned: q.Owned,
	}
	reply, err := coordinated(ctx, l, name, func(done func(service.GroupReply, error)) func() { return l.s.Join(name, r, done) })
	return stream.Joined{Member: reply.Member, Generation: reply.Generation, Epoch: reply.Epoch}, err
}

func (l *local) request(ctx context.Context, name string, r group.Request) (service.GroupReply, error) {
	return coordinated(ctx, l, name, func(done func(service.GroupReply, error)) func() { l.s.Group(name, r, done); return nil })
}

func request(kind group.Kind, m stream.Membership) group.Request {
	return group.Request{Kind: kind, Member: m.Member, Instance: m.Instance, Generation: m.Generation}
}

func (l *local) Sync(ctx context.Context, name string, m stream.Membership) ([]stream.Partition, error) {
	r, err := l.request(ctx, name, request(group.Sync, m))
	return r.Partitions, err
}

func (l *local) Heartbeat(ctx context.Context, name string, m stream.Membership) (int32, error) {
	r, err := l.request(ctx, name, request(group.Heartbeat, m))
	return r.Epoch, err
}

func (l *local) Leave(ctx context.Context, name string, m stream.Membership) error {
	_, err := l.request(ctx, name, request(group.Leave, m))
	return err
}

func (l *local) Commit(ctx context.Context, name string, m stream.Membership, offsets map[stream.Partition]int64) error {
	r := request(group.Commit, m)
	r.Offsets = offsets
	_, err := l.request(ctx, name, r)
	return err
}

func (l *local) SetOffsets(ctx context.Context, name string, offsets map[stream.Partition]int64, reset bool) error {
	_, err := coordinated(ctx, l, name, func(done func(struct{}, error)) func() {
		l.s.SetOffsets(name, offsets, reset, func(err error) { done(struct{}{}, err) })
		return nil
	})
	return err
}

func (l *local) Committed(ctx context.Context, name string, epoch int32) (map[stream.Partition]int64, error) {
	return coordinated(ctx, l, name, func(done func(map[stream.Partition]int64, error)) func() {
		l.s.Committed(name, epoch, done)
		return nil
	})
}

func (l *local) Groups(ctx context.Context) ([]string, error) {
	return call(ctx, func(done func([]string, error)) {
		if err := l.s.GroupsReady(); err != nil {
			done(nil, err)
			return
		}
		l.s.Groups(func(names []string) { done(names, nil) })
	})
}

func (l *local) DescribeGroup(ctx context.Context, name string) (stream.Group, error) {
	d, err := coordinated(ctx, l, name, func(done func(service.GroupDescription, error)) func() { l.s.DescribeGroup(name, done); return nil })
	out := stream.Group{Name: name, State: string(d.State), Generation: d.Generation, Members: map[string][]stream.Partition{}}
	for _, m := range d.Members {
		out.Members[m.ID] = m.Partitions
	}
	for _, o := range d.Offsets {
		out.Offsets = append(out.Offsets, stream.GroupOffset{Partition: o.Partition, Offset: o.Offset, HighWatermark: o.HighWatermark, Lag: o.Lag})
	}
	return out, err
}

package controller

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"logbook/engine/commitlog"
	"logbook/engine/metadata"
	"logbook/engine/replica"
)

// Ledger is a manual controller beside the brokers, for who may wait for its disk: the
// brokers of one process (package cluster). It drives a Manual. It is safe for concurrent use.
type Ledger struct {
	store *metadata.Store
	image atomic.Pointer[metadata.Image]

	mu       sync.Mutex // one command at a time
	machine  *Manual
	nextID   uint64
	watchers []func(Partition, replica.Assignment)
	done     map[uint64]Done
}

// OpenLedger reads the decisions kept in a directory, or starts without any. choose picks
// leaders; nil is Longest.
//
// Errors: *metadata.DamageError, *commitlog.LockedError.
func OpenLedger(dir string, opt commitlog.Options, choose Choice) (*Ledger, error) {
	store, image, err := metadata.OpenStore(dir, opt)
	if err != nil {
		return nil, err
	}
	l := &Ledger{store: store, machine: NewManual(ManualConfig{Choose: choose, FirstVersion: 1}, image), done: map[uint64]Done{}}
	l.image.Store(image)
	return l, nil
}

// Image is what is decided.
func (l *Ledger) Image() *metadata.Image { return l.image.Load() }

// Watch calls f with each decision made from now on, after it counts. f must not call the
// ledger.
func (l *Ledger) Watch(f func(Partition, replica.Assignment)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watchers = append(l.watchers, f)
}

// perform carries effects out. l.mu is held.
func (l *Ledger) perform(ctx context.Context, effects []Effect, probe Prober) {
	for len(effects) > 0 {
		e := effects[0]
		effects = effects[1:]
		var more []Effect
		now := time.Time{} // nothing here waits for time to pass
		switch e := e.(type) {
		case Persist:
			err := l.store.Append(e.Records)
			more = l.machine.Persisted(now, err)
			l.image.Store(l.machine.Image())
		case MakeReplicas:
			more = l.machine.ReplicasMade(now, e.ID, nil)
		case Send:
			more = l.machine.Step(now, e.To, answer(ctx, probe, e))
		case Decide:
			for _, f := range l.watchers {
				f(e.Partition, e.Assignment.Clone())
			}
		case Done:
			l.done[e.ID] = e
		}
		effects = append(more, effects...)
	}
}

// answer asks a broker what the controller wants to know.
func answer(ctx context.Context, probe Prober, e Send) Message {
	switch q := e.Message.(type) {
	case AskReport:
		r := probe.Report(ctx, q.Partition, e.To)
		reply := ReportReply{ID: q.ID, LogStartOffset: r.LogStartOffset, LogEndOffset: r.LogEndOffset, LastEpoch: r.LastEpoch}
		if r.Err != nil {
			reply.Err = r.Err.Error()
		}
		return reply
	case AskDigests:
		digests, err := probe.FrameDigests(ctx, q.Partition, e.To, q.From, q.Max)
		reply := DigestsReply{ID: q.ID, Digests: digests}
		if err != nil {
			reply.Err = err.Error()
		}
		return reply
	case CreateReplicas:
		return ReplicasCreated{ID: q.ID} // whoever makes topics here has made them
	}
	return nil
}

// Register records a broker that starts, and begins a new epoch for what it leads.
//
// Errors: *BrokerError, *EpochError, *metadata.UnsettledError, and what kept it from being stored.
func (l *Ledger) Register(id replica.BrokerID) error {
	return l.change(func(done func(error)) { l.machine.register(id, done) })
}

// Propose asks for a change of the in-sync replicas.
//
// Errors: *UnknownPartitionError, *StaleError, *metadata.UnsettledError, and what kept the
// change from being stored; after all but *metadata.UnsettledError it does not count.
func (l *Ledger) Propose(p Partition, a replica.Assignment) error {
	return l.change(func(done func(error)) { l.machine.propose(p, a, done) })
}

// change makes a change and returns when it counts, or surely does not.
func (l *Ledger) change(begin func(done func(error))) (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.machine.begin(time.Time{})
	begin(func(e error) { err = e })
	l.perform(context.Background(), l.machine.effects(), nil)
	return err
}

// CreateTopic records a topic, placed over the known brokers as Place does.
//
// Errors: those of CheckTopic, *BrokerError, and what kept it from being stored.
func (l *Ledger) CreateTopic(spec TopicSpec) error {
	return l.command(context.Background(), nil, func(id uint64) []Effect { return l.machine.CreateTopic(time.Time{}, id, spec) }).Err
}

// Failover gives a partition whose leader is gone a new one; see Manual.Failover.
func (l *Ledger) Failover(ctx context.Context, p Partition, probe Prober) (FailoverResult, error) {
	d := l.command(ctx, probe, func(id uint64) []Effect { return l.machine.Failover(time.Time{}, id, p) })
	return d.Failover, d.Err
}

func (l *Ledger) command(ctx context.Context, probe Prober, begin func(id uint64) []Effect) Done {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nextID++
	id := l.nextID
	l.perform(ctx, begin(id), probe)
	d := l.done[id]
	delete(l.done, id)
	return d
}

// Close closes the log of decisions.
func (l *Ledger) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.store.Close()
}

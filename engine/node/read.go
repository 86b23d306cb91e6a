package node

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"logbook/engine/commitlog"
	"logbook/engine/controller"
	"logbook/engine/record"
	"logbook/engine/replica"
)

// Look is what a leader knows of a partition, at one moment.
type Look struct {
	LeaderEpoch    int32
	LogStartOffset int64
	HighWatermark  int64 // consumers may read below it; never below LogStartOffset
	LogEndOffset   int64
	// Settled: the high watermark is at least what an earlier leader may have shown. Until
	// then there is no telling where the end is.
	Settled bool
	ISR     int // how many replicas are in sync, the leader among them
	// Copy: it is a follower that has looked, which may know less than the leader shows.
	Copy   bool
	Format record.Format
}

// Look looks at a partition, which this node must lead.
//
// Errors: *NotLeaderError, *NoReplicaError, *MissingReplicaError, *CorruptReplicaError, ErrClosed.
func (n *Node) Look(p Partition) (Look, error) {
	return n.LookHere(p, false)
}

// LookHere is Look also for a follower that is in sync, where copies will do.
//
// Errors: those of Look.
func (n *Node) LookHere(p Partition, copies bool) (Look, error) {
	_, look, err := n.look(p, copies)
	return look, err
}

// look looks at a partition that this node leads or, where copies will do, follows in sync.
func (n *Node) look(p Partition, copies bool) (*replicaDriver, Look, error) {
	d, err := n.lookup(p)
	if err != nil {
		return nil, Look{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	err = d.checkLeads()
	if err != nil && (!copies || !d.follows()) {
		return nil, Look{}, n.wrap(p, err)
	}
	start := d.log.StartOffset()
	return d, Look{
		LeaderEpoch: d.machine.LeaderEpoch(), LogStartOffset: start, HighWatermark: max(start, d.machine.HighWatermark()),
		LogEndOffset: d.log.EndOffset(), Settled: d.machine.Settled(), Format: d.log.Format(),
		ISR: d.machine.InSync(), Copy: err != nil,
	}, nil
}

// follows reports whether consumers may read from this follower. d.mu is held.
func (d *replicaDriver) follows() bool {
	return d.machine != nil && d.stopped == nil && d.log != nil && d.machine.Follows()
}

// Read reads whole frames from an offset on, for a consumer: at most max bytes or one
// frame, and none at or above the high watermark. known is the highest leader epoch that
// the consumer has heard of: a leader of an earlier one was replaced, and must not be
// believed (KIP-320). Where copies will do, a follower that is in sync serves what it knows to be
// safe (KIP-392).
//
// Errors: those of Look, *StaleLeaderError, *commitlog.OffsetOutOfRangeError,
// *OffsetNotAvailableError, *commitlog.CorruptionError.
func (n *Node) Read(p Partition, from int64, max int, known int32, copies bool) (Look, commitlog.Chunk, error) {
	d, look, err := n.look(p, copies)
	if err != nil {
		return look, commitlog.Chunk{}, err
	}
	if known > look.LeaderEpoch {
		return look, commitlog.Chunk{}, &StaleLeaderError{Partition: p, Broker: n.opt.ID, LeaderEpoch: look.LeaderEpoch, Known: known}
	}
	if from < look.HighWatermark || from > look.LogEndOffset {
		c, err := d.log.ReadFrames(from, look.HighWatermark, max)
		return look, c, d.damaged(err)
	}
	if !look.Settled && (!look.Copy || from != look.HighWatermark) {
		err = &OffsetNotAvailableError{Partition: p, Broker: n.opt.ID, HighWatermark: look.HighWatermark}
	}
	return look, commitlog.Chunk{Base: from, Next: from}, err
}

// OffsetForTime returns the offset of the first record that consumers may read and whose
// timestamp is at or after a time, or the high watermark where there is none.
//
// Errors: those of Look, *commitlog.CorruptionError.
func (n *Node) OffsetForTime(p Partition, nanos int64) (int64, error) {
	d, look, err := n.look(p, false)
	if err != nil {
		return 0, err
	}
	at, err := d.log.OffsetForTime(nanos)
	return min(at, look.HighWatermark), err
}

// EpochEnd returns the latest leader epoch of a partition that is not after a given one, and
// the offset after its last record: where a reader of that epoch must go back to (KIP-320).
// The epoch is -1 where there is none so old.
//
// Errors: those of Look.
func (n *Node) EpochEnd(p Partition, epoch int32) (int32, int64, error) {
	d, look, err := n.look(p, false)
	if err != nil {
		return -1, -1, err
	}
	if epoch == look.LeaderEpoch {
		return epoch, look.LogEndOffset, nil
	}
	e, end := d.state().EpochEnd(epoch)
	return e, end, nil
}

// Size is how many bytes a replica's log has; 0 where it cannot be used.
func (n *Node) Size(p Partition) int64 {
	d, err := n.opened(p)
	if err != nil {
		return 0
	}
	return d.log.Bytes()
}

// Producers describes the idempotent producers that a partition's leader remembers, by id.
//
// Errors: those of Look.
func (n *Node) Producers(p Partition) ([]commitlog.ProducerBatch, error) {
	d, _, err := n.look(p, false)
	if err != nil {
		return nil, err
	}
	last := map[int64]commitlog.ProducerBatch{}
	err = d.log.ProducerBatches(func(b commitlog.ProducerBatch, _ commitlog.Appended) { last[b.ID] = b })
	return slices.SortedFunc(maps.Values(last), func(a, b commitlog.ProducerBatch) int { return cmp.Compare(a.ID, b.ID) }), err
}

// Own iterates over the records that this broker's replica holds, whether it leads or not
// and whether they are safe or not, from its log start on. It is for looking at a replica,
// and for a coordinator, which waits until they are safe.
func (n *Node) Own(p Partition) iter.Seq2[record.Record, error] {
	return func(yield func(record.Record, error) bool) {
		d, err := n.opened(p)
		if err != nil {
			yield(record.Record{}, err)
			return
		}
		for r, err := range d.log.Records(d.log.StartOffset()) {
			if !yield(r, err) {
				return
			}
		}
	}
}

// FrameDigests returns the digests of at most max frames of this broker's replica.
func (n *Node) FrameDigests(p Partition, from int64, max int) ([]commitlog.FrameDigest, error) {
	d, err := n.opened(p)
	if err != nil {
		return nil, err
	}
	return d.log.FrameDigests(from, max)
}

// Records iterates over the records from an offset up to the high watermark, as it is when
// the iteration gets there. A record is borrowed until the next one. See Look for errors.
func (n *Node) Records(p Partition, from int64) iter.Seq2[record.Record, error] {
	return func(yield func(record.Record, error) bool) {
		d, _, err := n.look(p, false)
		if err != nil {
			yield(record.Record{}, err)
			return
		}
		for r, err := range d.log.Records(from) {
			if err == nil && r.Offset >= d.hw.Load() || !yield(r, err) {
				return
			}
		}
	}
}

// opened returns the driver of a replica whose log is open.
func (n *Node) opened(p Partition) (*replicaDriver, error) {
	d, err := n.lookup(p)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.log == nil {
		return nil, d.broken
	}
	return d, nil
}

// Status returns what a replica is and knows.
func (n *Node) Status(p Partition) (replica.Status, error) {
	d, err := n.lookup(p)
	if err != nil {
		return replica.Status{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.machine == nil {
		return replica.Status{}, d.broken
	}
	s := d.machine.Status()
	s.Problem = n.wrap(p, s.Problem)
	return s, nil
}

// Report describes a replica for the choice of a leader.
func (n *Node) Report(p Partition) controller.Report {
	r := controller.Report{Broker: n.opt.ID}
	d, err := n.usable(p)
	if r.Err = err; err != nil {
		return r
	}
	log := d.state()
	r.LogStartOffset, r.LogEndOffset, r.LastEpoch = log.LogStartOffset, log.LogEndOffset, log.LastEpoch()
	return r
}

// Usable reports whether this node can use its replica of a partition: whether Report would say no
// more of it than where its log ends.
func (n *Node) Usable(p Partition) bool {
	_, err := n.usable(p)
	return err == nil
}

// usable returns the driver of a replica that can be used.
func (n *Node) usable(p Partition) (*replicaDriver, error) {
	d, err := n.opened(p)
	if err == nil {
		err = d.log.Usable()
	}
	if err == nil {
		if damage := d.damage.Load(); damage != nil {
			err = *damage
		}
	}
	return d, err
}

// watcher waits for a record to become readable.
type watcher struct {
	offset int64
	epoch  int32
	fire   func()
}

// Watch calls fire, once, when a consumer may read the record at an offset, or there is
// something else to say: this node leads (or, where copies will do, follows) no more, in another
// epoch, or is closed. That may be before Watch returns. fire must not wait. cancel takes it back.
func (n *Node) Watch(p Partition, offset int64, copies bool, fire func()) (cancel func()) {
	d, err := n.lookup(p)
	if err != nil {
		fire()
		return func() {}
	}
	d.mu.Lock()
	leads := d.checkLeads() == nil
	if !leads && (!copies || !d.follows()) || offset < d.machine.HighWatermark() {
		d.mu.Unlock()
		fire()
		return func() {}
	}
	w := &watcher{offset: offset, epoch: d.epoch(), fire: fire}
	d.watchers = append(d.watchers, w)
	d.mu.Unlock()
	if !leads {
		d.tell(func(r replica.Machine) []replica.Effect { return r.Readers(n.now()) })
	}
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if i := slices.Index(d.watchers, w); i >= 0 {
			d.watchers = slices.Delete(d.watchers, i, i+1)
		}
	}
}

// takeWatchers takes out those that are to be woken. d.mu is held.
func (d *replicaDriver) takeWatchers(wanted func(*watcher) bool) []*watcher {
	var out []*watcher
	d.watchers = slices.DeleteFunc(d.watchers, func(w *watcher) bool {
		if wanted(w) {
			out = append(out, w)
			return true
		}
		return false
	})
	return out
}

func wakeAll(watchers []*watcher) {
	for _, w := range watchers {
		w.fire()
	}
}

package node

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"logbook/engine/commitlog"
	"logbook/engine/replica"
)

// replicaDriver drives one replica: it is what package replica leaves out, the disk, the
// messages and the waiting.
type replicaDriver struct {
	node      *Node
	partition Partition
	log       *commitlog.Log                     // nil while broken; set once
	assigned  atomic.Pointer[replica.Assignment] // the last decision that came

	role     sync.RWMutex // shared: appends; exclusive: a change of role
	changing atomic.Int32 // changes of role that wait: no append joins those under way

	mu        sync.Mutex // what follows
	machine   replica.Machine
	broken    error         // why the replica has no log
	stopped   error         // why it takes no more work; nil while it does
	quit      chan struct{} // closed when stopped
	nextID    uint64
	waiting   map[uint64]func(error) // writes and commands
	inbox     []func() []replica.Effect
	running   bool
	appends   []*pendingAppend // not begun
	begun     []*pendingAppend // given to the log, by the one who holds role for them
	appending bool
	joinable  bool // what comes can be begun at once
	watchers  []*watcher
	producers *producers // nil: not read in this term

	damage atomic.Pointer[error] // found in the log while it was read; nil: none
	hw     atomic.Int64
	whole  atomic.Bool // log is open
	due    int         // place in the heap of deadlines, which guards it
	dueAt  time.Time
}

// open opens or makes the log. d.mu is held.
func (d *replicaDriver) open(create bool) {
	dir := d.node.Dir(d.partition)
	if !create && !d.exists(dir) {
		d.broken = &MissingReplicaError{Partition: d.partition, Broker: d.node.opt.ID, Dir: dir}
		return
	}
	l, err := commitlog.Open(dir, d.node.opt.Log)
	if err != nil {
		d.broken = openError(d.partition, d.node.opt.ID, err)
		if _, refused := errors.AsType[*OpenReplicaError](d.broken); refused {
			d.node.troubled()
		}
		return
	}
	if l.Usable() != nil {
		d.node.troubled() // the disk failed while the log was opened: it is to be opened again
	}
	d.log, d.broken = l, nil
	d.whole.Store(true)
	cfg := d.node.opt.Replica
	cfg.FirstSeq = uint64(max(0, d.node.now().UnixNano()))
	d.machine = d.node.opt.Machine(cfg, d.state(), d.node.marks.get(d.partition))
	d.hw.Store(d.machine.HighWatermark())
}

// exists reports whether there is anything of a log in dir. One that is gone must not
// come back empty: as an in-sync replica it would pass for one that holds every record.
func (d *replicaDriver) exists(dir string) bool {
	names, err := d.node.fs.ReadDir(dir)
	return len(names) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist)
}

// state is what the state machine knows of the log.
func (d *replicaDriver) state() replica.Log {
	return replica.Log{LogStartOffset: d.log.StartOffset(), LogEndOffset: d.log.EndOffset(), Epochs: d.log.Epochs(), FirstOffset: d.log.FirstOffset()}
}

// saved is the high watermark to be kept for the next life.
func (d *replicaDriver) saved() (int64, bool) { return d.hw.Load(), d.whole.Load() }

// post puts work into the inbox.
func (d *replicaDriver) post(work func() []replica.Effect) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.machine == nil || d.stopped != nil {
		return
	}
	d.inbox = append(d.inbox, work)
	if !d.running {
		d.running = true
		d.node.run(d.drain)
	}
}

// flush waits until what is in the inbox now is done.
func (d *replicaDriver) flush() {
	done := make(chan struct{})
	d.post(func() []replica.Effect { close(done); return nil })
	d.mu.Lock()
	idle := d.machine == nil || d.stopped != nil
	d.mu.Unlock()
	if idle {
		return
	}
	d.node.pump()
	select {
	case <-done:
	case <-d.quit:
	}
}

// drain works until the inbox is empty.
func (d *replicaDriver) drain() {
	for {
		d.mu.Lock()
		if len(d.inbox) == 0 || d.stopped != nil {
			d.running = false
			d.mu.Unlock()
			return
		}
		work := d.inbox[0]
		d.inbox = d.inbox[1:]
		d.mu.Unlock()
		d.perform(work())
	}
}

// tell has the state machine take a step when its turn has come.
func (d *replicaDriver) tell(input func(replica.Machine) []replica.Effect) {
	d.post(func() []replica.Effect { return d.step(input) })
}

// step lets the state machine take a step.
func (d *replicaDriver) step(input func(replica.Machine) []replica.Effect) []replica.Effect {
	d.mu.Lock()
	out := input(d.machine)
	wake := d.advance()
	d.mu.Unlock()
	wakeAll(wake)
	return out
}

// advance shows what a step has led to: the high watermark, and the next deadline. d.mu is
// held; who watches is returned, to be woken without it.
func (d *replicaDriver) advance() []*watcher {
	d.node.deadlines.set(d, d.machine.Next())
	hw := d.machine.HighWatermark()
	if d.hw.Swap(hw) == hw {
		return nil
	}
	if d.node.saveAt.Load() == 0 && d.node.saveAt.CompareAndSwap(0, d.node.now().UnixNano()+saveEvery) && d.node.opt.Wake != nil {
		d.node.opt.Wake()
	}
	return d.takeWatchers(func(w *watcher) bool { return w.offset < hw })
}

// assign changes the role. No append is under way meanwhile: what a leader takes belongs
// to its epoch.
func (d *replicaDriver) assign(a replica.Assignment) []replica.Effect {
	d.changing.Add(1)
	defer d.changing.Add(-1)
	d.role.Lock()
	defer d.role.Unlock()
	d.mu.Lock()
	if d.machine.LeaderEpoch() != a.LeaderEpoch {
		d.producers = nil // another leader may have written
	}
	d.mu.Unlock()
	out := d.step(func(r replica.Machine) []replica.Effect { return r.Assign(d.node.now(), a) })
	var rest []replica.Effect
	for _, e := range out {
		// The epoch must have begun in the log before an append can come.
		if start, ok := e.(replica.StartEpoch); ok {
			err := d.log.StartEpoch(start.Epoch)
			d.observe(Leads, Event{LeaderEpoch: start.Epoch})
			rest = append(rest, d.logged(err)...)
			continue
		}
		rest = append(rest, e)
	}
	d.mu.Lock()
	wake := d.takeWatchers(func(w *watcher) bool { return d.checkLeads() != nil || d.epoch() != w.epoch })
	d.mu.Unlock()
	wakeAll(wake)
	return rest
}

// epoch is the leader epoch of the present assignment. d.mu is held.
func (d *replicaDriver) epoch() int32 {
	if a := d.assigned.Load(); a != nil {
		return a.LeaderEpoch
	}
	return 0
}

// logged tells the state machine what became of a storage effect.
func (d *replicaDriver) logged(err error) []replica.Effect {
	if err != nil {
		d.node.logger.Error("a replica's disk failed", "broker", d.node.opt.ID, "partition", d.partition, "error", err)
		d.node.troubled()
	}
	log := d.state()
	return d.step(func(r replica.Machine) []replica.Effect { return r.Logged(d.node.now(), log, err) })
}

// perform carries effects out, in order.
func (d *replicaDriver) perform(effects []replica.Effect) {
	for _, e := range effects {
		switch e := e.(type) {
		case replica.Copy:
			_, err := d.log.AppendReplica(e.Frames, e.Epoch)
			_ = d.damaged(err)
			if err == nil {
				d.observe(Stored, Event{LeaderEpoch: e.Epoch})
			} else {
				d.observe(StoreFailed, Event{Err: err})
			}
			d.perform(d.logged(err))
		case replica.Truncate:
			err := d.keepAside("cutting a replica to what its leader has", e.To, e.To)
			if err == nil {
				_, err = d.log.Truncate(e.To)
				d.observe(Cut, Event{Err: err})
			}
			d.perform(d.logged(err))
		case replica.Reset:
			err := d.keepAside("emptying a replica that does not reach its leader's log", e.To, 0)
			if err == nil {
				err = d.log.Reset(e.To)
				d.observe(Cut, Event{Err: err})
			}
			d.perform(d.logged(err))
		case replica.Advance:
			d.perform(d.logged(d.log.AdvanceLogStart(e.To)))
		case replica.Compare:
			same, differs, err := compareDigests(d.log, e.From, e.Digests)
			d.perform(d.step(func(r replica.Machine) []replica.Effect { return r.Compared(d.node.now(), same, differs, err) }))
		case replica.Send:
			d.send(e.Message)
		case replica.SendFrames:
			d.sendFrames(e)
		case replica.SendDigests:
			d.sendDigests(e)
		case replica.Propose:
			d.node.opt.Propose(d.partition, e.Assignment)
		case replica.Done:
			d.done(e.ID, e.Err)
		case replica.Finished:
			d.done(e.ID, e.Err)
		default:
			panic(fmt.Sprintf("node: an effect that nobody carries out: %T", e))
		}
	}
}

// keepAside prepares a cut: the records from an offset on are kept beside the log, for a
// person, since another broker's word is all that says they do not count.
func (d *replicaDriver) keepAside(what string, to, from int64) error {
	kept, err := d.log.KeepAside(from)
	d.node.logger.Warn(what, "broker", d.node.opt.ID, "partition", d.partition, "to", to, "log end offset", d.log.EndOffset(), "kept in", kept, "error", err)
	if err != nil {
		return err
	}
	return d.node.marks.lower(d.partition, from)
}

func (d *replicaDriver) send(m replica.Message) {
	d.observe(Sent, Event{Message: m})
	if err := d.node.opt.Send(d.partition, m); err != nil {
		d.unreachable(m.To, err.Error())
	}
}

// observe tells the node's observer, with the log as it is now.
func (d *replicaDriver) observe(kind EventKind, e Event) {
	if d.node.opt.Observe == nil {
		return
	}
	e.Kind, e.Partition, e.LogEndOffset = kind, d.partition, d.log.EndOffset()
	d.node.observe(e)
}

func (d *replicaDriver) sendFrames(e replica.SendFrames) {
	m := e.Message
	c, err := d.log.ReadChunk(m.Offset, m.LogEndOffset, e.Max)
	if err != nil {
		d.cannotRead(m, err)
		return
	}
	if c.Base < m.Offset {
		m.Kind, m.Reason, m.Offset = replica.Refused, replica.InsideBatch, c.Base
		m.Detail = fmt.Sprintf("the batch begins at %d", c.Base)
		d.send(m)
		return
	}
	m.NextOffset, m.FrameEpoch, m.Frames = c.Next, c.Epoch, c.Frames
	d.send(m)
}

func (d *replicaDriver) sendDigests(e replica.SendDigests) {
	m := e.Message
	if m.Offset < m.LogEndOffset {
		digests, err := d.log.FrameDigests(m.Offset, e.Max)
		if err != nil {
			d.cannotRead(m, err)
			return
		}
		m.Digests = digests
	}
	d.send(m)
}

// cannotRead answers a follower that the leader's own log cannot be read there.
func (d *replicaDriver) cannotRead(m replica.Message, err error) {
	_ = d.damaged(err)
	d.node.logger.Error("cannot read the log for a follower", "broker", d.node.opt.ID, "partition", d.partition, "offset", m.Offset, "error", err)
	d.send(replica.Message{
		Kind: replica.Refused, From: m.From, To: m.To, LeaderEpoch: m.LeaderEpoch, Seq: m.Seq, Reason: replica.CannotRead, Detail: err.Error(),
		LogStartOffset: m.LogStartOffset, LogEndOffset: m.LogEndOffset,
	})
}

func (d *replicaDriver) unreachable(peer BrokerID, why string) {
	d.tell(func(r replica.Machine) []replica.Effect { return r.Unreachable(d.node.now(), peer, why) })
}

// wait registers somebody who waits for an outcome. d.mu is held.
func (d *replicaDriver) wait(done func(error)) uint64 {
	d.nextID++
	d.waiting[d.nextID] = done
	return d.nextID
}

func (d *replicaDriver) done(id uint64, err error) {
	d.mu.Lock()
	f := d.waiting[id]
	delete(d.waiting, id)
	d.mu.Unlock()
	if f != nil {
		f(err)
	}
}

// damaged notes what reading has found, if the log is damaged: such a replica must not lead, nor
// pass for a good one. It returns the error.
func (d *replicaDriver) damaged(err error) error {
	if _, ok := errors.AsType[*commitlog.CorruptionError](err); ok && d.damage.Load() == nil {
		damage := openError(d.partition, d.node.opt.ID, err)
		if d.damage.CompareAndSwap(nil, &damage) {
			d.node.logger.Error("a replica's log is damaged", "broker", d.node.opt.ID, "partition", d.partition, "error", err)
		}
	}
	return err
}

// stop refuses whoever waits and takes no more work.
func (d *replicaDriver) stop(why error) {
	d.mu.Lock()
	if d.stopped != nil {
		d.mu.Unlock()
		return // the node was closed meanwhile
	}
	d.stopped = why
	close(d.quit)
	waiting, appends := d.waiting, d.appends
	d.waiting, d.appends = map[uint64]func(error){}, nil
	wake := d.takeWatchers(func(*watcher) bool { return true })
	d.mu.Unlock()
	wakeAll(wake)
	for _, a := range appends {
		a.done(commitlog.Appended{}, why)
	}
	for _, f := range waiting {
		f(why)
	}
}

func (d *replicaDriver) close() error {
	d.changing.Add(1)
	defer d.changing.Add(-1)
	d.role.Lock()
	defer d.role.Unlock()
	if d.log == nil {
		return nil
	}
	return d.log.Close()
}

// compareDigests compares the leader's digests with a log's own. It returns the offset up
// to which they are the same, and whether a frame there differs.
func compareDigests(l *commitlog.Log, from int64, theirs []commitlog.FrameDigest) (same int64, differs bool, err error) {
	if from >= l.EndOffset() || len(theirs) == 0 {
		return from, false, nil
	}
	ours, err := l.FrameDigests(from, len(theirs))
	if err != nil {
		return from, false, err
	}
	same = from
	for i, s := range ours {
		if s != theirs[i] {
			return max(from, min(s.BaseOffset, theirs[i].BaseOffset)), true, nil
		}
		same = s.NextOffset
	}
	return same, false, nil
}

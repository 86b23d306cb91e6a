package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"logbook/engine/commitlog"
	"logbook/engine/controller"
	"logbook/engine/replica"
)

// host drives one replica: it is what package replica leaves out, the disk, the messages
// and the waiting.
type host struct {
	node      *Node
	partition Partition
	log       *commitlog.Log // nil while broken

	role sync.RWMutex // shared: an append; exclusive: a change of role

	mu      sync.Mutex // what follows
	machine replica.Machine
	broken  error // why the replica has no log
	stopped bool
	quit    chan struct{} // closed when stopped
	nextID  uint64
	waiting map[uint64]func(error) // writes and commands
	inbox   []func() []replica.Effect
	running bool

	hw     atomic.Int64
	wakeMu sync.Mutex
	wake   chan struct{} // closed when the high watermark moves, or the role changes; nil while nobody waits
}

// open opens or makes the log. n.mu is held.
func (h *host) open(create bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	dir := h.node.Dir(h.partition)
	if !create && !h.exists(dir) {
		h.broken = &MissingReplicaError{Partition: h.partition, Broker: h.node.opt.ID, Dir: dir}
		return
	}
	l, err := commitlog.Open(dir, h.node.opt.Log)
	if err != nil {
		h.broken = &CorruptReplicaError{Partition: h.partition, Broker: h.node.opt.ID, Err: err}
		return
	}
	h.log, h.broken = l, nil
	cfg := h.node.opt.Replica
	cfg.FirstSeq = uint64(max(0, h.node.now().UnixNano()))
	h.machine = h.node.opt.Machine(cfg, h.state(), h.node.marks[h.partition.String()])
	h.hw.Store(h.machine.HighWatermark())
}

// exists reports whether there is anything of a log in dir. One that is gone must not
// come back empty: as an active replica it would pass for one that holds every record.
func (h *host) exists(dir string) bool {
	names, err := h.node.fs.ReadDir(dir)
	return len(names) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist)
}

// state is what the state machine knows of the log.
func (h *host) state() replica.Log {
	return replica.Log{Start: h.log.StartOffset(), End: h.log.EndOffset(), Epochs: h.log.Epochs()}
}

// post puts work into the inbox.
func (h *host) post(work func() []replica.Effect) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.machine == nil || h.stopped {
		return
	}
	h.inbox = append(h.inbox, work)
	if !h.running {
		h.running = true
		h.node.run(h.drain)
	}
}

// flush waits until what is in the inbox now is done.
func (h *host) flush() {
	done := make(chan struct{})
	h.post(func() []replica.Effect { close(done); return nil })
	h.mu.Lock()
	idle := h.machine == nil || h.stopped
	h.mu.Unlock()
	if idle {
		return
	}
	h.node.pump()
	select {
	case <-done:
	case <-h.quit:
	}
}

// drain works until the inbox is empty.
func (h *host) drain() {
	for {
		h.mu.Lock()
		if len(h.inbox) == 0 || h.stopped {
			h.running = false
			h.mu.Unlock()
			return
		}
		work := h.inbox[0]
		h.inbox = h.inbox[1:]
		h.mu.Unlock()
		h.perform(work())
	}
}

// step lets the state machine take a step.
func (h *host) step(input func(replica.Machine) []replica.Effect) []replica.Effect {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := input(h.machine)
	h.advance()
	return out
}

// advance shows readers the high watermark. h.mu is held.
func (h *host) advance() {
	if hw := h.machine.HighWatermark(); h.hw.Swap(hw) != hw {
		h.broadcast()
	}
}

func (h *host) broadcast() {
	h.wakeMu.Lock()
	if h.wake != nil {
		close(h.wake)
		h.wake = nil
	}
	h.wakeMu.Unlock()
}

// assign changes the role. No append is under way meanwhile: what a leader takes belongs
// to its epoch.
func (h *host) assign(a replica.Assignment) []replica.Effect {
	h.role.Lock()
	defer h.role.Unlock()
	out := h.step(func(r replica.Machine) []replica.Effect { return r.Assign(h.node.now(), a) })
	var rest []replica.Effect
	for _, e := range out {
		// The epoch must have begun in the log before an append can come.
		if start, ok := e.(replica.StartEpoch); ok {
			err := h.log.StartEpoch(start.Epoch)
			h.observe(Leads, Event{Epoch: start.Epoch})
			rest = append(rest, h.logged(err)...)
			continue
		}
		rest = append(rest, e)
	}
	h.broadcast()
	return rest
}

// logged tells the state machine what became of a storage effect.
func (h *host) logged(err error) []replica.Effect {
	if err != nil {
		h.node.logger.Error("a replica's disk failed", "broker", h.node.opt.ID, "partition", h.partition, "error", err)
	}
	log := h.state()
	return h.step(func(r replica.Machine) []replica.Effect { return r.Logged(h.node.now(), log, err) })
}

// perform carries effects out, in order.
func (h *host) perform(effects []replica.Effect) {
	for _, e := range effects {
		switch e := e.(type) {
		case replica.Copy:
			_, err := h.log.AppendReplica(e.Frames, e.Epoch)
			if err == nil {
				h.observe(Stored, Event{Epoch: e.Epoch})
			} else {
				h.observe(StoreFailed, Event{Err: err})
			}
			h.perform(h.logged(err))
		case replica.Truncate:
			h.node.logger.Warn("cutting a replica to what its leader has", "broker", h.node.opt.ID, "partition", h.partition, "to", e.To, "log end offset", h.log.EndOffset())
			err := h.node.lowerMark(h.partition, e.To)
			if err == nil {
				_, err = h.log.Truncate(e.To)
				h.observe(Cut, Event{Err: err})
			}
			h.perform(h.logged(err))
		case replica.Reset:
			h.node.logger.Warn("emptying a replica that does not reach its leader's log", "broker", h.node.opt.ID, "partition", h.partition, "to", e.To, "log end offset", h.log.EndOffset())
			err := h.node.lowerMark(h.partition, 0)
			if err == nil {
				err = h.log.Reset(e.To)
				h.observe(Cut, Event{Err: err})
			}
			h.perform(h.logged(err))
		case replica.Advance:
			h.perform(h.logged(h.log.AdvanceLogStart(e.To)))
		case replica.Compare:
			same, differs, err := compareSums(h.log, e.From, e.Sums)
			h.perform(h.step(func(r replica.Machine) []replica.Effect { return r.Compared(h.node.now(), same, differs, err) }))
		case replica.Send:
			h.send(e.Message)
		case replica.SendFrames:
			h.sendFrames(e)
		case replica.SendSums:
			h.sendSums(e)
		case replica.Propose:
			h.propose(e.Assignment)
		case replica.Done:
			h.done(e.ID, e.Err)
		case replica.Finished:
			h.done(e.ID, e.Err)
		default:
			panic(fmt.Sprintf("cluster: an effect that nobody carries out: %T", e))
		}
	}
}

func (h *host) send(m replica.Message) {
	h.observe(Sent, Event{Message: m})
	if err := h.node.opt.Transport.Send(h.partition, m); err != nil {
		h.unreachable(m.To, err.Error())
	}
}

// observe tells the node's observer, with the log as it is now.
func (h *host) observe(kind EventKind, e Event) {
	if h.node.opt.Observe == nil {
		return
	}
	e.Kind, e.Partition, e.End = kind, h.partition, h.log.EndOffset()
	h.node.observe(e)
}

func (h *host) sendFrames(e replica.SendFrames) {
	m := e.Message
	c, err := h.log.ReadChunk(nil, m.Offset, m.End, e.Max)
	if err != nil || c.Base != m.Offset {
		if err == nil {
			err = fmt.Errorf("offset %d lies within the batch at %d", m.Offset, c.Base)
		}
		h.cannotRead(m, err)
		return
	}
	m.Next, m.FrameEpoch, m.Frames = c.Next, c.Epoch, c.Frames
	h.send(m)
}

func (h *host) sendSums(e replica.SendSums) {
	m := e.Message
	if m.Offset < m.End {
		sums, err := h.log.Sums(m.Offset, e.Max)
		if err != nil {
			h.cannotRead(m, err)
			return
		}
		m.Sums = sums
	}
	h.send(m)
}

// cannotRead answers a follower that the leader's own log cannot be read there.
func (h *host) cannotRead(m replica.Message, err error) {
	h.node.logger.Error("cannot read the log for a follower", "broker", h.node.opt.ID, "partition", h.partition, "offset", m.Offset, "error", err)
	h.send(replica.Message{
		Kind: replica.Refused, From: m.From, To: m.To, Epoch: m.Epoch, Seq: m.Seq, Reason: replica.CannotRead, Detail: err.Error(), Start: m.Start, End: m.End,
	})
}

// propose asks the controller, which may write to its disk, beside the replica's work.
func (h *host) propose(a replica.Assignment) {
	answered := func(err error) {
		if err == nil {
			return // the new assignment comes as every other does
		}
		_, unsure := errors.AsType[*controller.UnsettledError](err)
		h.post(func() []replica.Effect {
			return h.step(func(r replica.Machine) []replica.Effect {
				return r.Rejected(h.node.now(), a.Version, err.Error(), unsure)
			})
		})
	}
	if h.node.opt.Propose != nil {
		h.node.opt.Propose(h.partition, a, answered)
		return
	}
	h.node.run(func() { answered(h.node.opt.Controller.Propose(h.partition, a)) })
}

func (h *host) unreachable(peer BrokerID, why string) {
	h.post(func() []replica.Effect {
		return h.step(func(r replica.Machine) []replica.Effect { return r.Unreachable(h.node.now(), peer, why) })
	})
}

func (h *host) tick() {
	now := h.node.now()
	if next := h.next(); next.IsZero() || now.Before(next) {
		return
	}
	h.post(func() []replica.Effect {
		return h.step(func(r replica.Machine) []replica.Effect { return r.Tick(now) })
	})
}

func (h *host) next() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.machine == nil || h.stopped {
		return time.Time{}
	}
	return h.machine.Next()
}

// wait registers somebody who waits for an outcome. h.mu is held.
func (h *host) wait(done func(error)) uint64 {
	h.nextID++
	h.waiting[h.nextID] = done
	return h.nextID
}

func (h *host) done(id uint64, err error) {
	h.mu.Lock()
	f := h.waiting[id]
	delete(h.waiting, id)
	h.mu.Unlock()
	if f != nil {
		f(err)
	}
}

// stop refuses whoever waits and takes no more work.
func (h *host) stop() {
	h.mu.Lock()
	h.stopped = true
	close(h.quit)
	waiting := h.waiting
	h.waiting = map[uint64]func(error){}
	h.mu.Unlock()
	h.broadcast()
	for _, f := range waiting {
		f(ErrClosed)
	}
}

func (h *host) close() error {
	h.role.Lock()
	defer h.role.Unlock()
	if h.log == nil {
		return nil
	}
	return h.log.Close()
}

// compareSums compares the leader's sums with a log's own. It returns the offset up to
// which they are the same, and whether a frame there differs.
func compareSums(l *commitlog.Log, from int64, theirs []commitlog.Sum) (same int64, differs bool, err error) {
	if from >= l.EndOffset() || len(theirs) == 0 {
		return from, false, nil
	}
	ours, err := l.Sums(from, len(theirs))
	if err != nil {
		return from, false, err
	}
	same = from
	for i, s := range ours {
		if s != theirs[i] {
			return max(from, min(s.Base, theirs[i].Base)), true, nil
		}
		same = s.Next
	}
	return same, false, nil
}

package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"logbook/engine/cluster"
	"logbook/engine/commitlog"
	"logbook/engine/controller"
	"logbook/engine/replica"
	"logbook/engine/topic"
	"logbook/engine/vfs"
)

// broker is a broker's process, which comes and goes, and its disk, which stays.
type broker struct {
	w       *world
	id      int
	disk    *vfs.Mem
	failing bool
	life    int // grows with each start: what was meant for an earlier one is lost
	up      bool
	node    *cluster.Node
	view    controller.Controller
	alive   *controller.FirstAlive
	remote  *remote
	coord   *coordination
	silent  map[int]int // checks in a row that a peer has failed
}

const (
	checkEvery = 200 * time.Millisecond
	failAfter  = 4
)

// build makes the cluster: the controller, the brokers, and the topic.
func (w *world) build() error {
	for id := 1; id <= w.cfg.Brokers; id++ {
		w.brokers = append(w.brokers, &broker{w: w, id: id, disk: w.newDisk(id)})
	}
	if w.cfg.Controller == "manual" {
		var err error
		if w.boss, err = newBoss(w); err != nil {
			return err
		}
	}
	for _, b := range w.brokers {
		// The replica is made before the topic is known, as everywhere.
		l, err := commitlog.Open(b.logDir(), b.logOptions())
		if err == nil {
			err = l.Close()
		}
		if err != nil {
			return err
		}
	}
	for _, b := range w.brokers {
		b.start()
	}
	if w.boss != nil {
		w.every(300*time.Millisecond, w.boss.look)
	}
	return nil
}

func (w *world) newDisk(id int) *vfs.Mem {
	d := vfs.NewMem()
	w.fit(d, id)
	return d
}

// fit lets a disk fail when it is its broker's turn.
func (w *world) fit(d *vfs.Mem, id int) {
	d.BlockSize = 512
	d.Before = func(op vfs.Op) error {
		if id > 0 && id <= len(w.brokers) && w.brokers[id-1].failing && w.dice(forDisk+uint64(id)).IntN(3) == 0 {
			return syscall.EIO
		}
		return nil
	}
}

func (b *broker) logDir() string {
	return topic.PartitionDir("broker/topics/"+part.Topic, part.ID)
}

func (b *broker) logOptions() commitlog.Options {
	return commitlog.Options{FS: b.disk, Now: func() time.Time { return b.w.now }, SegmentBytes: 4 << 10}
}

func (b *broker) start() {
	if b.up {
		return
	}
	b.life++
	b.up = true
	b.silent = map[int]int{}
	life := b.life
	if err := b.open(); err != nil {
		b.up = false
		b.w.note("broker %d does not start: %v", b.id, err)
		return
	}
	b.w.note("broker %d starts", b.id)
	b.w.draw.started(b.id)
	b.coord = nil
	b.w.every(50*time.Millisecond, func() {
		if b.up && b.life == life {
			b.node.Tick()
		}
	})
	b.w.every(100*time.Millisecond, func() {
		if !b.up || b.life != life {
			return
		}
		if c := b.coordinate(); c != nil && !c.busy && len(c.queue) == 0 {
			c.do(func() { c.deliver(c.g.Tick(b.w.now)) })
		}
	})
	b.w.every(checkEvery, func() {
		if b.up && b.life == life {
			b.checkPeers(life)
		}
	})
}

func (b *broker) open() error {
	w := b.w
	ids := []replica.BrokerID{}
	for _, o := range w.brokers {
		ids = append(ids, replica.BrokerID(o.id))
	}
	if w.boss == nil {
		alive, err := controller.NewFirstAlive(replica.BrokerID(b.id), ids, controller.FirstAliveOptions{FailAfter: failAfter})
		if err != nil {
			return err
		}
		b.alive, b.view = alive, alive
	} else {
		b.remote = &remote{b: b}
		b.view = b.remote
	}
	life := b.life
	var err error
	b.node, err = cluster.OpenNode(cluster.NodeOptions{
		ID: replica.BrokerID(b.id), Dir: "broker", Transport: b, Controller: b.view, Log: b.logOptions(),
		Go: func(f func()) {
			w.after(0, func() {
				if b.up && b.life == life {
					f()
				}
			})
		},
		Machine: w.design.Machine,
		Propose: b.propose,
		Observe: func(e cluster.Event) { b.observe(e) },
		Replica: replica.Config{MinInSync: w.cfg.MinInSync, LagTimeout: 3 * time.Second, WriteTimeout: 5 * time.Second, Heartbeat: 500 * time.Millisecond, Retry: 200 * time.Millisecond},
	})
	if err != nil {
		return err
	}
	b.node.Open(part)
	b.view.Watch(func(p controller.Partition, a replica.Assignment) {
		if b.up && b.life == life {
			b.node.Assign(p, a)
		}
	})
	if b.alive != nil {
		epochs := map[int]int32{}
		if l, err := b.node.Log(part); err == nil {
			epochs[0] = l.LatestEpoch()
		}
		b.alive.AddTopic(part.Topic, 1, w.cfg.Brokers, topic.Murmur2.Name(), epochs)
	}
	return nil
}

// rot flips a bit of what is on the disk, somewhere in the records.
func (b *broker) rot() {
	name := b.logDir() + "/" + commitlog.SegmentName(0) + ".log"
	if _, err := b.disk.OpenRead(name); err != nil {
		return
	}
	b.disk.Edit(name, func(data []byte) []byte {
		used := len(bytes.TrimRight(data, "\x00"))
		if used > 0 {
			at := b.w.dice(forDisk + uint64(b.id)).IntN(used)
			data[at] ^= 1 << (at % 8)
		}
		return data
	})
}

// crash kills the process, and takes what was not synced, or some of it.
func (b *broker) crash() {
	if !b.up {
		return
	}
	b.up = false
	b.w.draw.stopped(b.id)
	var states []*vfs.Mem
	dice := b.w.dice(forCrash + uint64(b.id))
	for c := range b.disk.Crashes(3, dice) {
		states = append(states, c.FS)
	}
	b.disk = states[dice.IntN(len(states))]
	b.w.fit(b.disk, b.id)
}

func (b *broker) poisoned() bool {
	l, err := b.node.Log(part)
	return err != nil || l.Usable() != nil
}

// Send implements cluster.Transport.
func (b *broker) Send(p cluster.Partition, m replica.Message) error {
	to := b.w.brokers[m.To-1]
	life := to.life
	if !to.up {
		return fmt.Errorf("broker %d is down", m.To)
	}
	key := b.w.draw.sent(m)
	b.w.travel(b.id, to.id, func() {
		if to.up && to.life == life {
			b.w.draw.received(key, m)
			to.node.Deliver(p, m)
		}
	})
	return nil
}

// checkPeers asks each peer for a sign of life.
func (b *broker) checkPeers(life int) {
	for _, o := range b.w.brokers {
		if o == b {
			continue
		}
		answered := false
		its := o.life
		b.w.travel(b.id, o.id, func() {
			if !o.up || o.life != its {
				return
			}
			if o.alive != nil && b.alive != nil && b.up && b.life == life {
				o.alive.Heard(replica.BrokerID(b.id), b.alive.Claims())
			}
			b.w.travel(o.id, b.id, func() {
				if !b.up || b.life != life || !o.up || answered {
					return
				}
				answered = true
				b.silent[o.id] = 0
				if b.alive != nil {
					b.alive.Heard(replica.BrokerID(o.id), o.alive.Claims())
				}
			})
		})
		b.w.after(checkEvery, func() {
			if answered || !b.up || b.life != life {
				return
			}
			b.silent[o.id]++
			if b.silent[o.id] == 2 {
				b.node.Unreachable(replica.BrokerID(o.id), "no answer")
			}
			if b.alive != nil {
				b.alive.Failed(replica.BrokerID(o.id))
			}
		})
	}
	if b.remote != nil {
		b.remote.ask(life)
	}
}

func (b *broker) propose(p cluster.Partition, a replica.Assignment, done func(error)) {
	if b.alive != nil {
		b.w.after(0, func() { done(b.alive.Propose(p, a)) })
		return
	}
	b.remote.propose(p, a, done)
}

func (b *broker) observe(e cluster.Event) {
	switch e.Kind {
	case cluster.Leads:
		b.w.note("broker %d leads in epoch %d from %d", b.id, e.Epoch, e.End)
		b.w.checks.leads(b.id, e.Epoch)
		b.w.draw.leads(b.id, e.Epoch, e.End)
	case cluster.Cut:
		b.w.note("broker %d cuts its log to %d", b.id, e.End)
		b.w.draw.cutTo(b.id, e.End)
	}
}

// boss is the manual controller's process and the person at it: it fails over what has no
// leader. It does not crash; its network may be cut.
type boss struct {
	w      *world
	manual *controller.Manual
	quiet  int // looks at which the leader did not answer
	heard  map[int]time.Time
}

func newBoss(w *world) (*boss, error) {
	m, err := controller.OpenManual(w.newDisk(0), "controller", w.design.Choose)
	if err != nil {
		return nil, err
	}
	g := &boss{w: w, manual: m, heard: map[int]time.Time{}}
	for _, b := range w.brokers {
		if err := m.Register(replica.BrokerID(b.id)); err != nil {
			return nil, err
		}
	}
	return g, m.AddTopic(part.Topic, 1, w.cfg.Brokers, topic.Murmur2)
}

// look fails over when the leader has not been heard for a while.
func (g *boss) look() {
	a, _ := g.manual.Assignment(part)
	if g.w.now.Sub(g.heard[int(a.Leader)]) < time.Second {
		g.quiet = 0
		return
	}
	if g.quiet++; g.quiet < 2 {
		return
	}
	f, err := g.manual.Failover(context.Background(), part, prober{g})
	if err == nil {
		g.w.note("failover from %d to %d, epoch %d, active %v", f.Old, f.New, f.Epoch, f.Active)
		g.quiet = 0
	}
}

// prober sees a broker's log as the boss would over the network: if it was heard.
type prober struct{ g *boss }

func (p prober) broker(id replica.BrokerID) (*broker, error) {
	b := p.g.w.brokers[id-1]
	if !b.up || p.g.w.links[[2]int{0, b.id}] || p.g.w.links[[2]int{b.id, 0}] {
		return nil, errors.New("it does not answer")
	}
	return b, nil
}

// Report implements controller.Prober.
func (p prober) Report(_ context.Context, at controller.Partition, id replica.BrokerID) controller.Report {
	b, err := p.broker(id)
	if err != nil {
		return controller.Report{Broker: id, Err: err}
	}
	return b.node.Report(at)
}

// Sums implements controller.Prober.
func (p prober) Sums(_ context.Context, at controller.Partition, id replica.BrokerID, from int64, n int) ([]commitlog.Sum, error) {
	b, err := p.broker(id)
	if err != nil {
		return nil, err
	}
	l, err := b.node.Log(at)
	if err != nil {
		return nil, err
	}
	return l.Sums(from, n)
}

// remote is a broker's view of the boss's decisions, over the network.
type remote struct {
	b          *broker
	at         replica.Assignment
	known      bool
	registered bool
	watchers   []func(controller.Partition, replica.Assignment)
}

// Assignment implements controller.Controller.
func (r *remote) Assignment(p controller.Partition) (replica.Assignment, bool) {
	return r.at.Clone(), r.known && p == part
}

// Watch implements controller.Controller.
func (r *remote) Watch(f func(controller.Partition, replica.Assignment)) {
	r.watchers = append(r.watchers, f)
}

// Propose implements controller.Controller; the node uses the broker's propose instead.
func (r *remote) Propose(controller.Partition, replica.Assignment) error {
	return errors.New("sim: proposals travel")
}

func (r *remote) take(a replica.Assignment) {
	if r.known && a.Version <= r.at.Version {
		return
	}
	r.at, r.known = a, true
	for _, f := range r.watchers {
		f(part, a.Clone())
	}
}

// ask fetches the decision; the first time it says that the broker is there, which begins
// a new epoch if it leads.
func (r *remote) ask(life int) {
	b, g := r.b, r.b.w.boss
	first := !r.registered
	b.w.travel(b.id, 0, func() {
		if !b.up || b.life != life {
			return
		}
		g.heard[b.id] = b.w.now
		if first && !r.registered && g.manual.Register(replica.BrokerID(b.id)) != nil {
			return
		}
		b.w.travel(0, b.id, func() {
			if b.up && b.life == life {
				r.registered = true
				a, _ := g.manual.Assignment(part)
				r.take(a)
			}
		})
	})
}

// propose carries a proposal to the boss and back. Where the answer is lost, so is the
// certainty.
func (r *remote) propose(p cluster.Partition, a replica.Assignment, done func(error)) {
	b, life := r.b, r.b.life
	answered := false
	finish := func(err error) {
		if !answered && b.up && b.life == life {
			answered = true
			done(err)
		}
	}
	b.w.travel(b.id, 0, func() {
		err := b.w.boss.manual.Propose(p, a)
		if err == nil {
			b.w.note("active %v in version %d, proposed by %d", a.Active, a.Version, b.id)
		}
		b.w.travel(0, b.id, func() {
			finish(err)
			if now, ok := b.w.boss.manual.Assignment(p); ok && b.up && b.life == life {
				r.take(now)
			}
		})
	})
	b.w.after(time.Second, func() { finish(&controller.UnsettledError{File: "cluster.meta", Err: errors.New("no answer")}) })
}

package sim

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	"logbook/engine/commitlog"
	"logbook/engine/controller"
	"logbook/engine/metadata"
	"logbook/engine/node"
	"logbook/engine/peer"
	"logbook/engine/replica"
	"logbook/engine/service"
	"logbook/engine/topic"
	"logbook/engine/vfs"
)

// broker is a broker's process, which comes and goes, and its disk, which stays. The
// process is the broker's own code, package service: what is simulated is the disk, the
// network and the time.
type broker struct {
	w       *world
	id      int
	kept    *vfs.Mem // a copy of the disk, to come back
	disk    *vfs.Mem
	failing bool
	life    int // grows with each start: what was meant for an earlier one is lost
	up      bool
	paused  bool
	held    []func() // what would have happened while it was paused
	service *service.Service
	// Its clock: since a time, it goes at another rate.
	rate   int64 // thousandths of the true one
	since  time.Time
	then   time.Time // what it showed
	waking bool
	tickAt time.Time // when it is ticked next; zero: nothing is due
}

// Times in the simulation.
const (
	healthEvery  = 200 * time.Millisecond
	failAfter    = 4
	lagTimeout   = 3 * time.Second
	writeTimeout = 5 * time.Second
	scrubEvery   = 7 * time.Second
)

// build makes the cluster: the brokers, and the topics.
func (w *world) build() error {
	for id := 1; id <= w.cfg.Brokers; id++ {
		w.brokers = append(w.brokers, &broker{w: w, id: id, disk: w.newDisk(id), rate: 1000, since: w.now, then: w.now})
	}
	for _, b := range w.brokers {
		b.start()
	}
	made := 0
	for _, t := range simTopics {
		w.makeTopic(t, func() { made++ })
	}
	w.run(2 * time.Second)
	if made != len(simTopics) {
		return fmt.Errorf("sim: only %d of %d topics could be made before the faults", made, len(simTopics))
	}
	return nil
}

// simTopics are the topics of the simulated cluster, beside the groups' own.
var simTopics = []controller.TopicSpec{{Name: "flights", Partitions: 2}, {Name: "routes", Partitions: 1}}

// parts are their partitions.
var parts = []topic.Partition{{Topic: "flights", ID: 0}, {Topic: "flights", ID: 1}, {Topic: "routes", ID: 0}}

// makeTopic makes a topic as a person would: again, until it is there.
func (w *world) makeTopic(spec controller.TopicSpec, done func()) {
	at := w.brokers[0].service
	if id := at.ControllerID(); id != replica.None {
		at = w.brokers[id-1].service
	}
	at.CreateTopic(spec, func(_ *metadata.Topic, err error) {
		if err == nil {
			done()
			return
		}
		w.after(100*time.Millisecond, func() { w.makeTopic(spec, done) })
	})
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

func (b *broker) start() {
	if b.up {
		return
	}
	b.life++
	life := b.life
	w := b.w
	var ids []replica.BrokerID
	for _, o := range w.brokers {
		ids = append(ids, replica.BrokerID(o.id))
	}
	// What is given to the process while it opens its files is done when it runs.
	seed := [32]byte{byte(b.id), byte(life), byte(life >> 8)}
	for i := range 8 {
		seed[8+i] = byte(w.cfg.Seed >> (8 * i))
	}
	s, err := service.Open(service.Config{
		ID: replica.BrokerID(b.id), Dir: "broker", Brokers: ids, Role: b.role(), Controller: w.cfg.Controller, Acks: w.acks, MinInSync: w.cfg.MinInSync,
		HealthEvery: healthEvery, FailAfter: failAfter, LagTimeout: lagTimeout, WriteTimeout: writeTimeout, RequestTimeout: time.Second, ProbeTimeout: time.Second,
		GroupPartitions: 1, ScrubEvery: scrubEvery, SnapshotAfter: 16,
		Log:     commitlog.Options{FS: b.disk, Now: b.now, SegmentBytes: 4 << 10},
		Random:  rand.NewChaCha8(seed),
		Send:    b.send,
		Go:      func(f func()) { w.after(0, func() { b.act(life, f) }) },
		Wake:    func() { b.wake(life) },
		Observe: b.observe,
		Design:  w.design,
	})
	if err != nil {
		w.note("broker %d does not start: %v", b.id, err)
		return
	}
	b.up, b.paused, b.service, b.waking, b.tickAt = true, false, s, false, time.Time{}
	w.note("broker %d starts", b.id)
	w.draw.started(b.id)
	s.Start()
	b.wake(life)
}

// role is what the broker does.
func (b *broker) role() metadata.Role {
	switch cfg := b.w.cfg; {
	case cfg.Deciding == 0:
		return ""
	case b.id > cfg.Brokers-cfg.Deciding:
		return metadata.DecidesOnly
	}
	return metadata.StoresOnly
}

// wake looks, a moment later, when the process wants to be ticked.
func (b *broker) wake(life int) {
	if b.waking {
		return
	}
	b.waking = true
	b.w.after(0, func() {
		if b.life == life {
			b.waking = false
			b.schedule(life)
		}
	})
}

// act does something in a process, if it still lives: later, if it is paused.
func (b *broker) act(life int, do func()) {
	switch {
	case !b.up || b.life != life:
	case b.paused:
		b.held = append(b.held, func() { b.act(life, do) })
	default:
		do()
	}
}

// resume lets a paused process go on: all that it was to do happens now.
func (b *broker) resume() {
	b.paused = false
	held := b.held
	b.held = nil
	for _, do := range held {
		b.w.after(0, do)
	}
}

// now is what the broker's clock shows.
func (b *broker) now() time.Time {
	return b.then.Add(time.Duration(int64(b.w.now.Sub(b.since)) * b.rate / 1000))
}

// drift makes its clock go at another rate from now on.
func (b *broker) drift(rate int64) {
	b.then, b.since, b.rate = b.now(), b.w.now, rate
}

// trueTime is when the broker's clock will show a time, or later.
func (b *broker) trueTime(at time.Time) time.Time {
	return b.since.Add(time.Duration(int64(at.Sub(b.then))*1000/b.rate) + time.Microsecond)
}

func (b *broker) schedule(life int) {
	if !b.up || b.life != life {
		return
	}
	next := b.service.Next()
	if next.IsZero() {
		return
	}
	if b.rate != 1000 || !b.since.Equal(b.then) {
		next = b.trueTime(next)
	}
	if !b.tickAt.IsZero() && !next.Before(b.tickAt) {
		return
	}
	if next.Before(b.w.now) {
		next = b.w.now
	}
	b.tickAt = next
	b.w.after(next.Sub(b.w.now), func() {
		b.act(life, func() {
			if !b.tickAt.Equal(next) {
				return
			}
			b.tickAt = time.Time{}
			b.service.Tick()
			b.schedule(life)
		})
	})
}

// send carries a message to another broker, in the bytes in which brokers send it.
func (b *broker) send(id replica.BrokerID, m service.PeerMessage) error {
	to := b.w.brokers[id-1]
	if !to.up {
		return fmt.Errorf("broker %d is down", id)
	}
	frame, err := peer.Append(nil, m)
	if err != nil {
		b.w.checks.violation("no encoding: broker %d cannot send %T: %v", b.id, m, err)
		return err
	}
	life := to.life
	key := b.w.draw.sent(m)
	b.w.travel(b.id, to.id, func() {
		to.act(life, func() {
			b.w.draw.received(key, m)
			messages, err := peer.Decode(frame[4:])
			if err != nil {
				b.w.checks.violation("no decoding: broker %d cannot read %T: %v", to.id, m, err)
				return
			}
			for _, m := range messages {
				to.service.Deliver(replica.BrokerID(b.id), m)
			}
		})
	})
	return nil
}

// loseDisk kills the process, and takes its disk with it: it starts again on an empty one.
func (b *broker) loseDisk() {
	b.crash()
	if !b.up {
		b.disk = b.w.newDisk(b.id)
	}
}

// rot flips a bit of what is on the disk, somewhere in the records.
func (b *broker) rot() {
	name := topic.PartitionDir("broker/topics/"+parts[0].Topic, parts[0].ID) + "/" + commitlog.SegmentName(0) + ".log"
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
	b.resume() // whoever waited finds that it is gone
	b.w.draw.stopped(b.id)
	for _, o := range b.w.brokers { // connections to it end
		if o.up && o != b {
			life := o.life
			b.w.after(time.Millisecond, func() {
				o.act(life, func() { o.service.Lost(replica.BrokerID(b.id), "the connection ended") })
			})
		}
	}
	b.disk = b.crashed()
}

// crashed is a disk as a power failure would leave this one.
func (b *broker) crashed() *vfs.Mem {
	var states []*vfs.Mem
	dice := b.w.dice(forCrash + uint64(b.id))
	for c := range b.disk.Crashes(3, dice) {
		states = append(states, c.FS)
	}
	d := states[dice.IntN(len(states))]
	b.w.fit(d, b.id)
	return d
}

// copyDisk keeps the disk as it is, and oldDisk has the broker die and come back with that.
func (b *broker) copyDisk() { b.kept = b.crashed() }

func (b *broker) oldDisk() {
	b.crash()
	if !b.up && b.kept != nil {
		b.disk, b.kept = b.kept, nil
	}
}

func (b *broker) observe(e node.Event) {
	if e.Partition.Topic == service.GroupsTopic {
		return
	}
	switch e.Kind {
	case node.Leads:
		b.w.note("broker %d leads %s in epoch %d from %d", b.id, e.Partition, e.LeaderEpoch, e.LogEndOffset)
		b.w.checks.leads(e.Partition, b.id, e.LeaderEpoch)
		b.w.draw.leads(b.id, e.Partition, e.LeaderEpoch, e.LogEndOffset)
	case node.Cut:
		b.w.note("broker %d cuts its log of %s to %d", b.id, e.Partition, e.LogEndOffset)
		b.w.draw.cutTo(b.id, e.Partition, e.LogEndOffset)
	}
}

// person is who is at a cluster with the manual controller: now and then they look, and
// fail over what has no leader, on the broker that keeps the decisions, while it is there.
// Messages that are late or lost do not make them fail over: they ask again.
func (w *world) person() {
	keeper := w.brokers[0]
	if !keeper.up {
		return
	}
	for p, a := range keeper.service.Image().Assignments() {
		if !w.unreachable(a.Leader) && !w.troubled(a.Leader) {
			continue
		}
		keeper.service.Failover(p, func(f controller.FailoverResult, err error) {
			if err == nil {
				w.note("failover of %s from %d to %d, epoch %d, in sync %v", p, f.Old, f.New, f.LeaderEpoch, f.ISR)
			}
		})
	}
}

// unreachable reports whether the broker that keeps the decisions cannot reach a leader,
// however often it tries.
func (w *world) unreachable(leader replica.BrokerID) bool {
	id := int(leader)
	return id < 1 || !w.brokers[id-1].up || w.links[[2]int{1, id}] || w.links[[2]int{id, 1}]
}

// troubled reports whether a leader cannot use its log, as its broker's page would show.
func (w *world) troubled(leader replica.BrokerID) bool {
	o := w.brokers[leader-1]
	return o.up && len(o.service.Unusable()) > 0
}

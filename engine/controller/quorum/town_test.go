package quorum_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"logbook/engine/controller"
	"logbook/engine/controller/quorum"
	"logbook/engine/metadata"
	"logbook/engine/record"
	"logbook/engine/replica"
	"logbook/engine/topic"
)

const (
	healthEvery = 100 * time.Millisecond
	failAfter   = 6
	session     = 500 * time.Millisecond
)

// town is brokers' controllers in one goroutine, with disks that are lists and a clock that moves
// when nothing else is left to do.
type town struct {
	t     *testing.T
	now   time.Time
	ids   []replica.BrokerID
	all   map[replica.BrokerID]*resident
	queue []func()
	cut   map[[2]replica.BrokerID]bool

	lists    map[replica.BrokerID][]replica.BrokerID // the brokers that one is started with, where these are not all
	roles    map[replica.BrokerID]metadata.Role
	racks    map[replica.BrokerID]string
	unusable map[replica.BrokerID][]controller.Partition
	least    int                                                  // replicas that should be in sync
	drop     func(to replica.BrokerID, m controller.Message) bool // what gets lost
	hopeless bool                                                 // what is begun anew cannot be used either
	snapshot int
	lives    byte
}

// resident is one broker.
type resident struct {
	id       replica.BrokerID
	up       bool
	life     int
	machine  *quorum.Controller
	disk     []record.Record
	failing  bool
	storing  bool // a write is under way: what it says must not leave before it is done
	decided  map[controller.Partition]replica.Assignment
	lease    time.Time
	done     map[uint64]controller.Done
	rejected []controller.Reject
	warnings []string
	remade   []controller.Partition
	removed  []controller.RemoveReplicas
	sent     []controller.Message
}

func newTown(t *testing.T, n int) *town {
	w := &town{t: t, now: time.Unix(1_000_000, 0), all: map[replica.BrokerID]*resident{}, cut: map[[2]replica.BrokerID]bool{}, unusable: map[replica.BrokerID][]controller.Partition{}}
	for id := range replica.BrokerID(n) {
		w.ids = append(w.ids, id+1)
		w.all[id+1] = &resident{id: id + 1}
	}
	return w
}

// formed starts n brokers, and waits until all of them count.
func formed(t *testing.T, n int) *town {
	w := newTown(t, n)
	for _, id := range w.ids {
		w.start(id)
	}
	w.until("all brokers count", func() bool { return w.usable(w.ids...) })
	return w
}

func (w *town) usable(ids ...replica.BrokerID) bool {
	b := w.active()
	return b != nil && !slices.ContainsFunc(ids, func(id replica.BrokerID) bool { return !b.machine.Image().Usable(id) })
}

func (w *town) start(id replica.BrokerID) {
	b := w.all[id]
	w.lives++
	list := w.ids
	if only := w.lists[id]; only != nil {
		list = only
	}
	m, err := quorum.New(controller.Config{
		ID: id, Brokers: list, Role: w.roles[id], Rack: w.racks[id], HealthEvery: healthEvery, FailAfter: failAfter, RequestTimeout: session, MinInSync: w.least, Random: rand.NewChaCha8([32]byte{byte(id), w.lives}), SnapshotAfter: w.snapshot,
		Standing: func(p controller.Partition) (controller.Standing, bool) {
			return controller.Standing{Partition: p}, !slices.Contains(w.unusable[id], p)
		},
	}, slices.Clone(b.disk))
	require.NoError(w.t, err)
	b.life++
	*b = resident{id: id, up: true, life: b.life, machine: m, disk: b.disk, decided: map[controller.Partition]replica.Assignment{}, done: map[uint64]controller.Done{}}
	w.perform(b, m.Start(w.now))
}

func (w *town) kill(id replica.BrokerID) {
	w.all[id].up = false
	for _, o := range w.ids {
		if b := w.all[o]; b.up {
			w.perform(b, b.machine.Unreachable(w.now, id, "the connection ended"))
		}
	}
}

// soon does something with a broker when what was asked for before is done, if it still lives.
func (w *town) soon(b *resident, do func()) {
	life := b.life
	w.queue = append(w.queue, func() {
		if b.up && b.life == life {
			do()
		}
	})
}

func (w *town) perform(b *resident, effects []controller.Effect) {
	for _, e := range effects {
		switch e := e.(type) {
		case controller.Send:
			b.sent = append(b.sent, e.Message)
			to := w.all[e.To]
			if w.cut[[2]replica.BrokerID{b.id, e.To}] || to == nil || w.drop != nil && w.drop(e.To, e.Message) {
				continue
			}
			w.soon(to, func() { w.perform(to, to.machine.Step(w.now, b.id, e.Message)) })
		case controller.Persist:
			require.False(w.t, b.storing, "one write at a time")
			b.storing = true
			w.soon(b, func() {
				b.storing = false
				var err error
				if b.failing {
					err = errors.New("no space left on device")
				} else if e.Whole {
					b.disk = slices.Clone(e.Journal)
				} else {
					b.disk = append(b.disk, e.Journal...)
				}
				w.perform(b, b.machine.Persisted(w.now, err))
			})
		case controller.Decide:
			b.decided[e.Partition] = e.Assignment
		case controller.Reject:
			b.rejected = append(b.rejected, e)
		case controller.MakeReplicas:
			w.soon(b, func() { w.perform(b, b.machine.ReplicasMade(w.now, e.ID, nil)) })
		case controller.RemoveReplicas:
			b.removed = append(b.removed, e)
		case controller.Remake:
			b.remade = append(b.remade, e.Partition)
			if w.hopeless {
				continue
			}
			w.unusable[b.id] = slices.DeleteFunc(w.unusable[b.id], func(p controller.Partition) bool { return p == e.Partition })
		case controller.Lease:
			b.lease = e.Until
		case controller.Done:
			b.done[e.ID] = e
		case controller.Warn:
			b.warnings = append(b.warnings, e.Text)
		}
	}
}

// turn lets one thing happen.
func (w *town) turn() {
	if len(w.queue) > 0 {
		do := w.queue[0]
		w.queue = w.queue[1:]
		do()
		return
	}
	var next time.Time
	for _, id := range w.ids {
		if b := w.all[id]; b.up {
			next = controller.Sooner(next, b.machine.Next())
		}
	}
	if next.After(w.now) {
		w.now = next
	}
	for _, id := range w.ids {
		if b := w.all[id]; b.up && !b.machine.Next().After(w.now) {
			w.perform(b, b.machine.Tick(w.now))
		}
	}
}

func (w *town) until(what string, so func() bool) {
	w.t.Helper()
	for end := w.now.Add(20 * time.Second); !so(); w.turn() {
		if w.now.After(end) {
			require.Fail(w.t, "it never came to that", what)
		}
	}
}

// pass lets time pass.
func (w *town) pass(d time.Duration) {
	for end := w.now.Add(d); w.now.Before(end); {
		w.turn()
	}
}

// active is the broker whose controller is the active one, as it says itself and a majority does
// not deny.
func (w *town) active() *resident {
	for _, id := range w.ids {
		b := w.all[id]
		if b.up && b.machine.ControllerID() == id && b.machine.Quorum().Lag != nil {
			return b
		}
	}
	return nil
}

var flights = controller.Partition{Topic: "flights", ID: 0}

// create makes a topic of one partition on all brokers.
func (w *town) create(name string) error { return w.createOn(name, 1, len(w.ids)) }

func (w *town) createOn(name string, partitions, replication int) error {
	spec := controller.TopicSpec{Name: name, ID: topic.ID{byte(len(name)), name[0]}, Partitions: partitions, Replication: replication, Partitioner: "murmur2"}
	return w.command(func(m *quorum.Controller, id uint64) []controller.Effect { return m.CreateTopic(w.now, id, spec) })
}

// change changes who belongs to the cluster, or votes.
func (w *town) change(id replica.BrokerID, kind controller.MemberChangeKind) error {
	return w.command(func(m *quorum.Controller, command uint64) []controller.Effect {
		return m.ChangeMember(w.now, command, controller.MemberChange{Broker: id, Kind: kind})
	})
}

// command gives the active controller a command, and waits for its outcome.
func (w *town) command(give func(m *quorum.Controller, id uint64) []controller.Effect) error {
	w.until("a controller is active", func() bool { return w.active() != nil })
	b := w.active()
	id := uint64(len(b.done) + 1000)
	w.perform(b, give(b.machine, id))
	w.until("the command is carried out, or not", func() bool { _, ok := b.done[id]; return ok })
	return b.done[id].Err
}

// assignment is what the active controller has decided about a partition.
func (w *town) assignment(p controller.Partition) replica.Assignment {
	b := w.active()
	if b == nil {
		return replica.Assignment{}
	}
	a, _ := b.machine.Image().Assignment(p)
	return a
}

// isolate cuts a broker off from all others, or joins it again.
func (w *town) isolate(id replica.BrokerID, cut bool) {
	for _, o := range w.ids {
		if o != id {
			w.cut[[2]replica.BrokerID{id, o}], w.cut[[2]replica.BrokerID{o, id}] = cut, cut
		}
	}
}

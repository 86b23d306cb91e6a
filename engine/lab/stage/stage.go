// Package stage lets whole brokers act in one goroutine, over a time of its own: what happens is
// the same every time, and takes as long as it takes to compute. The brokers are package service's,
// with disks in memory and a network that does what a lesson wants.
package stage

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"logbook/engine/cluster"
	"logbook/engine/commitlog"
	"logbook/engine/controller"
	_ "logbook/engine/controller/quorum" // one of the kinds
	"logbook/engine/lab"
	"logbook/engine/metadata"
	"logbook/engine/record"
	"logbook/engine/replica"
	"logbook/engine/service"
	"logbook/engine/spacetime"
	"logbook/engine/vfs"
)

// BrokerID names a broker, from 1 on.
type BrokerID = replica.BrokerID

// Options say what is played. The zero value is three brokers with the quorum controller.
type Options struct {
	Brokers    int
	Controller string
	MinInSync  int
	LagTimeout time.Duration // 0 is 1 s
	Design     service.Design
}

// Stage is brokers, a network and a clock. It is for one goroutine.
type Stage struct {
	opt     Options
	began   time.Time
	now     time.Time
	events  []event
	seq     int
	brokers []*actor
	cut     map[[2]BrokerID]bool
	slow    map[BrokerID]time.Duration
	talk    *talk
	records *lab.Recorder
}

// actor is a broker's process, which comes and goes, and its disk, which stays.
type actor struct {
	id      BrokerID
	life    int
	up      bool
	disk    *vfs.Mem
	service *service.Service
}

type event struct {
	at  time.Time
	seq int
	do  func()
}

// hop is how long a message is on its way.
const hop = time.Millisecond

// HealthEvery and FailAfter are the brokers' settings: a session is 500 ms.
const (
	HealthEvery = 100 * time.Millisecond
	FailAfter   = 6
)

// Open starts the brokers.
func Open(opt Options) *Stage {
	if opt.Brokers == 0 {
		opt.Brokers = 3
	}
	if opt.Controller == "" {
		opt.Controller = "quorum"
	}
	if opt.LagTimeout == 0 {
		opt.LagTimeout = time.Second
	}
	s := &Stage{opt: opt, began: time.Unix(1_700_000_000, 0), cut: map[[2]BrokerID]bool{}, slow: map[BrokerID]time.Duration{}}
	s.now = s.began
	s.records, s.talk = lab.Record(opt.Brokers), newTalk(opt.Brokers)
	for id := range BrokerID(opt.Brokers) {
		s.brokers = append(s.brokers, &actor{id: id + 1, disk: vfs.NewMem()})
	}
	for _, b := range s.brokers {
		s.Start(b.id)
	}
	return s
}

// Start starts a broker.
func (s *Stage) Start(id BrokerID) {
	b := s.actor(id)
	if b.up {
		return
	}
	b.life++
	life := b.life
	var ids []BrokerID
	for _, o := range s.brokers {
		ids = append(ids, o.id)
	}
	svc, err := service.Open(service.Config{
		ID: id, Dir: "data", Brokers: ids, Controller: s.opt.Controller, Acks: replica.Quorum, MinInSync: s.opt.MinInSync, GroupPartitions: 1,
		HealthEvery: HealthEvery, FailAfter: FailAfter, LagTimeout: s.opt.LagTimeout, RequestTimeout: time.Second, ProbeTimeout: time.Second,
		Log:     commitlog.Options{FS: b.disk, Now: func() time.Time { return s.now }, SegmentBytes: 64 << 10},
		Random:  rand.NewChaCha8([32]byte{byte(id), byte(life)}),
		Go:      func(do func()) { s.act(b, 0, do) },
		Send:    func(to BrokerID, m service.PeerMessage) error { return s.send(b, to, m) },
		Observe: s.records.Observe,
		Design:  s.opt.Design,
	})
	if err != nil {
		panic(err)
	}
	b.service, b.up = svc, true
	if b.life > 1 {
		s.talk.d.Add(int(id)-1, spacetime.Start, "starts")
	}
	svc.Start()
}

// Kill ends a broker as a power failure does: what it had synced is left on its disk.
func (s *Stage) Kill(id BrokerID) {
	b := s.actor(id)
	b.up = false
	b.life++
	s.talk.d.Add(int(id)-1, spacetime.Stop, "dies")
	for c := range b.disk.Crashes(1, nil) {
		b.disk = c.FS
		break
	}
	for _, o := range s.brokers {
		if o.up {
			s.act(o, hop, func() { o.service.Lost(id, "the connection ended") })
		}
	}
}

// ForgetVote takes what a broker wrote last to its journal from its disk, if that was a vote: as if
// it had not been synced before it was given. The broker must be dead.
func (s *Stage) ForgetVote(id BrokerID) bool {
	b := s.actor(id)
	l, err := commitlog.Open("data/"+metadata.LogName, commitlog.Options{FS: b.disk})
	if b.up || err != nil {
		panic(fmt.Sprintf("stage: broker %d must be dead: %v", id, err))
	}
	defer l.Close()
	last, err := l.Read(l.EndOffset() - 1)
	if err != nil || string(last.Key) != "state" {
		return false
	}
	_, err = l.Truncate(last.Offset)
	return err == nil
}

// Journal returns what a broker's journal says, a line for each record.
func (s *Stage) Journal(id BrokerID) (lines []string) {
	disk := s.actor(id).disk.Kill() // a copy: the broker has the log open
	l, err := commitlog.Open("data/"+metadata.LogName, commitlog.Options{FS: disk})
	if err != nil {
		panic(err)
	}
	defer l.Close()
	for r, err := range l.Records(l.StartOffset()) {
		if err != nil {
			panic(err)
		}
		lines = append(lines, fmt.Sprintf("%s %s", r.Key, r.Value))
	}
	return lines
}

// Cut lets no message through between a broker and the others. Heal does again.
func (s *Stage) Cut(id BrokerID) {
	for _, o := range s.brokers {
		if o.id != id {
			s.cut[[2]BrokerID{id, o.id}], s.cut[[2]BrokerID{o.id, id}] = true, true
		}
	}
}

// Join lets messages through between two brokers that were cut off.
func (s *Stage) Join(a, b BrokerID) {
	delete(s.cut, [2]BrokerID{a, b})
	delete(s.cut, [2]BrokerID{b, a})
}

// Heal ends every cut, and makes nobody slow.
func (s *Stage) Heal() {
	clear(s.cut)
	clear(s.slow)
}

// Slow makes messages from and to a broker take so long.
func (s *Stage) Slow(id BrokerID, by time.Duration) { s.slow[id] = by }

func (s *Stage) actor(id BrokerID) *actor { return s.brokers[id-1] }

// Service is a broker.
func (s *Stage) Service(id BrokerID) *service.Service { return s.actor(id).service }

// Now is how much time has passed.
func (s *Stage) Now() time.Duration { return s.now.Sub(s.began) }

// act lets a broker do something after a time, if it still lives then.
func (s *Stage) act(b *actor, after time.Duration, do func()) {
	life := b.life
	s.seq++
	s.events = append(s.events, event{s.now.Add(after), s.seq, func() {
		if b.life == life && (b.up || after == 0) {
			do()
		}
	}})
}

func (s *Stage) send(from *actor, to BrokerID, m service.PeerMessage) error {
	b := s.actor(to)
	if !b.up {
		return fmt.Errorf("broker %d is down", to)
	}
	heard := s.talk.said(from.id, to, m)
	if s.cut[[2]BrokerID{from.id, to}] {
		return nil // and nobody knows
	}
	s.act(b, hop+s.slow[from.id]+s.slow[to], func() {
		heard()
		b.service.Deliver(from.id, m)
	})
	return nil
}

// turn lets the next thing happen.
func (s *Stage) turn() {
	next := -1
	for i, e := range s.events {
		if next < 0 || e.at.Before(s.events[next].at) || e.at.Equal(s.events[next].at) && e.seq < s.events[next].seq {
			next = i
		}
	}
	var due time.Time
	for _, b := range s.brokers {
		if b.up {
			due = controller.Sooner(due, b.service.Next())
		}
	}
	if next >= 0 && (due.IsZero() || !s.events[next].at.After(due)) {
		e := s.events[next]
		s.events = append(s.events[:next], s.events[next+1:]...)
		if e.at.After(s.now) {
			s.now = e.at
		}
		e.do()
		return
	}
	if due.After(s.now) {
		s.now = due
	}
	for _, b := range s.brokers {
		if b.up && !b.service.Next().IsZero() && !b.service.Next().After(s.now) {
			b.service.Tick()
		}
	}
}

// Run lets time pass.
func (s *Stage) Run(d time.Duration) {
	for end := s.now.Add(d); s.now.Before(end); {
		s.turn()
	}
}

// Until lets things happen until something is so, at most a minute.
func (s *Stage) Until(so func() bool) {
	for end := s.now.Add(time.Minute); !so(); s.turn() {
		if s.now.After(end) {
			panic("stage: it did not come to that in a minute")
		}
	}
}

// Active is the active controller, as most brokers see it; 0: there is none.
func (s *Stage) Active() BrokerID {
	for _, b := range s.brokers {
		votes := 0
		for _, o := range s.brokers {
			if o.up && o.service.ControllerID() == b.id {
				votes++
			}
		}
		if b.up && votes > len(s.brokers)/2 {
			return b.id
		}
	}
	return 0
}

// commands is the broker that takes commands, as broker 1 knows.
func (s *Stage) commands() *service.Service {
	return s.Service(max(1, s.Service(1).ControllerID()))
}

// CreateTopic makes a topic with a replica of each partition on every broker, and waits until all
// of them are in sync.
func (s *Stage) CreateTopic(name string, partitions, replication int) {
	for made := false; !made; {
		answered := false
		s.commands().CreateTopic(controller.TopicSpec{Name: name, Partitions: partitions, Replication: replication}, func(_ *metadata.Topic, err error) {
			answered, made = true, err == nil
		})
		s.Until(func() bool { return answered })
		if !made {
			s.Run(50 * time.Millisecond)
		}
	}
	s.Until(func() bool {
		for _, b := range s.brokers {
			if b.up && b.service.Image().Topic(name) == nil {
				return false
			}
		}
		for p := range partitions {
			if len(s.ISR(service.Partition{Topic: name, ID: p})) < replication {
				return false
			}
		}
		return true
	})
}

// status is what a partition's leader says of it.
func (s *Stage) status(p service.Partition) (best struct {
	Leader BrokerID
	ISR    []BrokerID
	High   int64
}) {
	epoch := int32(-1)
	for _, b := range s.brokers {
		if !b.up {
			continue
		}
		for q, st := range b.service.Replicas() {
			if q == p && st.Role == replica.Leader && st.Assignment.LeaderEpoch > epoch {
				epoch = st.Assignment.LeaderEpoch
				best.Leader, best.ISR, best.High = b.id, st.Assignment.ISR, st.HighWatermark
			}
		}
	}
	return best
}

// Leader is who leads a partition, in the highest epoch; 0: nobody.
func (s *Stage) Leader(p service.Partition) BrokerID { return s.status(p).Leader }

// ISR are the replicas that a partition's leader takes for in sync.
func (s *Stage) ISR(p service.Partition) []BrokerID { return s.status(p).ISR }

// Produce gives a broker a record, and returns what became of it and after how long.
func (s *Stage) Produce(at BrokerID, p service.Partition, acks replica.Acks, value string) (offset int64, took time.Duration, err error) {
	batch, err := commitlog.NewBatch(record.V2, []record.Record{{Value: []byte(value)}}, record.Encoding{Timestamp: s.now}, commitlog.Limits{})
	if err != nil {
		return 0, 0, err
	}
	began, done := s.now, false
	s.Service(at).Produce(service.Produce{Topic: p.Topic, Partition: p.ID, Acks: &acks, Batch: batch}, func(stored service.Produced, e error) {
		done, offset, err = true, stored.BaseOffset, e
	})
	s.Until(func() bool { return done })
	return offset, s.now.Sub(began), err
}

// Failover gives a partition whose leader is gone a new one, with the manual controller.
func (s *Stage) Failover(p service.Partition) error {
	done, err := false, error(nil)
	s.commands().Failover(p, func(_ controller.FailoverResult, e error) { done, err = true, e })
	s.Until(func() bool { return done })
	return err
}

// Show draws what each replica of a partition holds, and the leader's high watermark.
func (s *Stage) Show(p service.Partition) {
	st := s.status(p)
	var rows []lab.ReplicaRow
	for _, b := range s.brokers {
		row := lab.ReplicaRow{ReplicaStatus: cluster.ReplicaStatus{Broker: b.id, Leader: b.id == st.Leader, InSync: slices.Contains(st.ISR, b.id), Known: b.up}}
		if b.up {
			row.Values, row.Epochs = held(b.service, p)
		}
		rows = append(rows, row)
	}
	high := int64(-1)
	if st.Leader != 0 {
		high = st.High
	}
	lab.ShowReplicaRows(p, rows, high)
}

func held(svc *service.Service, p service.Partition) (values []string, epochs []int32) {
	for r, err := range svc.Own(p) {
		if err != nil {
			break
		}
		values = append(values, string(r.Value))
	}
	digests, _ := svc.FrameDigests(p, 0, 1<<30)
	for _, d := range digests {
		for range d.NextOffset - d.BaseOffset {
			epochs = append(epochs, d.LeaderEpoch)
		}
	}
	return values, epochs
}

// Held are the values that a broker's replica holds.
func (s *Stage) Held(id BrokerID, p service.Partition) []string {
	values, _ := held(s.Service(id), p)
	return values
}

// Watch forgets what was recorded of replicas and of the quorum so far; ShowRecords and ShowTalk
// draw what happens from here on.
func (s *Stage) Watch() {
	s.records.Clear()
	s.talk.clear()
}

// ShowRecords draws how records travelled.
func (s *Stage) ShowRecords() { s.records.Show() }

// ShowTalk draws what the members of the quorum said to each other.
func (s *Stage) ShowTalk() { lab.ShowDiagram(&s.talk.d) }

// Elected says who was elected in each term, as far as that was heard.
func (s *Stage) Elected() map[uint64][]BrokerID { return s.talk.elected }

package broker

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"logbook/engine/cluster"
	"logbook/engine/commitlog"
	"logbook/engine/controller"
	"logbook/engine/record"
	"logbook/engine/replica"
	"logbook/engine/topic"
	"logbook/engine/wire"
)

// append is a produce request on its way.
type appending struct {
	id      uint64
	acks    replica.Acks
	records []record.Record
	size    int
	timeout time.Duration
	done    func() // gives back what the request holds
}

// lane keeps the appends of a session to one partition in their order. Those that wait
// for the one before them go together: one append, one sync.
type lane struct {
	s    *session
	p    controller.Partition
	mu   sync.Mutex
	wait []*appending
	busy bool
}

// laneBytes is how much goes into an append together.
const laneBytes = 1 << 20

// turns are the partitions that keyless records are sent to, in turn; for each topic.
type turns struct{ next sync.Map }

func (t *turns) take(name string, n int) int {
	cursor, _ := t.next.LoadOrStore(name, new(atomic.Uint64))
	return int((cursor.(*atomic.Uint64).Add(1) - 1) % uint64(n))
}

// produce begins a produce request; finished is called when it is answered.
func (s *session) produce(e wire.Envelope, finished func()) {
	a, p, err := s.b.appending(e)
	if err != nil {
		s.error(e.ID, s.b.WireError(err))
		finished()
		return
	}
	a.done = finished
	s.laneMu.Lock()
	l := s.lanes[p.String()]
	if l == nil {
		l = &lane{s: s, p: p}
		s.lanes[p.String()] = l
	}
	s.laneMu.Unlock()
	l.add(a)
}

// appending reads a produce request, and finds its partition.
func (b *Broker) appending(e wire.Envelope) (*appending, controller.Partition, error) {
	var r wire.Produce
	none := controller.Partition{}
	if err := wire.Unmarshal(e.Payload, &r); err != nil {
		return nil, none, badRequest("a produce that cannot be read: %v", err)
	}
	if strings.HasPrefix(r.Topic, internalPrefix) {
		return nil, none, badRequest("topic %q is the broker's own", r.Topic)
	}
	if len(r.Records) == 0 {
		return nil, none, badRequest("a produce without records")
	}
	t, ok := b.dir.topic(r.Topic)
	if !ok {
		return nil, none, &topic.UnknownError{Name: r.Topic}
	}
	a := &appending{id: e.ID, acks: b.cfg.Acks, timeout: time.Duration(r.TimeoutMS) * time.Millisecond}
	if r.Acks != "" {
		var err error
		if a.acks, err = replica.ParseAcks(r.Acks); err != nil {
			return nil, none, badRequest("%v", err)
		}
	}
	for _, rec := range r.Records {
		a.records = append(a.records, toRecord(rec))
		a.size += len(rec.Key) + len(rec.Value) + 64
	}
	n := len(t.Partitions)
	switch {
	case r.Partition >= n || r.Partition < -1:
		return nil, none, &topic.PartitionError{Topic: r.Topic, Partition: r.Partition, Count: n}
	case r.Partition >= 0:
		return a, partition(r.Topic, r.Partition), nil
	case r.Records[0].Key == nil:
		return a, partition(r.Topic, b.turns.take(r.Topic, n)), nil
	}
	router, err := topic.RouterByName(t.Router)
	if err != nil {
		return nil, none, err
	}
	return a, partition(r.Topic, router.Partition(r.Records[0].Key, n)), nil
}

func toRecord(r wire.Record) record.Record {
	out := record.Record{Key: r.Key, Value: r.Value}
	if r.Timestamp != 0 {
		out.Timestamp = time.UnixMilli(r.Timestamp)
	}
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, record.Header{Key: h.Key, Value: h.Value})
	}
	return out
}

func (l *lane) add(a *appending) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wait = append(l.wait, a)
	if !l.busy {
		l.busy = true
		go l.run()
	}
}

func (l *lane) run() {
	for {
		l.mu.Lock()
		if len(l.wait) == 0 {
			l.busy = false
			l.mu.Unlock()
			return
		}
		n, size := 0, 0
		for n < len(l.wait) && l.wait[n].acks == l.wait[0].acks && (n == 0 || size+l.wait[n].size <= laneBytes) {
			size += l.wait[n].size
			n++
		}
		together := l.wait[:n:n]
		l.wait = l.wait[n:]
		l.mu.Unlock()
		if !l.append(together) && n > 1 {
			for i := range together { // one of them is at fault: each for itself
				l.append(together[i : i+1])
			}
		}
	}
}

// append stores appends as one and answers them when their followers have them. It
// reports false, and answers nothing, where the log refuses several together.
func (l *lane) append(together []*appending) bool {
	var records []record.Record
	for _, a := range together {
		records = append(records, a.records...)
	}
	b := l.s.b
	began := time.Now()
	var at commitlog.Appended
	var timer *time.Timer
	stored := make(chan struct{}) // at and timer are set; the outcome may come before that
	outcome := func(err error) {
		<-stored
		if timer != nil {
			timer.Stop()
		}
		base := at.BaseOffset
		for _, a := range together {
			l.answer(a, base, at.Timestamp, err)
			base += int64(len(a.records))
		}
		if err == nil {
			b.counters.produced(l.p, len(records), time.Since(began))
		}
	}
	got, cancel, err := b.node.AppendAsync(l.p, together[0].acks, cluster.Records(records...), func(err error) { go outcome(err) })
	at = got
	if patience := together[0].timeout; err == nil && patience > 0 {
		timer = time.AfterFunc(patience, cancel)
	}
	close(stored)
	if err != nil && len(together) > 1 {
		return false
	}
	if err != nil {
		outcome(err)
	}
	return true
}

func (l *lane) answer(a *appending, base int64, at time.Time, err error) {
	if err != nil {
		l.s.error(a.id, l.s.b.WireError(err))
	} else {
		stamp := at
		if t := a.records[0].Timestamp; !t.IsZero() {
			stamp = t
		}
		l.s.reply(a.id, "produce", wire.ProduceReply{Partition: l.p.ID, Offset: base, Timestamp: stamp.UnixMilli()})
	}
	a.done()
}

func badRequest(format string, args ...any) error {
	return &wire.Error{Code: wire.BadRequest, Message: fmt.Sprintf(format, args...)}
}

func partition(name string, id int) controller.Partition {
	return controller.Partition{Topic: name, ID: id}
}

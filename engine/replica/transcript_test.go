package replica_test

import (
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"logbook/engine/commitlog"
	"logbook/engine/replica"
	"logbook/engine/transcript"
)

// Each file in testdata is the transcript of a partition's life: a command a line, what it
// leads to indented under it.
//
//	explicit, or: automatic lag=10s heartbeat=1s retry=1s write=5s min=2
//	assign leader=1 epoch=1 isr=1,2,3 [to=1,2]    the controller decides, and tells those
//	write a [acks=all]                               the leader appends
//	deliver [2>1] [n], drop [2>1] [n]                messages under way, on one link or all until quiet
//	hold 2>1, release                                take one out of order
//	catchup 2, recover 2, lost 1 2 (contact of 1 with 2)
//	trim 1 3                                         retention moves the leader's log start
//	disk 2 fails, disk 2 works, poke 2 x [epoch=3]   what the machine knows nothing of
//	restart 2 [lose=1]                               and lose records that were not synced
//	accept, reject [unsure]                          the controller answers a proposal
//	at 5s                                            time passes
//	logs
func TestTranscripts(t *testing.T) { transcript.Test(t, "testdata/*.txt", play) }

type id = replica.BrokerID

// fakeLog is a log of one-word records, each a frame.
type fakeLog struct {
	start   int64
	records []fakeRecord
	epochs  []commitlog.EpochStart
	broken  bool
}

type fakeRecord struct {
	epoch int32
	value string
}

func (l *fakeLog) end() int64 { return l.start + int64(len(l.records)) }

func (l *fakeLog) state() replica.Log {
	return replica.Log{LogStartOffset: l.start, FirstOffset: l.start, LogEndOffset: l.end(), Epochs: slices.Clone(l.epochs)}
}

func (l *fakeLog) enter(epoch int32) {
	l.epochs = slices.DeleteFunc(l.epochs, func(e commitlog.EpochStart) bool { return e.Start >= l.end() })
	if n := len(l.epochs); n == 0 || l.epochs[n-1].Epoch < epoch {
		l.epochs = append(l.epochs, commitlog.EpochStart{Epoch: epoch, Start: l.end()})
	}
}

func (l *fakeLog) cut(to int64) {
	l.records = l.records[:to-l.start]
	l.epochs = slices.DeleteFunc(l.epochs, func(e commitlog.EpochStart) bool { return e.Start >= to })
}

func (l *fakeLog) sums(from int64, n int) (out []commitlog.FrameDigest) {
	for o := from; o < l.end() && len(out) < n; o++ {
		h := fnv.New64a()
		r := l.records[o-l.start]
		h.Write([]byte(r.value))
		out = append(out, commitlog.FrameDigest{BaseOffset: o, NextOffset: o + 1, LeaderEpoch: r.epoch, Hash: h.Sum64()})
	}
	return out
}

type stage struct {
	t        *testing.T
	cfg      replica.Config
	now      time.Time
	at       replica.Assignment
	machines map[id]*replica.Replica
	logs     map[id]*fakeLog
	wire     []replica.Message
	held     replica.Message
	proposal *replica.Assignment
	next     uint64
	names    map[uint64]string
	out      strings.Builder
}

func play(t *testing.T, text string) string {
	s := &stage{t: t, now: time.Unix(0, 0), machines: map[id]*replica.Replica{}, logs: map[id]*fakeLog{}, names: map[uint64]string{}}
	return transcript.Play(text, &s.out, s.command)
}

func (s *stage) say(format string, args ...any) { fmt.Fprintf(&s.out, "  "+format+"\n", args...) }

// options parses key=value words.
func options(words []string) map[string]string {
	out := map[string]string{}
	for _, w := range words {
		if key, value, ok := strings.Cut(w, "="); ok {
			out[key] = value
		}
	}
	return out
}

func ids(s string) (out []id) {
	for w := range strings.SplitSeq(s, ",") {
		out = append(out, number(w))
	}
	return out
}

func number(s string) id { n, _ := strconv.Atoi(s); return id(n) }

func duration(s string) time.Duration { d, _ := time.ParseDuration(s); return d }

func (s *stage) command(words []string) {
	opt := options(words)
	switch words[0] {
	case "explicit", "automatic":
		s.cfg = replica.Config{Explicit: words[0] == "explicit", LagTimeout: duration(opt["lag"]), Heartbeat: duration(opt["heartbeat"]), Retry: duration(opt["retry"]), WriteTimeout: duration(opt["write"]), MaxDigests: 2, MinInSync: int(number(opt["min"]))}
	case "assign":
		s.assign(opt)
	case "write":
		s.write(words[1], opt["acks"])
	case "deliver", "drop", "hold", "release":
		s.messages(words)
	case "catchup", "recover":
		s.commandReplica(words[0], number(words[1]))
	case "lost":
		s.perform(number(words[1]), s.machines[number(words[1])].Unreachable(s.now, number(words[2]), "down"))
	case "disk":
		s.logs[number(words[1])].broken = words[2] == "fails"
	case "poke":
		l := s.logs[number(words[1])]
		epoch := l.epochs[len(l.epochs)-1].Epoch
		if opt["epoch"] != "" {
			epoch = int32(number(opt["epoch"]))
		}
		l.enter(epoch)
		l.records = append(l.records, fakeRecord{epoch, words[2]})
	case "trim":
		l, to := s.logs[number(words[1])], int64(number(words[2]))
		l.records, l.start = l.records[to-l.start:], to
		s.perform(number(words[1]), s.machines[number(words[1])].Trimmed(s.now, to, to))
	case "start":
		s.logs[number(words[1])].start = int64(number(words[2]))
		s.logs[number(words[1])].records = s.logs[number(words[1])].records[number(words[2]):]
	case "restart":
		s.restart(number(words[1]), int64(number(opt["lose"])))
	case "accept", "reject":
		if s.proposal == nil {
			s.say("nothing is proposed")
			return
		}
		if words[0] == "reject" {
			leader, version := s.at.Leader, s.proposal.Version
			s.proposal = nil
			s.perform(leader, s.machines[leader].Rejected(s.now, version, "the disk is full", len(words) > 1))
			return
		}
		a := *s.proposal
		s.proposal = nil
		s.at = a
		s.tell(a, a.Replicas)
	case "at":
		s.pass(duration(words[1]))
	case "logs":
		s.show()
	default:
		s.t.Fatalf("unknown command %q", words[0])
	}
}

func (s *stage) assign(opt map[string]string) {
	a := s.at.Clone()
	a.Version++
	a.Leader = number(opt["leader"])
	a.LeaderEpoch = int32(number(opt["epoch"]))
	a.ISR = ids(opt["isr"])
	if a.Replicas == nil {
		a.Replicas = slices.Clone(a.ISR)
		for _, i := range a.Replicas {
			s.logs[i] = &fakeLog{}
			s.restart(i, 0)
		}
	}
	s.at = a
	to := a.Replicas
	if opt["to"] != "" {
		to = ids(opt["to"])
	}
	s.tell(a, to)
}

// tell tells the followers first.
func (s *stage) tell(a replica.Assignment, to []id) {
	for _, leader := range []bool{false, true} {
		for _, i := range to {
			if (i == a.Leader) == leader {
				s.perform(i, s.machines[i].Assign(s.now, a))
			}
		}
	}
}

func (s *stage) restart(i id, lose int64) {
	if l := s.logs[i]; lose > 0 {
		l.cut(l.end() - lose)
	}
	cfg := s.cfg
	cfg.ID = i
	cfg.FirstSeq = uint64(s.now.UnixNano()) + 100*s.next
	s.next++
	s.machines[i] = replica.New(cfg, s.logs[i].state(), 0)
}

func (s *stage) write(value, acks string) {
	if acks == "" {
		acks = "all"
	}
	a, err := replica.ParseAcks(acks)
	require.NoError(s.t, err)
	m, l := s.machines[s.at.Leader], s.logs[s.at.Leader]
	if err := m.CheckWrite(a); err != nil {
		s.say("write %s: %v", value, brief(err))
		return
	}
	l.records = append(l.records, fakeRecord{s.at.LeaderEpoch, value})
	s.next++
	s.names[s.next] = "write " + value
	s.perform(s.at.Leader, m.Appended(s.now, replica.Write{ID: s.next, Acks: a, BaseOffset: l.end() - 1, NextOffset: l.end()}))
}

func (s *stage) commandReplica(what string, i id) {
	s.next++
	s.names[s.next] = fmt.Sprint(what, " ", i)
	if what == "catchup" {
		s.perform(i, s.machines[i].CatchUp(s.now, s.next))
		return
	}
	s.perform(i, s.machines[i].Recover(s.now, s.next))
}

// messages delivers, drops or repeats what is under way.
func (s *stage) messages(words []string) {
	link, limit := "", 1000
	for _, w := range words[1:] {
		if n, err := strconv.Atoi(w); err == nil {
			limit = n
		} else {
			link = w
		}
	}
	switch words[0] {
	case "hold":
		limit = 1
	case "release":
		s.receive(s.held)
		return
	}
	for ; limit > 0; limit-- {
		i := slices.IndexFunc(s.wire, func(m replica.Message) bool { return link == "" || link == fmt.Sprintf("%d>%d", m.From, m.To) })
		if i < 0 {
			return
		}
		m := s.wire[i]
		s.wire = slices.Delete(s.wire, i, i+1)
		switch words[0] {
		case "deliver":
			s.receive(m)
		case "hold":
			s.held = m
		}
	}
}

func (s *stage) receive(m replica.Message) {
	s.say("%s", describe(m))
	s.perform(m.To, s.machines[m.To].Step(s.now, m))
}

func describe(m replica.Message) string {
	text := fmt.Sprintf("%d>%d %s", m.From, m.To, m.Kind)
	switch m.Kind {
	case replica.Fetch:
		text += fmt.Sprintf(" from %d, last epoch %d", m.Offset, m.LastEpoch)
		if m.Failed != "" {
			text += ": " + m.Failed
		}
		if m.Verified {
			text += ", verified"
		}
	case replica.Frames:
		text += fmt.Sprintf(" %d to %d %q, high watermark %d", m.Offset, m.NextOffset, m.Frames, m.HighWatermark)
	case replica.Diverging:
		text += fmt.Sprintf(": epoch %d ends at %d", m.LastEpoch, m.EpochEnd)
	case replica.Refused:
		text += ": " + string(m.Reason)
	case replica.AskDigests:
		text += fmt.Sprintf(" from %d", m.Offset)
	case replica.Digests:
		text += fmt.Sprintf(" of %d frames from %d", len(m.Digests), m.Offset)
	}
	return text
}

// pass lets time pass, with a tick whenever one is due on the way.
func (s *stage) pass(d time.Duration) {
	for target := time.Unix(0, 0).Add(d); ; {
		next := target
		for _, i := range s.at.Replicas {
			if t := s.machines[i].Next(); !t.IsZero() && t.Before(next) {
				next = t
			}
		}
		s.now = next
		if next.Equal(target) {
			return
		}
		for _, i := range s.at.Replicas {
			if t := s.machines[i].Next(); !t.IsZero() && !t.After(s.now) {
				s.say("%v: %d ticks", s.now.Sub(time.Unix(0, 0)), i)
				s.perform(i, s.machines[i].Tick(s.now))
			}
		}
	}
}

func (s *stage) show() {
	for _, i := range s.at.Replicas {
		l := s.logs[i]
		var words []string
		for _, r := range l.records {
			words = append(words, fmt.Sprintf("%s(%d)", r.value, r.epoch))
		}
		st := s.machines[i].Status()
		s.say("%d %s from %d: %s; high watermark %d", i, st.Role, l.start, strings.Join(words, " "), st.HighWatermark)
		if st.Problem != nil {
			s.say("  %s", brief(st.Problem))
		}
	}
}

func brief(err error) string { return strings.TrimPrefix(err.Error(), "replica: ") }

var errDisk = errors.New("no space left on device")

func (s *stage) perform(i id, effects []replica.Effect) {
	l := s.logs[i]
	logged := func(change func()) {
		var err error
		if l.broken {
			err = errDisk
		} else {
			change()
		}
		s.perform(i, s.machines[i].Logged(s.now, l.state(), err))
	}
	for _, e := range effects {
		switch e := e.(type) {
		case replica.StartEpoch:
			s.say("%d starts epoch %d at %d", i, e.Epoch, l.end())
			logged(func() { l.enter(e.Epoch) })
		case replica.Copy:
			logged(func() {
				l.enter(e.Epoch)
				for v := range strings.FieldsSeq(string(e.Frames)) {
					l.records = append(l.records, fakeRecord{e.Epoch, v})
				}
			})
		case replica.Truncate:
			s.say("%d cuts its log to %d", i, e.To)
			logged(func() { l.cut(e.To) })
		case replica.Reset:
			s.say("%d empties its log, to go on at %d", i, e.To)
			logged(func() { *l = fakeLog{start: e.To} })
		case replica.Advance:
			s.say("%d drops what lies below %d", i, e.To)
			logged(func() { l.records, l.start = l.records[e.To-l.start:], e.To })
		case replica.Compare:
			ours := l.sums(e.From, len(e.Digests))
			same := e.From
			differs := false
			for k := range ours {
				if differs = ours[k] != e.Digests[k]; differs {
					break
				}
				same = ours[k].NextOffset
			}
			s.perform(i, s.machines[i].Compared(s.now, same, differs, nil))
		case replica.Send:
			s.wire = append(s.wire, e.Message)
		case replica.SendFrames:
			m := e.Message
			for o := m.Offset; o < m.LogEndOffset; o++ {
				r := l.records[o-l.start]
				if m.FrameEpoch == 0 {
					m.FrameEpoch = r.epoch
				}
				if r.epoch != m.FrameEpoch {
					break
				}
				m.Frames = append(m.Frames, r.value+" "...)
				m.NextOffset = o + 1
			}
			s.wire = append(s.wire, m)
		case replica.SendDigests:
			m := e.Message
			m.Digests = l.sums(m.Offset, e.Max)
			s.wire = append(s.wire, m)
		case replica.Propose:
			s.say("%d proposes ISR %v", i, e.Assignment.ISR)
			s.proposal = &e.Assignment
		case replica.Done:
			s.finished(e.ID, e.Err)
		case replica.Finished:
			s.finished(e.ID, e.Err)
		}
	}
}

func (s *stage) finished(id uint64, err error) {
	if err != nil {
		s.say("%s: %s", s.names[id], brief(err))
		return
	}
	s.say("%s: done", s.names[id])
}

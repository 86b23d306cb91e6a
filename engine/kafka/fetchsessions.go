package kafka

import (
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A fetch session (KIP-227) spares a client to say in each fetch what it has said before, and a
// broker to answer what has not changed. A session is its connection's: who comes back on
// another begins a new one, as the protocol allows at any time.

// What a broker keeps of sessions: so many partitions in one, and in all of them.
const (
	maxSessionPartitions  = 20_000
	maxSessionsPartitions = 1_000_000
)

// fetchSessions is what all connections' sessions have in common.
type fetchSessions struct {
	last       atomic.Int32 // the latest session's id
	partitions atomic.Int64 // in all of them
}

// sessionKey is a partition as a request names its topic: by name or by id.
type sessionKey struct {
	topic     string
	id        [16]byte
	partition int32
}

// sessionPart is what is remembered of a partition.
type sessionPart struct {
	key     sessionKey
	asked   kmsg.FetchRequestTopicPartition
	told    bool // the client knows the two below
	hw, low int64
}

// fetchSession is a connection's session.
type fetchSession struct {
	id, next int32 // next is the epoch of the next request
	order    []*sessionPart
	parts    map[sessionKey]*sessionPart
}

// openSession finds what a fetch asks for, in all. incremental says that the reply may leave
// out what has not changed.
func (c *conn) openSession(q *kmsg.FetchRequest) (incremental bool, code int16) {
	s := c.session
	switch {
	case q.Version < 7:
		return false, 0
	case q.SessionEpoch == -1, q.SessionEpoch == 0: // it ends its session, or begins one
		c.endSession()
		if q.SessionEpoch == 0 {
			c.beginSession(q)
		}
		return false, 0
	case s == nil || q.SessionID != s.id:
		return false, kerr.FetchSessionIDNotFound.Code
	case q.SessionEpoch != s.next:
		return false, kerr.InvalidFetchSessionEpoch.Code
	}
	if s.next++; s.next <= 0 {
		s.next = 1
	}
	before := len(s.order)
	for _, t := range q.ForgottenTopics {
		for _, p := range t.Partitions {
			delete(s.parts, sessionKey{t.Topic, t.TopicID, p})
		}
	}
	if len(s.parts) < len(s.order) {
		kept := s.order[:0]
		for _, p := range s.order {
			if s.parts[p.key] == p {
				kept = append(kept, p)
			}
		}
		clear(s.order[len(kept):])
		s.order = kept
	}
	s.add(q)
	c.f.sessions.partitions.Add(int64(len(s.order) - before))
	if len(s.order) > maxSessionPartitions {
		c.endSession()
		return false, kerr.FetchSessionIDNotFound.Code // it begins anew, without one
	}
	q.Topics = s.topics()
	return true, 0
}

// beginSession begins a session with what a fetch asks for, if there is room for it.
func (c *conn) beginSession(q *kmsg.FetchRequest) {
	n := 0
	for _, t := range q.Topics {
		n += len(t.Partitions)
	}
	if n == 0 || n > maxSessionPartitions || c.f.sessions.partitions.Load()+int64(n) > maxSessionsPartitions {
		return
	}
	id := c.f.sessions.last.Add(1) & 0x7fffffff
	if id == 0 {
		id = c.f.sessions.last.Add(1) & 0x7fffffff
	}
	s := &fetchSession{id: id, next: 1, parts: map[sessionKey]*sessionPart{}}
	if s.add(q); len(s.order) < n {
		return // a partition is asked for twice: whoever does that is answered without a session
	}
	c.f.sessions.partitions.Add(int64(n))
	c.session = s
}

// endSession forgets the connection's session.
func (c *conn) endSession() {
	if c.session != nil {
		c.f.sessions.partitions.Add(-int64(len(c.session.order)))
		c.session = nil
	}
}

// add takes in what a fetch says of partitions.
func (s *fetchSession) add(q *kmsg.FetchRequest) {
	for _, t := range q.Topics {
		for _, asked := range t.Partitions {
			key := sessionKey{t.Topic, t.TopicID, asked.Partition}
			p := s.parts[key]
			if p == nil {
				p = &sessionPart{key: key}
				s.parts[key] = p
				s.order = append(s.order, p)
			}
			p.asked = asked
		}
	}
}

// topics is what the session asks for, by topic.
func (s *fetchSession) topics() (out []kmsg.FetchRequestTopic) {
	for _, p := range s.order {
		n := len(out)
		if n == 0 || out[n-1].Topic != p.key.topic || out[n-1].TopicID != p.key.id {
			out = append(out, kmsg.FetchRequestTopic{Topic: p.key.topic, TopicID: p.key.id})
			n++
		}
		out[n-1].Partitions = append(out[n-1].Partitions, p.asked)
	}
	return out
}

// answer notes what the client is told, and takes out of an incremental reply what it knows.
// A partition that had records comes last in the next fetch: the others are to have their turn.
func (s *fetchSession) answer(r *kmsg.FetchResponse, incremental bool) {
	r.SessionID = s.id
	var first, last []*sessionPart
	topics := r.Topics[:0]
	i := 0
	for _, t := range r.Topics {
		parts := t.Partitions[:0]
		for _, rp := range t.Partitions {
			p := s.order[i] // in the order in which it was asked for
			i++
			told := p.told && rp.ErrorCode == 0 && len(rp.RecordBatches) == 0 && rp.PreferredReadReplica < 0 && rp.HighWatermark == p.hw && rp.LogStartOffset == p.low
			p.told, p.hw, p.low = rp.ErrorCode == 0, rp.HighWatermark, rp.LogStartOffset
			if len(rp.RecordBatches) > 0 {
				last = append(last, p)
			} else {
				first = append(first, p)
			}
			if !incremental || !told {
				parts = append(parts, rp)
			}
		}
		if t.Partitions = parts; len(parts) > 0 {
			topics = append(topics, t)
		}
	}
	r.Topics = topics
	s.order = append(append(s.order[:0], first...), last...)
}

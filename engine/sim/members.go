package sim

import (
	"errors"
	"maps"
	"slices"
	"time"

	"logbook/engine/group"
	"logbook/engine/service"
	"logbook/engine/topic"
)

// A consumer group over both topics, coordinated by the brokers as ever: its state and its
// committed offsets are records of the groups' topic.

const (
	groupName   = "g"
	memberCount = 3
)

var errNoCoordinator = errors.New("sim: no coordinator")

// member is a member of the group: it joins, sends heartbeats, reads, and commits as it goes.
type member struct {
	w          *world
	n          int
	id         string
	generation int32
	joined     bool
	positions  map[topic.Partition]int64
	busy       bool
	silent     bool // it hangs, and believes what it believed
	beats      int
	epoch      int32 // the highest of a coordinator heard of: who coordinates in a lower one was replaced
}

func newMember(w *world, n int) *member {
	m := &member{w: w, n: n, positions: map[topic.Partition]int64{}}
	w.every(400*time.Millisecond, m.live)
	return m
}

// call sends something to the coordinator, and waits so long and no longer.
func (m *member) call(do func(s *service.Service, reply func(service.GroupReply, error)), then func(service.GroupReply, error)) {
	m.busy = true
	done := false
	finish := func(r service.GroupReply, err error) {
		if !done {
			done, m.busy = true, false
			then(r, err)
		}
	}
	m.w.after(6*time.Second, func() { finish(service.GroupReply{}, errors.New("sim: no answer")) })
	client := 20 + m.n
	ask := m.w.brokers[m.w.dice(forClient+uint64(client)).IntN(len(m.w.brokers))]
	if !ask.up {
		finish(service.GroupReply{}, errNoCoordinator)
		return
	}
	none := func() { finish(service.GroupReply{}, errNoCoordinator) }
	m.w.visit(client, ask, none, func(s *service.Service, back func(func())) {
		s.FindCoordinator(groupName, func(id service.BrokerID, err error) {
			back(func() {
				if err != nil || id == 0 || !m.w.brokers[id-1].up {
					none()
					return
				}
				m.w.visit(client, m.w.brokers[id-1], none, func(s *service.Service, back func(func())) {
					do(s, func(r service.GroupReply, err error) {
						back(func() {
							if err == nil && r.Epoch < m.epoch {
								err = errNoCoordinator
							}
							m.epoch = max(m.epoch, r.Epoch)
							finish(r, err)
						})
					})
				})
			})
		})
	})
}

// request sends a member's request.
func (m *member) request(r group.Request, then func(service.GroupReply, error)) {
	m.call(func(s *service.Service, reply func(service.GroupReply, error)) { s.Group(groupName, r, reply) }, then)
}

func (m *member) live() {
	if m.silent || m.busy {
		return
	}
	if !m.joined {
		m.join()
		return
	}
	m.read()
	if m.beats++; m.beats%2 == 0 {
		m.commit()
		return
	}
	r := group.Request{Kind: group.Heartbeat, Member: m.id, Generation: m.generation}
	m.request(r, func(_ service.GroupReply, err error) { m.heed(err) })
}

// heed does what an error says.
func (m *member) heed(err error) {
	e, ok := errors.AsType[*service.Error](err)
	if !ok {
		return
	}
	switch e.Code {
	case service.UnknownMember:
		m.id, m.joined = "", false
	case service.Rejoin:
		m.joined = false
	}
}

func (m *member) join() {
	r := group.Request{Member: m.id, Topics: []string{"flights", "routes"}, SessionTimeout: 3 * time.Second, RebalanceTimeout: 2 * time.Second}
	m.call(func(s *service.Service, reply func(service.GroupReply, error)) { s.Join(groupName, r, reply) }, func(reply service.GroupReply, err error) {
		if err != nil {
			m.heed(err)
			return
		}
		m.id, m.generation = reply.Member, reply.Generation
		m.w.checks.told(reply.Generation)
		m.sync()
	})
}

func (m *member) sync() {
	r := group.Request{Kind: group.Sync, Member: m.id, Generation: m.generation}
	m.request(r, func(reply service.GroupReply, err error) {
		if err != nil {
			m.heed(err)
			return
		}
		m.resume(reply.Partitions)
	})
}

// resume begins to read partitions where the group was.
func (m *member) resume(ps []topic.Partition) {
	var offsets map[topic.Partition]int64
	known := m.epoch
	m.call(func(s *service.Service, reply func(service.GroupReply, error)) {
		s.Committed(groupName, known, func(all map[topic.Partition]int64, err error) {
			offsets = maps.Clone(all)
			reply(service.GroupReply{Epoch: known}, err)
		})
	}, func(_ service.GroupReply, err error) {
		if err != nil {
			return // the next beat joins again
		}
		m.positions = map[topic.Partition]int64{}
		for _, p := range ps {
			m.w.checks.owns(m.generation, p, m.id)
			m.positions[p] = offsets[p]
			m.w.checks.resumes(p, offsets[p])
		}
		m.joined = true
	})
}

// read moves the positions over what there is.
func (m *member) read() {
	for _, p := range slices.SortedFunc(maps.Keys(m.positions), topic.Partition.Compare) {
		b := m.w.ask(20+m.n, p)
		if b == nil {
			continue
		}
		generation, at := m.generation, m.positions[p]
		m.w.visit(20+m.n, b, func() {}, func(s *service.Service, back func(func())) {
			q := service.Fetch{Partitions: []service.FetchPartition{{Partition: p, Offset: at, MaxBytes: 1 << 16}}}
			s.Fetch(q, func(all []service.Fetched) {
				back(func() {
					if now, mine := m.positions[p]; mine && m.generation == generation && all[0].Err == nil && now == at {
						m.positions[p] = all[0].Next
					}
				})
			})
		})
	}
}

func (m *member) commit() {
	commits := maps.Clone(m.positions)
	if len(commits) == 0 {
		return
	}
	newest := m.w.checks.generation
	generation := m.generation
	r := group.Request{Kind: group.Commit, Member: m.id, Generation: generation, Offsets: commits}
	m.request(r, func(_ service.GroupReply, err error) {
		if err != nil {
			m.heed(err)
			return
		}
		m.w.checks.commits(generation, newest, commits)
	})
}

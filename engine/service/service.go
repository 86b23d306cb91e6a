package service

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"logbook/engine/commitlog"
	"logbook/engine/controller"
	"logbook/engine/metadata"
	"logbook/engine/node"
	"logbook/engine/replica"
	"logbook/engine/topic"
)

// Partition names a partition of a topic.
type Partition = topic.Partition

// BrokerID names a broker.
type BrokerID = replica.BrokerID

// Service is one broker. It is safe for concurrent use.
type Service struct {
	cfg    Config
	now    func() time.Time
	logger *slog.Logger
	node   *node.Node
	store  *metadata.Store
	groups *coordinator
	timers timers
	calls  peerCalls
	turns  topic.Turns

	control    serial             // what follows belongs to it
	controller controller.Machine //
	commands   map[uint64]func(controller.Done)
	lastID     uint64
	started    bool
	watched    bool                                      // the lease's end is waited for
	early      []func(now time.Time) []controller.Effect // commands that wait for Start

	replicas  serial // makes and removes replicas, in order
	endpoints endpoints

	leaving     atomic.Bool
	view        atomic.Pointer[view]
	lease       atomic.Pointer[time.Time] // until when what this broker leads may be served; nil: without limit
	controlNext atomic.Int64              // when the controller wants to be ticked, in ns; 0: never

	mu      sync.RWMutex // what follows
	closed  bool
	running sync.WaitGroup
}

// view is what the controller has decided, for everybody to look at.
type view struct {
	image   *metadata.Image
	brokers []BrokerID // ascending
	alive   map[BrokerID]bool
	boss    BrokerID // that decides; None: any
	// applied is how far the decisions are followed.
	applied uint64
	problem string // why this broker takes no part in decisions
	left    bool   // the controller has handed over what it can
	// retired: this broker leaves, and counts as in sync nowhere: it need not follow any more.
	retired bool
}

// Open opens a broker's data and recovers its replicas. Start begins its work.
//
// Errors: what is wrong with the configuration, *UndecidedDataError,
// *metadata.DamageError, *commitlog.LockedError.
func Open(cfg Config) (*Service, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Service{cfg: cfg, now: cfg.Log.Now, logger: cfg.Log.Logger, commands: map[uint64]func(controller.Done){}}
	s.control.run, s.replicas.run = s.run, s.run
	s.calls.timers, s.calls.waiting = &s.timers, map[uint64]*peerCall{}
	s.timers.wake = cfg.Wake
	s.groups = newCoordinator(s)
	if err := cfg.Log.FS.MkdirAll(cfg.Dir); err != nil {
		return nil, fmt.Errorf("service: %w", err)
	}
	if err := checkDecided(cfg.Log.FS, cfg.Dir, nil); err != nil {
		return nil, err
	}
	opt := cfg.Log
	if err := s.openController(filepath.Join(cfg.Dir, metadata.LogName), opt); err != nil {
		return nil, err
	}
	image := s.controller.Image()
	if err := checkDecided(cfg.Log.FS, cfg.Dir, image); err != nil {
		return nil, errors.Join(err, s.store.Close())
	}
	if on := image.ReplicasOn(cfg.ID); len(on) > 0 && !cfg.Role.Stores() {
		return nil, errors.Join(fmt.Errorf("service: broker %d has replicas of %d partitions, one of %s, and cannot only decide: start it with both roles, and move them first (logbook cluster drain %d)", cfg.ID, len(on), on[0], cfg.ID), s.store.Close())
	}
	s.node, err = node.Open(node.Options{
		ID: cfg.ID, Dir: cfg.Dir, Send: s.sendReplica, Propose: s.propose, Log: cfg.Log, Machine: cfg.Design.Machine, Go: cfg.Go, Wake: cfg.Wake, Observe: cfg.Observe, CatchUpRate: cfg.CatchUpRate,
		Replica: replica.Config{
			MinInSync: cfg.MinInSync, LagTimeout: cfg.LagTimeout, UnreachableTimeout: cfg.UnreachableTimeout, WriteTimeout: cfg.WriteTimeout,
			Heartbeat: cfg.HealthEvery, Retry: cfg.HealthEvery / 2,
		},
	})
	if err != nil {
		return nil, errors.Join(err, s.store.Close())
	}
	for _, name := range image.AllDeleted() {
		if err := s.node.RemoveLeftovers(name); err != nil {
			s.logger.Error("what is left of a deleted topic could not be removed", "topic", name, "error", err)
		}
	}
	s.node.OpenReplicas(image.ReplicasOn(cfg.ID)...)
	s.publish()
	return s, nil
}

// openController opens the log of decisions, and the controller that the configuration names.
// Nothing here depends on its kind.
func (s *Service) openController(dir string, opt commitlog.Options) (err error) {
	cfg := &s.cfg
	var stored controller.Stored
	if cfg.kind.Journal {
		s.store, stored.Journal, err = metadata.OpenJournal(dir, opt)
	} else {
		s.store, stored.Image, err = metadata.OpenStore(dir, opt)
	}
	if err != nil {
		return err
	}
	s.controller, err = cfg.kind.Open(controller.Config{
		ID: cfg.ID, Brokers: cfg.Brokers, Role: cfg.Role, Rack: cfg.Rack, Choose: cfg.Design.Choose, HealthEvery: cfg.HealthEvery, FailAfter: cfg.FailAfter,
		RequestTimeout: cfg.RequestTimeout, ProbeTimeout: cfg.ProbeTimeout, FirstVersion: max(1, s.now().UnixNano()), Standing: s.standing, Usable: func(p Partition) bool { return s.node.Usable(p) },
		Random: cfg.Random, SnapshotAfter: cfg.SnapshotAfter, MinInSync: cfg.MinInSync,
	}, stored)
	if err != nil {
		return errors.Join(err, s.store.Close())
	}
	return nil
}

// standing says how far this broker's log of a partition has come.
func (s *Service) standing(p Partition) (controller.Standing, bool) {
	r := s.node.Report(p)
	passing := is[*commitlog.PoisonedError](r.Err) || is[*node.OpenReplicaError](r.Err) || errors.Is(r.Err, node.ErrClosed)
	return controller.Standing{Partition: p, LastEpoch: r.LastEpoch, LogEndOffset: r.LogEndOffset, Passing: passing}, r.Err == nil
}

// ID is the broker's id.
func (s *Service) ID() BrokerID { return s.cfg.ID }

// Now is the service's clock.
func (s *Service) Now() time.Time { return s.now() }

// Image is what is decided, as far as this broker knows.
func (s *Service) Image() *metadata.Image { return s.view.Load().image }

// Controller is the kind of controller that decides about leaders.
func (s *Service) Controller() string { return s.cfg.Controller }

// ControllerID is the broker that topics are made and failovers called on; None: any.
func (s *Service) ControllerID() BrokerID { return s.view.Load().boss }

// Start begins the broker's work: the other brokers can be reached, as far as they are there.
func (s *Service) Start() {
	s.step(func(now time.Time) []controller.Effect {
		out := s.controller.Start(now)
		for _, begin := range s.early {
			out = append(out, begin(now)...)
		}
		s.started, s.early = true, nil
		return out
	})
	s.after(s.cfg.MaintainEvery, s.maintain)
	s.after(s.cfg.ScrubEvery, s.scrub)
}

// Tick lets time pass: what is due happens.
func (s *Service) Tick() {
	now := s.now()
	s.timers.tick(now)
	s.node.Tick()
	if at := s.controlNext.Load(); at != 0 && now.UnixNano() >= at && s.controlNext.CompareAndSwap(at, 0) {
		s.step(func(now time.Time) []controller.Effect { return s.controller.Tick(now) })
	}
}

// Next is when Tick is due; zero if nothing waits for time to pass.
func (s *Service) Next() time.Time {
	next := s.timers.next()
	sooner := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	sooner(s.node.NextTick())
	if at := s.controlNext.Load(); at != 0 {
		sooner(time.Unix(0, at))
	}
	return next
}

// after calls f later. f must not wait.
func (s *Service) after(d time.Duration, f func()) *timer { return s.timers.set(s.now().Add(d), f) }

// run does work that may take time, unless the service is closed: then it reports false.
func (s *Service) run(f func()) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	switch {
	case s.closed:
		return false
	case s.cfg.Go != nil:
		s.cfg.Go(f)
	default:
		s.running.Go(f)
	}
	return true
}

func (s *Service) isClosed() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.closed
}

// work is run for what somebody waits for: where nothing is begun any more it is done here
// and now, and finds that everything is closed.
func (s *Service) work(f func()) {
	if !s.run(f) {
		f()
	}
}

// step lets the controller take a step, after those that were asked for before.
func (s *Service) step(input func(now time.Time) []controller.Effect) {
	s.control.do(func() { s.perform(input(s.now())) })
}

// publish shows what the controller has decided. It is called on control.
func (s *Service) publish() {
	v := &view{image: s.controller.Image(), left: s.controller.Left(), boss: s.controller.ControllerID(), applied: s.controller.Applied()}
	if q, ok := s.controller.(controller.Quorate); ok {
		v.problem = q.Problem()
	}
	self, _ := v.image.Broker(s.cfg.ID)
	v.retired = s.leaving.Load() && self.Fenced
	if old := s.view.Load(); old == nil || !s.same(old, v) {
		v.alive = map[BrokerID]bool{}
		if old == nil || old.image != v.image {
			v.brokers = s.members(v.image)
		} else {
			v.brokers = old.brokers
		}
		for _, id := range v.brokers {
			v.alive[id] = s.alive(id)
		}
		s.view.Store(v)
	}
	next := int64(0)
	if t := s.controller.Next(); !t.IsZero() {
		next = t.UnixNano()
	}
	if old := s.controlNext.Swap(next); s.cfg.Wake != nil && next != 0 && (old == 0 || next < old) {
		s.cfg.Wake()
	}
}

// members are the brokers that this one was started with, and those that were added since, without
// those that were removed. Whoever reaches the added ones is told their addresses.
func (s *Service) members(image *metadata.Image) []BrokerID {
	all := image.Members(s.cfg.Brokers)
	for _, id := range all {
		if r, _ := image.Broker(id); r.Address != "" && id != s.cfg.ID && s.cfg.Meet != nil {
			s.cfg.Meet(id, r.Address)
		}
	}
	return all
}

// alive reports whether a broker is taken to be alive. It is called on control.
func (s *Service) alive(id BrokerID) bool { return id == s.cfg.ID || s.controller.Alive(id) }

// same reports whether there is nothing new to show; v is yet without who is alive.
func (s *Service) same(old, v *view) bool {
	return old.image == v.image && old.left == v.left && old.boss == v.boss && old.applied == v.applied && old.problem == v.problem && old.retired == v.retired &&
		!slices.ContainsFunc(old.brokers, func(id BrokerID) bool { return old.alive[id] != s.alive(id) })
}

// perform carries the controller's effects out. It is called on control.
func (s *Service) perform(effects []controller.Effect) {
	s.publish()
	for _, e := range effects {
		switch e := e.(type) {
		case controller.Send:
			s.sendController(e)
		case controller.Persist:
			s.work(func() {
				err := s.persist(e)
				s.step(func(now time.Time) []controller.Effect { return s.controller.Persisted(now, err) })
			})
		case controller.Decide:
			s.decide(e.Partition, e.Assignment)
		case controller.Reject:
			s.node.Reject(e.Partition, e.Version, e.Why, e.Unsure)
		case controller.MakeReplicas:
			s.replicas.do(func() {
				err := s.node.Create(partitions(e.Topic, e.Partitions)...)
				s.step(func(now time.Time) []controller.Effect { return s.controller.ReplicasMade(now, e.ID, err) })
			})
		case controller.RemoveReplicas:
			s.replicas.do(func() {
				remove := s.node.Remove
				if e.Moved {
					remove = s.node.Release
				}
				if err := remove(partitions(e.Topic, e.Partitions)...); err != nil && !errors.Is(err, node.ErrClosed) {
					s.logger.Error("a deleted topic's files could not be removed; that is tried again when the broker starts", "topic", e.Topic, "error", err)
				}
			})
		case controller.Remake:
			s.replicas.do(func() { s.remake(e.Partition, e.Assignment) })
		case controller.Lease:
			s.lease.Store(&e.Until)
			s.watchLease()
		case controller.Silent:
			s.node.Unreachable(e.Peer, e.Why)
			s.calls.lost(e.Peer, e.Why)
		case controller.Done:
			if done := s.commands[e.ID]; done != nil {
				delete(s.commands, e.ID)
				done(e)
			}
		case controller.Warn:
			s.logger.Warn(e.Text, "broker", s.cfg.ID)
		default:
			panic(fmt.Sprintf("service: an effect that nobody carries out: %T", e))
		}
	}
}

// persist stores what the controller wants stored.
func (s *Service) persist(e controller.Persist) error {
	if e.Journal != nil {
		return s.store.WriteJournal(e.Journal, e.Whole)
	}
	return s.store.Append(e.Records)
}

// remake begins a replica anew whose log is damaged or missing, and that others have.
func (s *Service) remake(p Partition, a replica.Assignment) {
	if s.Image().Check(p) != nil {
		return // the topic was deleted meanwhile
	}
	err := s.node.Remake(p)
	if errors.Is(err, node.ErrClosed) {
		return
	}
	if err != nil {
		s.logger.Error("a replica that cannot be used could not be begun anew", "partition", p, "error", err)
		return
	}
	s.node.Assign(p, a)
}

func partitions(name string, ids []int) []Partition {
	out := make([]Partition, len(ids))
	for i, id := range ids {
		out[i] = Partition{Topic: name, ID: id}
	}
	return out
}

// decide hands a decision to the replica that it concerns.
func (s *Service) decide(p Partition, a replica.Assignment) {
	if s.node.Has(p) {
		s.node.Assign(p, a)
		if t := s.Image().Topic(p.Topic); t != nil {
			s.configure(p, t.Settings)
		}
	} else {
		s.replicas.do(func() {
			if s.Image().Check(p) != nil {
				return // the topic was deleted meanwhile
			}
			s.node.OpenReplicas(p)
			s.node.Assign(p, a)
		})
	}
	if p.Topic == GroupsTopic {
		s.groups.assigned(p, a)
	}
}

// propose passes a leader's proposal on to the controller.
func (s *Service) propose(p Partition, a replica.Assignment) {
	s.step(func(now time.Time) []controller.Effect { return s.controller.Propose(now, p, a) })
}

// command gives the controller a command, and calls done with its outcome. A command of before
// Start waits for it: a client that comes so soon finds the broker registered.
func (s *Service) command(begin func(now time.Time, id uint64) []controller.Effect, done func(controller.Done)) {
	s.step(func(now time.Time) []controller.Effect {
		if s.isClosed() {
			done(controller.Done{Err: ErrClosed})
			return nil
		}
		s.lastID++
		id := s.lastID
		s.commands[id] = done
		if !s.started {
			s.early = append(s.early, func(now time.Time) []controller.Effect { return begin(now, id) })
			return nil
		}
		return begin(now, id)
	})
}

// Close ends all work and closes every file. Requests that wait are answered with an error.
//
// Errors: ErrClosed (it is), and the file system's.
func (s *Service) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	s.closed = true
	s.mu.Unlock()
	err := s.node.Close() // whoever waits for a replica hears of it
	s.running.Wait()
	s.groups.close()
	s.calls.close()
	s.timers.close()
	s.control.do(func() {
		for id, done := range s.commands {
			delete(s.commands, id)
			done(controller.Done{ID: id, Err: ErrClosed})
		}
	})
	return errors.Join(err, s.store.Close())
}

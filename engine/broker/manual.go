package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"logbook/engine/commitlog"
	"logbook/engine/controller"
	"logbook/engine/replica"
	"logbook/engine/topic"
	"logbook/engine/wire"
)

// manual is the directory of a cluster whose decisions a person makes. The broker with
// the lowest id keeps them, in cluster.meta; the others ask it. While it is away, all goes
// on as it was decided, and nothing can be decided.
type manual struct {
	b     *Broker
	at    replica.BrokerID   // who keeps the decisions
	local *controller.Manual // on that broker

	mu         sync.Mutex
	meta       controller.Meta // elsewhere: as last heard
	decisions  int64
	watchers   []func(controller.Partition, replica.Assignment)
	registered bool
	fetching   bool
	silence    map[replica.BrokerID]int
}

func newManual(b *Broker) (*manual, error) {
	d := &manual{b: b, at: b.cfg.all()[0], silence: map[replica.BrokerID]int{}, decisions: b.cfg.Now().UnixNano()}
	if d.at != b.cfg.ID {
		return d, nil
	}
	var err error
	d.local, err = controller.OpenManual(b.cfg.Log.FS, b.cfg.Data, nil)
	if err == nil {
		d.local.Watch(func(p controller.Partition, a replica.Assignment) {
			d.mu.Lock()
			d.decisions++
			watchers := slices.Clone(d.watchers)
			d.mu.Unlock()
			for _, f := range watchers {
				f(p, a)
			}
			for _, l := range b.links {
				l.soon()
			}
		})
	}
	return d, err
}

func (d *manual) now() controller.Meta {
	if d.local != nil {
		return d.local.Meta()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.meta
}

// started opens this broker's replicas and begins new epochs for those that it leads.
func (d *manual) started() {
	if d.local == nil {
		d.b.cfg.Logger.Info("waiting for the broker that keeps the decisions", "decider", d.at)
		return
	}
	d.openAll(d.local.Meta())
	if err := d.local.Register(d.b.cfg.ID); err != nil {
		d.b.cfg.Logger.Error("cannot begin new epochs: what this broker leads takes no writes", "error", err)
	}
	d.tell(d.local.Meta())
}

// openAll opens the replicas that this broker has.
func (d *manual) openAll(m controller.Meta) {
	for name, t := range m.Topics {
		for i, a := range t.Partitions {
			if slices.Contains(a.Replicas, d.b.cfg.ID) {
				d.b.node.Open(controller.Partition{Topic: name, ID: i})
			}
		}
	}
}

func (d *manual) tell(m controller.Meta) {
	d.mu.Lock()
	watchers := slices.Clone(d.watchers)
	d.mu.Unlock()
	for name, t := range m.Topics {
		for i, a := range t.Partitions {
			for _, f := range watchers {
				f(controller.Partition{Topic: name, ID: i}, a)
			}
		}
	}
}

// Assignment implements controller.Controller.
func (d *manual) Assignment(p controller.Partition) (replica.Assignment, bool) {
	t, ok := d.topic(p.Topic)
	if !ok || p.ID < 0 || p.ID >= len(t.Partitions) {
		return replica.Assignment{}, false
	}
	return t.Partitions[p.ID].Clone(), true
}

// Watch implements controller.Controller.
func (d *manual) Watch(f func(controller.Partition, replica.Assignment)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.watchers = append(d.watchers, f)
}

// Propose implements controller.Controller. Where the answer is lost, so is the certainty.
func (d *manual) Propose(p controller.Partition, a replica.Assignment) error {
	if d.local != nil {
		return d.local.Propose(p, a)
	}
	ctx, cancel := context.WithTimeout(d.b.ctx, d.b.cfg.RequestTimeout)
	defer cancel()
	err := d.b.links[d.at].call(ctx, "propose", wire.Propose{Partition: p, Assignment: a}, nil)
	if we, ok := errors.AsType[*wire.Error](err); ok && we.Code == wire.BadRequest {
		return err
	}
	if err != nil {
		return &controller.UnsettledError{File: fmt.Sprintf("cluster.meta on broker %d", d.at), Err: err}
	}
	d.b.links[d.at].soon()
	return nil
}

func (d *manual) topics() map[string]controller.Topic { return d.now().Topics }

func (d *manual) topic(name string) (controller.Topic, bool) {
	if d.local != nil {
		return d.local.Topic(name)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	t, ok := d.meta.Topics[name]
	return t, ok
}

func (d *manual) alive() map[replica.BrokerID]bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	alive := map[replica.BrokerID]bool{}
	for _, id := range d.b.cfg.all() {
		alive[id] = d.silence[id] == 0
	}
	return alive
}

func (d *manual) decider() replica.BrokerID { return d.at }

func (d *manual) createTopic(ctx context.Context, r wire.CreateTopic) error {
	if err := d.local.CheckTopic(r.Name, r.Partitions); err != nil {
		return err
	}
	router, err := topic.RouterByName(r.Router)
	if err != nil {
		return err
	}
	placed, err := controller.Place(d.local.Meta().Brokers, r.Partitions, r.Replication)
	if err != nil {
		return err
	}
	only := map[replica.BrokerID][]int{}
	for i, a := range placed {
		for _, id := range a.Replicas {
			only[id] = append(only[id], i)
		}
	}
	for id, parts := range only {
		r.Only = parts
		if id == d.b.cfg.ID {
			err = d.createReplicas(r)
		} else if l := d.b.links[id]; l != nil {
			err = l.call(ctx, "create_replicas", r, nil)
		} else {
			err = &controller.BrokerError{Reason: fmt.Sprintf("broker %d was here once and is not one of the peers", id)}
		}
		if err != nil {
			return fmt.Errorf("broker %d: making its replicas of %q: %w", id, r.Name, err)
		}
	}
	return d.local.AddTopic(r.Name, r.Partitions, r.Replication, router)
}

// createReplicas makes this broker's replicas of a topic that is about to be.
func (d *manual) createReplicas(r wire.CreateTopic) error {
	for _, i := range r.Only {
		p := controller.Partition{Topic: r.Name, ID: i}
		if err := d.b.node.Create(p); err != nil {
			return err
		}
		l, err := d.b.node.Log(p)
		if err == nil && l.EndOffset() > 0 {
			err = fmt.Errorf("%s holds records, and there is no such topic; move the directory away", l.Dir())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *manual) ping() wire.Ping { return wire.Ping{Decisions: d.made()} }

// made numbers the decisions, on the broker that keeps them.
func (d *manual) made() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.local == nil {
		return 0
	}
	return d.decisions
}

func (d *manual) pinged(peer replica.BrokerID, p wire.Ping) wire.PingReply {
	d.heard(peer, p.Decisions)
	return wire.PingReply{Decisions: d.made()}
}

func (d *manual) answered(peer replica.BrokerID, r wire.PingReply) { d.heard(peer, r.Decisions) }

// heard takes in a sign of life, and with it perhaps that there are new decisions.
func (d *manual) heard(peer replica.BrokerID, decisions int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.silence[peer] = 0
	if peer != d.at || decisions == d.decisions || d.fetching {
		return
	}
	d.fetching = true
	d.b.background(func() { d.refresh(decisions) })
}

func (d *manual) silent(peer replica.BrokerID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.silence[peer]++
}

// refresh fetches the decisions, and the first time says that this broker is there.
func (d *manual) refresh(decisions int64) {
	ctx, cancel := context.WithTimeout(d.b.ctx, d.b.cfg.RequestTimeout)
	defer cancel()
	d.mu.Lock()
	first := !d.registered
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		d.fetching = false
		d.mu.Unlock()
	}()
	var reply wire.AssignmentsReply
	var err error
	if first {
		err = d.b.links[d.at].call(ctx, "register", wire.Register{Broker: d.b.cfg.ID}, &reply)
	} else {
		err = d.b.links[d.at].call(ctx, "assignments", wire.Empty{}, &reply)
	}
	if err != nil {
		d.b.cfg.Logger.Warn("cannot fetch the decisions", "decider", d.at, "error", err)
		return
	}
	d.openAll(reply.Meta)
	d.mu.Lock()
	d.meta, d.registered, d.decisions = reply.Meta, true, decisions
	d.mu.Unlock()
	d.tell(reply.Meta)
}

// prober asks the other brokers about their logs, for a failover.
type prober struct{ b *Broker }

// proberTimeout is how long a broker may take to answer; one that does not is not there.
const proberTimeout = 3 * time.Second

func (p prober) Report(ctx context.Context, part controller.Partition, id replica.BrokerID) controller.Report {
	if id == p.b.cfg.ID {
		return p.b.node.Report(part)
	}
	r, err := p.b.report(ctx, part, id)
	if err == nil && !r.Usable {
		err = errors.New(r.Problem)
	}
	return controller.Report{Broker: id, Start: r.Start, End: r.End, LastEpoch: r.LastEpoch, Err: err}
}

// report asks any broker about a replica.
func (b *Broker) report(ctx context.Context, p controller.Partition, id replica.BrokerID) (r wire.ReportReply, err error) {
	if id == b.cfg.ID {
		return b.localReport(p), nil
	}
	l := b.links[id]
	if l == nil {
		return r, fmt.Errorf("broker %d is not one of the peers", id)
	}
	ctx, cancel := context.WithTimeout(ctx, proberTimeout)
	defer cancel()
	err = l.call(ctx, "report", wire.PartitionRequest{Topic: p.Topic, Partition: p.ID}, &r)
	return r, err
}

func (b *Broker) localReport(p controller.Partition) wire.ReportReply {
	rep := b.node.Report(p)
	r := wire.ReportReply{Start: rep.Start, End: rep.End, LastEpoch: rep.LastEpoch, Usable: rep.Err == nil, Role: "unknown"}
	if rep.Err != nil {
		r.Problem = rep.Err.Error()
	}
	if s, err := b.node.Status(p); err == nil {
		r.Role, r.HighWatermark, r.Start, r.End = string(s.Role), s.HighWatermark, s.Start, s.End
		r.Epoch, r.Active = s.Assignment.Epoch, nonNil(s.Assignment.Active)
		if s.Problem != nil && r.Problem == "" {
			r.Problem = s.Problem.Error()
		}
	}
	return r
}

func (p prober) Sums(ctx context.Context, part controller.Partition, id replica.BrokerID, from int64, max int) ([]commitlog.Sum, error) {
	if id == p.b.cfg.ID {
		l, err := p.b.node.Log(part)
		if err != nil {
			return nil, err
		}
		return l.Sums(from, max)
	}
	var r wire.SumsReply
	ctx, cancel := context.WithTimeout(ctx, p.b.cfg.RequestTimeout)
	defer cancel()
	err := p.b.links[id].call(ctx, "sums", wire.SumsRequest{Topic: part.Topic, Partition: part.ID, Offset: from, Max: max}, &r)
	return r.Sums, err
}

package quorum

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"logbook/engine/controller"
	"logbook/engine/metadata"
	"logbook/engine/replica"
)

// CreateTopic implements controller.Machine. The replicas are made first, on every broker that
// counts: until the topic is decided they mean nothing.
func (c *Controller) CreateTopic(now time.Time, id uint64, spec controller.TopicSpec) []controller.Effect {
	c.begin(now)
	c.whenShown(func() { c.createTopic(spec, c.commandDone(id)) })
	return c.effects()
}

func (c *Controller) commandDone(id uint64) func(error) {
	return func(err error) { c.emit(controller.Done{ID: id, Err: err}) }
}

// whenShown does something when all brokers have shown that they live, or have had a session for
// it: a topic that is made while a cluster starts is spread over all of it.
func (c *Controller) whenShown(do func()) {
	if c.office == nil {
		do()
		return
	}
	c.office.waiting = append(c.office.waiting, do)
	c.runWaiting()
}

func (c *Controller) runWaiting() {
	o := c.office
	if len(o.waiting) == 0 {
		return
	}
	missing := slices.ContainsFunc(c.brokers(), func(id replica.BrokerID) bool { return !o.ahead.Usable(id) })
	if missing && c.now.Before(o.began.Add(c.session())) {
		return
	}
	waiting := o.waiting
	o.waiting = nil
	for _, do := range waiting {
		do()
	}
}

func (c *Controller) createTopic(spec controller.TopicSpec, done func(error)) {
	if c.office == nil {
		done(&controller.NoControllerError{Known: c.ControllerID()})
		return
	}
	if err := controller.CheckTopic(c.office.ahead, spec); err != nil {
		done(err)
		return
	}
	c.makeAll(spec.Name, 0, spec.Partitions, spec.Replication, done, func(image *metadata.Image, placed []replica.Assignment) ([]metadata.Record, error) {
		return controller.TopicRecords(image, spec, placed)
	})
}

// ChangeTopic implements controller.Machine.
func (c *Controller) ChangeTopic(now time.Time, id uint64, change controller.TopicChange) []controller.Effect {
	c.begin(now)
	c.whenShown(func() {
		c.changeTopic(change, func(err error) {
			if err == nil {
				c.change(func(image *metadata.Image) ([]metadata.Record, error) {
					settled, err := controller.Settle(image, change.Name, c.cfg.MinInSync)
					if err != nil {
						return nil, err
					}
					elected, err := controller.ElectUnclean(image, change.Name)
					return append(settled, elected...), err
				}, c.commandDone(id))
				return
			}
			c.commandDone(id)(err)
		})
	})
	return c.effects()
}

func (c *Controller) changeTopic(change controller.TopicChange, done func(error)) {
	if c.office == nil {
		done(&controller.NoControllerError{Known: c.ControllerID()})
		return
	}
	r, err := change.Record(c.office.ahead)
	if err != nil {
		done(err)
		return
	}
	from := len(c.office.ahead.Topic(change.Name).Partitions)
	c.makeAll(change.Name, from, max(from, r.Partitions), r.Replication, done, func(image *metadata.Image, placed []replica.Assignment) ([]metadata.Record, error) {
		now, err := change.Record(image)
		if err != nil {
			return nil, err
		}
		out := []metadata.Record{{Topic: now}}
		if len(image.Topic(change.Name).Partitions) != from {
			return nil, &controller.BusyError{Topic: change.Name}
		}
		for i, a := range placed {
			out = append(out, controller.Assigned(now.ID, controller.Partition{Topic: change.Name, ID: from + i}, a))
		}
		return out, nil
	})
}

// makeAll places partitions from a number up to another, has the brokers make their replicas, and
// decides what decide says then.
func (c *Controller) makeAll(name string, from, to, replication int, done func(error), decide func(*metadata.Image, []replica.Assignment) ([]metadata.Record, error)) {
	place := func(image *metadata.Image) ([]replica.Assignment, error) {
		return controller.PlaceAlive(image, c.brokers(), name, from, to, replication)
	}
	placed, err := place(c.office.ahead)
	if err != nil {
		done(err)
		return
	}
	inSync := func(a replica.Assignment) []replica.BrokerID { return a.ISR }
	brokers, parts := controller.ReplicasByBroker(from, placed, inSync)
	finish := func() {
		c.change(func(image *metadata.Image) ([]metadata.Record, error) {
			for i := range placed { // who was fenced meanwhile
				a := &placed[i]
				a.ISR = slices.DeleteFunc(a.ISR, func(id replica.BrokerID) bool { return !image.Usable(id) })
				if !slices.Contains(a.ISR, a.Leader) {
					return nil, &controller.BusyError{Topic: name}
				}
			}
			return decide(image, placed)
		}, done)
	}
	left, problem := len(brokers), error(nil)
	if left == 0 {
		finish()
		return
	}
	for _, b := range brokers {
		c.createReplicas(b, name, parts[b], func(err error) {
			if err != nil && problem == nil {
				problem = fmt.Errorf("broker %d: making its replicas of %q: %w", b, name, err)
			}
			if left--; left > 0 {
				return
			}
			if problem != nil {
				done(problem)
				return
			}
			finish()
		})
	}
}

// createReplicas makes a broker's replicas of a topic.
func (c *Controller) createReplicas(b replica.BrokerID, name string, parts []int, done func(error)) {
	if b == c.cfg.ID {
		c.makeReplicas(name, parts, done)
		return
	}
	c.ask(b, c.cfg.RequestTimeout, func(id uint64) controller.Message {
		return controller.CreateReplicas{ID: id, Topic: name, Partitions: parts}
	}, func(reply controller.Message, failed string) {
		r, ok := reply.(controller.ReplicasCreated)
		switch {
		case !ok:
			done(&controller.UnreachableError{Broker: b, Why: failed})
		case r.Err != "":
			done(errors.New(r.Err))
		default:
			done(nil)
		}
	})
}

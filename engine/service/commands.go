package service

import (
	"errors"
	"time"

	"logbook/engine/controller"
	"logbook/engine/metadata"
	"logbook/engine/replica"
	"logbook/engine/topic"
)

// Command is what the broker that decides is asked to do. Any broker takes it, and passes it on.
// One of the fields is set.
type Command struct {
	CreateTopic  *TopicSpec    `json:"create_topic,omitempty"`
	ChangeTopic  *TopicChange  `json:"change_topic,omitempty"`
	Failover     *Partition    `json:"failover,omitempty"`
	Reassign     *MoveTo       `json:"reassign,omitempty"`
	ChangeUser   *UserChange   `json:"change_user,omitempty"`
	ChangeMember *MemberChange `json:"change_member,omitempty"`
}

// MoveTo names the brokers that a partition is to move to.
type MoveTo struct {
	Partition Partition  `json:"of"`
	Brokers   []BrokerID `json:"brokers"`
}

// give gives the command to the controller.
func (c Command) give(m controller.Machine, now time.Time, id uint64) []controller.Effect {
	switch {
	case c.CreateTopic != nil:
		return m.CreateTopic(now, id, *c.CreateTopic)
	case c.ChangeTopic != nil:
		return m.ChangeTopic(now, id, *c.ChangeTopic)
	case c.Failover != nil:
		return m.Failover(now, id, *c.Failover)
	case c.Reassign != nil:
		return m.Reassign(now, id, c.Reassign.Partition, c.Reassign.Brokers)
	case c.ChangeUser != nil:
		return m.ChangeUser(now, id, *c.ChangeUser)
	case c.ChangeMember != nil:
		return m.ChangeMember(now, id, *c.ChangeMember)
	}
	return []controller.Effect{controller.Done{ID: id, Err: badRequest("an empty command")}}
}

// order has the broker that decides carry out a command. done is called when it counts, and this
// broker follows it.
//
// Errors: those of the command, NotCoordinator (another broker has come to decide meanwhile),
// Unavailable.
func (s *Service) order(c Command, done func(controller.FailoverResult, error)) {
	at := s.ControllerID()
	if at == replica.None || at == s.cfg.ID {
		s.obey(c, done)
		return
	}
	s.callWithin(2*s.cfg.RequestTimeout, at, func(id uint64) PeerMessage { return CommandRequest{ID: id, Command: c} }, func(m PeerMessage, err error) {
		r, _ := m.(CommandResponse)
		if err == nil && r.Code != "" {
			err = r.error()
		}
		if err != nil {
			done(r.Failover, err)
			return
		}
		s.whenApplied(r.Applied, s.now().Add(s.cfg.RequestTimeout), func() { done(r.Failover, nil) })
	})
}

// obey gives a command to this broker's own controller.
func (s *Service) obey(c Command, done func(controller.FailoverResult, error)) {
	s.command(func(now time.Time, id uint64) []controller.Effect { return c.give(s.controller, now, id) },
		func(d controller.Done) { done(d.Failover, s.fail(d.Err)) })
}

// whenApplied does something when this broker follows the decisions so far, or a time has come: it
// is for who is to find here what was decided elsewhere.
func (s *Service) whenApplied(index uint64, until time.Time, do func()) {
	if s.view.Load().applied >= index || !s.now().Before(until) || s.isClosed() {
		do()
		return
	}
	s.after(applyPoll, func() { s.whenApplied(index, until, do) })
}

// applyPoll is the pause between looks at whether a decision has come.
const applyPoll = 2 * time.Millisecond

// commanded carries out a command that came from another broker.
func (s *Service) commanded(from BrokerID, q CommandRequest) {
	s.obey(q.Command, func(f controller.FailoverResult, err error) {
		r := CommandResponse{ID: q.ID, Failover: f, Applied: s.view.Load().applied}
		if err != nil {
			e := s.AsError(err)
			r.Code, r.Err, r.Leader, r.Offset = e.Code, e.Message, e.Leader, e.Offset
			for _, k := range commandErrors {
				if k.is(e.Err) {
					r.Kind = k.name
				}
			}
		}
		s.reply(from, r)
	})
}

// error is what a command failed with, as it would be if it had been carried out here, but for
// what its message says.
func (r CommandResponse) error() error {
	e := &Error{Code: r.Code, Message: r.Err, Leader: r.Leader, Offset: r.Offset}
	for _, k := range commandErrors {
		if k.name == r.Kind {
			e.Err = k.zero
		}
	}
	return e
}

// commandError is a kind of error that fronts tell from others of its code.
type commandError struct {
	name string
	is   func(error) bool
	zero error
}

var commandErrors = []commandError{
	kindOf("broker", &controller.BrokerError{}), kindOf("reassignment", &controller.ReassignmentError{}), kindOf("user", &controller.UnknownUserError{}),
	kindOf("users", &controller.UsersError{}), kindOf("member", &controller.MemberError{}), kindOf("mechanism", &metadata.MechanismError{}), kindOf("iterations", &metadata.IterationsError{}),
	kindOf("name", &topic.NameError{}), kindOf("count", &topic.CountError{}), kindOf("fewer", &topic.FewerError{}), kindOf("setting", &topic.SettingError{}),
	{"not moving", func(err error) bool { return errors.Is(err, controller.ErrNotMoving) }, controller.ErrNotMoving},
}

func kindOf[E error](name string, zero E) commandError { return commandError{name, is[E], zero} }

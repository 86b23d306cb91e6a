package service

import (
	"logbook/engine/group"
	"logbook/engine/metadata"
)

// What members of groups ask that speak the protocol of KIP-848: the coordinator assigns, in
// heartbeats. Commits are those of the classic protocol, with a member's epoch.

// OffsetsTopic is what Kafka's clients call GroupsTopic.
const OffsetsTopic = "__consumer_offsets"

// topicsOf is what there is to subscribe to, as an image has it, with the names that Kafka's
// clients use.
type topicsOf struct{ image *metadata.Image }

func (t topicsOf) Names() (out []string) {
	for _, name := range t.image.Topics() {
		if name == GroupsTopic {
			name = OffsetsTopic
		}
		if t.Count(name) > 0 {
			out = append(out, name)
		}
	}
	return out
}

func (t topicsOf) Count(name string) int {
	if name == OffsetsTopic {
		if topic := t.image.Topic(GroupsTopic); topic != nil {
			return len(topic.Partitions)
		}
	}
	if topic := t.image.Topic(name); topic != nil && !IsInternal(name) {
		return len(topic.Partitions)
	}
	return 0
}

// HeartbeatConsumer handles a member's heartbeat, by which it also joins and leaves.
//
// Errors: those of group.Consumer.Beat, and NotCoordinator, BadRequest, Unavailable.
func (s *Service) HeartbeatConsumer(name string, q group.ConsumerBeat, done func(group.ConsumerReply, error)) {
	if q.Member == "" && q.Epoch == 0 {
		id, err := randomText(s.cfg.Random)
		if err != nil {
			done(group.ConsumerReply{}, s.fail(err))
			return
		}
		q.Member = id
	}
	s.classic(name, q.Epoch == 0, func(h *hosted, err error) {
		if err == nil && (len(h.members()) > 0 || !h.classic.Idle()) {
			err = ErrOtherProtocol
		}
		if err != nil {
			done(group.ConsumerReply{}, err)
			return
		}
		r, err := h.consumer.Beat(s.now(), topicsOf{s.Image()}, q)
		h.scheduleConsumer()
		done(r, err)
	})
}

// isKafkas reports whether a group has members that speak one of Kafka's protocols.
func (h *hosted) isKafkas() bool { return !h.classic.Idle() || !h.consumer.Idle() }

func (h *hosted) stopTimers() {
	for _, t := range []*timer{h.timer, h.classicTimer, h.consumerTimer, h.emptyTimer} {
		h.sh.s.timers.stop(t)
	}
}

// scheduleConsumer sets the timer for the next tick.
func (h *hosted) scheduleConsumer() {
	h.sh.s.timers.stop(h.consumerTimer)
	h.consumerTimer = nil
	next := h.consumer.Next()
	if next.IsZero() || h.sh.over != nil {
		return
	}
	h.consumerTimer = h.sh.s.timers.set(next, func() {
		h.sh.loop.do(func() {
			if h.sh.over == nil {
				h.consumer.Tick(h.sh.s.now(), topicsOf{h.sh.s.Image()})
				h.scheduleConsumer()
				h.sh.drop(h)
			}
		})
	})
}

// ConsumerGroup describes a group whose members speak the protocol of KIP-848.
type ConsumerGroup struct {
	State    group.State
	Epoch    int32
	Assignor string
	Members  []group.ConsumerMember
}

// DescribeConsumer describes a group that this broker coordinates.
//
// Errors: ErrNoGroup (also where its members speak another protocol), NotCoordinator,
// BadRequest, Unavailable.
func (s *Service) DescribeConsumer(name string, done func(ConsumerGroup, error)) {
	s.groups.withAny(name, func(sh *shard, err error) {
		var d ConsumerGroup
		if err == nil {
			if h := sh.groups[name]; h == nil || h.consumer.Epoch() == 0 {
				err = ErrNoGroup
			} else {
				d = ConsumerGroup{State: h.consumer.State(), Epoch: h.consumer.Epoch(), Assignor: h.consumer.Assignor(), Members: h.consumer.Members()}
			}
		}
		done(d, err)
	})
}

// CheckConsumer says whether a member may ask what was committed.
//
// Errors: those of group.Consumer.CheckEpoch, and NotCoordinator, BadRequest, Unavailable.
func (s *Service) CheckConsumer(name, member string, epoch int32, done func(error)) {
	s.groups.withAny(name, func(sh *shard, err error) {
		if err == nil {
			if h := sh.groups[name]; h != nil && !h.consumer.Idle() { // else its members speak another protocol
				err = h.consumer.CheckEpoch(member, epoch)
			}
		}
		done(err)
	})
}

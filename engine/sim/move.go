package sim

import (
	"logbook/engine/controller"
	"logbook/engine/service"
	"logbook/engine/topic"
)

// move moves a partition, as a person would: to three brokers, counted round and round from one
// on. Every third time it is taken back, if it is being moved. That may be refused.
func (w *world) move(p topic.Partition, from int) {
	var to []service.BrokerID
	for i := range min(3, len(w.brokers)) {
		to = append(to, service.BrokerID(1+(from+i)%len(w.brokers)))
	}
	if from%3 == 0 {
		to = nil
	}
	w.command(func(s *service.Service) {
		s.Reassign(p, to, func(err error) {
			if err == nil {
				w.note("%s is to be on %v", p, to)
			}
		})
	})
}

// vote gives a broker a vote, or takes it. That may be refused.
func (w *world) vote(id int, kind controller.MemberChangeKind) {
	w.command(func(s *service.Service) {
		s.ChangeMember(service.MemberChange{Broker: service.BrokerID(id), Kind: kind}, func(err error) {
			if err == nil {
				w.note("broker %d: %s", id, kind)
			}
		})
	})
}

// command gives a command to the brokers that take themselves for the active controller.
func (w *world) command(give func(*service.Service)) {
	for _, b := range w.brokers {
		if b.up && !b.paused && b.service.ControllerID() == service.BrokerID(b.id) {
			give(b.service)
		}
	}
}

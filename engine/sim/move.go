package sim

import (
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
	for _, b := range w.brokers {
		if b.up && !b.paused && b.service.ControllerID() == service.BrokerID(b.id) {
			b.service.Reassign(p, to, func(err error) {
				if err == nil {
					w.note("%s is to be on %v", p, to)
				}
			})
		}
	}
}

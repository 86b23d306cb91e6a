package service

import (
	"time"

	"logbook/engine/group"
)

// keepEmpty is how long a group of Kafka's clients is known after its last member has left, with
// nothing stored of it: tools look at it, or delete it.
const keepEmpty = 10 * time.Minute

// isNothing reports whether a group has no members, and nothing is stored of it.
func (h *hosted) isNothing() bool {
	return !h.stored && !h.busy && len(h.queue) == 0 && h.machine.State() == group.Empty && h.machine.Generation() == 0 && len(h.committed) == 0 && !h.isKafkas()
}

// drop takes out a group that came to nothing: at once if it never had members, else after a while.
func (sh *shard) drop(h *hosted) {
	switch {
	case !h.isNothing():
	case h.classic.Generation() == 0 && h.consumer.Epoch() == 0:
		sh.forget(h)
	case h.emptyTimer == nil && sh.over == nil:
		h.emptyTimer = sh.s.timers.set(sh.s.now().Add(keepEmpty), func() {
			sh.loop.do(func() {
				h.emptyTimer = nil
				if sh.over == nil && sh.groups[h.name] == h && h.isNothing() {
					sh.forget(h)
				}
			})
		})
	}
}

func (sh *shard) forget(h *hosted) {
	h.stopTimers()
	delete(sh.groups, h.name)
}

// makeRoom forgets groups that came to nothing before their time.
func (sh *shard) makeRoom() {
	for _, h := range sh.groups {
		if h.isNothing() {
			sh.forget(h)
		}
	}
}

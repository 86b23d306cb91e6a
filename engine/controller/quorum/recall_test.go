package quorum_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/controller"
	"logbook/engine/replica"
)

// A broker that comes back with its disk as it was a while before finds out from the others that it
// has said more than it knows. It votes no more and leads nothing, and a person is told what to do.
func TestAnOldDiskIsFoundOut(t *testing.T) {
	for _, id := range []replica.BrokerID{1, 2, 3} { // one of them is the active controller
		w := formed(t, 3)
		old := slices.Clone(w.all[id].disk)
		require.NoError(t, w.create("flights"))
		w.until("it follows that", func() bool { return w.all[id].decided[flights].Leader == 1 })
		w.kill(id)
		w.all[id].disk = old
		w.start(id)
		b := w.all[id]
		w.until("it is found out", func() bool { return b.machine.Problem() != "" })
		assert.Contains(t, b.machine.Problem(), "its disk is an old one")
		w.until("it is fenced, and others lead", func() bool {
			a := w.assignment(flights)
			return w.active() != nil && w.active().id != id && !w.usable(id) && a.Leader != id && a.Leader != replica.None
		})
		assert.False(t, w.now.Before(b.lease))
		other := id%3 + 1
		w.kill(other)
		w.pass(4 * session)
		assert.Nil(t, w.active(), "it gives no vote to anybody")
		w.start(other)
		w.kill(id)
		w.all[id].disk = nil
		w.start(id)
		w.until("with an empty disk it joins", func() bool { return w.usable(1, 2, 3) })
		assert.Empty(t, w.all[id].machine.Problem())
	}
}

// Who starts votes only when the others have said what they have heard from it, or had a session to.
func TestNobodyVotesBeforeItKnowsWhatItHasSaid(t *testing.T) {
	w := formed(t, 3)
	w.kill(1)
	w.kill(2)
	w.drop = func(_ replica.BrokerID, m controller.Message) bool {
		_, answer := m.(controller.Recalled)
		return answer
	}
	w.start(2)
	began := w.now
	w.until("one is elected all the same", func() bool { return w.active() != nil })
	assert.GreaterOrEqual(t, w.now.Sub(began), session, "when it had time to hear")

	w = formed(t, 3)
	w.kill(1)
	w.until("another decides", func() bool { return w.active() != nil })
	w.kill(2)
	w.kill(3)
	w.start(1)
	w.start(2)
	w.start(3)
	began = w.now
	w.until("one is elected", func() bool { return w.active() != nil })
	assert.Less(t, w.now.Sub(began), session, "nobody waits who need not")
}

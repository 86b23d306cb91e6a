package service

import "sync/atomic"

// gathering counts answers that come in any order.
type gathering struct{ left atomic.Int64 }

func newGathering(n int) *gathering {
	g := new(gathering)
	g.left.Store(int64(n))
	return g
}

// arrived counts one, and calls done after the last. What was written before an arrival is
// there for done to see.
func (g *gathering) arrived(done func()) {
	if g.left.Add(-1) == 0 {
		done()
	}
}

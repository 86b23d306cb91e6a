package admission

import (
	"io"
	"time"
)

// Direction is which way bytes go.
type Direction int

// The directions.
const (
	In  Direction = iota // what the other side sends
	Out                  // what it is to read
)

// flow is what a connection holds while it waits for the other side.
type flow struct {
	bytes int64     // 0: it does not wait
	moved time.Time // when the last byte went
}

// patience is how long a connection may hold memory while no byte moves, when others need it.
const patience = 500 * time.Millisecond

// Hold says that the connection holds so many bytes while it waits for the other side; 0: it
// does not wait any more.
func (q *Place) Hold(d Direction, n int64) {
	q.places.mu.Lock()
	defer q.places.mu.Unlock()
	if q.flows[d].bytes == 0 {
		q.flows[d].moved = q.places.now()
	}
	q.flows[d].bytes = n
}

// move says that bytes went; those that came in are held from now on.
func (q *Place) move(d Direction, n int) {
	q.places.mu.Lock()
	defer q.places.mu.Unlock()
	f := &q.flows[d]
	f.moved = q.places.now()
	if d == In && f.bytes > 0 {
		f.bytes += int64(n)
	}
}

// Relieve ends the connection that holds the most while the other side neither sends nor
// reads, and has not for half a second. It reports whether there was one. Memory that somebody waits for
// is to come from those who keep it for nothing.
func (p *Places) Relieve() bool {
	p.mu.Lock()
	var worst *Place
	most := int64(0)
	for q := range p.all {
		if q.kept {
			continue
		}
		for _, f := range q.flows {
			if f.bytes > most && p.now().Sub(f.moved) >= patience {
				worst, most = q, f.bytes
			}
		}
	}
	if worst != nil {
		p.leave(worst)
	}
	p.mu.Unlock()
	if worst != nil {
		worst.evict()
	}
	return worst != nil
}

// Reader returns a reader of what the other side sends, that notes when something came.
func (q *Place) Reader(r io.Reader) io.Reader { return moving{q: q, r: r} }

// Writer returns a writer to the other side, that notes when something went. It writes in
// pieces, since a write that hangs has moved nobody knows how much.
func (q *Place) Writer(w io.Writer) io.Writer { return moving{q: q, w: w} }

type moving struct {
	q *Place
	r io.Reader
	w io.Writer
}

func (m moving) Read(p []byte) (int, error) {
	n, err := m.r.Read(p)
	if n > 0 {
		m.q.move(In, n)
	}
	return n, err
}

// piece is how many bytes are written at a time.
const piece = 256 << 10

func (m moving) Write(p []byte) (written int, err error) {
	for {
		n, err := m.w.Write(p[:min(len(p), piece)])
		written += n
		if n > 0 {
			m.q.move(Out, n)
		}
		if p = p[n:]; err != nil || len(p) == 0 {
			return written, err
		}
	}
}

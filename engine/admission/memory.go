package admission

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// Memory is a number of bytes that many share. It is safe for concurrent use.
type Memory struct {
	size int64

	// relieve is called now and then while somebody waits for memory.
	relieve func()

	mu    sync.Mutex
	free  int64 // below zero where Use took more than there was
	freed chan struct{}
}

// NewMemory returns a pool of so many bytes.
func NewMemory(size int64) *Memory {
	return &Memory{size: size, free: size, freed: make(chan struct{})}
}

// Relief has a function called while somebody waits for memory: it may have others give theirs
// back. It is set before the pool is used.
func (m *Memory) Relief(relieve func()) { m.relieve = relieve }

// relieveEvery is how often.
const relieveEvery = 100 * time.Millisecond

// TooMuchError: somebody asks for more than there is in all.
type TooMuchError struct{ Wanted, Size int64 }

func (e *TooMuchError) Error() string {
	return fmt.Sprintf("admission: it takes %d bytes of memory, and there are %d for all requests together", e.Wanted, e.Size)
}

// ErrBusy: memory was waited for, and did not come in time.
var ErrBusy = errors.New("admission: requests under way take all the memory there is for them")

// Take takes n bytes, and waits until they are free: at most for patience, where that is not
// 0, and until ctx ends.
//
// Errors: *TooMuchError, ErrBusy, the context's.
func (m *Memory) Take(ctx context.Context, n int64, patience time.Duration) error {
	if n > m.size {
		return &TooMuchError{Wanted: n, Size: m.size}
	}
	var over, again <-chan time.Time
	for {
		m.mu.Lock()
		if m.free >= n {
			m.free -= n
			m.mu.Unlock()
			return nil
		}
		freed := m.freed
		m.mu.Unlock()
		if over == nil && patience > 0 {
			timer := time.NewTimer(patience)
			defer timer.Stop()
			over = timer.C
		}
		if again == nil && m.relieve != nil {
			ticker := time.NewTicker(relieveEvery)
			defer ticker.Stop()
			again = ticker.C
			m.relieve()
		}
		select {
		case <-freed:
		case <-again:
			m.relieve()
		case <-over:
			return ErrBusy
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// TryTake takes at most n bytes, as many as are free, and returns how many.
func (m *Memory) TryTake(n int64) int64 {
	m.mu.Lock()
	got := max(0, min(n, m.free))
	m.free -= got
	m.mu.Unlock()
	if got == 0 && n > 0 && m.relieve != nil {
		m.relieve()
	}
	return got
}

// Use takes n bytes that are in use already, whether they are free or not.
func (m *Memory) Use(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.free -= n
}

// Give gives n bytes back.
func (m *Memory) Give(n int64) {
	if n == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.free += n; m.free > 0 {
		close(m.freed)
		m.freed = make(chan struct{})
	}
}

// Reserver returns how memory is taken for bytes that each cost several: reserve takes it for
// at most n of them, and returns for how many; release gives that of n back, or takes it
// where n is below zero.
func (m *Memory) Reserver(each int64) (reserve func(n int64) int64, release func(n int64)) {
	reserve = func(n int64) int64 {
		got := m.TryTake(each * n)
		m.Give(got % each)
		return got / each
	}
	return reserve, func(n int64) { m.Give(each * n) }
}

// Free is how many bytes are.
func (m *Memory) Free() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.free
}

// The first step of Read, and by how much each is larger: what is announced and never sent
// costs little, and what is sent is seldom copied.
const (
	firstStep = 64 << 10
	nextSteps = 16
)

// Read reads n bytes, and takes memory for them as they come, as Take does. held is what is to be given
// back, also after an error.
//
// Errors: those of Take and of r; io.ErrUnexpectedEOF.
func (m *Memory) Read(ctx context.Context, r io.Reader, n int64, patience time.Duration) (body []byte, held int64, err error) {
	if n > m.size {
		return nil, 0, &TooMuchError{Wanted: n, Size: m.size}
	}
	for size := min(n, firstStep); ; size = min(n, size*nextSteps) {
		if err := m.Take(ctx, size-held, patience); err != nil {
			return nil, held, err
		}
		held = size
		have := len(body)
		grown := make([]byte, size)
		copy(grown, body)
		if _, err := io.ReadFull(r, grown[have:]); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return nil, held, err
		}
		if body = grown; size == n {
			return body, held, nil
		}
	}
}

package logtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"

	"logbook/engine/vfs"
)

func (s *suite) kill() error {
	disk := vfs.NewMem()
	if _, err := s.filled(disk, 25); err != nil {
		return err
	}
	return s.survives(disk.Kill(), 25, 25)
}

func (s *suite) powerFailure() error {
	if s.traits.SyncsNothing {
		return nil
	}
	disk := vfs.NewMem()
	if _, err := s.filled(disk, 25); err != nil {
		return err
	}
	for c := range disk.Crashes(1, nil) { // the first: nothing unsynced reached the disk
		return s.survives(c.FS, 25, 25)
	}
	return nil
}

// survives opens a disk, checks that the log holds at least the first low and at most
// the first high samples and nothing else, and that it goes on from there, twice.
func (s *suite) survives(disk vfs.FS, low, high int) error {
	n := -1
	for range 2 {
		l, err := s.open(disk, dir)
		if err != nil {
			return fmt.Errorf("does not open: %w", err)
		}
		if n < 0 {
			n = int(l.EndOffset())
			if n < low || n > high {
				return fmt.Errorf("%d records are there, at least %d were acknowledged and %d appended", n, low, high)
			}
		}
		if err := s.holds(l, n); err != nil {
			return err
		}
		if err := s.fill(l, n, n+2); err != nil {
			return fmt.Errorf("going on: %w", err)
		}
		if n += 2; l.Close() != nil {
			return fmt.Errorf("does not close")
		}
	}
	return nil
}

// tornTail writes bytes after the last record, as an append that a crash cut short
// leaves them. A log must cut them and go on.
func (s *suite) tornTail() error {
	disk := vfs.NewMem()
	l, err := s.filled(disk, 5)
	if err != nil {
		return err
	}
	before := disk.Kill() // no later note of the log's own can tell
	if err := s.fill(l, 5, 6); err != nil {
		return err
	}
	whole, file := disk.Kill(), ""
	for _, name := range before.Files(dir) {
		if strings.HasSuffix(name, ".log") {
			file = name
		}
	}
	if file == "" {
		return errors.New("no file ends in .log: the suite cannot tear it")
	}
	old, _ := vfs.ReadFile(before, file, 1<<30)
	data, _ := vfs.ReadFile(whole, file, 1<<30)
	from, to := difference(old, data)
	for cut := from; cut < to; cut++ {
		for _, zeros := range []bool{true, false} {
			torn := before.Kill()
			torn.Edit(file, func([]byte) []byte {
				b := append([]byte(nil), data...)
				if !zeros && len(b) > len(old) {
					return b[:cut]
				}
				clear(b[cut:]) // the file has its size already: the rest is zeros
				return b
			})
			if err := s.survives(torn, 5, 5); err != nil {
				return fmt.Errorf("with %d of %d bytes of the sixth record: %w", cut-from, to-from, err)
			}
		}
	}
	return nil
}

// difference returns the range in which b differs from a, which may be shorter.
func difference(a, b []byte) (from, to int) {
	for from < len(a) && from < len(b) && a[from] == b[from] {
		from++
	}
	for to = len(b); to > from && (to > len(a) && b[to-1] == 0 || to <= len(a) && a[to-1] == b[to-1]); to-- {
	}
	return from, to
}

// everyCrash stops the log after each operation on the disk and opens states in which a
// power failure may leave it.
func (s *suite) everyCrash() error {
	if s.traits.SyncsNothing {
		return nil
	}
	disk := vfs.NewMem()
	disk.BlockSize = 64
	rng := rand.New(rand.NewPCG(1, 2))
	acked, pending := 0, 0
	var found error
	disk.After = func(op vfs.Op) {
		if found != nil {
			return
		}
		for c := range disk.Crashes(12, rng) {
			if err := s.survives(c.FS, acked, pending); err != nil {
				found = fmt.Errorf("power failure after %s, with %d records acknowledged (%s): %w", op, acked, c.What, err)
				return
			}
		}
	}
	l, err := s.open(disk, dir)
	if err != nil {
		return err
	}
	for i := range 15 {
		pending = i + 1
		if err := s.fill(l, i, i+1); err != nil {
			return err
		}
		if acked = i + 1; found != nil {
			return found
		}
	}
	if err := l.Close(); err != nil {
		return err
	}
	return found
}

// failingDisk makes each operation fail in turn.
func (s *suite) failingDisk() error {
	const appends = 10
	for k := 1; ; k++ {
		disk := vfs.NewMem()
		disk.Before = vfs.FailNth(k, syscall.EIO)
		l, err := s.open(disk, dir)
		acked := 0
		if err == nil {
			for acked < appends {
				if err = s.fill(l, acked, acked+1); err != nil {
					break
				}
				acked++
			}
			if err != nil {
				if _, again := l.Append(s.sample(acked)); again == nil {
					return fmt.Errorf("operation %d failed, and with it append %d; the next append succeeds, though nothing is known of what the disk holds", k, acked)
				}
			}
			if cerr := l.Close(); err == nil {
				err = cerr
			}
		}
		state := disk.Kill()
		if !s.traits.SyncsNothing {
			for c := range disk.Crashes(1, nil) {
				state = c.FS
			}
		}
		if serr := s.survives(state, acked, acked+1); serr != nil {
			return fmt.Errorf("after operation %d failed: %w", k, serr)
		}
		if err == nil && disk.Ops() < k {
			return nil // every operation has had its turn
		}
		if err == nil && acked == appends && k > 10_000 {
			return errors.New("more than 10,000 operations for ten appends")
		}
	}
}

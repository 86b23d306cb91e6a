// Package offsettest tests implementations of consumer.OffsetStore, in the style of
// testing/fstest: hand it yours and it returns what is wrong with it.
package offsettest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"

	"logbook/engine/consumer"
	"logbook/engine/topic"
	"logbook/engine/vfs"
)

// Opener opens the store on a file system, below or in a directory, or makes it.
type Opener func(fsys vfs.FS, dir string) (consumer.OffsetStore, error)

const dir = "offsets"

// TestStore checks everything that an offset store must do, and returns all that is wrong.
func TestStore(open Opener) error {
	var problems []error
	for _, c := range []struct {
		name string
		run  func(Opener) error
	}{
		{"unset differs from 0", unset}, {"independence", independence}, {"regression", regression},
		{"misuse", misuse}, {"restart", restart}, {"concurrent commits", concurrent},
		{"every crash", crashes}, {"failing disk", failingDisk},
	} {
		if err := c.run(open); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", c.name, err))
		}
	}
	return errors.Join(problems...)
}

var worker = consumer.OffsetKey{Consumer: "worker", Topic: "events", Partition: 0}

// expect checks a committed offset; -1 stands for none.
func expect(s consumer.OffsetStore, p consumer.OffsetKey, want int64) error {
	offset, ok, err := s.Committed(p)
	if err != nil {
		return err
	}
	if !ok {
		offset = -1
	}
	if offset != want {
		return fmt.Errorf("%s: committed is %d, want %d (-1: none)", p, offset, want)
	}
	return nil
}

func unset(open Opener) error {
	s, err := open(vfs.NewMem(), dir)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := expect(s, worker, -1); err != nil {
		return err
	}
	if err := s.Commit(worker, 0); err != nil {
		return err
	}
	return expect(s, worker, 0)
}

func independence(open Opener) error {
	s, err := open(vfs.NewMem(), dir)
	if err != nil {
		return err
	}
	defer s.Close()
	all := []consumer.OffsetKey{worker, {Consumer: "other", Topic: "events"}, {Consumer: "worker", Topic: "other"}, {Consumer: "worker", Topic: "events", Partition: 1}}
	for i, p := range all {
		if err := s.Commit(p, int64(10+i)); err != nil {
			return err
		}
	}
	for i, p := range all {
		if err := expect(s, p, int64(10+i)); err != nil {
			return err
		}
	}
	return nil
}

func regression(open Opener) error {
	s, err := open(vfs.NewMem(), dir)
	if err != nil {
		return err
	}
	defer s.Close()
	for _, offset := range []int64{5, 5, 9} {
		if err := s.Commit(worker, offset); err != nil {
			return err
		}
	}
	err = s.Commit(worker, 8)
	re, ok := errors.AsType[*consumer.OffsetRegressionError](err)
	if !ok || re.Committed != 9 || re.Wanted != 8 {
		return fmt.Errorf("a commit of 8 after 9 gives %v", err)
	}
	return expect(s, worker, 9)
}

func misuse(open Opener) error {
	s, err := open(vfs.NewMem(), dir)
	if err != nil {
		return err
	}
	defer s.Close()
	if s.Commit(worker, -1) == nil {
		return errors.New("a negative offset is accepted")
	}
	for _, bad := range []consumer.OffsetKey{
		{Consumer: "../escape", Topic: "events"}, {Consumer: "", Topic: "events"}, {Consumer: "worker", Topic: "a/b"},
	} {
		if _, ok := errors.AsType[*topic.NameError](s.Commit(bad, 1)); !ok {
			return fmt.Errorf("the names in %+v are accepted", bad)
		}
	}
	bad := worker
	bad.Partition = -1
	if s.Commit(bad, 1) == nil {
		return errors.New("a negative partition is accepted")
	}
	return expect(s, worker, -1)
}

func restart(open Opener) error {
	disk := vfs.NewMem()
	for i := range 5 {
		s, err := open(disk, dir)
		if err != nil {
			return err
		}
		if err := expect(s, worker, int64(i-1)); err != nil {
			return err
		}
		if err := s.Commit(worker, int64(i)); err != nil {
			return err
		}
		if err := s.Close(); err != nil {
			return err
		}
	}
	return nil
}

// concurrent lets several goroutines commit, each for itself.
func concurrent(open Opener) error {
	s, err := open(vfs.NewMem(), dir)
	if err != nil {
		return err
	}
	defer s.Close()
	var wg sync.WaitGroup
	problems := make([]error, 8)
	for i := range problems {
		wg.Go(func() {
			p := worker
			p.Partition = i
			for offset := range int64(20) {
				if err := s.Commit(p, offset); err != nil {
					problems[i] = err
					return
				}
			}
			problems[i] = expect(s, p, 19)
		})
	}
	wg.Wait()
	return errors.Join(problems...)
}

// crashes fails the power after each operation on the disk: the store opens, has the
// last commit that returned or the one under way, and goes on.
func crashes(open Opener) error {
	disk := vfs.NewMem()
	disk.BlockSize = 64
	rng := rand.New(rand.NewPCG(3, 4))
	done, doing := int64(-1), int64(-1)
	var found error
	disk.After = func(op vfs.Op) {
		for c := range disk.Crashes(10, rng) {
			if found != nil {
				return
			}
			if err := afterCrash(open, c.FS, done, doing); err != nil {
				found = fmt.Errorf("after %s, with %d committed (%s): %w", op, done, c.What, err)
			}
		}
	}
	s, err := open(disk, dir)
	if err != nil {
		return err
	}
	for offset := range int64(6) {
		doing = offset
		if err := s.Commit(worker, offset); err != nil {
			return err
		}
		if done = offset; found != nil {
			return found
		}
	}
	return errors.Join(s.Close(), found)
}

// failingDisk makes each operation fail in turn. The process then dies and another reads
// the committed offset: whatever it was told must survive a power failure.
func failingDisk(open Opener) error {
	for k := 1; ; k++ {
		disk := vfs.NewMem()
		disk.Before = vfs.FailNth(k, syscall.EIO)
		s, err := open(disk, dir)
		done := int64(-1)
		for offset := int64(0); err == nil && offset < 4; offset++ {
			if err = s.Commit(worker, offset); err == nil {
				done = offset
			}
		}
		if s != nil && err == nil {
			err = s.Close()
		}
		if serr := told(open, disk.Kill(), done); serr != nil {
			return fmt.Errorf("after operation %d failed (%v): %w", k, err, serr)
		}
		if err == nil && disk.Ops() < k {
			return nil // every operation has had its turn
		}
	}
}

func told(open Opener, disk *vfs.Mem, done int64) error {
	committed := func(fsys vfs.FS) (int64, error) {
		s, err := open(fsys, dir)
		if err != nil {
			return 0, fmt.Errorf("does not open: %w", err)
		}
		offset, ok, err := s.Committed(worker)
		if !ok {
			offset = -1
		}
		return offset, err // not closed: the process dies too
	}
	first, err := committed(disk)
	if err != nil {
		return err
	}
	if first < done {
		return fmt.Errorf("%d was committed, %d is there", done, first)
	}
	for c := range disk.Crashes(1, nil) {
		second, err := committed(c.FS)
		if err != nil {
			return err
		}
		if second < first {
			return fmt.Errorf("a reader was told %d, and after a power failure it is %d", first, second)
		}
	}
	return nil
}

func afterCrash(open Opener, fsys vfs.FS, done, doing int64) error {
	s, err := open(fsys, dir)
	if err != nil {
		return fmt.Errorf("does not open: %w", err)
	}
	defer s.Close()
	if expect(s, worker, done) != nil {
		if err := expect(s, worker, doing); err != nil {
			return err
		}
	}
	if err := s.Commit(worker, doing+1); err != nil {
		return err
	}
	return expect(s, worker, doing+1)
}

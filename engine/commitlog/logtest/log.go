package logtest

import (
	"bytes"
	"errors"
	"fmt"
	"iter"

	"logbook/engine/commitlog"
	"logbook/engine/record"
	"logbook/engine/vfs"
)

// Log is what a log must be able to do to be tested. *commitlog.Log is one.
type Log interface {
	Append(records ...record.Record) (commitlog.Appended, error)
	Read(offset int64) (record.Record, error)
	Records(from int64) iter.Seq2[record.Record, error]
	StartOffset() int64
	EndOffset() int64
	Close() error
}

// Opener opens the log in a directory of a file system, or makes it. The suite opens one
// directory again and again, with the file system in the state in which a restart or a
// crash leaves it.
type Opener func(fsys vfs.FS, dir string) (Log, error)

// Traits say what a log does not claim to do.
type Traits struct {
	NoKeys    bool // format 0: records have no keys
	NoHeaders bool // formats 0 and 1
	NilEmpty  bool // formats 0 and 1: nil and empty values (and in format 1 keys) read back alike
	// SyncsNothing: the log does not promise that an append survives a power failure. The
	// suite then leaves out what crashes take.
	SyncsNothing bool
}

// TestLog checks everything that a log must do, and returns all that is wrong.
func TestLog(open Opener, traits Traits) error {
	s := &suite{open: open, traits: traits}
	var problems []error
	for _, c := range []struct {
		name string
		run  func() error
	}{
		{"offsets", s.offsets},
		{"contents", s.contents},
		{"bounds", s.bounds},
		{"restart", s.restart},
		{"kill", s.kill},
		{"power failure", s.powerFailure},
		{"torn tail", s.tornTail},
		{"every crash", s.everyCrash},
		{"failing disk", s.failingDisk},
	} {
		if err := s.guard(c.run); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", c.name, err))
		}
	}
	return errors.Join(problems...)
}

type suite struct {
	open   Opener
	traits Traits
}

// guard turns a panic of the log under test into an error.
func (s *suite) guard(run func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return run()
}

const dir = "log"

// sample is the i-th record that the suite appends: of varying size, keyed where keys are.
func (s *suite) sample(i int) record.Record {
	r := record.Record{Value: bytes.Repeat(fmt.Appendf(nil, "record %d ", i), 1+i%5)}
	if !s.traits.NoKeys && i%3 > 0 {
		r.Key = fmt.Appendf(nil, "key %d", i%7)
	}
	return r
}

func (s *suite) same(want, got record.Record) bool {
	return bytes.Equal(want.Key, got.Key) && bytes.Equal(want.Value, got.Value)
}

// fill appends samples from..to-1 and checks their offsets.
func (s *suite) fill(l Log, from, to int) error {
	for i := from; i < to; i++ {
		at, err := l.Append(s.sample(i))
		if err != nil {
			return fmt.Errorf("append %d: %w", i, err)
		}
		if at.BaseOffset != int64(i) || at.LastOffset != int64(i) {
			return fmt.Errorf("append %d got offsets %d to %d", i, at.BaseOffset, at.LastOffset)
		}
	}
	return nil
}

// filled opens a log on a disk and appends the first n samples.
func (s *suite) filled(disk vfs.FS, n int) (Log, error) {
	l, err := s.open(disk, dir)
	if err != nil {
		return nil, err
	}
	return l, s.fill(l, 0, n)
}

// holds checks that a log has exactly the samples 0..n-1.
func (s *suite) holds(l Log, n int) error {
	if got := l.EndOffset(); got != int64(n) {
		return fmt.Errorf("the log end offset is %d, want %d", got, n)
	}
	i := 0
	for r, err := range l.Records(0) {
		if err != nil {
			return fmt.Errorf("reading record %d: %w", i, err)
		}
		if r.Offset != int64(i) || !s.same(s.sample(i), r) {
			return fmt.Errorf("record %d reads back as offset %d, key %q, value %q", i, r.Offset, r.Key, r.Value)
		}
		i++
	}
	if i != n {
		return fmt.Errorf("%d records read, want %d", i, n)
	}
	return nil
}

func (s *suite) offsets() error {
	l, err := s.open(vfs.NewMem(), dir)
	if err != nil {
		return err
	}
	defer l.Close()
	if l.StartOffset() != 0 || l.EndOffset() != 0 {
		return fmt.Errorf("a new log has offsets %d to %d", l.StartOffset(), l.EndOffset())
	}
	if err := s.fill(l, 0, 50); err != nil {
		return err
	}
	at, err := l.Append(s.sample(50), s.sample(51), s.sample(52))
	if err != nil {
		return err
	}
	if at.BaseOffset != 50 || at.LastOffset != 52 {
		return fmt.Errorf("three records appended at once got offsets %d to %d", at.BaseOffset, at.LastOffset)
	}
	return s.holds(l, 53)
}

func (s *suite) contents() error {
	l, err := s.open(vfs.NewMem(), dir)
	if err != nil {
		return err
	}
	defer l.Close()
	records := []record.Record{{Value: []byte{}}, {Value: []byte{0}}, {Value: bytes.Repeat([]byte{0xff}, 5000)}, {}}
	if !s.traits.NoKeys {
		records = append(records, record.Record{Key: []byte{}, Value: []byte("v")}, record.Record{Key: []byte("k")})
	}
	if !s.traits.NoHeaders {
		records = append(records, record.Record{Headers: []record.Header{{Key: "a", Value: []byte("1")}, {Key: "a"}}})
	}
	for i, r := range records {
		at, err := l.Append(r)
		if err != nil {
			return fmt.Errorf("record %d: %w", i, err)
		}
		got, err := l.Read(at.BaseOffset)
		if err != nil {
			return fmt.Errorf("record %d: %w", i, err)
		}
		r.Offset, r.Timestamp = at.BaseOffset, at.Timestamp
		if s.traits.NilEmpty {
			r.Key, got.Key = append([]byte{}, r.Key...), append([]byte{}, got.Key...)
			r.Value, got.Value = append([]byte{}, r.Value...), append([]byte{}, got.Value...)
		}
		if !r.Equal(got) {
			return fmt.Errorf("record %d was appended as %+v and reads back as %+v", i, r, got)
		}
	}
	return nil
}

func (s *suite) bounds() error {
	l, err := s.filled(vfs.NewMem(), 5)
	if err != nil {
		return err
	}
	defer l.Close()
	for _, offset := range []int64{-1, 5, 6, 1 << 40} {
		if r, err := l.Read(offset); err == nil {
			return fmt.Errorf("offset %d of a log of 5 reads %+v", offset, r)
		}
	}
	for r, err := range l.Records(5) {
		return fmt.Errorf("reading from the log end gives %+v, %v", r, err)
	}
	return nil
}

func (s *suite) restart() error {
	disk := vfs.NewMem()
	for n := 0; n < 60; n += 20 {
		l, err := s.open(disk, dir)
		if err != nil {
			return fmt.Errorf("opening with %d records: %w", n, err)
		}
		if err := s.holds(l, n); err != nil {
			return err
		}
		if err := s.fill(l, n, n+20); err != nil {
			return err
		}
		if err := l.Close(); err != nil {
			return fmt.Errorf("closing with %d records: %w", n+20, err)
		}
	}
	return nil
}

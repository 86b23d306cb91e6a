package commitlog_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"logbook/engine/commitlog"
	"logbook/engine/record"
	"logbook/engine/vfs"
)

// The crash enumeration: a fixed script is stopped after every operation on the disk,
// and states in which a power failure may leave the disk then are opened, checked,
// appended to, crashed and opened again.
//
//	go test -run TestCrashEnumeration ./engine/commitlog      a bounded part
//	make crash                                                all of it

// model is what the log must hold, with what is under way at the moment.
type model struct {
	values    map[int64]record.Record // every record ever handed to Append, by the offset it got or may get
	start     int64
	end       int64 // acknowledged
	appending int64 // offsets beyond end that an append under way may have stored
	startTo   int64 // retention under way may have moved the start here
	cutTo     int64 // a truncation under way may have moved the end here; -1: none
	removable map[int64]bool
	note      string // content of the metadata file, and what a rewrite under way may have made of it
	noteTo    string
}

func newModel() *model {
	return &model{values: map[int64]record.Record{}, cutTo: -1, removable: map[int64]bool{}}
}

const noteName = "log/../note" // a file beside the log, as a topic keeps its metadata

// check opens a disk and compares it with the model.
func (m *model) check(disk *vfs.Mem, opt commitlog.Options) error {
	opt.FS = disk
	l, err := commitlog.Open("log", opt)
	if err != nil {
		return fmt.Errorf("does not open: %w", err)
	}
	if err := m.compare(l); err != nil {
		return err
	}
	if err := m.checkNote(disk); err != nil {
		return err
	}
	extra := record.Record{Value: []byte("appended after the crash")}
	at, err := l.Append(extra)
	if err != nil {
		return fmt.Errorf("append after the crash: %w", err)
	}
	for _, again := range []*vfs.Mem{disk.Kill(), lastState(disk)} {
		opt.FS = again
		l, err := commitlog.Open("log", opt)
		if err != nil {
			return fmt.Errorf("after a second crash: does not open: %w", err)
		}
		rec, err := l.Read(at.BaseOffset)
		if err != nil || !bytes.Equal(rec.Value, extra.Value) {
			return fmt.Errorf("after a second crash: offset %d reads %q, %v", at.BaseOffset, rec.Value, err)
		}
		if l.EndOffset() != at.BaseOffset+1 {
			return fmt.Errorf("after a second crash: the log end offset is %d, want %d", l.EndOffset(), at.BaseOffset+1)
		}
		if err := l.Close(); err != nil {
			return err
		}
	}
	return l.Close()
}

func (m *model) compare(l *commitlog.Log) error {
	start, end := l.StartOffset(), l.EndOffset()
	if start != m.start && start != max(m.start, m.startTo) {
		return fmt.Errorf("the log start offset is %d, want %d or %d", start, m.start, m.startTo)
	}
	if end != m.cutTo && (end < m.end || end > m.end+m.appending) {
		return fmt.Errorf("the log end offset is %d, acknowledged were %d, under way %d (or a truncation to %d)", end, m.end, m.appending, m.cutTo)
	}
	next := start
	for rec, err := range l.Records(start) {
		if err != nil {
			return fmt.Errorf("reading offset %d: %w", next, err)
		}
		for ; next < rec.Offset; next++ {
			if !m.removable[next] {
				return fmt.Errorf("offset %d is missing", next)
			}
		}
		want, ok := m.values[rec.Offset]
		if !ok || !bytes.Equal(want.Key, rec.Key) || !bytes.Equal(want.Value, rec.Value) {
			return fmt.Errorf("offset %d reads key %q, value %q, which was never appended there", rec.Offset, rec.Key, rec.Value)
		}
		next++
	}
	for ; next < end; next++ {
		if !m.removable[next] {
			return fmt.Errorf("offset %d is missing at the end", next)
		}
	}
	return l.Verify()
}

func (m *model) checkNote(disk *vfs.Mem) error {
	got, err := vfs.ReadFile(disk, noteName, 100)
	if err != nil && m.note == "" {
		return nil
	}
	if string(got) != m.note && string(got) != m.noteTo {
		return fmt.Errorf("the metadata file holds %q (%v), want %q or %q", got, err, m.note, m.noteTo)
	}
	return nil
}

// script runs the fixed script. Between its steps the model says what is certain, and
// during a step what may be.
func script(t *testing.T, disk *vfs.Mem, opt commitlog.Options, m *model) {
	opt.FS = disk
	l, err := commitlog.Open("log", opt)
	require.NoError(t, err)
	append1 := func(i int) {
		rec := record.Record{Value: bytes.Repeat(fmt.Appendf(nil, "%d.", i), 1+(i*i)%23)}
		if l.Format() != record.V0 {
			rec.Key = fmt.Appendf(nil, "key %d", i%3)
		}
		m.values[m.end] = rec
		m.appending = 1
		_, err := l.Append(rec)
		require.NoError(t, err)
		m.end, m.appending = m.end+1, 0
	}
	writeNote := func(s string) {
		m.noteTo = s
		require.NoError(t, vfs.WriteFileAtomic(disk, noteName, []byte(s)))
		m.note = s
	}
	i := 0
	appendN := func(n int) {
		for range n {
			append1(i)
			i++
		}
	}
	appendN(12)
	writeNote(`{"version":1,"offset":12}`)
	// A batch across what is left of a segment.
	var batch []record.Record
	for range 3 {
		rec := record.Record{Value: fmt.Appendf(nil, "batch %d", i)}
		m.values[m.end+int64(len(batch))] = rec
		batch = append(batch, rec)
		i++
	}
	m.appending = 3
	_, err = l.Append(batch...)
	require.NoError(t, err)
	m.end, m.appending = m.end+3, 0
	// Truncation, within a segment and across one.
	for _, back := range []int64{1, 6} {
		m.cutTo = m.end - back
		if l.Format() == record.V2 && back == 1 {
			m.cutTo = m.end - 3 // the batch of three is not cut in two
		}
		to, err := l.Truncate(m.end - back)
		require.NoError(t, err)
		require.Equal(t, m.cutTo, to)
		m.end = to
		m.cutTo = -1
		appendN(2)
	}
	appendN(4)
	if l.Format() != record.V0 {
		for offset := m.start; offset < m.end; offset++ {
			m.removable[offset] = m.values[offset].Key != nil // at most
		}
		c, err := l.Compact(time.Hour)
		require.NoError(t, err)
		require.Positive(t, c.Removed)
		m.settle(t, l)
	}
	appendN(2)
	writeNote(`{"version":1,"offset":24}`)
	m.startTo = m.end // at most; retention moves to a segment's base
	n, err := l.Retain(commitlog.Retention{Bytes: 250})
	require.NoError(t, err)
	require.Positive(t, n)
	m.start, m.startTo = l.StartOffset(), 0
	require.NoError(t, l.Close())
	l, err = commitlog.Open("log", opt)
	require.NoError(t, err)
	appendN(3)
	require.NoError(t, l.Close())
}

// settle turns what compaction may have removed into what it did remove.
func (m *model) settle(t *testing.T, l *commitlog.Log) {
	clear(m.removable)
	for offset := m.start; offset < m.end; offset++ {
		m.removable[offset] = true
	}
	for rec, err := range l.Records(m.start) {
		require.NoError(t, err)
		m.removable[rec.Offset] = false
	}
}

func TestCrashEnumeration(t *testing.T) {
	all := os.Getenv("LOGBOOK_CRASH") == "all"
	limit := 10
	if all {
		limit = 0
	}
	states, points := 0, 0
	eachFormat(t, func(t *testing.T, f record.Format) {
		opt := commitlog.Options{Format: f, SegmentBytes: 300, CheckpointBytes: 200, IndexBytes: 100, Now: ticking()}
		disk := vfs.NewMem()
		disk.BlockSize = 64
		rng := rand.New(rand.NewPCG(7, uint64(f.Version())))
		m := newModel()
		disk.After = func(op vfs.Op) {
			if t.Failed() {
				return
			}
			points++
			for c := range disk.Crashes(limit, rng) {
				states++
				if err := m.checkAsync(c.FS, opt); err != nil {
					t.Errorf("violation after %s (acknowledged: %d; on disk: %s): %v", op, m.end, c.What, err)
					return
				}
			}
		}
		script(t, disk, opt, m)
	})
	fmt.Printf("crash enumeration: %d points, %d states, %s\n", points, states, verdict(t))
}

// checkAsync allows for the start that retention under way moves to: any segment's base.
func (m *model) checkAsync(disk *vfs.Mem, opt commitlog.Options) error {
	if m.startTo == 0 {
		return m.check(disk, opt)
	}
	opt.FS = disk.Kill()
	l, err := commitlog.Open("log", opt)
	if err != nil {
		return fmt.Errorf("does not open: %w", err)
	}
	start := l.StartOffset()
	if err := l.Close(); err != nil {
		return err
	}
	if start < m.start || start > m.startTo {
		return fmt.Errorf("retention left the start at %d", start)
	}
	exact := *m
	exact.startTo = start
	return exact.check(disk, opt)
}

func verdict(t *testing.T) string {
	if t.Failed() {
		return "VIOLATIONS"
	}
	return "0 violations"
}

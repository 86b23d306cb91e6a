package commitlog_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
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

// everything asks the enumerations of this package for all that they can try.
var everything = os.Getenv("LOGBOOK_CRASH") == "all"

// everyNth is the stride of an enumeration: n, or 1 if everything is asked for. n has no
// factor in common with the sizes in a file, so that every kind of field is hit.
func everyNth(n int) int {
	if everything {
		return 1
	}
	return n
}

// model is what the log must hold, with what is under way at the moment.
type model struct {
	values    map[int64]record.Record // every record ever handed to Append, by the offset it got or may get
	start     int64
	end       int64 // acknowledged
	appending int64 // offsets beyond end that an append under way may have stored
	startTo   int64 // retention under way may have moved the start here
	resetTo   int64 // a reset under way may have emptied the log, to go on here; -1: none
	cutTo     int64 // a truncation under way may have moved the end here; -1: none
	removable map[int64]bool
	note      string // content of the metadata file, and what a rewrite under way may have made of it
	noteTo    string
}

func newModel() *model {
	return &model{values: map[int64]record.Record{}, cutTo: -1, resetTo: -1, removable: map[int64]bool{}}
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
	if m.resetTo >= 0 && start == m.resetTo && end == m.resetTo {
		return l.Verify()
	}
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

// run is the fixed script under way.
type run struct {
	log  *commitlog.Log
	disk *vfs.Mem
	m    *model
	n    int // records made
}

// script runs the fixed script up to its end or its first error. Between its steps the
// model says what is certain, and during a step what may be.
func script(disk *vfs.Mem, opt commitlog.Options, m *model) (*commitlog.Log, error) {
	opt.FS = disk
	l, err := commitlog.Open("log", opt)
	if err != nil {
		return nil, err
	}
	r := &run{log: l, disk: disk, m: m}
	for _, step := range []func() error{
		r.appends(12), r.note(`{"version":1,"offset":12}`),
		r.batch, r.truncate(1), r.appends(2), r.truncate(6), r.appends(6), // within a segment, and across
		r.compact, r.appends(2), r.note(`{"version":1,"offset":24}`), r.retain,
		l.Close,
	} {
		if err := step(); err != nil {
			return l, err
		}
	}
	if r.log, err = commitlog.Open("log", opt); err != nil {
		return nil, err
	}
	for _, step := range []func() error{r.appends(3), r.epoch(7), r.replicate, r.truncate(2), r.epoch(9), r.appends(1), r.reset(100), r.appends(2)} {
		if err := step(); err != nil {
			return r.log, err
		}
	}
	return r.log, r.log.Close()
}

func (r *run) record() record.Record {
	rec := record.Record{Value: bytes.Repeat(fmt.Appendf(nil, "%d.", r.n), 1+(r.n*r.n)%23)}
	if r.log.Format() != record.V0 {
		rec.Key = fmt.Appendf(nil, "key %d", r.n%3)
	}
	r.n++
	return rec
}

func (r *run) append(records ...record.Record) error {
	for i, rec := range records {
		r.m.values[r.m.end+int64(i)] = rec
	}
	r.m.appending = int64(len(records))
	at, err := r.log.Append(records...)
	if err != nil {
		return err
	}
	if at.BaseOffset != r.m.end {
		return fmt.Errorf("append got offset %d, want %d", at.BaseOffset, r.m.end)
	}
	r.m.end, r.m.appending = at.LastOffset+1, 0
	return nil
}

func (r *run) appends(n int) func() error {
	return func() error {
		for range n {
			if err := r.append(r.record()); err != nil {
				return err
			}
		}
		return nil
	}
}

func (r *run) batch() error { return r.append(r.record(), r.record(), r.record()) }

func (r *run) epoch(n int32) func() error {
	return func() error { return r.log.StartEpoch(n) }
}

// replicate stores two frames that another log would have there, of a later epoch.
func (r *run) replicate() error {
	records := []record.Record{r.record(), r.record()}
	var frames []byte
	for i := range records {
		records[i].Offset = r.m.end + int64(i)
		r.m.values[records[i].Offset] = records[i]
		var err error
		frames, err = r.log.Format().AppendFrames(frames, records[i:i+1], record.Encoding{KeepOffsets: true, BaseOffset: records[i].Offset, LastOffset: records[i].Offset, LeaderEpoch: 8, Timestamp: time.Unix(9, 0)})
		if err != nil {
			return err
		}
	}
	r.m.appending = 2
	next, err := r.log.AppendReplica(frames, 8)
	if err != nil {
		return err
	}
	if next != r.m.end+2 {
		return fmt.Errorf("a replica's append ended at %d, want %d", next, r.m.end+2)
	}
	r.m.end, r.m.appending = next, 0
	return nil
}

func (r *run) reset(to int64) func() error {
	return func() error {
		r.m.resetTo = to
		if err := r.log.Reset(to); err != nil {
			return err
		}
		r.m.start, r.m.end, r.m.resetTo = to, to, -1
		return nil
	}
}

func (r *run) note(s string) func() error {
	return func() error {
		r.m.noteTo = s
		if err := vfs.WriteFileAtomic(r.disk, noteName, []byte(s)); err != nil {
			return err
		}
		r.m.note = s
		return nil
	}
}

func (r *run) truncate(back int64) func() error {
	return func() error {
		r.m.cutTo = r.m.end - back
		if r.log.Format() == record.V2 && back == 1 {
			r.m.cutTo = r.m.end - 3 // the batch of three is not cut in two
		}
		to, err := r.log.Truncate(r.m.end - back)
		if err != nil {
			return err
		}
		if to != r.m.cutTo {
			return fmt.Errorf("truncated to %d, want %d", to, r.m.cutTo)
		}
		r.m.end, r.m.cutTo = to, -1
		return nil
	}
}

func (r *run) compact() error {
	if r.log.Format() == record.V0 {
		return nil
	}
	for offset := r.m.start; offset < r.m.end; offset++ {
		r.m.removable[offset] = true // at most: all but the active segment's, and each key's last
	}
	last := map[string]int64{}
	for offset := r.m.start; offset < r.m.end; offset++ {
		last[string(r.m.values[offset].Key)] = offset
	}
	for _, offset := range last {
		r.m.removable[offset] = false
	}
	c, err := r.log.Compact(time.Hour)
	if err == nil && c.Removed == 0 {
		err = fmt.Errorf("nothing was compacted")
	}
	return err
}

func (r *run) retain() error {
	r.m.startTo = r.m.end // at most: see checkAsync
	n, err := r.log.Retain(commitlog.Retention{Bytes: 250})
	if err != nil {
		return err
	}
	if n == 0 {
		return fmt.Errorf("nothing was retained")
	}
	r.m.start, r.m.startTo = r.log.StartOffset(), 0
	return nil
}

func TestCrashEnumeration(t *testing.T) {
	if testing.Short() {
		t.Skip("a long enumeration")
	}
	limit := 4
	if everything {
		limit = 0
	}
	states, points := 0, 0
	var counting sync.Mutex
	t.Run("all", func(t *testing.T) { // the formats beside one another
		eachFormat(t, func(t *testing.T, f record.Format) {
			t.Parallel()
			p, s := enumerate(t, f, limit)
			counting.Lock()
			defer counting.Unlock()
			points, states = points+p, states+s
		})
	})
	fmt.Printf("crash enumeration: %d points, %d states, %s\n", points, states, verdict(t))
}

func enumerate(t *testing.T, f record.Format, limit int) (points, states int) {
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
	_, err := script(disk, opt, m)
	require.NoError(t, err)
	return points, states
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

// compareAsync compares a log that is still open after an error, in the same spirit.
// What was not acknowledged must not be visible.
func (m *model) compareAsync(l *commitlog.Log) error {
	exact := *m
	exact.appending = 0
	if start := l.StartOffset(); start >= m.start && start <= m.startTo {
		exact.startTo = start
	}
	return exact.compare(l)
}

func verdict(t *testing.T) string {
	if t.Failed() {
		return "VIOLATIONS"
	}
	return "0 violations"
}

package logtest_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"

	"logbook/engine/commitlog"
	"logbook/engine/commitlog/logtest"
	"logbook/engine/record"
	"logbook/engine/vfs"
)

func TestTheEnginesLogPassesInEveryFormat(t *testing.T) {
	for _, c := range []struct {
		format record.Format
		traits logtest.Traits
	}{
		{record.V0, logtest.Traits{NoKeys: true, NoHeaders: true, NilEmpty: true}},
		{record.V1, logtest.Traits{NoHeaders: true, NilEmpty: true}},
		{record.V2, logtest.Traits{}},
	} {
		t.Run(fmt.Sprintf("format%d", c.format.Version()), func(t *testing.T) {
			assert.NoError(t, logtest.TestLog(func(fsys vfs.FS, dir string) (logtest.Log, error) {
				return commitlog.Open(dir, commitlog.Options{FS: fsys, Format: c.format, SegmentBytes: 400})
			}, c.traits))
		})
	}
}

// naive is the log that everybody writes first: one file, no care. Each switch adds one
// virtue.
type naive struct {
	fs     vfs.FS
	file   vfs.File
	pos    int64
	frames [][2]int64
	failed error
	opt    virtues
}

type virtues struct{ sync, syncDir, cutTail, poison bool }

func openNaive(opt virtues) logtest.Opener {
	return func(fsys vfs.FS, dir string) (logtest.Log, error) {
		if err := fsys.MkdirAll(dir); err != nil {
			return nil, err
		}
		name := filepath.Join(dir, "naive.log")
		f, err := fsys.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			if f, err = fsys.Create(name); err == nil && opt.syncDir {
				err = fsys.SyncDir(dir)
			}
		}
		if err != nil {
			return nil, err
		}
		n := &naive{fs: fsys, file: f, opt: opt}
		return n, n.recover()
	}
}

func (n *naive) recover() error {
	size, err := n.file.Size()
	if err != nil {
		return err
	}
	data := make([]byte, size)
	if _, err := n.file.ReadAt(data, 0); err != nil && err != io.EOF {
		return err
	}
	for len(data) > 0 {
		f, err := record.V2.Parse(data)
		if err != nil {
			if n.opt.cutTail {
				return n.file.Truncate(n.pos)
			}
			return err
		}
		n.note(f.BaseOffset, f.NextOffset(), len(f.Bytes))
		data = data[len(f.Bytes):]
	}
	return nil
}

func (n *naive) note(base, next int64, size int) {
	for ; base < next; base++ {
		n.frames = append(n.frames, [2]int64{n.pos, int64(size)})
	}
	n.pos += int64(size)
}

func (n *naive) Append(records ...record.Record) (commitlog.Appended, error) {
	if n.failed != nil {
		return commitlog.Appended{}, n.failed
	}
	base := n.EndOffset()
	frame, err := record.V2.AppendFrames(nil, records, record.Encoding{BaseOffset: base, Timestamp: epoch})
	if err == nil {
		_, err = n.file.WriteAt(frame, n.pos)
	}
	if err == nil && n.opt.sync {
		err = n.file.Sync()
	}
	if err != nil {
		if n.opt.poison {
			n.failed = err
		}
		return commitlog.Appended{}, err
	}
	n.note(base, base+int64(len(records)), len(frame))
	return commitlog.Appended{BaseOffset: base, LastOffset: n.EndOffset() - 1, Timestamp: epoch}, nil
}

func (n *naive) Read(offset int64) (record.Record, error) {
	if offset < 0 || offset >= n.EndOffset() {
		return record.Record{}, errors.New("out of range")
	}
	at := n.frames[offset]
	data := make([]byte, at[1])
	if _, err := n.file.ReadAt(data, at[0]); err != nil && err != io.EOF {
		return record.Record{}, err
	}
	f, err := record.V2.Parse(data)
	if err != nil {
		return record.Record{}, err
	}
	rs, err := f.Records()
	if err != nil {
		return record.Record{}, err
	}
	return rs[offset-f.BaseOffset], nil
}

func (n *naive) Records(from int64) iter.Seq2[record.Record, error] {
	return func(yield func(record.Record, error) bool) {
		for ; from < n.EndOffset(); from++ {
			if r, err := n.Read(from); !yield(r, err) || err != nil {
				return
			}
		}
	}
}

func (n *naive) StartOffset() int64 { return 0 }
func (n *naive) EndOffset() int64   { return int64(len(n.frames)) }
func (n *naive) Close() error       { return n.file.Close() }

var epoch = record.Record{}.Timestamp.AddDate(2000, 0, 0)

// The suite must find what is missing, and nothing where nothing is.
func TestTheSuiteCatchesWhatItShould(t *testing.T) {
	all := virtues{sync: true, syncDir: true, cutTail: true, poison: true}
	assert.NoError(t, logtest.TestLog(openNaive(all), logtest.Traits{}))
	for _, c := range []struct {
		drop func(*virtues)
		want string
	}{
		{func(v *virtues) { v.sync = false }, "power failure"},
		{func(v *virtues) { v.syncDir = false }, "power failure"},
		{func(v *virtues) { v.cutTail = false }, "torn tail"},
		{func(v *virtues) { v.poison = false }, "failing disk"},
	} {
		v := all
		c.drop(&v)
		assert.ErrorContains(t, logtest.TestLog(openNaive(v), logtest.Traits{}), c.want+": ", "%+v", v)
	}
	unsynced := virtues{cutTail: true, poison: true}
	assert.NoError(t, logtest.TestLog(openNaive(unsynced), logtest.Traits{SyncsNothing: true}), "promising less is allowed")

	offByOne := func(fsys vfs.FS, dir string) (logtest.Log, error) {
		l, err := openNaive(all)(fsys, dir)
		return wrongOffsets{l}, err
	}
	assert.ErrorContains(t, logtest.TestLog(offByOne, logtest.Traits{}), "offsets: append 0 got offsets 1 to 1")
	panics := func(vfs.FS, string) (logtest.Log, error) { panic(binary.BigEndian) }
	assert.ErrorContains(t, logtest.TestLog(panics, logtest.Traits{}), "panic")
}

type wrongOffsets struct{ logtest.Log }

func (w wrongOffsets) Append(records ...record.Record) (commitlog.Appended, error) {
	at, err := w.Log.Append(records...)
	at.BaseOffset++
	at.LastOffset++
	return at, err
}

package measure

import (
	"sync/atomic"
	"time"

	"logbook/engine/vfs"
)

// Timed is the operating system's file system, and adds up where its time goes.
type Timed struct {
	vfs.FS
	write, sync atomic.Int64 // ns
	writes      atomic.Int64
	syncs       atomic.Int64
}

// NewTimed returns one.
func NewTimed() *Timed { return &Timed{FS: vfs.OS} }

// Spent is what was spent on files, and how often.
type Spent struct {
	Write, Sync   time.Duration
	Writes, Syncs int64
}

// Spent returns what was spent since the last call.
func (t *Timed) Spent() Spent {
	return Spent{
		Write: time.Duration(t.write.Swap(0)), Sync: time.Duration(t.sync.Swap(0)),
		Writes: t.writes.Swap(0), Syncs: t.syncs.Swap(0),
	}
}

// Create makes a file that is timed.
func (t *Timed) Create(name string) (vfs.File, error) { return t.timed(t.FS.Create(name)) }

// Open opens a file that is timed.
func (t *Timed) Open(name string) (vfs.File, error) { return t.timed(t.FS.Open(name)) }

func (t *Timed) timed(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &timedFile{File: f, t: t}, nil
}

type timedFile struct {
	vfs.File
	t *Timed
}

func (f *timedFile) WriteAt(p []byte, at int64) (int, error) {
	began := time.Now()
	n, err := f.File.WriteAt(p, at)
	f.t.write.Add(int64(time.Since(began)))
	f.t.writes.Add(1)
	return n, err
}

func (f *timedFile) Sync() error {
	began := time.Now()
	err := f.File.Sync()
	f.t.sync.Add(int64(time.Since(began)))
	f.t.syncs.Add(1)
	return err
}

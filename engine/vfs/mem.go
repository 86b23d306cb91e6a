package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
)

// Mem is a file system in memory that remembers what is durable. Bytes written since a
// file's last sync, and names changed since a directory's last sync, are kept apart, so
// that Crashes can list every state in which a crash may leave the disk, and operations
// can be made to fail.
//
// A directory's name is lost, with all that is below it, unless its parent was synced.
// The zero value is not usable; see NewMem.
type Mem struct {
	// BlockSize is the unit in which unsynced bytes reach the disk or do not; 0 is 4 KiB.
	BlockSize int
	// Flushes lets OpenFlusher work: one OpSync, of the flusher's directory, stands for all
	// files that are flushed.
	Flushes bool
	// Before, if set, is called before each operation that changes something. An error
	// makes the operation fail: see Op. It must not use the file system.
	Before func(Op) error
	// After, if set, is called after each operation that changed something, without any
	// lock held.
	After func(Op)

	mu    sync.Mutex
	dirs  map[string]*memDir
	locks map[string]bool
	count int
}

// Op is one operation that changes the disk. When Before returns an error for it:
// a write stores nothing, or as many bytes as a ShortWrite says; a sync drops the
// unsynced bytes, as Linux does: they can still be read, but no later sync stores them;
// everything else does nothing.
type Op struct {
	N    int // counts from 1, over all kinds
	Kind OpKind
	Name string // path; of the source for a rename
	Size int    // bytes, for a write
}

// OpKind is a kind of operation.
type OpKind string

const (
	OpMkdir    OpKind = "mkdir"
	OpCreate   OpKind = "create"
	OpWrite    OpKind = "write"
	OpTruncate OpKind = "truncate"
	OpSync     OpKind = "sync"
	OpRename   OpKind = "rename"
	OpRemove   OpKind = "remove"
	OpSyncDir  OpKind = "syncdir"
)

func (o Op) String() string {
	return fmt.Sprintf("#%d %s %s", o.N, o.Kind, filepath.Base(o.Name))
}

// ShortWrite is an error for Before to return: the write stores its first N bytes and
// fails with Err.
type ShortWrite struct {
	N   int
	Err error
}

func (e *ShortWrite) Error() string { return fmt.Sprintf("short write of %d bytes: %v", e.N, e.Err) }
func (e *ShortWrite) Unwrap() error { return e.Err }

type memDir struct {
	now     map[string]*inode // what the running system sees
	durable map[string]*inode
	pending []nameOp // changes to durable that a SyncDir would make
}

// nameOp sets a name to an inode, or removes it when inode is nil; from, if not empty,
// is removed with it (a rename).
type nameOp struct {
	name, from string
	node       *inode
}

func (op nameOp) apply(names map[string]*inode) {
	if op.from != "" {
		delete(names, op.from)
	}
	if op.node == nil {
		delete(names, op.name)
	} else {
		names[op.name] = op.node
	}
}

type inode struct {
	dir     bool // its content is in Mem.dirs
	now     []byte
	durable []byte
	pending []dataOp // changes to durable that a Sync would make
	removed bool     // it has no name any more
	failed  error    // bytes of it could not be written, which its next sync is to tell
}

// sync makes what was written durable.
func (n *inode) sync() {
	for _, op := range n.pending {
		n.durable = op.apply(n.durable)
	}
	n.pending = nil
}

// dataOp is a write at a position, or a truncation to it when data is nil.
type dataOp struct {
	at   int64
	data []byte
}

func (op dataOp) apply(b []byte) []byte {
	if op.data == nil {
		return resize(b, op.at)
	}
	if end := op.at + int64(len(op.data)); end > int64(len(b)) {
		b = resize(b, end)
	}
	copy(b[op.at:], op.data)
	return b
}

func resize(b []byte, size int64) []byte {
	if size <= int64(len(b)) {
		clear(b[size:]) // so that growing again shows zeros
		return b[:size]
	}
	if size <= int64(cap(b)) {
		old := len(b)
		b = b[:size]
		clear(b[old:])
		return b
	}
	return append(b, make([]byte, size-int64(len(b)))...)
}

// NewMem returns an empty file system.
func NewMem() *Mem {
	return &Mem{dirs: map[string]*memDir{}, locks: map[string]bool{}}
}

// FailNth is a Before that makes the nth operation fail, and no other. Tests fail each
// operation in turn, until a run has fewer.
func FailNth(n int, err error) func(Op) error {
	return func(op Op) error {
		if op.N == n {
			return err
		}
		return nil
	}
}

// Inject sets Before while others use the file system.
func (m *Mem) Inject(before func(Op) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.Before = before
}

// Ops returns how many operations have been counted.
func (m *Mem) Ops() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.count
}

// change runs one changing operation: do is called with the lock held, and with the
// error that Before injects, if any.
func (m *Mem) change(kind OpKind, name string, size int, do func(injected error) error) error {
	m.mu.Lock()
	m.count++
	op := Op{N: m.count, Kind: kind, Name: name, Size: size}
	var injected error
	if m.Before != nil {
		injected = m.Before(op)
	}
	err := do(injected)
	after := m.After
	m.mu.Unlock()
	if after != nil {
		after(op)
	}
	return err
}

func pathError(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}

func (m *Mem) dir(name string) (*memDir, string) {
	return m.dirs[filepath.Dir(name)], filepath.Base(name)
}

func (m *Mem) Create(name string) (File, error) {
	var f File
	err := m.change(OpCreate, name, 0, func(injected error) error {
		d, base := m.dir(name)
		switch {
		case d == nil:
			return pathError("create", name, fs.ErrNotExist)
		case d.now[base] != nil:
			return pathError("create", name, fs.ErrExist)
		case injected != nil:
			return pathError("create", name, injected)
		}
		op := nameOp{name: base, node: &inode{}}
		op.apply(d.now)
		d.pending = append(d.pending, op)
		f = &memFile{fs: m, name: name, node: op.node, writable: true}
		return nil
	})
	return f, err
}

func (m *Mem) Open(name string) (File, error)     { return m.open(name, true) }
func (m *Mem) OpenRead(name string) (File, error) { return m.open(name, false) }

func (m *Mem) open(name string, writable bool) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, base := m.dir(name)
	if d == nil || d.now[base] == nil {
		return nil, pathError("open", name, fs.ErrNotExist)
	}
	if d.now[base].dir {
		return nil, pathError("open", name, errIsDir)
	}
	return &memFile{fs: m, name: name, node: d.now[base], writable: writable}, nil
}

func (m *Mem) MkdirAll(dir string) error {
	dir = filepath.Clean(dir)
	parent, name := filepath.Dir(dir), filepath.Base(dir)
	if parent == dir { // "." or "/": nobody can lose it
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.dirs[dir] == nil {
			m.dirs[dir] = newMemDir()
		}
		return nil
	}
	if err := m.MkdirAll(parent); err != nil {
		return err
	}
	if there, durable := m.hasDir(dir); there && durable {
		return nil
	} else if there {
		return m.SyncDir(parent)
	}
	err := m.change(OpMkdir, dir, 0, func(injected error) error {
		if injected != nil {
			return pathError("mkdir", dir, injected)
		}
		d := m.dirs[parent]
		if d.now[name] != nil {
			if !d.now[name].dir {
				return pathError("mkdir", dir, fs.ErrExist)
			}
			return nil
		}
		op := nameOp{name: name, node: &inode{dir: true}}
		op.apply(d.now)
		d.pending = append(d.pending, op)
		m.dirs[dir] = newMemDir()
		return nil
	})
	if err != nil {
		return err
	}
	return m.SyncDir(parent)
}

// hasDir reports whether a directory is there, and whether its name is durable.
func (m *Mem) hasDir(dir string) (there, durable bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.dirs[filepath.Dir(dir)]
	return m.dirs[dir] != nil, d != nil && d.durable[filepath.Base(dir)] != nil
}

func newMemDir() *memDir {
	return &memDir{now: map[string]*inode{}, durable: map[string]*inode{}}
}

var errIsDir = errors.New("is a directory")

func (m *Mem) ReadDir(dir string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir = filepath.Clean(dir)
	d := m.dirs[dir]
	if d == nil {
		return nil, pathError("open", dir, fs.ErrNotExist)
	}
	var names []string
	for name := range d.now {
		names = append(names, name)
	}
	sort.Strings(names)
	return names, nil
}

func (m *Mem) Rename(from, to string) error {
	return m.change(OpRename, from, 0, func(injected error) error {
		d, base := m.dir(from)
		if d == nil || d.now[base] == nil {
			return pathError("rename", from, fs.ErrNotExist)
		}
		if filepath.Dir(from) != filepath.Dir(to) {
			return pathError("rename", to, fmt.Errorf("to another directory: not supported by vfs.Mem"))
		}
		if injected != nil {
			return pathError("rename", from, injected)
		}
		op := nameOp{name: filepath.Base(to), from: base, node: d.now[base]}
		if replaced := d.now[op.name]; replaced != nil && replaced != op.node {
			replaced.removed = true
		}
		op.apply(d.now)
		d.pending = append(d.pending, op)
		return nil
	})
}

func (m *Mem) Remove(name string) error {
	return m.change(OpRemove, name, 0, func(injected error) error {
		d, base := m.dir(name)
		if d == nil || d.now[base] == nil {
			return pathError("remove", name, fs.ErrNotExist)
		}
		if injected != nil {
			return pathError("remove", name, injected)
		}
		if d.now[base].dir {
			if len(m.dirs[filepath.Clean(name)].now) > 0 {
				return pathError("remove", name, errors.New("directory not empty"))
			}
			delete(m.dirs, filepath.Clean(name))
		}
		op := nameOp{name: base}
		d.now[base].removed = true
		op.apply(d.now)
		d.pending = append(d.pending, op)
		return nil
	})
}

func (m *Mem) SyncDir(dir string) error {
	return m.change(OpSyncDir, dir, 0, func(injected error) error {
		d := m.dirs[filepath.Clean(dir)]
		if d == nil {
			return pathError("sync", dir, fs.ErrNotExist)
		}
		if injected != nil {
			return pathError("sync", dir, injected)
		}
		for _, op := range d.pending {
			op.apply(d.durable)
		}
		d.pending = nil
		return nil
	})
}

func (m *Mem) Lock(name string) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, base := m.dir(name)
	if d == nil || d.now[base] == nil {
		return nil, pathError("lock", name, fs.ErrNotExist)
	}
	if m.locks[name] {
		return nil, pathError("lock", name, ErrLocked)
	}
	m.locks[name] = true
	return &memLock{fs: m, name: name}, nil
}

type memLock struct {
	fs   *Mem
	name string
}

func (l *memLock) Close() error {
	l.fs.mu.Lock()
	defer l.fs.mu.Unlock()
	delete(l.fs.locks, l.name)
	return nil
}

// Kill returns the file system as the next process finds it after this one was killed:
// everything written is there, what was not synced still is not, and nobody holds a lock.
func (m *Mem) Kill() *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := NewMem()
	c.BlockSize = m.BlockSize
	copies := map[*inode]*inode{nil: nil}
	copyOf := func(n *inode) *inode {
		if _, ok := copies[n]; !ok {
			copies[n] = &inode{dir: n.dir, removed: n.removed, now: slices.Clone(n.now), durable: slices.Clone(n.durable), pending: slices.Clone(n.pending)}
		}
		return copies[n]
	}
	for path, d := range m.dirs {
		nd := &memDir{now: make(map[string]*inode, len(d.now)), durable: make(map[string]*inode, len(d.durable))}
		for name, node := range d.now {
			nd.now[name] = copyOf(node)
		}
		for name, node := range d.durable {
			nd.durable[name] = copyOf(node)
		}
		for _, op := range d.pending {
			op.node = copyOf(op.node)
			nd.pending = append(nd.pending, op)
		}
		c.dirs[path] = nd
	}
	return c
}

// Files returns the paths of all files below dir, sorted.
func (m *Mem) Files(dir string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir = filepath.Clean(dir)
	var out []string
	for path, d := range m.dirs {
		if path == dir || strings.HasPrefix(path, dir+string(filepath.Separator)) {
			for name, node := range d.now {
				if !node.dir {
					out = append(out, filepath.Join(path, name))
				}
			}
		}
	}
	sort.Strings(out)
	return out
}

// Edit replaces a file's content, durably and without counting as an operation: what
// bit rot, or a person with an editor, would do.
func (m *Mem) Edit(name string, edit func([]byte) []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, base := m.dir(name)
	n := d.now[base]
	n.now = edit(slices.Clone(n.now))
	n.durable, n.pending = slices.Clone(n.now), nil
}

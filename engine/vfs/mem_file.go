package vfs

import (
	"cmp"
	"io"
	"io/fs"
	"slices"
)

type memFile struct {
	fs       *Mem
	name     string
	node     *inode
	writable bool
	closed   bool
}

func (f *memFile) ReadAt(p []byte, at int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	switch {
	case f.closed:
		return 0, pathError("read", f.name, fs.ErrClosed)
	case at < 0:
		return 0, pathError("read", f.name, fs.ErrInvalid)
	case at >= int64(len(f.node.now)):
		return 0, io.EOF
	}
	n := copy(p, f.node.now[at:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(p []byte, at int64) (int, error) {
	n := 0
	err := f.change("write", OpWrite, len(p), func(injected error) error {
		stored := p
		if injected != nil {
			short, ok := injected.(*ShortWrite)
			if !ok || short.N >= len(p) {
				return injected
			}
			stored = p[:short.N]
		}
		if n = len(stored); n > 0 {
			f.do(dataOp{at: at, data: slices.Clone(stored)})
		}
		return injected
	})
	return n, err
}

func (f *memFile) Truncate(size int64) error {
	return f.change("truncate", OpTruncate, 0, func(injected error) error {
		if injected == nil {
			f.do(dataOp{at: size})
		}
		return injected
	})
}

func (f *memFile) Sync() error {
	return f.change("sync", OpSync, 0, func(injected error) error {
		injected = cmp.Or(injected, f.node.failed)
		f.node.failed = nil
		if injected == nil {
			f.node.sync()
		}
		f.node.pending = nil
		if injected == nil && f.node.removed {
			return ErrRemoved
		}
		return injected
	})
}

func (f *memFile) change(verb string, kind OpKind, size int, do func(error) error) error {
	return f.fs.change(kind, f.name, size, func(injected error) error {
		if f.closed {
			return pathError(verb, f.name, fs.ErrClosed)
		}
		if !f.writable {
			return pathError(verb, f.name, fs.ErrPermission)
		}
		if err := do(injected); err != nil {
			return pathError(verb, f.name, err)
		}
		return nil
	})
}

func (f *memFile) do(op dataOp) {
	f.node.now = op.apply(f.node.now)
	f.node.pending = append(f.node.pending, op)
}

func (f *memFile) Size() (int64, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.closed {
		return 0, pathError("stat", f.name, fs.ErrClosed)
	}
	return int64(len(f.node.now)), nil
}

// NextData knows of blocks, as disks do.
func (f *memFile) NextData(from int64) (int64, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	switch {
	case f.closed:
		return 0, pathError("seek", f.name, fs.ErrClosed)
	case from < 0:
		return 0, pathError("seek", f.name, fs.ErrInvalid)
	}
	size := int64(len(f.node.now))
	for at := from; at < size; {
		end := min(at-at%dataBlock+dataBlock, size)
		if string(f.node.now[at:end]) != zeroBlock[:end-at] {
			return at, nil
		}
		at = end
	}
	return size, nil
}

// dataBlock is the unit in which NextData looks.
const dataBlock = 4096

var zeroBlock = string(make([]byte, dataBlock))

func (f *memFile) Close() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.closed {
		return pathError("close", f.name, fs.ErrClosed)
	}
	f.closed = true
	return nil
}

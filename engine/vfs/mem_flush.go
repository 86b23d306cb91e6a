package vfs

import (
	"errors"
	"io/fs"
)

type memFlusher struct {
	fs  *Mem
	dir string
}

func (m *Mem) openFlusher(dir string) (Flusher, error) {
	if !m.Flushes {
		return nil, errors.ErrUnsupported
	}
	return &memFlusher{fs: m, dir: dir}, nil
}

// Flush syncs all files. Where a fault is injected it is the first that could not be
// written: its bytes are dropped, and its next Sync says so.
func (f *memFlusher) Flush(files []File) error {
	return f.fs.change(OpSync, f.dir, 0, func(injected error) error {
		for _, file := range files {
			m, ok := file.(*memFile)
			switch {
			case !ok || m.closed || m.fs != f.fs || m.node.removed:
				return pathError("syncfs", f.dir, fs.ErrInvalid)
			case injected != nil:
				m.node.pending, m.node.failed = nil, injected
				return pathError("syncfs", f.dir, injected)
			}
			m.node.sync()
		}
		return nil
	})
}

func (f *memFlusher) Close() error { return nil }

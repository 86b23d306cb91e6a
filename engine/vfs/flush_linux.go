package vfs

import (
	"errors"
	"os"
	"runtime"
	"syscall"
)

// sysSyncfs is the number of syncfs(2), by architecture; package syscall does not have it.
var sysSyncfs = map[string]uintptr{"amd64": 306, "arm64": 267}[runtime.GOARCH]

// osFlusher calls syncfs(2). From Linux 5.8 on it fails if any file of the file system
// could not be written since the last call for the same open file: so that file must have
// been open before what is to be flushed was written.
type osFlusher struct {
	dir    *os.File
	device uint64
}

func (osFS) openFlusher(dir string) (Flusher, error) {
	if sysSyncfs == 0 {
		return nil, errors.ErrUnsupported
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	var st syscall.Stat_t
	if err := syscall.Fstat(int(f.Fd()), &st); err != nil {
		f.Close()
		return nil, &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	return &osFlusher{dir: f, device: st.Dev}, nil
}

func (o *osFlusher) Flush(files []File) error {
	for {
		_, _, errno := syscall.Syscall(sysSyncfs, o.dir.Fd(), 0, 0)
		if errno == syscall.EINTR {
			continue
		}
		if errno != 0 {
			return &os.PathError{Op: "syncfs", Path: o.dir.Name(), Err: errno}
		}
		break
	}
	for _, file := range files {
		f, ok := file.(osFile)
		var st syscall.Stat_t
		if !ok || syscall.Fstat(int(f.Fd()), &st) != nil || st.Dev != o.device || st.Nlink == 0 {
			return errors.ErrUnsupported // it is elsewhere, or nowhere: its own Sync says
		}
	}
	return nil
}

func (o *osFlusher) Close() error { return o.dir.Close() }

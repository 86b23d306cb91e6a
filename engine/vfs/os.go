package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"sync"
)

var errExist = fs.ErrExist

// OS is the operating system's file system.
var OS FS = osFS{}

type osFS struct{}

// Records are nobody else's business: only the owner reads files and enters directories.
const (
	fileMode = 0o600
	dirMode  = 0o700
)

func (osFS) Create(name string) (File, error) {
	return openOS(name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
}

func (osFS) Open(name string) (File, error) { return openOS(name, os.O_RDWR) }

func (osFS) OpenRead(name string) (File, error) { return openOS(name, os.O_RDONLY) }

func openOS(name string, flag int) (File, error) {
	f, err := os.OpenFile(name, flag, fileMode)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

// durableDirs are the directories whose names this process has made durable.
var durableDirs sync.Map

// MkdirAll syncs each parent, since a directory is as easily lost as a file. It does so
// too where the directory is there already, once in a process: whoever made it may have
// been killed before the sync.
func (o osFS) MkdirAll(dir string) error {
	dir = filepath.Clean(dir)
	parent := filepath.Dir(dir)
	if parent == dir {
		return nil
	}
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		return &fs.PathError{Op: "mkdir", Path: dir, Err: fs.ErrExist}
	}
	there := err == nil
	if _, known := durableDirs.Load(dir); there && known {
		return nil
	}
	if err := o.MkdirAll(parent); err != nil {
		return err
	}
	if !there {
		if err := os.Mkdir(dir, dirMode); err != nil && !os.IsExist(err) {
			return err
		}
	}
	if err := o.SyncDir(parent); err != nil && (!there || !errors.Is(err, fs.ErrPermission)) {
		return err // a parent that we may not read holds nothing that we made
	}
	durableDirs.Store(dir, true)
	return nil
}

func (osFS) ReadDir(dir string) ([]string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	sort.Strings(names)
	return names, err
}

func (osFS) Rename(from, to string) error { return os.Rename(from, to) }

func (osFS) Remove(name string) error { return os.Remove(name) }

func (osFS) SyncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = f.Sync()
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

func (osFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR, fileMode)
	if err != nil {
		return nil, err
	}
	if err := lockFile(f); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

type osFile struct{ *os.File }

func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (f osFile) NextData(from int64) (int64, error) { return nextData(f, from) }

// Sync also notices that the file was removed: what is written to it then is lost with the
// process.
func (f osFile) Sync() error {
	if err := syncData(f.File); err != nil {
		return err
	}
	if removed(f.File) {
		return &fs.PathError{Op: "sync", Path: f.Name(), Err: ErrRemoved}
	}
	return nil
}

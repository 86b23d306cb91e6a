package commitlog

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"logbook/engine/vfs"
)

// PutAside renames every file of a log that is not open, so that the directory opens as a new
// one and nothing of it is lost: name.damaged, as Repair calls them. It is for a replica that is
// copied anew from others. It can be stopped anywhere, and be done again.
func PutAside(fsys vfs.FS, dir string) error {
	names, err := fsys.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("commitlog: putting a log aside: %w", err)
	}
	for _, name := range names {
		if name == lockName || putAside(name) || strings.HasSuffix(name, vfs.TempSuffix) {
			continue
		}
		if err := fsys.Rename(filepath.Join(dir, name), filepath.Join(dir, asideName(names, name))); err != nil {
			return fmt.Errorf("commitlog: putting a log aside: %w", err)
		}
	}
	return fsys.SyncDir(dir)
}

// asideName is what a file is called that is put aside in a directory with names.
func asideName(names []string, name string) string {
	to := name + damagedSuffix
	for i := 2; slices.Contains(names, to); i++ {
		to = fmt.Sprintf("%s%s-%d", name, damagedSuffix, i)
	}
	return to
}

// putAside reports whether a file was put aside.
func putAside(name string) bool { return strings.Contains(name, damagedSuffix) }

package commitlog

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
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
	taken := map[string]bool{}
	for _, name := range names {
		taken[name] = true
	}
	for _, name := range names {
		if name == lockName || putAside(name) || strings.HasSuffix(name, vfs.TempSuffix) {
			continue
		}
		to := name + damagedSuffix
		for i := 2; taken[to]; i++ {
			to = fmt.Sprintf("%s%s-%d", name, damagedSuffix, i)
		}
		if err := fsys.Rename(filepath.Join(dir, name), filepath.Join(dir, to)); err != nil {
			return fmt.Errorf("commitlog: putting a log aside: %w", err)
		}
	}
	return fsys.SyncDir(dir)
}

// putAside reports whether a file was put aside.
func putAside(name string) bool { return strings.Contains(name, damagedSuffix) }

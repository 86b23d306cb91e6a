package service

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"logbook/engine/metadata"
	"logbook/engine/node"
	"logbook/engine/vfs"
)

// UndecidedDataError: a directory holds topics, and the log of decisions says nothing of
// any. Starting all the same would hide the records.
type UndecidedDataError struct {
	Dir    string
	Topics []string
}

func (e *UndecidedDataError) Error() string {
	names := strings.Join(e.Topics[:min(5, len(e.Topics))], ", ")
	return fmt.Sprintf("service: %s holds topics (%s), and no decision about them: %s was removed, or an earlier version wrote the directory; restore it from a backup, open it with that version, or choose another directory; nothing was changed",
		e.Dir, names, filepath.Join(e.Dir, metadata.LogName))
}

// checkDecided reports topics of which nothing is decided. image is nil before the
// decisions were read: where there is no log of them, none is begun beside topics.
func checkDecided(fsys vfs.FS, dir string, image *metadata.Image) error {
	if image == nil {
		_, err := fsys.ReadDir(filepath.Join(dir, metadata.LogName))
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	} else if len(image.Topics()) > 0 || len(image.Brokers()) > 0 {
		return nil // what is there without a decision was about to be decided when the broker died
	}
	topics, err := fsys.ReadDir(filepath.Join(dir, node.TopicsDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("service: %w", err)
	}
	if len(topics) > 0 {
		return &UndecidedDataError{Dir: dir, Topics: topics}
	}
	return nil
}

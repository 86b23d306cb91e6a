package commitlog

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"logbook/engine/record"
	"logbook/engine/vfs"
)

// A replica cuts what its leader does not have. Where two brokers led at once, that may be
// records that somebody was promised, so what is cut is kept beside the log, for a person:
// a file of frames, as they stood in the log, that nothing reads by itself.

const (
	cutPrefix = "cut-"
	cutSuffix = ".frames"
	// keptCuts is how many such files a log keeps, the latest ones.
	keptCuts = 8
	// maxCutBytes bounds one. What is longer is kept as far as it goes.
	maxCutBytes = 256 << 20
)

// KeepAside writes the frames from the one that holds an offset on to a file of its own,
// durably, before they are removed by Truncate or Reset. It returns the file's path; there is
// none where there is nothing to keep.
//
// Errors: those of Reader.Next, and the file system's.
func (l *Log) KeepAside(from int64) (string, error) {
	from = max(from, l.FirstOffset())
	if from >= l.EndOffset() {
		return "", nil
	}
	var frames []byte
	for next := from; next < l.EndOffset() && len(frames) < maxCutBytes; {
		c, err := l.ReadChunk(next, l.EndOffset(), 1<<20)
		if err != nil {
			return "", err
		}
		if c.Next == next {
			break
		}
		frames, next = append(frames, c.Frames...), c.Next
	}
	old, err := asides(l.fs, l.dir)
	if err != nil {
		return "", err
	}
	name := fmt.Sprintf("%s%020d-%020d%s", cutPrefix, l.opt.Now().UnixNano(), from, cutSuffix)
	if err := vfs.WriteNew(l.fs, l.path(name), frames); err != nil {
		return "", errors.Join(err, l.fs.Remove(l.path(name)))
	}
	for len(old) >= keptCuts {
		if err := l.fs.Remove(l.path(old[0])); err != nil {
			return "", err
		}
		old = old[1:]
	}
	return l.path(name), l.fs.SyncDir(l.dir)
}

// asides lists the files that KeepAside made, oldest first.
func asides(fsys vfs.FS, dir string) ([]string, error) {
	names, err := fsys.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(names, func(name string) bool {
		return !strings.HasPrefix(name, cutPrefix) || !strings.HasSuffix(name, cutSuffix)
	}), nil
}

// Aside is a file that KeepAside made.
type Aside struct {
	File    string
	Frames  []record.Frame
	Damage  error // what ended the frames early
	Records int
}

// Asides reads what was kept aside of a log, oldest first.
func Asides(fsys vfs.FS, dir string, format record.Format) ([]Aside, error) {
	if fsys == nil {
		fsys = vfs.OS
	}
	names, err := asides(fsys, dir)
	if err != nil {
		return nil, err
	}
	var out []Aside
	for _, name := range names {
		a := Aside{File: filepath.Join(dir, name)}
		data, err := vfs.ReadFile(fsys, a.File, 2*maxCutBytes)
		if err != nil {
			return nil, err
		}
		a.Frames, a.Damage = record.ParseAll(format, data)
		for _, f := range a.Frames {
			a.Records += f.Count
		}
		out = append(out, a)
	}
	return out, nil
}

package topic

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"logbook/engine/vfs"
)

// MaxNameLength is the longest that a topic's name may be, in bytes.
const MaxNameLength = 249

// CheckName reports whether a name can be a directory below a root and nothing else: it
// holds no separator, no space, and is not "." or "..". what says whose name it is.
func CheckName(what, name string) error {
	reason := ""
	switch {
	case name == "":
		reason = "is empty"
	case len(name) > MaxNameLength:
		reason = fmt.Sprintf("has %d bytes", len(name))
	case name == "." || name == "..":
		reason = "means a directory"
	default:
		for _, r := range name {
			if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-') {
				reason = fmt.Sprintf("holds %q", r)
				break
			}
		}
	}
	if reason == "" {
		return nil
	}
	return &NameError{What: what, Name: name, Reason: reason}
}

// meta is topic.meta.
type meta struct {
	Version    int    `json:"version"`
	Name       string `json:"name"`
	Partitions int    `json:"partition_count"`
	Router     string `json:"router"`
}

const (
	metaName = "topic.meta"
	// MaxPartitions is the most that a topic can have.
	MaxPartitions = 10_000
)

// PartitionDir is where the log of a partition is, below its topic's directory.
func PartitionDir(dir string, i int) string {
	return filepath.Join(dir, fmt.Sprintf("partition-%06d", i))
}

func readMeta(fsys vfs.FS, dir, name string) (meta, Router, error) {
	file := filepath.Join(dir, metaName)
	fail := func(reason string, err error) (meta, Router, error) {
		return meta{}, nil, &MetadataError{File: file, Reason: reason, Err: err}
	}
	data, err := vfs.ReadFile(fsys, file, 1<<16)
	if errors.Is(err, fs.ErrNotExist) {
		return meta{}, nil, &UnknownError{Name: name}
	}
	if err != nil {
		return fail("cannot be read", err)
	}
	// Every field must be there: a pointer tells a missing one from a zero.
	var raw struct {
		Version    *int    `json:"version"`
		Name       *string `json:"name"`
		Partitions *int    `json:"partition_count"`
		Router     *string `json:"router"`
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&raw); err != nil {
		return fail("is not the JSON that was written", err)
	}
	switch {
	case d.More():
		return fail("has something behind the JSON", nil)
	case raw.Version == nil || raw.Name == nil || raw.Partitions == nil || raw.Router == nil:
		return fail("lacks a field", nil)
	case *raw.Version != 1:
		return fail(fmt.Sprintf("has version %d, this program reads 1", *raw.Version), nil)
	case *raw.Partitions < 1 || *raw.Partitions > MaxPartitions:
		return fail(fmt.Sprintf("has partition count %d", *raw.Partitions), nil)
	case *raw.Name != name:
		return fail(fmt.Sprintf("is that of topic %q", *raw.Name), nil)
	}
	if err := CheckName("topic", *raw.Name); err != nil {
		return fail("has an impossible name", err)
	}
	router, err := RouterByName(*raw.Router)
	if err != nil {
		return fail("names an unknown router", err)
	}
	return meta{1, *raw.Name, *raw.Partitions, *raw.Router}, router, nil
}

func writeMeta(fsys vfs.FS, dir string, m meta) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return vfs.WriteFileAtomic(fsys, filepath.Join(dir, metaName), append(data, '\n'))
}

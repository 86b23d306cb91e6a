package topic

import (
	"fmt"
	"path/filepath"
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
			if !allowed(r) {
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

// allowed reports whether a name may hold a character.
func allowed(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-'
}

// MaxPartitions is the most that a topic can have.
const MaxPartitions = 10_000

// CheckCount reports whether a topic can have n partitions.
//
// Error: *CountError.
func CheckCount(name string, n int) error {
	if n < 1 || n > MaxPartitions {
		return &CountError{Topic: name, Count: n}
	}
	return nil
}

// PartitionDir is where the log of a partition is, below its topic's directory.
func PartitionDir(dir string, i int) string {
	return filepath.Join(dir, fmt.Sprintf("partition-%06d", i))
}

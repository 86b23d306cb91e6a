package commitlog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"

	"logbook/engine/record"
	"logbook/engine/vfs"
)

// Metadata files are JSON that a person can read, sealed by a last line with the
// CRC-32C of what stands above it, so that not even a flipped digit is believed:
//
//	{"version":1,"format":2}
//	crc32c 1a2b3c4d

const sealLine = "crc32c %08x\n"

func seal(v any) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	body = append(body, '\n')
	return fmt.Appendf(body, sealLine, crc32.Checksum(body, castagnoli)), nil
}

func unseal(data []byte, v any) error {
	body, line, ok := bytes.Cut(data, []byte("\n"))
	if !ok {
		return fmt.Errorf("the checksum line is missing")
	}
	body = data[:len(body)+1]
	if want := fmt.Sprintf(sealLine, crc32.Checksum(body, castagnoli)); string(line) != want {
		return fmt.Errorf("the checksum line is %q, it should be %q", line, want)
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	return d.Decode(v)
}

// maxMetaBytes bounds a metadata file: a million segments fit.
const maxMetaBytes = 64 << 20

// meta is log.meta.
type meta struct {
	Version int            `json:"version"`
	Format  record.Version `json:"format"`
	ID      string         `json:"id"` // tells this log's indexes from another's; 16 hex digits
}

// checkpoint is what Open trusts without reading the log files.
type checkpoint struct {
	Version  int             `json:"version"`
	Start    int64           `json:"log_start_offset"`
	First    int64           `json:"first_base_offset"` // of the first segment, at or below Start
	Segments []closedSegment `json:"closed_segments"`
	Epochs   []EpochStart    `json:"leader_epochs"`
	// Compacted: compaction has left gaps between offsets (format 1).
	Compacted bool `json:"compacted,omitempty"`
	// Truncate is set while a truncation is under way: Open finishes it.
	Truncate *int64 `json:"truncate_to,omitempty"`
	// Reset is set while the log is being emptied to go on at another offset: likewise.
	Reset *int64 `json:"reset_to,omitempty"`
}

type closedSegment struct {
	Base  int64 `json:"base_offset"`
	End   int64 `json:"end_offset"`
	Bytes int64 `json:"bytes"`
	// Compacted is the size of the file that is about to take this one's place: after a
	// crash either may be there.
	Compacted *int64 `json:"compacted_bytes,omitempty"`
}

func (c *checkpoint) validate() error {
	if c.Version != 1 {
		return fmt.Errorf("unknown version %d", c.Version)
	}
	if c.First < 0 || c.Start < c.First {
		return fmt.Errorf("log start offset %d is not in a segment: the first begins at %d", c.Start, c.First)
	}
	if c.Reset != nil && (*c.Reset != c.Start || len(c.Segments) > 0) {
		return fmt.Errorf("a reset to %d is under way in a log that starts at %d", *c.Reset, c.Start)
	}
	if len(c.Segments) > 0 && c.Segments[0].Base != c.First {
		return fmt.Errorf("the first closed segment begins at %d, not at %d", c.Segments[0].Base, c.First)
	}
	for i, s := range c.Segments {
		if s.Base < 0 || s.End < s.Base || s.Bytes < 0 || i > 0 && s.Base != c.Segments[i-1].End {
			return fmt.Errorf("closed segment %d (%+v) does not follow the one before", i, s)
		}
	}
	for i, e := range c.Epochs {
		if e.Epoch < 0 || e.Start < 0 || i > 0 && (e.Epoch <= c.Epochs[i-1].Epoch || e.Start < c.Epochs[i-1].Start) {
			return fmt.Errorf("leader epoch %d (%+v) does not follow the one before", i, e)
		}
	}
	return nil
}

func readSealed(fsys vfs.FS, name string, v any) error {
	data, err := vfs.ReadFile(fsys, name, maxMetaBytes)
	if err != nil {
		return err
	}
	if err := unseal(data, v); err != nil {
		return &CorruptionError{File: name, Position: -1, Offset: -1, Reason: "not what the log wrote", Remedy: remedyReplica, Err: err}
	}
	return nil
}

func writeSealed(fsys vfs.FS, name string, v any) error {
	data, err := seal(v)
	if err != nil {
		return err
	}
	return vfs.WriteFileAtomic(fsys, name, data)
}

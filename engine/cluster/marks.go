package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"

	"logbook/engine/vfs"
)

// The file high-watermarks keeps, from one life of a node to the next, how far each
// replica's records were known to be safe, so that a leader that is alone after a restart
// can show them. It is a hint, and only ever behind: a missing or damaged one costs
// patience, no records.

const marksName = "high-watermarks"

func (n *Node) loadMarks() map[string]int64 {
	data, err := vfs.ReadFile(n.fs, filepath.Join(n.opt.Dir, marksName), 16<<20)
	marks := map[string]int64{}
	if errors.Is(err, fs.ErrNotExist) {
		return marks
	}
	if err == nil {
		err = json.NewDecoder(bytes.NewReader(data)).Decode(&marks)
	}
	if err != nil {
		n.logger.Warn("the hint of high watermarks cannot be read: they are found out again", "broker", n.opt.ID, "error", err)
		return map[string]int64{}
	}
	return marks
}

// lowerMark takes a replica's high watermark back before its log is cut below: the
// offsets from there on will be given to other records.
func (n *Node) lowerMark(p Partition, to int64) error {
	n.marksMu.Lock()
	defer n.marksMu.Unlock()
	if n.marks[p.String()] <= to {
		return nil
	}
	n.marks[p.String()] = to
	return n.writeMarks()
}

func (n *Node) saveMarks(hosts []*host) error {
	n.marksMu.Lock()
	defer n.marksMu.Unlock()
	for _, h := range hosts {
		if h.log != nil {
			n.marks[h.partition.String()] = h.hw.Load()
		}
	}
	return n.writeMarks()
}

func (n *Node) writeMarks() error {
	data, err := json.Marshal(n.marks)
	if err != nil {
		return err
	}
	return vfs.WriteFileAtomic(n.fs, filepath.Join(n.opt.Dir, marksName), data)
}

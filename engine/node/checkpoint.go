package node

import (
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"sync"

	"logbook/engine/vfs"
)

// The file high-watermarks keeps, from one life of a node to the next, how far each
// replica's records were known to be safe, so that a leader that is alone after a restart
// can show them. It is a hint, and only ever behind: a missing or damaged one costs
// patience, no records.

const checkpointName = "high-watermarks"

// maxCheckpointBytes bounds the file: ten thousand partitions take about half a megabyte.
const maxCheckpointBytes = 16 << 20

// highWatermarkCheckpoint is what the file holds: high watermarks of the last life, lowered
// where a log was cut.
type highWatermarkCheckpoint struct {
	fs   vfs.FS
	file string

	mu    sync.Mutex
	marks map[string]int64
}

func loadCheckpoint(fsys vfs.FS, dir string, damaged func(error)) *highWatermarkCheckpoint {
	c := &highWatermarkCheckpoint{fs: fsys, file: filepath.Join(dir, checkpointName), marks: map[string]int64{}}
	data, err := vfs.ReadSealed(fsys, c.file, maxCheckpointBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return c
	}
	if err == nil {
		err = json.Unmarshal(data, &c.marks)
	}
	if err != nil {
		damaged(err)
		c.marks = map[string]int64{}
	}
	return c
}

func (c *highWatermarkCheckpoint) get(p Partition) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.marks[p.String()]
}

// note remembers a replica's high watermark, to be saved with the others'.
func (c *highWatermarkCheckpoint) note(p Partition, hw int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.marks[p.String()] = hw
}

// forget removes a replica's high watermark.
func (c *highWatermarkCheckpoint) forget(p Partition) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.marks[p.String()]; !known {
		return nil
	}
	delete(c.marks, p.String())
	return c.write()
}

// lower takes a replica's high watermark back before its log is cut below: the offsets
// from there on will be given to other records.
func (c *highWatermarkCheckpoint) lower(p Partition, to int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.marks[p.String()] <= to {
		return nil
	}
	c.marks[p.String()] = to
	return c.write()
}

// save stores the present high watermarks, which add puts in.
func (c *highWatermarkCheckpoint) save(add func(marks map[string]int64)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	add(c.marks)
	return c.write()
}

func (c *highWatermarkCheckpoint) write() error {
	data, err := json.Marshal(c.marks)
	if err != nil {
		return err
	}
	return vfs.WriteSealed(c.fs, c.file, data)
}

// saveMarks saves the high watermarks of all replicas. What is cut meanwhile is noted after
// this, or seen by it.
func (n *Node) saveMarks(drivers []*replicaDriver) error {
	return n.marks.save(func(marks map[string]int64) {
		for _, d := range drivers {
			if hw, ok := d.saved(); ok {
				marks[d.partition.String()] = hw
			}
		}
	})
}

// saveEvery is how often the high watermarks are saved while they move.
const saveEvery = 5e9

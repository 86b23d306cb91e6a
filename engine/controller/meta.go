package controller

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"

	"logbook/engine/replica"
	"logbook/engine/topic"
	"logbook/engine/vfs"
)

// Meta is the content of cluster.meta.
type Meta struct {
	Version int                `json:"version"`
	Brokers []replica.BrokerID `json:"brokers"`
	Topics  map[string]Topic   `json:"topics"`
}

// Topic is a topic's part of it.
type Topic struct {
	Router      string               `json:"router"`
	Replication int                  `json:"replication_factor"`
	Partitions  []replica.Assignment `json:"partitions"`
}

// MetaName is the file's name in the controller's directory.
const MetaName = "cluster.meta"

// maxMetaBytes bounds the file: ten thousand partitions take about two megabytes.
const maxMetaBytes = 64 << 20

func (m Meta) clone() Meta {
	out := Meta{Version: m.Version, Brokers: slices.Clone(m.Brokers), Topics: map[string]Topic{}}
	for name, t := range m.Topics {
		out.Topics[name] = t.clone()
	}
	return out
}

func (t Topic) clone() Topic {
	parts := make([]replica.Assignment, len(t.Partitions))
	for i, a := range t.Partitions {
		parts[i] = a.Clone()
	}
	t.Partitions = parts
	return t
}

func (m Meta) validate() error {
	if m.Version != 1 {
		return fmt.Errorf("version %d, this program reads 1", m.Version)
	}
	for i, id := range m.Brokers {
		if id <= replica.None || i > 0 && id <= m.Brokers[i-1] {
			return fmt.Errorf("brokers %v are not positive and ascending", m.Brokers)
		}
	}
	if m.Topics == nil {
		return fmt.Errorf("topics are missing")
	}
	for name, t := range m.Topics {
		if err := m.validateTopic(name, t); err != nil {
			return fmt.Errorf("topic %q: %w", name, err)
		}
	}
	return nil
}

func (m Meta) validateTopic(name string, t Topic) error {
	if err := topic.CheckName("topic", name); err != nil {
		return err
	}
	if _, err := topic.RouterByName(t.Router); err != nil {
		return err
	}
	if len(t.Partitions) == 0 || len(t.Partitions) > topic.MaxPartitions {
		return fmt.Errorf("%d partitions", len(t.Partitions))
	}
	for i, a := range t.Partitions {
		if err := a.Validate(); err != nil {
			return fmt.Errorf("partition %d: %w", i, err)
		}
		if a.Version < 1 || len(a.Replicas) != t.Replication {
			return fmt.Errorf("partition %d: version %d with %d replicas, the replication factor is %d", i, a.Version, len(a.Replicas), t.Replication)
		}
		for _, id := range a.Replicas {
			if !slices.Contains(m.Brokers, id) {
				return fmt.Errorf("partition %d: replica on broker %d, which is not one of %v", i, id, m.Brokers)
			}
		}
	}
	return nil
}

// readMeta reads and checks the file; a missing one is an empty cluster's. The directory
// is synced first: a process that failed may have renamed the file into place without
// making that durable, and nobody must act on what a power failure takes back.
func readMeta(fsys vfs.FS, file string) (Meta, error) {
	fail := func(reason string, err error) (Meta, error) {
		return Meta{}, &MetadataError{File: file, Reason: reason, Err: err}
	}
	empty := Meta{Version: 1, Topics: map[string]Topic{}}
	data, err := vfs.ReadFile(fsys, file, maxMetaBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return empty, nil
	}
	if err != nil {
		return fail("cannot be read", err)
	}
	if err := fsys.SyncDir(filepath.Dir(file)); err != nil {
		return fail("cannot be made durable", err)
	}
	if err := requireFields(data); err != nil {
		return fail("is not what was written", err)
	}
	var m Meta
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		return fail("is not the JSON that was written", err)
	}
	if d.More() {
		return fail("has something behind the JSON", nil)
	}
	if err := m.validate(); err != nil {
		return fail("contradicts itself", err)
	}
	return m, nil
}

// requireFields makes sure that no field is missing: a missing epoch is not epoch 0.
func requireFields(data []byte) error {
	var raw struct {
		Version *int   `json:"version"`
		Brokers *[]int `json:"brokers"`
		Topics  *map[string]struct {
			Router      *string                       `json:"router"`
			Replication *int                          `json:"replication_factor"`
			Partitions  *[]map[string]json.RawMessage `json:"partitions"`
		} `json:"topics"`
	}
	if err := json.NewDecoder(bytes.NewReader(data)).Decode(&raw); err != nil {
		return err
	}
	if raw.Version == nil || raw.Brokers == nil || raw.Topics == nil {
		return fmt.Errorf("version, brokers or topics are missing")
	}
	for name, t := range *raw.Topics {
		if t.Router == nil || t.Replication == nil || t.Partitions == nil {
			return fmt.Errorf("topic %q lacks a field", name)
		}
		for i, p := range *t.Partitions {
			for _, field := range []string{"version", "leader", "epoch", "replicas", "active"} {
				if _, ok := p[field]; !ok {
					return fmt.Errorf("topic %q, partition %d: %s is missing", name, i, field)
				}
			}
		}
	}
	return nil
}

// numbers are lists of numbers, which read better on one line.
var numbers = regexp.MustCompile(`\[[\d,\s]+\]`)

func writeMeta(fsys vfs.FS, file string, m Meta) error {
	data, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return err
	}
	data = numbers.ReplaceAllFunc(data, func(list []byte) []byte {
		return bytes.Join(bytes.Fields(list), []byte(" "))
	})
	return vfs.WriteFileAtomic(fsys, file, append(data, '\n'))
}

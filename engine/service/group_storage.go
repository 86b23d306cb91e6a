package service

import (
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"

	"logbook/engine/commitlog"
	"logbook/engine/group"
	"logbook/engine/record"
	"logbook/engine/replica"
)

// entry is the key of a record of the groups' topic: it names the group, and the partition
// if it is a committed offset.
type entry struct {
	Group     string `json:"group"`
	Topic     string `json:"topic,omitempty"`
	Partition int    `json:"partition,omitempty"`
}

// storedGroups are groups as the log has them, by name.
type storedGroups map[string]*storedGroup

type storedGroup struct {
	state   []byte
	offsets map[Partition]int64
	notes   map[Partition]CommitNote
}

func newStoredGroups() storedGroups { return storedGroups{} }

func (s storedGroups) of(name string) *storedGroup {
	if s[name] == nil {
		s[name] = &storedGroup{offsets: map[Partition]int64{}, notes: map[Partition]CommitNote{}}
	}
	return s[name]
}

// readGroups reads the records of a partition of groups. A record without a value takes
// back what its key names.
func readGroups(records iter.Seq2[record.Record, error]) (storedGroups, error) {
	out := newStoredGroups()
	for r, err := range records {
		if err != nil {
			return nil, err
		}
		var e entry
		if err := json.Unmarshal(r.Key, &e); err != nil {
			return nil, fmt.Errorf("the key of the record at offset %d: %w", r.Offset, err)
		}
		if e.Topic == "" {
			out.of(e.Group).state = slices.Clone(r.Value)
			continue
		}
		p := Partition{Topic: e.Topic, ID: e.Partition}
		g := out.of(e.Group)
		delete(g.notes, p)
		if r.Value == nil {
			delete(g.offsets, p)
			continue
		}
		if r.Value[0] == '{' {
			var v notedOffset
			if err := json.Unmarshal(r.Value, &v); err != nil {
				return nil, fmt.Errorf("the committed offset in the record at offset %d: %w", r.Offset, err)
			}
			g.offsets[p], g.notes[p] = v.Offset, v.CommitNote
			continue
		}
		var offset int64
		if err := json.Unmarshal(r.Value, &offset); err != nil {
			return nil, fmt.Errorf("the committed offset in the record at offset %d: %w", r.Offset, err)
		}
		g.offsets[p] = offset
	}
	return out, nil
}

func stateRecord(name string, snapshot []byte) record.Record {
	key, _ := json.Marshal(entry{Group: name}) // strings and numbers cannot fail
	return record.Record{Key: key, Value: snapshot}
}

// notedOffset is the value of a committed offset that has a note; one without is a number.
type notedOffset struct {
	Offset int64 `json:"offset"`
	CommitNote
}

// noNote is what there is to say of an offset of which nothing was said.
var noNote = CommitNote{LeaderEpoch: -1}

func offsetKey(name string, p Partition) []byte {
	key, _ := json.Marshal(entry{Group: name, Topic: p.Topic, Partition: p.ID})
	return key
}

func offsetRecord(name string, p Partition, offset int64, note CommitNote) record.Record {
	value, _ := json.Marshal(offset)
	if note != noNote {
		value, _ = json.Marshal(notedOffset{offset, note})
	}
	return record.Record{Key: offsetKey(name, p), Value: value}
}

func offsetTombstone(name string, p Partition) record.Record {
	return record.Record{Key: offsetKey(name, p)}
}

func offsetRecords(name string, offsets map[Partition]int64, notes map[Partition]CommitNote) []record.Record {
	var out []record.Record
	for _, p := range slices.SortedFunc(maps.Keys(offsets), Partition.Compare) {
		note, ok := notes[p]
		if !ok {
			note = noNote
		}
		out = append(out, offsetRecord(name, p, offsets[p], note))
	}
	return out
}

// append gives records their place in the partition, in this epoch only, and calls done, on
// the loop, when all in-sync replicas have them.
func (sh *shard) append(records []record.Record, done func(base int64, err error)) {
	b, err := commitlog.NewBatch(record.V2, records, record.Encoding{Timestamp: sh.s.now()}, commitlog.Limits{MaxRecordBytes: 16 << 20})
	if err != nil {
		done(0, err)
		return
	}
	sh.s.node.Append(sh.p, replica.Quorum, sh.epoch, b, func(at commitlog.Appended, err error) {
		sh.loop.do(func() { done(at.BaseOffset, err) })
	})
}

// snapshotRecords is how many records of a snapshot are stored together.
const snapshotRecords = 500

// snapshot returns all that counts, with what is on its way to the log: that has its place
// before the snapshot.
func (sh *shard) snapshot() [][]record.Record {
	var all []record.Record
	for _, name := range slices.Sorted(maps.Keys(sh.groups)) {
		h := sh.groups[name]
		if h.machine.Generation() > 0 || h.machine.State() != group.Empty {
			all = append(all, stateRecord(name, h.machine.Snapshot()))
		}
		offsets, notes := maps.Clone(h.committed), maps.Clone(h.notes)
		for p, offset := range h.storing {
			offsets[p] = offset
			if delete(notes, p); h.storingNotes != nil {
				notes[p] = h.storingNotes[p].Note
			}
		}
		all = append(all, offsetRecords(name, offsets, notes)...)
	}
	return slices.Collect(slices.Chunk(all, snapshotRecords))
}

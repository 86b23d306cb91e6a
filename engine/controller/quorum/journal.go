package quorum

import (
	"encoding/json"
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"logbook/engine/metadata"
	"logbook/engine/record"
	"logbook/engine/topic"
)

// The journal's records. Their keys say what they are; the last identity and the last state
// count, and an entry takes the place of those with its index and above.
const (
	keyIdentity = "identity"
	keyState    = "state"
	keyEntry    = "entry"
	keySnapshot = "snapshot"
)

// identity is who the member is.
type identity struct {
	Member  uint64   `json:"member"`
	Life    uint64   `json:"life"`             // of the broker, begun last
	Cluster topic.ID `json:"cluster,omitzero"` // zero: there is none yet
	Voters  []uint64 `json:"voters,omitempty"` // with which it began
	// Learners are the members without a vote with which it began.
	Learners []uint64 `json:"learners,omitempty"`
	Forming  bool     `json:"forming,omitempty"` // the others have not all said yet that they know
}

// formed reports whether the member belongs to a cluster, and may vote in it.
func (i *identity) formed() bool { return i.Cluster != (topic.ID{}) && !i.Forming }

// stateRecord is raftpb.HardState: the term, the vote in it, and how far entries are known to count.
type stateRecord struct {
	Term   uint64 `json:"term"`
	Vote   uint64 `json:"vote,omitempty"`
	Commit uint64 `json:"commit"`
}

// entryRecord is raftpb.Entry.
type entryRecord struct {
	Index    uint64           `json:"index"`
	Term     uint64           `json:"term"`
	Decision *json.RawMessage `json:"decision,omitempty"`
	Members  []byte           `json:"members,omitempty"` // a change of the members, as raftpb encodes it
	Type     int32            `json:"type,omitempty"`
}

// snapshotRecord is raftpb.Snapshot: all that was decided up to an index.
type snapshotRecord struct {
	Index uint64           `json:"index"`
	Term  uint64           `json:"term"`
	Conf  raftpb.ConfState `json:"members"`
	Image json.RawMessage  `json:"image"`
}

func encode(key string, v any) record.Record {
	value, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("quorum: encoding a %T: %v", v, err)) // numbers, strings and JSON
	}
	return record.Record{Key: []byte(key), Value: value}
}

func encodeState(s raftpb.HardState) record.Record {
	return encode(keyState, stateRecord{s.Term, s.Vote, s.Commit})
}

func encodeEntry(e raftpb.Entry) record.Record {
	r := entryRecord{Index: e.Index, Term: e.Term, Type: int32(e.Type)}
	switch {
	case e.Type != raftpb.EntryNormal:
		r.Members = e.Data
	case len(e.Data) > 0:
		raw := json.RawMessage(e.Data)
		r.Decision = &raw
	}
	return encode(keyEntry, r)
}

func encodeSnapshot(s raftpb.Snapshot) record.Record {
	return encode(keySnapshot, snapshotRecord{s.Metadata.Index, s.Metadata.Term, s.Metadata.ConfState, s.Data})
}

// stored is what a journal says.
type stored struct {
	identity identity
	state    raftpb.HardState
	snapshot raftpb.Snapshot
	entries  []raftpb.Entry
}

// read reads a journal.
func read(journal []record.Record) (*stored, error) {
	s := &stored{}
	for _, r := range journal {
		if err := s.read(r); err != nil {
			return nil, fmt.Errorf("quorum: the journal's record at offset %d, %q: %w", r.Offset, r.Key, err)
		}
	}
	if n := len(s.entries); s.state.Commit > s.snapshot.Metadata.Index+uint64(n) {
		return nil, fmt.Errorf("quorum: the journal says that %d entries count, and holds %d", s.state.Commit, s.snapshot.Metadata.Index+uint64(n))
	}
	return s, nil
}

func (s *stored) read(r record.Record) error {
	switch string(r.Key) {
	case keyIdentity:
		s.identity = identity{}
		return json.Unmarshal(r.Value, &s.identity)
	case keyState:
		var state stateRecord
		err := json.Unmarshal(r.Value, &state)
		s.state = raftpb.HardState{Term: state.Term, Vote: state.Vote, Commit: state.Commit}
		return err
	case keyEntry:
		return s.readEntry(r.Value)
	case keySnapshot:
		var snap snapshotRecord
		if err := json.Unmarshal(r.Value, &snap); err != nil {
			return err
		}
		s.snapshot = raftpb.Snapshot{Data: snap.Image, Metadata: raftpb.SnapshotMetadata{Index: snap.Index, Term: snap.Term, ConfState: snap.Conf}}
		s.entries = nil // those that still count come after it
		return nil
	}
	return fmt.Errorf("it is of no kind that this version knows")
}

func (s *stored) readEntry(value []byte) error {
	var e entryRecord
	if err := json.Unmarshal(value, &e); err != nil {
		return err
	}
	first := s.snapshot.Metadata.Index + 1
	if e.Index < first || e.Index > first+uint64(len(s.entries)) {
		return fmt.Errorf("entry %d does not follow entry %d", e.Index, s.snapshot.Metadata.Index+uint64(len(s.entries)))
	}
	entry := raftpb.Entry{Index: e.Index, Term: e.Term, Type: raftpb.EntryType(e.Type), Data: e.Members}
	if e.Decision != nil {
		entry.Data = *e.Decision
	}
	s.entries = append(s.entries[:e.Index-first], entry)
	return nil
}

// storage is what the raft library reads: in memory, since the log of decisions is small, and
// begun with the voters of the cluster's beginning.
type storage struct {
	*raft.MemoryStorage
	began raftpb.ConfState
}

func newStorage(s *stored) (*storage, error) {
	m := &storage{MemoryStorage: raft.NewMemoryStorage(), began: raftpb.ConfState{Voters: s.identity.Voters, Learners: s.identity.Learners}}
	if !raft.IsEmptySnap(s.snapshot) {
		if err := m.ApplySnapshot(s.snapshot); err != nil {
			return nil, err
		}
	}
	if err := m.SetHardState(s.state); err != nil {
		return nil, err
	}
	return m, m.Append(s.entries)
}

// InitialState implements raft.Storage.
func (m *storage) InitialState() (raftpb.HardState, raftpb.ConfState, error) {
	state, conf, err := m.MemoryStorage.InitialState()
	if len(conf.Voters) == 0 {
		conf = m.began
	}
	return state, conf, err
}

// rest returns the entries after an index.
func (m *storage) rest(after uint64) ([]raftpb.Entry, error) {
	last, err := m.LastIndex()
	if err != nil || last <= after {
		return nil, err
	}
	return m.Entries(after+1, last+1, 1<<62)
}

// encodeImage makes a snapshot's data of an image.
func encodeImage(image *metadata.Image) []byte {
	data, err := json.Marshal(image.Records())
	if err != nil {
		panic(fmt.Sprintf("quorum: encoding an image: %v", err)) // records are JSON
	}
	return data
}

func decodeImage(data []byte) (*metadata.Image, error) {
	var records []metadata.Record
	if err := json.Unmarshal(data, &records); err != nil {
		return nil, fmt.Errorf("quorum: a snapshot that cannot be read: %w", err)
	}
	return new(metadata.Image).Apply(records...)
}

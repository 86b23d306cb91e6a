package commitlog

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"sort"
	"time"

	"logbook/engine/vfs"
)

// indexEntry says that a frame starts at a position.
type indexEntry struct {
	base         int64 // base offset of the frame
	position     int64 // in the segment's log file
	maxTimestamp int64 // newest timestamp in the frames before this one, ns since 1970; MinInt64: there are none
}

// index is a segment's sparse index, in memory and as a file beside the log file:
//
//	magic    "LBIX" uint32
//	version  2      uint32
//	log      uint64 id of the log, so that another log's index is not believed
//	base     uint64 base offset of the segment
//	covered  uint64 size of the log file's part that the entries describe
//	newest   int64  newest timestamp in that part
//	next     uint64 offset after that part
//	first    int64  past after the first frame
//	past     int64  newest, where a timestamp ahead of the clock counts as the clock's time
//	count    uint32
//	entries  count times { offset uint32 relative to base, position uint32, maxTimestamp int64 }
//	crc      uint32 CRC-32C of all of it
//
// It is a cache: whoever finds the file wanting rebuilds it from the log file.
type index struct {
	log     uint64
	base    int64
	entries []indexEntry
	covered int64 // bytes of the log file that have been indexed
	next    int64 // offset after them
	newest  int64 // newest timestamp among them, ns; MinInt64: none
	every   int64 // bytes between entries

	// newestPast is newest with timestamps ahead of the log's clock counted as what the
	// clock said when their frame was added.
	newestPast int64
	first      int64 // newestPast after the first frame: about when the segment was begun
	now        func() time.Time
	clock      int64 // what now said last, ns
}

func newIndex(log uint64, base, every int64, now func() time.Time) *index {
	return &index{log: log, base: base, next: base, newest: math.MinInt64, newestPast: math.MinInt64, first: math.MinInt64, clock: math.MinInt64, every: every, now: now}
}

// add tells the index of the frame that starts where the covered part ends.
func (x *index) add(base, next int64, size int, timestamp int64) {
	if len(x.entries) == 0 || x.covered-x.entries[len(x.entries)-1].position >= x.every {
		x.entries = append(x.entries, indexEntry{base: base, position: x.covered, maxTimestamp: x.newest})
	}
	x.covered += int64(size)
	x.next = next
	x.newest = max(x.newest, timestamp)
	if timestamp > x.newestPast {
		if timestamp > x.clock { // the clock is asked only where it may matter
			x.clock = x.now().UnixNano()
		}
		x.newestPast = max(x.newestPast, min(timestamp, x.clock))
	}
	if x.first == math.MinInt64 {
		x.first = x.newestPast
	}
}

// before returns the position of the last entry ahead of the first one that is past what
// is looked for, or 0. past must be false for some entries at the front and true from there on.
func (x *index) before(past func(indexEntry) bool) int64 {
	i := sort.Search(len(x.entries), func(i int) bool { return past(x.entries[i]) })
	if i == 0 {
		return 0
	}
	return x.entries[i-1].position
}

// find returns a position at or before the frame that holds offset.
func (x *index) find(offset int64) int64 {
	return x.before(func(e indexEntry) bool { return e.base > offset })
}

// findPosition returns the last indexed position at or before a position.
func (x *index) findPosition(position int64) int64 {
	return x.before(func(e indexEntry) bool { return e.position > position })
}

// findTime returns a position at or before the first frame with a timestamp at or after t.
func (x *index) findTime(t int64) int64 {
	return x.before(func(e indexEntry) bool { return e.maxTimestamp >= t })
}

const (
	indexMagic   = 0x4c424958 // "LBIX"
	indexVersion = 2
	indexHeader  = 68
	indexEntrySz = 16
)

func (x *index) encode() []byte {
	be := binary.BigEndian
	b := make([]byte, 0, indexHeader+len(x.entries)*indexEntrySz+4)
	b = be.AppendUint32(b, indexMagic)
	b = be.AppendUint32(b, indexVersion)
	b = be.AppendUint64(b, x.log)
	b = be.AppendUint64(b, uint64(x.base))
	b = be.AppendUint64(b, uint64(x.covered))
	b = be.AppendUint64(b, uint64(x.newest))
	b = be.AppendUint64(b, uint64(x.next))
	b = be.AppendUint64(b, uint64(x.first))
	b = be.AppendUint64(b, uint64(x.newestPast))
	entries := x.entries
	for len(entries) > 0 && entries[len(entries)-1].base-x.base > math.MaxUint32 {
		entries = entries[:len(entries)-1] // a scan from the last that fits finds what comes after it
	}
	b = be.AppendUint32(b, uint32(len(entries)))
	for _, e := range entries {
		b = be.AppendUint32(b, uint32(e.base-x.base))
		b = be.AppendUint32(b, uint32(e.position))
		b = be.AppendUint64(b, uint64(e.maxTimestamp))
	}
	return be.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// decodeIndex checks and decodes an index file of the segment of a log that starts at
// base and whose log file has size bytes.
func decodeIndex(b []byte, log uint64, base, size, every int64, now func() time.Time) (*index, error) {
	be := binary.BigEndian
	if len(b) < indexHeader+4 {
		return nil, fmt.Errorf("index has %d bytes, at least %d are needed", len(b), indexHeader+4)
	}
	if sum := crc32.Checksum(b[:len(b)-4], castagnoli); sum != be.Uint32(b[len(b)-4:]) {
		return nil, fmt.Errorf("index checksum does not match")
	}
	if be.Uint32(b) != indexMagic || be.Uint32(b[4:]) != indexVersion {
		return nil, fmt.Errorf("not an index of version 2")
	}
	x := &index{
		log: be.Uint64(b[8:]), base: int64(be.Uint64(b[16:])), covered: int64(be.Uint64(b[24:])),
		newest: int64(be.Uint64(b[32:])), next: int64(be.Uint64(b[40:])), first: int64(be.Uint64(b[48:])), newestPast: int64(be.Uint64(b[56:])), every: every, now: now, clock: math.MinInt64,
	}
	n := int64(be.Uint32(b[64:]))
	if n*indexEntrySz != int64(len(b)-indexHeader-4) {
		return nil, fmt.Errorf("index claims %d entries", n)
	}
	if x.log != log || x.base != base || x.covered > size || x.covered < 0 || x.next < base {
		return nil, fmt.Errorf("index is of another log, another segment or a longer one (base %d, %d bytes)", x.base, x.covered)
	}
	x.entries = make([]indexEntry, n)
	for i := range x.entries {
		e := b[indexHeader+i*indexEntrySz:]
		x.entries[i] = indexEntry{
			base: base + int64(be.Uint32(e)), position: int64(be.Uint32(e[4:])),
			maxTimestamp: int64(be.Uint64(e[8:])),
		}
		if x.entries[i].position >= x.covered || i > 0 && (x.entries[i].base <= x.entries[i-1].base || x.entries[i].position <= x.entries[i-1].position) {
			return nil, fmt.Errorf("index entry %d is out of order", i)
		}
	}
	return x, nil
}

// loadIndex reads an index file; a nil index means that it must be rebuilt.
func loadIndex(fsys vfs.FS, name string, log uint64, base, size, every int64, now func() time.Time) (*index, error) {
	b, err := vfs.ReadFile(fsys, name, indexHeader+4+indexEntrySz*(size/20+1))
	if err != nil {
		return nil, err
	}
	return decodeIndex(b, log, base, size, every, now)
}

// saveIndex writes an index file without syncing it: a torn one fails its checksum.
func saveIndex(fsys vfs.FS, name string, x *index) error {
	data := x.encode()
	f, err := fsys.Open(name)
	if err != nil {
		if f, err = fsys.Create(name); err != nil {
			return err
		}
	}
	if err = f.Truncate(int64(len(data))); err == nil {
		_, err = f.WriteAt(data, 0)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

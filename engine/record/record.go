package record

import (
	"bytes"
	"slices"
	"time"
)

// Record is one event. Key, Value and Headers are opaque bytes.
//
// A nil Key means "no key" and an empty one is a key like any other; a nil Value is a
// tombstone for compaction. Only format 2 stores both differences.
type Record struct {
	Offset    int64     // assigned by the log
	Timestamp time.Time // nanoseconds are kept by formats 0 and 1, milliseconds by format 2
	Key       []byte
	Value     []byte
	Headers   []Header // format 2 only
}

// Header is a named value beside a record's payload (KIP-82). Keys may repeat.
type Header struct {
	Key   string
	Value []byte
}

// Size is the number of payload bytes a record holds: key, value and headers.
func (r Record) Size() int {
	n := len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		n += len(h.Key) + len(h.Value)
	}
	return n
}

// Clone returns a copy that shares no memory with r. Records that an Iterator
// returns are borrowed; clone what outlives the next call.
func (r Record) Clone() Record {
	r.Key = bytes.Clone(r.Key)
	r.Value = bytes.Clone(r.Value)
	r.Headers = slices.Clone(r.Headers)
	for i := range r.Headers {
		r.Headers[i].Value = bytes.Clone(r.Headers[i].Value)
	}
	return r
}

// Equal reports whether two records are the same to the byte, nil and empty told apart.
func (r Record) Equal(o Record) bool {
	return r.Offset == o.Offset && r.Timestamp.Equal(o.Timestamp) &&
		same(r.Key, o.Key) && same(r.Value, o.Value) &&
		slices.EqualFunc(r.Headers, o.Headers, func(a, b Header) bool {
			return a.Key == b.Key && same(a.Value, b.Value)
		})
}

func same(a, b []byte) bool {
	return (a == nil) == (b == nil) && bytes.Equal(a, b)
}

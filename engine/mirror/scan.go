package mirror

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"time"

	"logbook/engine/record"
	"logbook/engine/stream"
)

var timeless time.Time

// scan visits the records that a partition has now.
func scan(ctx context.Context, from stream.Transport, p stream.Partition, visit func(record.Record) error) error {
	at, err := from.Offset(ctx, p, stream.Earliest, timeless)
	if err != nil {
		return err
	}
	end, err := from.Offset(ctx, p, stream.Latest, timeless)
	if err != nil {
		return err
	}
	for at < end {
		f, err := from.Fetch(ctx, stream.Fetch{Partition: p, Offset: at})
		if err != nil {
			return err
		}
		for _, r := range f.Records {
			if r.Offset >= end {
				return nil
			}
			if err := visit(r); err != nil {
				return err
			}
		}
		if f.NextOffset <= at {
			return fmt.Errorf("nothing can be read at offset %d, although the log ends at %d", at, end)
		}
		at = f.NextOffset
	}
	return nil
}

// Digest is a partition's content: how many records, and a hash over keys, values, headers
// and times (in ms), in their order. Offsets are not in it.
type Digest struct {
	Topic     string
	Partition int
	Records   int64
	Hash      [sha256.Size]byte
}

// Digests reads topics through. Two logs that hold the same have the same digests.
func Digests(ctx context.Context, c *stream.Client, names ...string) ([]Digest, error) {
	names, err := topics(ctx, c, names)
	if err != nil {
		return nil, err
	}
	var out []Digest
	for _, name := range names {
		t, err := c.Topic(ctx, name)
		if err != nil {
			return nil, err
		}
		for id := range t.Partitions() {
			d := Digest{Topic: name, Partition: id}
			h := sha256.New()
			err := scan(ctx, c.Transport(), stream.Partition{Topic: name, ID: id}, func(r record.Record) error {
				d.Records++
				sum(h, r)
				return nil
			})
			if err != nil {
				return nil, fmt.Errorf("mirror: reading %s/%d: %w", name, id, err)
			}
			h.Sum(d.Hash[:0])
			out = append(out, d)
		}
	}
	return out, nil
}

// sum adds a record to a hash, so that no two differ and give the same bytes.
func sum(h hash.Hash, r record.Record) {
	var b []byte
	piece := func(p []byte) {
		n := int64(len(p))
		if p == nil {
			n = -1
		}
		b = append(binary.AppendVarint(b, n), p...)
	}
	b = binary.AppendVarint(b, r.Timestamp.UnixMilli())
	piece(r.Key)
	piece(r.Value)
	b = binary.AppendVarint(b, int64(len(r.Headers)))
	for _, x := range r.Headers {
		piece([]byte(x.Key))
		piece(x.Value)
	}
	h.Write(b)
}

package record

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
)

// Records inside a batch: zig-zag varints, as in Protocol Buffers.

func zigzag(v int64) uint64 { return uint64(v<<1) ^ uint64(v>>63) }

func varintSize(v int64) int { return (bits.Len64(zigzag(v)|1) + 6) / 7 }

// bytesSize is the stored size of a nullable byte field: its length and itself.
func bytesSize(b []byte) int {
	if b == nil {
		return 1 // the varint -1
	}
	return varintSize(int64(len(b))) + len(b)
}

func appendBytes(dst, b []byte) []byte {
	if b == nil {
		return binary.AppendVarint(dst, -1)
	}
	return append(binary.AppendVarint(dst, int64(len(b))), b...)
}

// appendRecord writes one record. The length comes first, so it is computed, not patched.
func appendRecord(dst []byte, r *Record, timeDelta, offsetDelta int64) []byte {
	size := 1 + varintSize(timeDelta) + varintSize(offsetDelta) +
		bytesSize(r.Key) + bytesSize(r.Value) + varintSize(int64(len(r.Headers)))
	for i := range r.Headers {
		h := &r.Headers[i]
		size += varintSize(int64(len(h.Key))) + len(h.Key) + bytesSize(h.Value)
	}
	dst = binary.AppendVarint(dst, int64(size))
	dst = append(dst, 0) // attributes: none are defined
	dst = binary.AppendVarint(dst, timeDelta)
	dst = binary.AppendVarint(dst, offsetDelta)
	dst = appendBytes(dst, r.Key)
	dst = appendBytes(dst, r.Value)
	dst = binary.AppendVarint(dst, int64(len(r.Headers)))
	for i := range r.Headers {
		h := &r.Headers[i]
		dst = binary.AppendVarint(dst, int64(len(h.Key)))
		dst = append(dst, h.Key...)
		dst = appendBytes(dst, h.Value)
	}
	return dst
}

// cursor reads varints and byte fields from a record section. The first failure sticks,
// so a record is read in one go and checked once.
type cursor struct {
	data  []byte
	pos   int
	field string // the field being read when it failed
	bad   error
}

func (c *cursor) fail(field string, err error) {
	if c.bad == nil {
		c.field, c.bad = field, err
	}
}

func (c *cursor) varint(field string) int64 {
	if c.bad != nil {
		return 0
	}
	if c.pos < len(c.data) && c.data[c.pos] < 0x80 { // one byte: nearly all of them
		b := c.data[c.pos]
		c.pos++
		return int64(b>>1) ^ -int64(b&1)
	}
	v, n := binary.Varint(c.data[c.pos:])
	if n <= 0 {
		c.fail(field, ErrMalformed)
		return 0
	}
	c.pos += n
	return v
}

// bytes reads a nullable field. Its length is checked before a slice is made.
func (c *cursor) bytes(field string) []byte {
	n := c.varint(field)
	switch {
	case c.bad != nil || n == -1:
		return nil
	case n < 0 || n > int64(len(c.data)-c.pos):
		c.fail(field, ErrMalformed)
		return nil
	}
	b := c.data[c.pos : c.pos+int(n) : c.pos+int(n)]
	c.pos += int(n)
	return b
}

// record decodes one record into r, all but its offset and timestamp. Its headers go
// into the memory of headers, which is returned for reuse.
func (c *cursor) record(r *Record, headers []Header) (timeDelta, offsetDelta int64, _ []Header) {
	r.Headers = nil
	size := c.varint("length")
	if c.bad == nil && (size < v2MinRecord-1 || size > int64(len(c.data)-c.pos)) {
		c.fail("length", ErrMalformed)
	}
	if c.bad != nil {
		return 0, 0, headers
	}
	end := c.pos + int(size)
	outer := c.data
	c.data = c.data[:end] // no field of this record may reach into the next one
	c.pos++               // attributes
	timeDelta = c.varint("timestamp_delta")
	offsetDelta = c.varint("offset_delta")
	r.Key = c.bytes("key")
	r.Value = c.bytes("value")
	n := c.varint("header_count")
	if c.bad == nil && (n < 0 || n > int64(end-c.pos)/2) { // a header has at least two bytes
		c.fail("header_count", ErrMalformed)
	}
	for range n {
		if c.bad != nil {
			break
		}
		key := c.bytes("header_key")
		if key == nil {
			c.fail("header_key", ErrMalformed) // a header's key cannot be null
		}
		headers = append(headers, Header{Key: string(key), Value: c.bytes("header_value")})
	}
	if c.bad == nil && c.pos != end {
		c.fail("length", ErrMalformed)
	}
	c.data = outer
	if len(headers) > 0 {
		r.Headers = headers
	}
	return timeDelta, offsetDelta, headers
}

func annotateRecords(a *annotator, count int64) {
	for i := int64(0); i < count && a.pos < len(a.data); i++ {
		name := func(s string) string { return fmt.Sprintf("record %d %s", i, s) }
		a.varint(name("length"))
		if a.pos < len(a.data) {
			a.uint(name("attributes"), 1)
		}
		a.varint(name("timestamp_delta"))
		a.varint(name("offset_delta"))
		a.nullable(name("key"))
		a.nullable(name("value"))
		headers := a.varint(name("header_count"))
		for h := int64(0); h < headers && a.pos < len(a.data); h++ {
			a.nullable(name(fmt.Sprintf("header %d key", h)))
			a.nullable(name(fmt.Sprintf("header %d value", h)))
		}
	}
	if a.pos < len(a.data) {
		a.add("trailing bytes", len(a.data)-a.pos, "")
		a.note("no record owns them")
	}
}

func (a *annotator) varint(name string) int64 {
	if a.pos >= len(a.data) {
		return 0
	}
	v, n := binary.Varint(a.data[a.pos:])
	if n <= 0 {
		a.add(name, len(a.data)-a.pos, "")
		a.note("not a varint")
		return 0
	}
	a.add(name, n, fmt.Sprint(v))
	return v
}

func (a *annotator) nullable(name string) {
	n := a.varint(name + "_length")
	if n < -1 || n > math.MaxInt32 {
		a.note("impossible length")
		return
	}
	if n > 0 {
		a.bytes(name, uint64(n))
	}
}

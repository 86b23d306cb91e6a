// Package recordtest tests implementations of the frame formats, in the style of
// testing/fstest: hand it yours and it returns what is wrong with it.
package recordtest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"logbook/engine/record"
)

// Decoded is a record of format 1 and the number of bytes its frame takes.
type Decoded struct {
	Offset     int64
	Nanos      int64
	Key, Value []byte // a stored length of zero may be nil or empty
	Size       int
}

// TestV1Decoder checks a decoder of one format 1 frame at the start of data, followed
// by anything. The decoder must return an error, and neither panic nor believe a length,
// for bytes that are no whole frame. It returns nil for a decoder that is right.
func TestV1Decoder(decode func(data []byte) (Decoded, error)) error {
	records := []record.Record{
		{Offset: 0, Timestamp: time.Unix(0, 1), Value: []byte("x")},
		{Offset: 7, Timestamp: time.Unix(1700000000, 123456789), Key: []byte("DTW"), Value: []byte("LAS")},
		{Offset: 1 << 40, Timestamp: time.Unix(1700000000, 0), Key: bytes.Repeat([]byte("k"), 300)},
		{Offset: 8, Timestamp: time.Unix(1700000000, 0), Value: bytes.Repeat([]byte("v"), 70_000)},
	}
	for i, r := range records {
		frame, err := record.V1.AppendFrames(nil, []record.Record{r}, record.Encoding{BaseOffset: r.Offset})
		if err != nil {
			return err
		}
		for _, after := range []string{"", "something after it"} {
			got, err := call(decode, append(bytes.Clone(frame), after...))
			if err != nil {
				return fmt.Errorf("record %d with %d bytes after it: %w", i, len(after), err)
			}
			want := Decoded{Offset: r.Offset, Nanos: r.Timestamp.UnixNano(), Key: r.Key, Value: r.Value, Size: len(frame)}
			if got.Offset != want.Offset || got.Nanos != want.Nanos || got.Size != want.Size ||
				!bytes.Equal(got.Key, want.Key) || !bytes.Equal(got.Value, want.Value) {
				return fmt.Errorf("record %d: decoded offset %d, time %d, %d+%d bytes, size %d; it has offset %d, time %d, %d+%d bytes, size %d",
					i, got.Offset, got.Nanos, len(got.Key), len(got.Value), got.Size,
					want.Offset, want.Nanos, len(want.Key), len(want.Value), want.Size)
			}
		}
		for cut := range min(len(frame), 400) {
			if _, err := call(decode, frame[:cut]); err == nil {
				return fmt.Errorf("record %d: cut to %d of its %d bytes it still decodes", i, cut, len(frame))
			} else if p, ok := errors.AsType[*panicError](err); ok {
				return fmt.Errorf("record %d cut to %d of its %d bytes: %w", i, cut, len(frame), p)
			}
		}
	}
	lie := make([]byte, 64)
	for _, at := range []int{16, 20} { // the key's and, with an empty key, the value's length
		for _, n := range []uint32{45, 1 << 20, 1 << 31, 1<<32 - 1} {
			clear(lie)
			lie[15] = 1
			binary.BigEndian.PutUint32(lie[at:], n)
			if _, err := call(decode, lie); err == nil {
				return fmt.Errorf("a length of %d at byte %d is believed in a frame of %d bytes", n, at, len(lie))
			} else if p, ok := errors.AsType[*panicError](err); ok {
				return fmt.Errorf("a length of %d at byte %d: %w", n, at, p)
			}
		}
	}
	return nil
}

type panicError struct{ value any }

func (e *panicError) Error() string { return fmt.Sprintf("the decoder panics: %v", e.value) }

func call(decode func([]byte) (Decoded, error), data []byte) (d Decoded, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{v}
		}
	}()
	return decode(data)
}

package record_test

import (
	"bytes"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/record"
)

var formats = []record.Format{record.V0, record.V1, record.V2}

// Cutting a frame anywhere is noticed by every format: that is what lengths are for.
func TestEveryCutIsNoticed(t *testing.T) {
	for _, g := range golden {
		frames, err := record.ParseAll(g.format, readHex(t, g.file))
		require.NoError(t, err)
		whole := frames[0].Bytes
		for n := range whole {
			_, err := g.format.Parse(whole[:n])
			var fe *record.FrameError
			require.ErrorAs(t, err, &fe, "%s cut to %d bytes", g.file, n)
			require.ErrorIs(t, err, record.ErrIncomplete, "%s cut to %d bytes", g.file, n)
			require.NotEmpty(t, fe.Field)
		}
	}
}

// Format 2 notices every flipped bit but those of the two fields that stand before the
// checksum, which a log compares with the neighbouring batches.
func TestFormat2NoticesEveryFlip(t *testing.T) {
	for _, g := range golden {
		if g.format != record.V2 {
			continue
		}
		whole := readHex(t, g.file)
		for bit := range len(whole) * 8 {
			at := bit / 8
			flipped := bytes.Clone(whole)
			flipped[at] ^= 1 << (bit % 8)
			f, err := record.V2.Parse(flipped)
			if at < 8 || (at >= 12 && at < 16) {
				if err == nil {
					orig, _ := record.V2.Parse(whole)
					require.True(t, f.BaseOffset != orig.BaseOffset || f.LeaderEpoch != orig.LeaderEpoch)
				}
				continue
			}
			require.Error(t, err, "%s: bit %d of byte %d", g.file, bit%8, at)
		}
	}
}

// Formats 0 and 1 have no checksum. These counts are what they miss, and why format 2
// is the default; a change of the decoders that lets more through fails here.
func TestFlipsThatFormats0And1Miss(t *testing.T) {
	for _, c := range []struct {
		file         string
		format       record.Format
		missed, bits int
	}{
		// Payload, timestamp and offset, but for the offset's sign bit: 40 + 64 + 63.
		{"v0-hello.hex", record.V0, 167, 232},
		// Key, value, and offset and timestamp but for their sign bits: 48 + 63 + 63.
		{"v1-keyed.hex", record.V1, 174, 240},
	} {
		frames, err := record.ParseAll(c.format, readHex(t, c.file))
		require.NoError(t, err)
		whole := frames[0].Bytes
		require.Equal(t, c.bits, len(whole)*8)
		missed := 0
		for bit := range len(whole) * 8 {
			flipped := bytes.Clone(whole)
			flipped[bit/8] ^= 1 << (bit % 8)
			if f, err := c.format.Parse(flipped); err == nil && len(f.Bytes) == len(whole) {
				missed++
			}
		}
		assert.Equal(t, c.missed, missed, c.file)
	}
}

func TestMalformedFrames(t *testing.T) {
	v0 := readHex(t, "v0-hello.hex")
	v1 := readHex(t, "v1-keyed.hex")
	v2 := readHex(t, "v2-one.hex")
	set := func(b []byte, at int, v ...byte) []byte {
		b = bytes.Clone(b)
		copy(b[at:], v)
		return b
	}
	ff := bytes.Repeat([]byte{0xff}, 8)
	for _, c := range []struct {
		name   string
		format record.Format
		data   []byte
		want   error
		field  string
	}{
		{"v0 zero length", record.V0, make([]byte, 64), record.ErrMalformed, "record_length"},
		{"v0 lengths disagree", record.V0, set(v0, 0, 0, 0, 0, 26), record.ErrMalformed, "payload_length"},
		{"v0 huge length", record.V0, set(v0, 0, ff[:4]...), record.ErrTooLarge, "record_length"},
		{"v0 negative offset", record.V0, set(v0, 4, ff...), record.ErrMalformed, "offset"},
		{"v1 unwritten space", record.V1, make([]byte, 64), record.ErrMalformed, "timestamp_ns"},
		{"v1 huge key", record.V1, set(v1, 16, ff[:4]...), record.ErrTooLarge, "key_length"},
		{"v1 huge value", record.V1, set(v1, 23, ff[:4]...), record.ErrTooLarge, "value_length"},
		{"v1 long key", record.V1, set(v1, 16, 0, 1, 0, 0), record.ErrIncomplete, "key"},
		{"v2 zero length", record.V2, set(make([]byte, 64), 16, 2), record.ErrMalformed, "batch_length"},
		{"v2 negative length", record.V2, set(v2, 8, ff[:4]...), record.ErrMalformed, "batch_length"},
		{"v2 huge length", record.V2, set(v2, 8, 0x7f, 0xff, 0xff, 0xff), record.ErrTooLarge, "batch_length"},
		{"v2 magic 1", record.V2, set(v2, 16, 1), record.ErrMalformed, "magic"},
		{"v2 flipped payload", record.V2, set(v2, len(v2)-2, 'L'), record.ErrChecksum, "crc"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := c.format.Parse(c.data)
			require.ErrorIs(t, err, c.want)
			fe, ok := errors.AsType[*record.FrameError](err)
			require.True(t, ok)
			assert.Equal(t, c.field, fe.Field)
			assert.Equal(t, c.format.Version(), fe.Version)
		})
	}
}

// What a format cannot store it refuses; it never drops a part silently.
func TestEncodeRefusesWhatTheFormatCannotStore(t *testing.T) {
	now := time.UnixMilli(goldenTime)
	for _, c := range []struct {
		name   string
		format record.Format
		rec    record.Record
		enc    record.Encoding
		want   error
	}{
		{"a key in format 0", record.V0, record.Record{Timestamp: now, Key: []byte{}}, record.Encoding{}, record.ErrUnsupported},
		{"headers in format 0", record.V0, record.Record{Timestamp: now, Headers: []record.Header{{}}}, record.Encoding{}, record.ErrUnsupported},
		{"headers in format 1", record.V1, record.Record{Timestamp: now, Headers: []record.Header{{}}}, record.Encoding{}, record.ErrUnsupported},
		{"a time before 1970 in format 1", record.V1, record.Record{Timestamp: time.Unix(-1, 0)}, record.Encoding{}, record.ErrUnsupported},
		{"no time at all", record.V2, record.Record{}, record.Encoding{}, record.ErrUnsupported},
		{"a time beyond 2262", record.V2, record.Record{Timestamp: time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC)}, record.Encoding{}, record.ErrUnsupported},
		{"a negative offset", record.V2, record.Record{Timestamp: now}, record.Encoding{BaseOffset: -1}, record.ErrMalformed},
		{"a first record before the base", record.V2, record.Record{Timestamp: now}, record.Encoding{BaseOffset: 3, KeepOffsets: true}, record.ErrMalformed},
		{"offsets too far apart", record.V2, record.Record{Timestamp: now}, record.Encoding{KeepOffsets: true, LastOffset: math.MaxInt32 + 1}, record.ErrMalformed},
		{"an unknown codec", record.V2, record.Record{Timestamp: now}, record.Encoding{Compression: 5}, record.ErrMalformed},
	} {
		t.Run(c.name, func(t *testing.T) {
			dst := []byte("before")
			got, err := c.format.AppendFrames(dst, []record.Record{c.rec}, c.enc)
			require.ErrorIs(t, err, c.want)
			assert.Equal(t, "before", string(got))
		})
	}
}

// A batch of a few hundred bytes that decompresses to more than the limit is stopped there.
func TestDecompressionIsBounded(t *testing.T) {
	for _, c := range []record.Compression{record.Gzip, record.Snappy, record.LZ4, record.Zstd} {
		t.Run(c.String(), func(t *testing.T) {
			bomb := record.Record{Timestamp: ms(goldenTime), Value: make([]byte, record.MaxDecompressedBytes+1)}
			data, err := record.V2.AppendFrames(nil, []record.Record{bomb}, record.Encoding{Compression: c})
			require.NoError(t, err)
			frame, err := record.V2.Parse(data)
			require.NoError(t, err)
			_, err = frame.Records()
			require.ErrorIs(t, err, record.ErrTooLarge)
		})
	}
}

func TestEncodingAllocatesNothingPerRecord(t *testing.T) {
	records := make([]record.Record, 100)
	for i := range records {
		records[i] = record.Record{Timestamp: ms(goldenTime), Value: []byte("a value of some bytes")}
	}
	for _, f := range formats {
		buf := make([]byte, 0, 1<<16)
		allocs := testing.AllocsPerRun(50, func() {
			out, err := f.AppendFrames(buf, records, record.Encoding{})
			if err != nil || f.Assign(out, 5, 0) != 105 {
				t.Fatal(err)
			}
		})
		assert.Zero(t, allocs, "format %d", f.Version())
	}
}

func TestIteratingAllocatesNothingPerRecord(t *testing.T) {
	records := make([]record.Record, 100)
	for i := range records {
		records[i] = record.Record{Timestamp: ms(goldenTime), Value: []byte("a value of some bytes")}
	}
	for _, f := range formats {
		data, err := f.AppendFrames(nil, records, record.Encoding{})
		require.NoError(t, err)
		var it record.Iterator
		n := 0
		allocs := testing.AllocsPerRun(50, func() {
			for at := 0; at < len(data); {
				frame, err := f.Parse(data[at:])
				if err != nil {
					t.Fatal(err)
				}
				at += len(frame.Bytes)
				for it.Reset(frame); it.Next(); {
					n += len(it.Record().Value)
				}
			}
		})
		assert.Zero(t, allocs, "format %d", f.Version())
		assert.Positive(t, n)
	}
}

package record_test

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/record"
	_ "logbook/engine/record/compression"
)

// readHex reads a golden frame: hex bytes, with comments from # to the end of a line.
func readHex(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "testdata", "frames", name))
	require.NoError(t, err)
	var digits strings.Builder
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		digits.WriteString(strings.Join(strings.Fields(line), ""))
	}
	b, err := hex.DecodeString(digits.String())
	require.NoError(t, err, name)
	return b
}

func ms(n int64) time.Time { return time.UnixMilli(n) }

const goldenTime = 1700000000123 // ms

// repeated is what each of the compressed golden batches holds.
var repeated = []record.Record{
	{Offset: 0, Timestamp: ms(goldenTime), Key: []byte("k0"), Value: []byte("the same text again and again and again")},
	{Offset: 1, Timestamp: ms(goldenTime + 1), Key: []byte("k1"), Value: []byte("the same text again and again and again")},
	{Offset: 2, Timestamp: ms(goldenTime + 2), Key: []byte("k2"), Value: []byte("the same text again and again and again")},
}

var golden = []struct {
	file    string
	format  record.Format
	enc     record.Encoding
	records []record.Record
	// reencode is false where another encoder may choose other bytes: compressors do.
	reencode bool
}{
	{"v0-hello.hex", record.V0, record.Encoding{}, []record.Record{
		{Offset: 0, Timestamp: time.Unix(0, 1700000000123456789), Value: []byte("hello")},
		{Offset: 1, Timestamp: time.Unix(0, -1), Value: []byte{}},
	}, true},
	{"v1-keyed.hex", record.V1, record.Encoding{BaseOffset: 7}, []record.Record{
		{Offset: 7, Timestamp: time.Unix(0, 1700000000123456789), Key: []byte("DTW"), Value: []byte("LAS")},
		{Offset: 8, Timestamp: time.Unix(0, 1700000000123456790), Value: []byte{}},
	}, true},
	{"v2-one.hex", record.V2, record.Encoding{}, []record.Record{
		{Timestamp: ms(goldenTime), Value: []byte("hello")},
	}, true},
	{"v2-nil-empty-headers.hex", record.V2, record.Encoding{
		BaseOffset: 100, LeaderEpoch: 5, Producer: &record.Producer{ID: 9, Epoch: 2, BaseSequence: 40},
	}, []record.Record{
		{Offset: 100, Timestamp: ms(goldenTime)},
		{Offset: 101, Timestamp: ms(goldenTime - 1), Key: []byte{}, Value: []byte{}},
		{Offset: 102, Timestamp: ms(goldenTime + 300), Key: []byte("DTW"), Value: []byte("LAS"), Headers: []record.Header{
			{Key: "trace", Value: []byte("7")}, {Key: "trace"}, {Key: "", Value: []byte{}},
		}},
	}, true},
	{"v2-compacted-empty.hex", record.V2, record.Encoding{
		BaseOffset: 10, KeepOffsets: true, LastOffset: 14, LeaderEpoch: 1,
	}, nil, true},
	{"v2-gzip.hex", record.V2, record.Encoding{Compression: record.Gzip}, repeated, false},
	{"v2-snappy.hex", record.V2, record.Encoding{Compression: record.Snappy}, repeated, false},
	{"v2-snappy-xerial.hex", record.V2, record.Encoding{Compression: record.Snappy}, repeated, false},
	{"v2-lz4.hex", record.V2, record.Encoding{Compression: record.LZ4}, repeated, false},
	{"v2-zstd.hex", record.V2, record.Encoding{Compression: record.Zstd}, repeated, false},
}

func decodeAll(t testing.TB, f record.Format, data []byte) []record.Record {
	t.Helper()
	frames, err := record.ParseAll(f, data)
	require.NoError(t, err)
	var out []record.Record
	for _, frame := range frames {
		records, err := frame.Records()
		require.NoError(t, err)
		require.Len(t, records, frame.Count)
		out = append(out, records...)
	}
	return out
}

func requireSame(t testing.TB, want, got []record.Record) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		require.True(t, want[i].Equal(got[i]), "record %d:\nwant %+v\ngot  %+v", i, want[i], got[i])
	}
}

func TestGoldenFramesDecode(t *testing.T) {
	for _, g := range golden {
		t.Run(g.file, func(t *testing.T) {
			requireSame(t, g.records, decodeAll(t, g.format, readHex(t, g.file)))
		})
	}
}

func TestGoldenFramesEncode(t *testing.T) {
	for _, g := range golden {
		t.Run(g.file, func(t *testing.T) {
			got, err := g.format.AppendFrames(nil, g.records, g.enc)
			require.NoError(t, err)
			if g.reencode {
				require.Equal(t, hex.Dump(readHex(t, g.file)), hex.Dump(got))
			}
			requireSame(t, g.records, decodeAll(t, g.format, got))
		})
	}
}

func TestGoldenBatchHeader(t *testing.T) {
	f, err := record.V2.Parse(readHex(t, "v2-nil-empty-headers.hex"))
	require.NoError(t, err)
	assert.Equal(t, []any{int64(100), int64(102), 3, int32(5), int64(9), int16(2), int32(40)},
		[]any{f.BaseOffset, f.LastOffset, f.Count, f.LeaderEpoch, f.ProducerID, f.ProducerEpoch, f.BaseSequence})
	assert.True(t, f.BaseTimestamp.Equal(ms(goldenTime)))
	assert.True(t, f.MaxTimestamp.Equal(ms(goldenTime+300)))

	f, err = record.V2.Parse(readHex(t, "v2-compacted-empty.hex"))
	require.NoError(t, err)
	assert.Equal(t, int64(15), f.NextOffset())
	assert.Zero(t, f.Count)
}

// A log numbers the frames it is given; only offsets and the leader epoch may change.
func TestAssignPatchesOffsetAndEpochOnly(t *testing.T) {
	for _, g := range golden {
		if len(g.records) == 0 {
			continue
		}
		t.Run(g.file, func(t *testing.T) {
			data := readHex(t, g.file)
			next := g.format.Assign(data, 1000, 77)
			require.Equal(t, int64(1000+len(g.records)), next)
			want := make([]record.Record, len(g.records))
			for i, r := range g.records {
				r.Offset = 1000 + int64(i)
				want[i] = r
			}
			requireSame(t, want, decodeAll(t, g.format, data))
			if g.format == record.V2 {
				f, err := record.V2.Parse(data)
				require.NoError(t, err)
				assert.Equal(t, int32(77), f.LeaderEpoch)
			}
		})
	}
}

func TestAnnotateNamesEveryByte(t *testing.T) {
	for _, g := range golden {
		data := readHex(t, g.file)
		frames, err := record.ParseAll(g.format, data)
		require.NoError(t, err)
		at := 0
		for _, f := range g.format.Annotate(frames[0].Bytes) {
			require.Equal(t, at, f.Start, "%s: %s", g.file, f.Name)
			require.NotEmpty(t, f.Name)
			require.Empty(t, f.Note, "%s: %s", g.file, f.Name)
			at = f.End
		}
		require.Equal(t, len(frames[0].Bytes), at, g.file)
	}
}

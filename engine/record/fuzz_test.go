package record_test

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"logbook/engine/record"
)

// FuzzParse feeds arbitrary bytes to all three decoders: no panic, no endless loop, and
// what they accept they decode to the same bytes again.
func FuzzParse(f *testing.F) {
	for _, g := range golden {
		f.Add(readHex(f, g.file))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, format := range formats {
			format.Annotate(data)
			frame, err := format.Parse(data)
			if err != nil {
				continue
			}
			require.LessOrEqual(t, len(frame.Bytes), len(data))
			records, err := frame.Records()
			if err != nil || format == record.V2 {
				continue // other varint spellings and codecs make other bytes
			}
			back, err := format.AppendFrames(nil, records, record.Encoding{KeepOffsets: true})
			require.NoError(t, err)
			require.Equal(t, frame.Bytes, back)
		}
	})
}

// FuzzBatchRecords puts arbitrary bytes after a valid header and checksum, so that the
// fuzzer reaches the varints and the decompressors.
func FuzzBatchRecords(f *testing.F) {
	for _, g := range golden {
		if g.format == record.V2 {
			data := readHex(f, g.file)
			f.Add(data[61:], binary.BigEndian.Uint16(data[21:]), int32(len(g.records)))
		}
	}
	f.Fuzz(func(t *testing.T, body []byte, attributes uint16, count int32) {
		data := batchAround(body, attributes, count)
		frame, err := record.V2.Parse(data)
		if err != nil {
			return
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		records, err := frame.Records()
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(4*record.MaxDecompressedBytes+100*len(data)))
		if err == nil {
			require.Len(t, records, frame.Count)
		}
	})
}

func batchAround(body []byte, attributes uint16, count int32) []byte {
	data := make([]byte, 61, 61+len(body))
	data = append(data, body...)
	be := binary.BigEndian
	be.PutUint32(data[8:], uint32(len(data)-12))
	data[16] = 2
	be.PutUint16(data[21:], attributes)
	be.PutUint32(data[23:], uint32(max(count-1, 0)))
	be.PutUint64(data[27:], goldenTime)
	be.PutUint64(data[35:], goldenTime)
	be.PutUint32(data[57:], uint32(count))
	be.PutUint32(data[17:], crc32.Checksum(data[21:], crc32.MakeTable(crc32.Castagnoli)))
	return data
}

// FuzzAgainstKmsg compares format 2 with kmsg, the codec of a Kafka client that many
// people run: what we write it must read alike, and what it reads we must read alike.
func FuzzAgainstKmsg(f *testing.F) {
	f.Add([]byte("key"), []byte("value"), "header", []byte("h"), int64(5), uint8(3), true)
	f.Add([]byte{}, []byte{}, "", []byte{}, int64(-5), uint8(0), false)
	f.Fuzz(func(t *testing.T, key, value []byte, header string, hvalue []byte, step int64, n uint8, nils bool) {
		var records []record.Record
		for i := range int(n) + 1 {
			r := record.Record{
				Offset: int64(i), Key: key, Value: value,
				Timestamp: time.UnixMilli(goldenTime + int64(i)*(step%1e9)),
			}
			if nils && i%2 == 0 {
				r.Key, r.Value = nil, nil
			}
			if i%3 == 0 {
				r.Headers = []record.Header{{Key: header, Value: hvalue}}
			}
			records = append(records, r)
		}
		producer := &record.Producer{ID: step, Epoch: int16(n), BaseSequence: int32(n)}
		data, err := record.V2.AppendFrames(nil, records, record.Encoding{LeaderEpoch: int32(n), Producer: producer})
		require.NoError(t, err)
		requireKmsgAgrees(t, data, records)

		// The other way round: kmsg writes, we read.
		var kb kmsg.RecordBatch
		require.NoError(t, kb.ReadFrom(data))
		frame, err := record.V2.Parse(kb.AppendTo(nil))
		require.NoError(t, err)
		got, err := frame.Records()
		require.NoError(t, err)
		requireSame(t, records, got)
	})
}

func requireKmsgAgrees(t *testing.T, data []byte, records []record.Record) {
	t.Helper()
	var kb kmsg.RecordBatch
	require.NoError(t, kb.ReadFrom(data))
	frame, err := record.V2.Parse(data)
	require.NoError(t, err)
	require.Equal(t, []any{kb.FirstOffset, kb.PartitionLeaderEpoch, kb.ProducerID, kb.ProducerEpoch, kb.FirstSequence, int(kb.NumRecords), kb.Attributes},
		[]any{frame.BaseOffset, frame.LeaderEpoch, frame.ProducerID, frame.ProducerEpoch, frame.BaseSequence, frame.Count, int16(frame.Attributes)})
	require.Equal(t, kb.FirstTimestamp, frame.BaseTimestamp.UnixMilli())
	require.Equal(t, kb.MaxTimestamp, frame.MaxTimestamp.UnixMilli())
	rest := kb.Records
	for i, want := range records {
		size, n := binary.Varint(rest)
		require.Positive(t, n)
		var kr kmsg.Record
		require.NoError(t, kr.ReadFrom(rest[:n+int(size)]))
		rest = rest[n+int(size):]
		require.Equal(t, int32(i), kr.OffsetDelta)
		require.Equal(t, want.Timestamp.UnixMilli(), kb.FirstTimestamp+kr.TimestampDelta64)
		require.True(t, bytes.Equal(want.Key, kr.Key) && (want.Key == nil) == (kr.Key == nil), "key of record %d", i)
		require.True(t, bytes.Equal(want.Value, kr.Value) && (want.Value == nil) == (kr.Value == nil), "value of record %d", i)
		require.Len(t, kr.Headers, len(want.Headers))
		for j, h := range want.Headers {
			require.Equal(t, h.Key, kr.Headers[j].Key)
			require.True(t, bytes.Equal(h.Value, kr.Headers[j].Value))
		}
	}
	require.Empty(t, rest)
}

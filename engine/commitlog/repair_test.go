package commitlog_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/commitlog"
	"logbook/engine/record"
	"logbook/engine/vfs"
)

// logToBreak makes a log of 30 records, a batch each, in several segments and two epochs.
func logToBreak(t *testing.T, format record.Format, closed bool) *vfs.Mem {
	m := vfs.NewMem()
	l, err := commitlog.Open("log", commitlog.Options{FS: m, Format: format, SegmentBytes: 400})
	require.NoError(t, err)
	for i := range 30 {
		if i == 17 {
			require.NoError(t, l.StartEpoch(3))
		}
		_, err := l.Append(record.Record{Value: fmt.Append(nil, "record ", i)})
		require.NoError(t, err)
	}
	if closed {
		require.NoError(t, l.Close())
	}
	return m.Kill()
}

// readable returns the records that a log serves, by offset.
func readable(t *testing.T, l *commitlog.Log) map[int64]string {
	out := map[int64]string{}
	for r, err := range l.Records(l.StartOffset()) {
		require.NoError(t, err)
		out[r.Offset] = string(r.Value)
	}
	return out
}

func repair(t *testing.T, m *vfs.Mem, what string) *commitlog.Log {
	t.Helper()
	r, err := commitlog.PlanRepair(m, "log", nil)
	require.NoError(t, err, what)
	require.NoError(t, r.Apply(), what)
	l, err := commitlog.Open("log", commitlog.Options{FS: m, SegmentBytes: 400, Verify: true})
	require.NoError(t, err, "%s\nfound %q\ndo %q", what, r.Found, r.Do)
	require.Equal(t, r.Start, l.StartOffset(), what)
	require.Equal(t, r.End, l.EndOffset(), what)
	return l
}

// A file that is missing costs nothing but what was in it and nowhere else.
func TestRepairOfMissingFiles(t *testing.T) {
	for _, format := range []record.Format{record.V0, record.V1, record.V2} {
		for _, closed := range []bool{true, false} {
			for _, gone := range [][]string{{"mark"}, {"checkpoint"}, {"mark", "checkpoint"}, {"log.meta"}, {"log.meta", "mark", "checkpoint"}} {
				what := fmt.Sprintf("format %d, closed %v, %v missing", format.Version(), closed, gone)
				m := logToBreak(t, format, closed)
				for _, name := range gone {
					require.NoError(t, m.Remove("log/"+name))
				}
				_, err := commitlog.Open("log", commitlog.Options{FS: m, SegmentBytes: 400})
				require.Error(t, err, what)
				if format != record.V2 && gone[0] == "log.meta" {
					_, err := commitlog.PlanRepair(m, "log", nil)
					var nal *commitlog.NotALogError
					require.ErrorAs(t, err, &nal, what)
					require.Contains(t, err.Error(), "say which", what)
					r, err := commitlog.PlanRepair(m, "log", format)
					require.NoError(t, err, what)
					require.NoError(t, r.Apply(), what)
				}
				l := repair(t, m, what)
				require.Len(t, readable(t, l), 30, what)
				_, err = l.Append(record.Record{Value: []byte("goes on")})
				require.NoError(t, err)
				if format == record.V2 {
					require.Equal(t, int32(3), l.Epochs()[len(l.Epochs())-1].Epoch, what)
				}
				require.NoError(t, l.Close())
				r, err := commitlog.PlanRepair(m, "log", nil)
				require.NoError(t, err)
				require.Empty(t, r.Found, "%s: what was repaired is in order", what)
			}
		}
	}
}

// Whatever one bit or one cut does to any file of a log in format 2: once it is repaired it
// opens, serves every record but those of the batch that was hit, at their offsets, and never
// gives an offset of theirs again. What stood in the files before is still there.
func TestRepairKeepsEveryIntactRecord(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	tries := 200 / everyNth(5)
	for _, closed := range []bool{true, false} {
		live := logToBreak(t, record.V2, closed)
		for _, name := range live.Files("log") {
			data, err := vfs.ReadFile(live, name, 1<<20)
			require.NoError(t, err)
			for range min(tries, len(data)) {
				at := rng.IntN(len(data))
				for _, cut := range []bool{true, false} {
					what := fmt.Sprintf("%s, closed %v, byte %d of %d, cut %v", name, closed, at, len(data), cut)
					m := live.Kill()
					m.Edit(name, func(b []byte) []byte {
						if cut {
							return b[:at]
						}
						b[at] ^= 1 << rng.IntN(8)
						return b
					})
					harmed, err := vfs.ReadFile(m, name, 1<<20)
					require.NoError(t, err)
					var intact map[int64]string
					if l, err := commitlog.Open("log", commitlog.Options{FS: m.Kill(), SegmentBytes: 400, Verify: true}); err == nil {
						intact = readable(t, l) // nothing to repair
					}
					l := repair(t, m, what)
					got := readable(t, l)
					require.GreaterOrEqual(t, l.EndOffset(), int64(30), what)
					for offset, v := range got {
						require.Equal(t, fmt.Sprint("record ", offset), v, what)
					}
					for offset := range intact {
						require.Contains(t, got, offset, what)
					}
					switch {
					case !strings.HasSuffix(name, ".log"):
						require.Len(t, got, 30, what)
					case !cut:
						require.GreaterOrEqual(t, len(got), 29, what)
					}
					if kept, err := vfs.ReadFile(m, name+".damaged", 1<<20); err == nil {
						require.Equal(t, harmed, kept, what)
					} else {
						require.NotNil(t, intact, what)
					}
				}
			}
		}
	}
}

// A segment that is gone leaves a hole, and nothing else.
func TestRepairOfAMissingSegment(t *testing.T) {
	m := logToBreak(t, record.V2, true)
	var segments []string
	for _, f := range m.Files("log") {
		if strings.HasSuffix(f, ".log") {
			segments = append(segments, f)
		}
	}
	for i, gone := range segments {
		d := m.Kill()
		require.NoError(t, d.Remove(gone))
		l := repair(t, d, gone)
		assert.GreaterOrEqual(t, l.EndOffset(), int64(30))
		got := readable(t, l)
		assert.GreaterOrEqual(t, len(got), 30-6, gone)
		assert.Less(t, len(got), 30)
		if i == 0 {
			assert.Positive(t, l.StartOffset())
		}
	}
	for _, gone := range segments {
		require.NoError(t, m.Remove(gone))
	}
	l := repair(t, m, "all gone")
	assert.Equal(t, int64(30), l.StartOffset(), "no offset is given twice")
}

package logtest_test

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"logbook/engine/commitlog"
	"logbook/engine/commitlog/logtest"
	"logbook/engine/record"
	"logbook/engine/vfs"
)

func TestTheEnginesLogPassesInEveryFormat(t *testing.T) {
	for _, c := range []struct {
		format record.Format
		traits logtest.Traits
	}{
		{record.V0, logtest.Traits{NoKeys: true, NoHeaders: true, NilEmpty: true}},
		{record.V1, logtest.Traits{NoHeaders: true, NilEmpty: true}},
		{record.V2, logtest.Traits{}},
	} {
		t.Run(fmt.Sprintf("format%d", c.format.Version()), func(t *testing.T) {
			assert.NoError(t, logtest.TestLog(func(fsys vfs.FS, dir string) (logtest.Log, error) {
				return commitlog.Open(dir, commitlog.Options{FS: fsys, Format: c.format, SegmentBytes: 400})
			}, c.traits))
		})
	}
}

// The suite must find what is missing, and nothing where nothing is.
func TestTheSuiteCatchesWhatItShould(t *testing.T) {
	right := logtest.Naive{}
	assert.NoError(t, logtest.TestLog(right.Open, logtest.Traits{}))
	for want, naive := range map[string]logtest.Naive{
		"power failure": {NoSync: true},
		"every crash":   {NoDirSync: true},
		"torn tail":     {Recover: func(file []byte) int { return len(file) }},
		"failing disk":  {NoPoison: true},
	} {
		assert.ErrorContains(t, logtest.TestLog(naive.Open, logtest.Traits{}), want+": ", want)
	}
	unsynced := logtest.Naive{NoSync: true, NoDirSync: true}
	assert.NoError(t, logtest.TestLog(unsynced.Open, logtest.Traits{SyncsNothing: true}), "promising less is allowed")

	offByOne := func(fsys vfs.FS, dir string) (logtest.Log, error) {
		l, err := right.Open(fsys, dir)
		return wrongOffsets{l}, err
	}
	assert.ErrorContains(t, logtest.TestLog(offByOne, logtest.Traits{}), "offsets: append 0 got offsets 1 to 1")
	panics := func(vfs.FS, string) (logtest.Log, error) { panic(binary.BigEndian) }
	assert.ErrorContains(t, logtest.TestLog(panics, logtest.Traits{}), "panic")
}

type wrongOffsets struct{ logtest.Log }

func (w wrongOffsets) Append(records ...record.Record) (commitlog.Appended, error) {
	at, err := w.Log.Append(records...)
	at.BaseOffset++
	at.LastOffset++
	return at, err
}

func TestRecoverySuite(t *testing.T) {
	assert.NoError(t, logtest.TestRecovery(nil), "the naive log's own")
	assert.Error(t, logtest.TestRecovery(func(file []byte) int { return 0 }), "drops everything")
	assert.Error(t, logtest.TestRecovery(func(file []byte) int { return len(file) }), "keeps everything")
	assert.Error(t, logtest.TestRecovery(func(file []byte) int { // believes lengths
		at := 0
		for {
			n, err := record.V2.FrameSize(file[at:])
			if err != nil || n > len(file)-at {
				return at
			}
			at += n
		}
	}), "a frame of the right length and the wrong bytes")
}

func TestRetentionSuite(t *testing.T) {
	right := func(sizes []int64, keep int64) int {
		total := int64(0)
		for _, s := range sizes {
			total += s
		}
		n := 0
		for n < len(sizes)-1 && total-sizes[n] >= keep {
			total -= sizes[n]
			n++
		}
		return n
	}
	assert.NoError(t, logtest.TestRetention(right))
	assert.Error(t, logtest.TestRetention(func([]int64, int64) int { return 0 }))
	assert.Error(t, logtest.TestRetention(func(sizes []int64, keep int64) int { return len(sizes) }), "takes the active segment")
}

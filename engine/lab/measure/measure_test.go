package measure_test

import (
	"encoding/xml"
	"errors"
	"hash/crc32"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/commitlog"
	"logbook/engine/lab/measure"
	"logbook/engine/record"
)

func wellFormed(t *testing.T, svg string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else {
			require.NoError(t, err)
		}
	}
}

func TestTimedCountsWritesAndSyncs(t *testing.T) {
	fs := measure.NewTimed()
	log, err := commitlog.Open(filepath.Join(t.TempDir(), "log"), commitlog.Options{FS: fs})
	require.NoError(t, err)
	fs.Spent()
	for range 10 {
		_, err := log.Append(record.Record{Value: []byte("x")})
		require.NoError(t, err)
	}
	s := fs.Spent()
	assert.Equal(t, []int64{20, 10}, []int64{s.Writes, s.Syncs}, "the batch and the mark, and one sync")
	assert.Positive(t, s.Sync)
	assert.Zero(t, fs.Spent())
	require.NoError(t, log.Close())
}

// What waits because something before it was slow counts from when it was due.
func TestScheduleDoesNotForgive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := make(chan struct{}, 1) // served one after another
		times := measure.Schedule(100, time.Second, func() {
			one <- struct{}{}
			time.Sleep(20 * time.Millisecond) // twice as slow as they come
			<-one
		})
		require.Len(t, times, 100)
		assert.Equal(t, 20*time.Millisecond, times.At(0))
		assert.Equal(t, 520*time.Millisecond, times.At(0.5))
		assert.Equal(t, 1010*time.Millisecond, times.At(1))
		perSecond, times := measure.Loop(4, time.Second, func(int) { time.Sleep(10 * time.Millisecond) })
		assert.InDelta(t, 400, perSecond, 1)
		assert.Equal(t, 10*time.Millisecond, times.At(0.99), "who waits for an answer before it asks again sees no queue")
	})
}

func TestChart(t *testing.T) {
	c := measure.Chart{Title: "a <title>", X: "writers", Y: "appends", LogX: true, LogY: true, Lines: []measure.Line{
		{Name: "one", Points: []measure.Point{{1, 10}, {10, 12_000}}}, {Name: "two", Points: []measure.Point{{1, 10}, {10, 11_900}}}, {Name: "none"},
	}}
	wellFormed(t, c.SVG())
	assert.Equal(t, "a <title>: appends by writers\none: 10 at 1, 12k at 10,\ntwo: 10 at 1, 11.9k at 10,\nnone:", c.Text())
	wellFormed(t, measure.Chart{}.SVG())
}

func TestFlame(t *testing.T) {
	sum, data := uint32(0), make([]byte, 1<<20)
	f, err := measure.Profile(func() {
		for began := time.Now(); time.Since(began) < 300*time.Millisecond; {
			sum = crc32.Update(sum, crc32.IEEETable, data)
		}
	})
	require.NoError(t, err)
	wellFormed(t, f.SVG())
	assert.Contains(t, f.Text(), "crc32")
	assert.Greater(t, f.Share("crc32"), 0.1)
	assert.Zero(t, f.Share("no such function"))
}

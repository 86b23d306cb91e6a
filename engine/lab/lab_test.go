package lab_test

import (
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/commitlog"
	"logbook/engine/group"
	"logbook/engine/lab"
	"logbook/engine/record"
)

// printed returns what do prints.
func printed(t *testing.T, do func()) string {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	stdout := os.Stdout
	os.Stdout = w
	defer func() { os.Stdout = stdout }()
	out := make(chan string)
	go func() {
		b, _ := io.ReadAll(r)
		out <- string(b)
	}()
	do()
	w.Close()
	return <-out
}

func TestScratchLastsUntilFresh(t *testing.T) {
	t.Setenv("LOGBOOK_LAB", t.TempDir())
	file := filepath.Join(lab.Fresh("x"), "f")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	assert.Equal(t, filepath.Dir(file), lab.Dir("x"))
	assert.FileExists(t, file)
	lab.Fresh("y")
	assert.FileExists(t, file, "another lesson's scratch is not touched")
	lab.Fresh("x")
	assert.NoFileExists(t, file)
}

func TestFlightsAreRealAndInOrder(t *testing.T) {
	n := 0
	var last time.Time
	for f := range lab.Flights(1 << 30) {
		require.False(t, f.Time().Before(last), "flight %d", n)
		require.Len(t, f.Origin, 3)
		last = f.Time()
		n++
	}
	assert.Equal(t, 20_000, n)
}

func TestShowFrameAsText(t *testing.T) {
	frame, err := record.V0.AppendFrames(nil, []record.Record{{Timestamp: time.Unix(0, 0), Value: []byte("a payload of 24 bytes !!")}}, record.Encoding{})
	require.NoError(t, err)
	frame[23] = 9
	want := `0000  00 00 00 2c                                      record_length   44
0004  00 00 00 00 00 00 00 00                          offset          0
000c  00 00 00 00 00 00 00 00                          timestamp_ns    1970-01-01T00:00:00Z
0014  00 00 00 09                                      payload_length  9  ← disagrees with record_length: 20 + 9 is not 44
0018  61 20 70 61 79 6c 6f 61 64                       payload         "a payload"
`
	assert.Equal(t, want, printed(t, func() { lab.ShowFrame(record.V0, frame) }))
}

func TestHexdumpHTMLEscapesAndNamesEveryField(t *testing.T) {
	frame, err := record.V1.AppendFrames(nil, []record.Record{{Timestamp: time.Unix(1, 0), Key: []byte("<b>"), Value: []byte("<script>")}}, record.Encoding{})
	require.NoError(t, err)
	html := lab.HexdumpHTML(record.V1, frame)
	assert.NotContains(t, html, "<script>")
	assert.NotContains(t, html, "<b>")
	for _, f := range record.V1.Annotate(frame) {
		assert.Contains(t, html, ">"+f.Name+"<")
	}
	requireXML(t, strings.ReplaceAll(html, "<br>", "<br/>"))
}

func requireXML(t *testing.T, s string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(s))
	for {
		_, err := d.Token()
		if err == io.EOF {
			return
		}
		require.NoError(t, err)
	}
}

func TestShowLog(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	l, err := commitlog.Open(dir, commitlog.Options{SegmentBytes: 200})
	require.NoError(t, err)
	defer l.Close()
	for range 5 {
		_, err := l.Append(record.Record{Value: make([]byte, 30)})
		require.NoError(t, err)
	}
	want := `format 2, log start offset 0, log end offset 5
00000000000000000000.log  offsets 0 to 1      196 bytes  closed
00000000000000000002.log  offsets 2 to 3      196 bytes  closed
00000000000000000004.log  offsets 4 to 4       98 bytes  active, durable to byte 98, 102 zeros preallocated
`
	assert.Equal(t, want, printed(t, func() { lab.ShowLog(dir) }))
	svg := lab.LogSVG(dir)
	requireXML(t, svg)
	assert.Contains(t, svg, "00000000000000000002.log")
}

func TestShowGenerations(t *testing.T) {
	p := func(id int) group.Partition { return group.Partition{Topic: "t", ID: id} }
	history := []lab.Generation{
		{Number: 1, What: "a joins", Owners: map[string][]group.Partition{"a": {p(0), p(1)}}},
		{Number: 2, What: "b <joins>", Owners: map[string][]group.Partition{"b": {p(1)}, "a": {p(0)}}},
	}
	want := "generation 1: a joins\n  a        t/0 t/1\ngeneration 2: b <joins>\n  a        t/0\n  b        t/1\n"
	assert.Equal(t, want, printed(t, func() { lab.ShowGenerations(history) }))
	requireXML(t, lab.GenerationsSVG(history))
}

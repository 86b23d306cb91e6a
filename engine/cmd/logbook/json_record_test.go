package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"logbook/engine/record"
	"logbook/engine/wire"
)

// FuzzJSON prints a record as JSON, and reads the same again, to the byte.
func FuzzJSON(f *testing.F) {
	f.Add([]byte("key"), []byte("value"), "name", []byte("x"), true)
	f.Add([]byte{0xff, 0xfe}, []byte{}, "", []byte{0}, false)
	f.Add([]byte("<&>\u2028"), []byte("\r"), "a", []byte(nil), false)
	f.Fuzz(func(t *testing.T, key, value []byte, name string, header []byte, twice bool) {
		name = string([]rune(name)) // a name is text
		in := wire.Record{Key: key, Value: value, Timestamp: new(int64(7)), Headers: []wire.Header{{Key: name, Value: header}}}
		if twice {
			in.Headers = append(in.Headers, in.Headers[0])
		}
		line, err := json.Marshal(asJSON("t", 0, in))
		require.NoError(t, err)
		out, err := parseRecord(line)
		require.NoError(t, err, string(line))
		want := record.Record{Key: key, Value: value, Timestamp: timeOf(7)}
		for _, h := range in.Headers {
			want.Headers = append(want.Headers, record.Header{Key: h.Key, Value: h.Value})
		}
		require.True(t, want.Equal(out), "%s\n%+v", line, out)
	})
}

package wire_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/wire"
)

var update = flag.Bool("update", false, "write PROTOCOL.md from the types")

// PROTOCOL.md is what the types say, field by field.
func TestProtocolDocument(t *testing.T) {
	got := protocol()
	if *update {
		require.NoError(t, os.WriteFile("PROTOCOL.md", []byte(got), 0o644))
	}
	want, err := os.ReadFile("PROTOCOL.md")
	require.NoError(t, err)
	require.Equal(t, string(want), got, "run: go test ./engine/wire -update")
}

func protocol() string {
	var b strings.Builder
	b.WriteString("# The protocol, message by message\n\nGenerated from the types in this folder; [doc.go](doc.go) says what holds for all of them.\n\n")
	b.WriteString("A frame is a length (u32, big-endian) and as many bytes of JSON: `{\"v\":1,\"id\":7,\"type\":\"…\",\"payload\":{…}}`. `v` is the protocol's version, `id` is the client's, and the reply repeats it.\n\n")
	b.WriteString("Types: *int* is an integer of up to 63 bits, *bytes* a string of base64 or null, *[x]* a list of x, *x?* may be left out.\n\n## Messages\n\n| type | what it does |\n| --- | --- |\n")
	for _, m := range wire.Messages {
		fmt.Fprintf(&b, "| [%s](#%s) | %s |\n", m.Type, m.Type, m.Doc)
	}
	structs := newStructs()
	for _, m := range wire.Messages {
		fmt.Fprintf(&b, "\n### %s\n\n%s\n\nRequest:\n\n%s", m.Type, m.Doc, structs.table(reflect.TypeOf(m.Request)))
		if m.Reply == nil {
			b.WriteString("\nThere is no reply.\n")
			continue
		}
		fmt.Fprintf(&b, "\nReply:\n\n%s", structs.table(reflect.TypeOf(m.Reply)))
	}
	fmt.Fprintf(&b, "\n## Errors\n\nA reply of type `error`:\n\n%s", structs.table(reflect.TypeOf(wire.Error{})))
	b.WriteString("\n## Parts\n")
	for i := 0; i < len(structs.order); i++ { // it grows
		s := structs.order[i]
		fmt.Fprintf(&b, "\n### %s\n\n%s", s.Name(), structs.table(s))
	}
	return b.String()
}

// structs collects the types that messages are made of, once each.
type structs struct {
	known map[reflect.Type]bool
	order []reflect.Type
}

func newStructs() *structs { return &structs{known: map[reflect.Type]bool{}} }

func (s *structs) table(t reflect.Type) string {
	if t.NumField() == 0 {
		return "No fields.\n"
	}
	var b strings.Builder
	b.WriteString("| field | type | |\n| --- | --- | --- |\n")
	for i := range t.NumField() {
		f := t.Field(i)
		name, rest, _ := strings.Cut(f.Tag.Get("json"), ",")
		optional := ""
		if strings.Contains(rest, "omitempty") {
			optional = "?"
		}
		fmt.Fprintf(&b, "| `%s` | %s%s | %s |\n", name, s.name(f.Type), optional, f.Tag.Get("doc"))
	}
	return b.String()
}

func (s *structs) name(t reflect.Type) string {
	switch {
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		return "bytes"
	case t.Kind() == reflect.Slice:
		return "[" + s.name(t.Elem()) + "]"
	case t.Kind() == reflect.Pointer:
		return s.name(t.Elem()) + " or null"
	case t.Kind() == reflect.Map:
		return "{" + s.name(t.Key()) + ": " + s.name(t.Elem()) + "}"
	case t.Kind() == reflect.Struct:
		if !s.known[t] {
			s.known[t] = true
			s.order = append(s.order, t)
		}
		return fmt.Sprintf("[%s](#%s)", t.Name(), strings.ToLower(t.Name()))
	case t.Kind() == reflect.String:
		return "string"
	case t.Kind() == reflect.Bool:
		return "bool"
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64:
		return "int"
	}
	panic(t.String())
}

func TestFrames(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, wire.Write(&b, 7, "fetch", wire.Fetch{Topic: "t", Offset: 1<<53 + 1}))
	e, err := wire.Read(&b, 1000)
	require.NoError(t, err)
	assert.Equal(t, []any{uint64(7), "fetch", 1}, []any{e.ID, e.Type, e.Version})
	assert.Contains(t, string(e.Payload), `"offset":9007199254740993`, "in full, beyond 2^53")
	_, err = wire.Read(&b, 1000)
	assert.ErrorIs(t, err, io.EOF)

	// What says no version is of the first one, as kafka-lite's frames are.
	e, err = wire.Parse([]byte(`{"type":"produce","payload":{"topic":"t"}}`))
	require.NoError(t, err)
	assert.Equal(t, []any{uint64(0), "produce", 1, `{"topic":"t"}`}, []any{e.ID, e.Type, e.Version, string(e.Payload)})
}

func TestHostileFrames(t *testing.T) {
	frame := func(n uint32, body string) []byte { return append(binary.BigEndian.AppendUint32(nil, n), body...) }
	body := func(s string) []byte { return frame(uint32(len(s)), s) }
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"too long":           {frame(1001, ""), "the limit is 1000"},
		"negative":           {frame(0xffffffff, ""), "4294967295 bytes"},
		"HTTP":               {[]byte("GET / HTTP/1.1\r\n"), "speak this protocol"},
		"cut in the length":  {frame(8, "")[:3], "unexpected EOF"},
		"cut in the body":    {frame(800, "{"), "unexpected EOF"},
		"no JSON":            {body("hello"), "not a JSON object"},
		"an array":           {body("[1]"), "not a JSON object"},
		"empty":              {body(""), "not a JSON object"},
		"deep":               {body(`{"v":1,"id":1,"type":"x","payload":` + strings.Repeat("[", 900) + "}"), "not a JSON object"}, // no object: not taken on trust
		"of another version": {body(`{"v":2,"id":1,"type":"x"}`), "version 2"},
		"of no version":      {body(`{"v":0,"id":1,"type":"x"}`), "version 0"},
		"without a type":     {body(`{"v":1,"id":1}`), "without a type"},
		"with a negative id": {body(`{"v":1,"id":-1,"type":"x"}`), "not a JSON object"},
		"with a fraction":    {body(`{"v":1,"id":1.5,"type":"x"}`), "not a JSON object"},
	} {
		_, err := wire.Read(bytes.NewReader(c.data), 1000)
		require.Error(t, err, name)
		assert.Contains(t, err.Error(), c.want, name)
	}
}

// FuzzRead reads arbitrary bytes: an envelope or an error, and no memory beyond the bytes.
func FuzzRead(f *testing.F) {
	var b bytes.Buffer
	_ = wire.Write(&b, 1, "produce", wire.Produce{Topic: "t", Records: []wire.Record{{Key: []byte("k"), Value: nil}}})
	f.Add(b.Bytes())
	f.Add([]byte{0, 0, 0, 2, '{', '}'})
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := wire.Read(bytes.NewReader(data), 1<<20)
		if err != nil {
			var fe *wire.FrameError
			var tooLarge *wire.FrameTooLargeError
			if !errors.As(err, &fe) && !errors.As(err, &tooLarge) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatal(err)
			}
			return
		}
		// Whether the payload is JSON shows when it is read as what it should be.
		var p wire.Produce
		if json.Unmarshal(e.Payload, &p) != nil {
			return
		}
		again, err := wire.Append(nil, e.ID, e.Type, p)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := wire.Read(bytes.NewReader(again), 1<<24); err != nil || back.ID != e.ID || back.Type != e.Type {
			t.Fatalf("%+v came back as %+v, %v", e, back, err)
		}
	})
}

// FuzzUnmarshal holds the fast decoder to encoding/json: the same value, or the same refusal.
func FuzzUnmarshal(f *testing.F) {
	for _, s := range []string{
		`{"topic":"t","partition":-1,"acks":"all","timeout_ms":5,"records":[{"key":"aw==","value":null,"timestamp_ms":7,"headers":[{"key":"h","value":"dg=="}]},{"key":"","value":""}]}`,
		`{"records":[],"next_offset":9007199254740993,"high_watermark":1,"log_start":-0}`,
		`{"records":[{"value":"a\nw==","key":"a\u0061=="}]} `, `{"topic":"\u00e9","partition":01}`, `{"partition":1e3}`, `{"records":[{}],"records":[{}]}`, `{"records":null}`, `{`, `{"topic":"t",}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var p, wantP wire.Produce
		err, wantErr := wire.Unmarshal(data, &p), json.Unmarshal(data, &wantP)
		require.Equal(t, wantErr == nil, err == nil, "%v, %v", wantErr, err)
		if err == nil {
			require.Equal(t, wantP, p)
		}
		r, wantR := wire.FetchReply{}, wire.FetchReply{}
		err, wantErr = wire.Unmarshal(data, &r), json.Unmarshal(data, &wantR)
		require.Equal(t, wantErr == nil, err == nil, "%v, %v", wantErr, err)
		if err == nil {
			require.Equal(t, len(wantR.Records), len(r.Records))
			if len(r.Records) > 0 {
				require.Equal(t, wantR, r)
			}
		}
	})
}

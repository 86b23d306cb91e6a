package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
)

// Version is the protocol's version.
const Version = 1

// Envelope is what a frame holds.
type Envelope struct {
	Version int             `json:"v"`
	ID      uint64          `json:"id"`
	Type    string          `json:"type"`
	Payload json.RawMessage `json:"payload"`
}

// DefaultMaxFrame is the longest frame that is accepted where nothing else is said.
const DefaultMaxFrame = 16 << 20

// FrameTooLargeError: a frame's length is over the limit, or it is no frame at all: the
// first bytes of another protocol read as a length too.
type FrameTooLargeError struct {
	Length uint32
	Limit  int
}

func (e *FrameTooLargeError) Error() string {
	return fmt.Sprintf("wire: a frame of %d bytes, the limit is %d; send less at a time, or speak this protocol", e.Length, e.Limit)
}

// FrameError: a frame's bytes are not an envelope.
type FrameError struct {
	Reason string
	Err    error
}

func (e *FrameError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("wire: %s: %v", e.Reason, e.Err)
	}
	return "wire: " + e.Reason
}

func (e *FrameError) Unwrap() error { return e.Err }

// ReadLength reads a frame's length and holds it to a limit. io.EOF means that the other
// side closed between frames.
func ReadLength(r io.Reader, limit int) (int, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if int64(n) > int64(limit) {
		return 0, &FrameTooLargeError{Length: n, Limit: limit}
	}
	return int(n), nil
}

// ReadBody reads the rest of a frame into buf, which grows as bytes arrive.
func ReadBody(r io.Reader, n int, buf *bytes.Buffer) error {
	buf.Reset()
	got, err := io.CopyN(buf, r, int64(n))
	if errors.Is(err, io.EOF) && got < int64(n) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// Parse reads an envelope from a frame's bytes.
func Parse(data []byte) (Envelope, error) {
	if e, ok := parseUsual(data); ok {
		return e, nil
	}
	e := Envelope{Version: Version} // what says no version is of the first: kafka-lite's frames do not
	if err := json.Unmarshal(data, &e); err != nil {
		return e, &FrameError{Reason: "a frame is not a JSON object as it should be", Err: err}
	}
	switch {
	case e.Version != Version:
		return e, &FrameError{Reason: fmt.Sprintf("version %d; this side speaks %d", e.Version, Version)}
	case e.Type == "":
		return e, &FrameError{Reason: "a frame without a type"}
	}
	return e, nil
}

// parseUsual reads an envelope that was written as Append writes it, without looking at
// the payload twice. Whatever is unusual is for the JSON decoder to judge.
func parseUsual(data []byte) (Envelope, bool) {
	e := Envelope{Version: Version}
	rest, ok := bytes.CutPrefix(data, []byte(`{"v":1,"id":`))
	if !ok || len(rest) == 0 || rest[len(rest)-1] != '}' {
		return e, false
	}
	number, rest, ok := bytes.Cut(rest, []byte(`,"type":"`))
	if !ok || len(number) > 20 {
		return e, false
	}
	var err error
	if e.ID, err = strconv.ParseUint(string(number), 10, 64); err != nil {
		return e, false
	}
	kind, rest, ok := bytes.Cut(rest, []byte(`","payload":`))
	if !ok || len(kind) == 0 || len(kind) > 64 || bytes.IndexFunc(kind, func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') }) >= 0 {
		return e, false
	}
	e.Type, e.Payload = string(kind), rest[:len(rest)-1]
	return e, len(e.Payload) > 1 && e.Payload[0] == '{'
}

// Read reads a frame of at most limit bytes.
func Read(r io.Reader, limit int) (Envelope, error) {
	n, err := ReadLength(r, limit)
	if err != nil {
		return Envelope{}, err
	}
	var buf bytes.Buffer
	if err := ReadBody(r, n, &buf); err != nil {
		return Envelope{}, err
	}
	return Parse(buf.Bytes())
}

// Append encodes a frame onto dst.
func Append(dst []byte, id uint64, kind string, payload any) ([]byte, error) {
	body, err := json.Marshal(payload)
	if err != nil {
		return dst, fmt.Errorf("wire: encoding a %s: %w", kind, err)
	}
	name, err := json.Marshal(kind)
	if err != nil {
		return dst, fmt.Errorf("wire: encoding a %s: %w", kind, err)
	}
	start := len(dst)
	dst = append(slices.Grow(dst, len(body)+80), 0, 0, 0, 0)
	dst = fmt.Appendf(dst, `{"v":%d,"id":%d,"type":%s,"payload":`, Version, id, name)
	dst = append(append(dst, body...), '}')
	if len(dst)-start-4 > math.MaxInt32 {
		return dst[:start], fmt.Errorf("wire: a %s of %d bytes fits no frame", kind, len(body))
	}
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start-4))
	return dst, nil
}

// Write writes a frame.
func Write(w io.Writer, id uint64, kind string, payload any) error {
	frame, err := Append(nil, id, kind, payload)
	if err != nil {
		return err
	}
	_, err = w.Write(frame)
	return err
}

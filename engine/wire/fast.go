package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"math"
)

// Unmarshal reads a payload. The two that carry records in bulk, Produce and FetchReply,
// are read by a decoder that knows what they usually look like, some ten times as fast;
// whatever it does not expect is left to encoding/json, which has the last word on what is
// an error.
func Unmarshal(data []byte, v any) error {
	f := fast{b: data}
	switch v := v.(type) {
	case *Produce:
		var p Produce
		if f.produce(&p); f.done() {
			*v = p
			return nil
		}
	case *FetchReply:
		r := FetchReply{Records: []Record{}}
		if f.fetchReply(&r); f.done() {
			*v = r
			return nil
		}
	}
	return json.Unmarshal(data, v)
}

// fast reads JSON without escapes, fractions or surprises.
type fast struct {
	b       []byte
	i       int
	unusual bool
	arena   []byte // room for decoded bytes: less than the JSON takes
	times   []int64
}

// done reports whether all was read, and nothing was unusual.
func (f *fast) done() bool {
	f.space()
	return !f.unusual && f.i == len(f.b)
}

func (f *fast) space() {
	for f.i < len(f.b) && (f.b[f.i] == ' ' || f.b[f.i] == '\n' || f.b[f.i] == '\t' || f.b[f.i] == '\r') {
		f.i++
	}
}

// next consumes a byte if it comes next.
func (f *fast) next(c byte) bool {
	f.space()
	if f.unusual || f.i >= len(f.b) || f.b[f.i] != c {
		return false
	}
	f.i++
	return true
}

func (f *fast) expect(c byte) {
	if !f.next(c) {
		f.unusual = true
	}
}

func (f *fast) null() bool {
	f.space()
	if !f.unusual && bytes.HasPrefix(f.b[f.i:], []byte("null")) {
		f.i += 4
		return true
	}
	return false
}

// raw reads a string of plain ASCII, as it stands.
func (f *fast) raw() []byte {
	f.expect('"')
	if f.unusual {
		return nil
	}
	n := bytes.IndexByte(f.b[f.i:], '"')
	if n < 0 {
		f.unusual = true
		return nil
	}
	s := f.b[f.i : f.i+n]
	f.i += n + 1
	return s
}

func (f *fast) text() string {
	s := f.raw()
	for _, c := range s {
		if c < 0x20 || c >= 0x7f || c == '\\' {
			f.unusual = true
		}
	}
	return string(s)
}

func (f *fast) number() int64 {
	f.space()
	start := f.i
	if f.i < len(f.b) && f.b[f.i] == '-' {
		f.i++
	}
	n, digits := int64(0), f.i
	for f.i < len(f.b) && f.b[f.i] >= '0' && f.b[f.i] <= '9' {
		n = n*10 + int64(f.b[f.i]-'0')
		f.i++
	}
	// No leading zeros, at most 18 digits, and no fraction after.
	long := f.i - digits
	if long == 0 || long > 18 || long > 1 && f.b[digits] == '0' || f.i < len(f.b) && (f.b[f.i] == '.' || f.b[f.i]|0x20 == 'e') {
		f.unusual = true
	}
	if digits > start {
		n = -n
	}
	return n
}

// timestamp reads a number that may be missing; many share an allocation.
func (f *fast) timestamp() *int64 {
	if len(f.times) == cap(f.times) {
		f.times = make([]int64, 0, 128)
	}
	f.times = append(f.times, f.number())
	return &f.times[len(f.times)-1]
}

// bytes reads base64, or null.
func (f *fast) bytes() []byte {
	if f.null() {
		return nil
	}
	s := f.raw()
	if f.unusual {
		return nil
	}
	if f.arena == nil {
		f.arena = make([]byte, 0, base64.StdEncoding.DecodedLen(len(f.b)))
	}
	start := len(f.arena)
	n, err := base64.StdEncoding.Decode(f.arena[start:cap(f.arena)], s)
	if err != nil || bytes.ContainsAny(s, "\r\n") { // which the decoder skips, and JSON does not allow
		f.unusual = true
		return nil
	}
	f.arena = f.arena[:start+n]
	return f.arena[start : start+n : start+n]
}

// object reads an object, and calls field with each name; it must read the value.
func (f *fast) object(field func(name string)) {
	f.expect('{')
	if f.next('}') {
		return
	}
	for !f.unusual {
		name := f.raw()
		f.expect(':')
		if f.unusual {
			return
		}
		field(string(name))
		if !f.next(',') {
			f.expect('}')
			return
		}
	}
}

// array reads an array, and calls element where each one stands.
func (f *fast) array(element func()) {
	f.expect('[')
	if f.next(']') {
		return
	}
	for !f.unusual {
		element()
		if !f.next(',') {
			f.expect(']')
			return
		}
	}
}

func (f *fast) int(v *int) {
	n := f.number()
	if n > math.MaxInt32 || n < math.MinInt32 {
		f.unusual = true
	}
	*v = int(n)
}

func (f *fast) produce(p *Produce) {
	f.object(func(name string) {
		switch name {
		case "topic":
			p.Topic = f.text()
		case "partition":
			f.int(&p.Partition)
		case "acks":
			p.Acks = f.text()
		case "timeout_ms":
			p.TimeoutMS = f.number()
		case "records":
			f.records(&p.Records)
		default:
			f.unusual = true
		}
	})
}

func (f *fast) fetchReply(r *FetchReply) {
	f.object(func(name string) {
		switch name {
		case "records":
			f.records(&r.Records)
		case "next_offset":
			r.NextOffset = f.number()
		case "high_watermark":
			r.HighWatermark = f.number()
		case "log_start":
			r.LogStartOffset = f.number()
		case "leader_epoch":
			var n int
			f.int(&n)
			r.LeaderEpoch = int32(n)
		default:
			f.unusual = true
		}
	})
}

func (f *fast) records(to *[]Record) {
	if len(*to) > 0 {
		f.unusual = true // twice the same name: let encoding/json say what that means
	}
	f.array(func() {
		var r Record
		f.object(func(name string) {
			switch name {
			case "offset":
				r.Offset = f.number()
			case "timestamp_ms":
				r.Timestamp = f.timestamp()
			case "key":
				r.Key = f.bytes()
			case "value":
				r.Value = f.bytes()
			case "headers":
				f.headers(&r)
			default:
				f.unusual = true
			}
		})
		*to = append(*to, r)
	})
}

func (f *fast) headers(r *Record) {
	if f.null() {
		return
	}
	f.array(func() {
		var h Header
		f.object(func(name string) {
			switch name {
			case "key":
				h.Key = f.text()
			case "value":
				h.Value = f.bytes()
			default:
				f.unusual = true
			}
		})
		r.Headers = append(r.Headers, h)
	})
}

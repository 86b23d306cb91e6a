package wire_test

import (
	"bytes"
	"testing"

	"logbook/engine/wire"
)

// What a request of 100 records of 1 KiB costs to encode and to read, beside a copy of
// its bytes.
func BenchmarkProduce(b *testing.B) {
	p := wire.Produce{Topic: "flights", Records: make([]wire.Record, 100)}
	for i := range p.Records {
		p.Records[i].Value = bytes.Repeat([]byte{byte(i)}, 1024)
	}
	frame, err := wire.Append(nil, 1, "produce", p)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("copy", func(b *testing.B) {
		b.SetBytes(100 << 10)
		dst := make([]byte, len(frame))
		for b.Loop() {
			copy(dst, frame)
		}
	})
	b.Run("encode", func(b *testing.B) {
		b.SetBytes(100 << 10)
		var dst []byte
		for b.Loop() {
			dst, _ = wire.Append(dst[:0], 1, "produce", p)
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.SetBytes(100 << 10)
		for b.Loop() {
			e, err := wire.Parse(frame[4:])
			if err != nil {
				b.Fatal(err)
			}
			var q wire.Produce
			if err := wire.Unmarshal(e.Payload, &q); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// Package compression registers the snappy, lz4 and zstd codecs of format 2 batches
// with package record (gzip is there already). Import it for its effect:
//
//	import _ "logbook/engine/record/compression"
//
// It is a package of its own because the codecs are not in the standard library, and a
// program that reads only uncompressed logs should not pay for linking them.
package compression

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"logbook/engine/record"
)

func init() {
	record.RegisterCodec(record.Snappy, snappyCodec{})
	record.RegisterCodec(record.LZ4, lz4Codec{})
	record.RegisterCodec(record.Zstd, newZstd())
}

// snappyCodec writes one raw snappy block and reads that or the "xerial" framing that
// Java clients wrap blocks in: an eight-byte magic, two int32 versions, then blocks
// with int32 lengths.
type snappyCodec struct{}

var xerialMagic = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

const xerialHeader = 16

func (snappyCodec) Compress(dst, src []byte) ([]byte, error) {
	return append(dst, s2.EncodeSnappy(nil, src)...), nil
}

func (snappyCodec) Decompress(dst, src []byte, limit int) ([]byte, error) {
	if !bytes.HasPrefix(src, xerialMagic) {
		return decodeBlock(dst, src, limit)
	}
	if len(src) < xerialHeader {
		return dst, errors.New("snappy: the framing header is cut short")
	}
	start := len(dst)
	for src = src[xerialHeader:]; len(src) > 0; {
		if len(src) < 4 {
			return dst[:start], errors.New("snappy: a block length is cut short")
		}
		n := binary.BigEndian.Uint32(src)
		if src = src[4:]; uint64(n) > uint64(len(src)) {
			return dst[:start], fmt.Errorf("snappy: a block of %d bytes in %d", n, len(src))
		}
		var err error
		if dst, err = decodeBlock(dst, src[:n], limit-(len(dst)-start)); err != nil {
			return dst[:start], err
		}
		src = src[n:]
	}
	return dst, nil
}

func decodeBlock(dst, src []byte, limit int) ([]byte, error) {
	n, err := s2.DecodedLen(src)
	if err != nil {
		return dst, err
	}
	if n > limit {
		return dst, fmt.Errorf("%w: a snappy block of %d bytes", record.ErrTooLarge, n)
	}
	// A snappy copy makes at most 64 bytes out of two: a claim beyond that is a lie,
	// and is refused before it is allocated.
	if n > 64*len(src) {
		return dst, fmt.Errorf("snappy: %d bytes cannot hold %d", len(src), n)
	}
	block, err := s2.Decode(nil, src)
	if err != nil {
		return dst, err
	}
	return append(dst, block...), nil
}

type lz4Codec struct{}

var (
	lz4Writers = sync.Pool{New: func() any { return lz4.NewWriter(nil) }}
	lz4Readers = sync.Pool{New: func() any { return lz4.NewReader(nil) }}
)

func (lz4Codec) Compress(dst, src []byte) ([]byte, error) {
	w := lz4Writers.Get().(*lz4.Writer)
	defer lz4Writers.Put(w)
	return record.CompressStream(dst, src, w)
}

func (lz4Codec) Decompress(dst, src []byte, limit int) ([]byte, error) {
	r := lz4Readers.Get().(*lz4.Reader)
	defer lz4Readers.Put(r)
	r.Reset(bytes.NewReader(src))
	return record.ReadLimited(dst, r, limit)
}

type zstdCodec struct {
	enc *zstd.Encoder // EncodeAll is safe for concurrent use
	dec sync.Pool     // of *zstd.Decoder, each for one stream at a time
}

func newZstd() *zstdCodec {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		panic(err) // only bad options can fail
	}
	return &zstdCodec{enc: enc, dec: sync.Pool{New: func() any {
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxMemory(record.MaxDecompressedBytes))
		if err != nil {
			panic(err)
		}
		return d
	}}}
}

func (c *zstdCodec) Compress(dst, src []byte) ([]byte, error) {
	return c.enc.EncodeAll(src, dst), nil
}

func (c *zstdCodec) Decompress(dst, src []byte, limit int) ([]byte, error) {
	d := c.dec.Get().(*zstd.Decoder)
	defer c.dec.Put(d)
	if err := d.Reset(bytes.NewReader(src)); err != nil {
		return dst, err
	}
	out, err := record.ReadLimited(dst, d, limit)
	_ = d.Reset(nil) // let go of src
	return out, err
}

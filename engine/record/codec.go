package record

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"sync"
)

// Compression numbers a batch's codec, as Kafka does.
type Compression int8

const (
	None   Compression = 0
	Gzip   Compression = 1
	Snappy Compression = 2
	LZ4    Compression = 3
	Zstd   Compression = 4 // KIP-110
)

func (c Compression) String() string {
	switch c {
	case None:
		return "uncompressed"
	case Gzip:
		return "gzip"
	case Snappy:
		return "snappy"
	case LZ4:
		return "lz4"
	case Zstd:
		return "zstd"
	}
	return fmt.Sprintf("compression %d", int8(c))
}

// MaxDecompressedBytes bounds what a batch's records may decompress to: a small batch
// that claims to be enormous costs no more than this.
const MaxDecompressedBytes = 64 << 20

// Codec compresses a batch's records as one block. It must be safe for concurrent use.
type Codec interface {
	// Compress appends the compressed src to dst.
	Compress(dst, src []byte) ([]byte, error)
	// Decompress appends the decompressed src to dst. It stops with ErrTooLarge before
	// it appends more than limit bytes.
	Decompress(dst, src []byte, limit int) ([]byte, error)
}

var codecs [5]Codec

func init() { codecs[Gzip] = gzipCodec{} }

// RegisterCodec makes a codec available to all batches. Packages call it from init:
// importing logbook/engine/record/compression registers snappy, lz4 and zstd.
func RegisterCodec(c Compression, codec Codec) { codecs[c] = codec }

func codecFor(c Compression) (Codec, error) {
	if c <= None || int(c) >= len(codecs) {
		return nil, frameError(2, "attributes", v2AtAttributes, ErrMalformed, "unknown %s", c)
	}
	if codecs[c] == nil {
		return nil, frameError(2, "attributes", v2AtAttributes, ErrUnsupported,
			"no codec for %s; import logbook/engine/record/compression", c)
	}
	return codecs[c], nil
}

var scratch = sync.Pool{New: func() any { return new([]byte) }}

// compressTail replaces out[from:] by its compressed form.
func compressTail(out []byte, from int, c Compression) ([]byte, error) {
	codec, err := codecFor(c)
	if err != nil {
		return nil, err
	}
	raw := scratch.Get().(*[]byte)
	defer scratch.Put(raw)
	*raw = append((*raw)[:0], out[from:]...)
	if out, err = codec.Compress(out[:from], *raw); err != nil {
		return nil, fmt.Errorf("record: compressing a batch with %s: %w", c, err)
	}
	return out, nil
}

func decompress(dst, src []byte, c Compression) ([]byte, error) {
	codec, err := codecFor(c)
	if err != nil {
		return dst, err
	}
	out, err := codec.Decompress(dst, src, MaxDecompressedBytes)
	if err != nil {
		return dst, frameError(2, "records", v2Header, fmt.Errorf("%w: %w", ErrMalformed, err), "decompressing %d bytes of %s", len(src), c)
	}
	return out, nil
}

// ReadLimited appends all of r to dst, and stops with ErrTooLarge beyond limit bytes.
// Codecs that stream decompress through it; the buffer grows with what really arrives.
func ReadLimited(dst []byte, r io.Reader, limit int) ([]byte, error) {
	start := len(dst)
	for {
		if len(dst) == cap(dst) {
			dst = append(dst, 0)[:len(dst)]
		}
		n, err := r.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		if len(dst)-start > limit {
			return dst[:start], fmt.Errorf("%w: more than %d bytes decompressed", ErrTooLarge, limit)
		}
		if err == io.EOF {
			return dst, nil
		}
		if err != nil {
			return dst[:start], err
		}
	}
}

// CompressStream appends src, compressed by w, to dst. Codecs that stream compress through it.
func CompressStream(dst, src []byte, w interface {
	io.WriteCloser
	Reset(io.Writer)
}) ([]byte, error) {
	buf := bytes.NewBuffer(dst)
	w.Reset(buf)
	if _, err := w.Write(src); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

type gzipCodec struct{}

var (
	gzipWriters = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}
	gzipReaders = sync.Pool{New: func() any { return new(gzip.Reader) }}
)

func (gzipCodec) Compress(dst, src []byte) ([]byte, error) {
	w := gzipWriters.Get().(*gzip.Writer)
	defer gzipWriters.Put(w)
	return CompressStream(dst, src, w)
}

func (gzipCodec) Decompress(dst, src []byte, limit int) ([]byte, error) {
	r := gzipReaders.Get().(*gzip.Reader)
	defer gzipReaders.Put(r)
	if err := r.Reset(bytes.NewReader(src)); err != nil {
		return dst, err
	}
	return ReadLimited(dst, r, limit)
}

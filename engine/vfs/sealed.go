package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
)

// A sealed file is small, written whole, and ends with a line that holds the checksum
// (CRC-32C) of what stands before it. Any flipped bit and any cut is found.

const sealFormat = "crc32c %08x\n"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrSeal: a sealed file is not what was written.
var ErrSeal = errors.New("the checksum at its end does not fit its content")

// WriteSealed replaces a file by data with a seal, atomically; see WriteFileAtomic.
func WriteSealed(fsys FS, name string, data []byte) error {
	sealed := append(bytes.Clone(data), '\n')
	return WriteFileAtomic(fsys, name, fmt.Appendf(sealed, sealFormat, crc32.Checksum(sealed, castagnoli)))
}

// ReadSealed returns the content of a sealed file of at most limit bytes.
//
// Errors: fs.ErrNotExist, ErrSeal.
func ReadSealed(fsys FS, name string, limit int64) ([]byte, error) {
	data, err := ReadFile(fsys, name, limit)
	if err != nil {
		return nil, err
	}
	const size = len("crc32c 00000000\n")
	if len(data) < size+1 {
		return nil, fmt.Errorf("%s: %w", name, ErrSeal)
	}
	content, seal := data[:len(data)-size], data[len(data)-size:]
	if string(seal) != fmt.Sprintf(sealFormat, crc32.Checksum(content, castagnoli)) {
		return nil, fmt.Errorf("%s: %w", name, ErrSeal)
	}
	return content[:len(content)-1], nil
}

package service

import (
	"encoding/base32"
	"io"
	"sync/atomic"
)

// randomText draws twelve letters and digits.
func randomText(random io.Reader) (string, error) {
	var b [8]byte
	if _, err := io.ReadFull(random, b[:]); err != nil {
		return "", err
	}
	return base32.StdEncoding.EncodeToString(b[:])[:12], nil
}

// once is set by the first who comes.
type once struct{ done atomic.Bool }

func (o *once) set() bool { return o.done.CompareAndSwap(false, true) }

package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// What is under every broker: the network and the disk, used as plainly as can be.

// relay sends batches through a relay that stores nothing: each writer has a connection to
// it, and one of its own on which its bytes come out.
func (b *benching) relay(ctx context.Context) (benchResult, error) {
	in, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return benchResult{}, err
	}
	defer in.Close()
	out, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return benchResult{}, err
	}
	defer out.Close()
	var to, from []net.Conn
	var relays sync.WaitGroup
	defer func() {
		for _, c := range append(to, from...) {
			c.Close()
		}
		relays.Wait()
	}()
	for range b.writers {
		ends, err := pipe(in, out)
		if err != nil {
			return benchResult{}, err
		}
		to, from = append(to, ends.to), append(from, ends.from)
		relays.Go(func() {
			buf := make([]byte, 64<<10) // read and written again, as a broker must
			_, _ = io.CopyBuffer(struct{ io.Writer }{ends.relayOut}, struct{ io.Reader }{ends.relayIn}, buf)
			ends.relayIn.Close()
			ends.relayOut.Close()
		})
	}
	c := b.newClock()
	size := b.batch * b.size
	err = b.writersRun(ctx, c, func(w int, due time.Time) error {
		sent := make(chan error, 1)
		go func() { _, err := to[w].Write(bytes.Join(b.values(due), nil)); sent <- err }()
		_, err := io.ReadFull(from[w], make([]byte, size))
		if werr := <-sent; werr != nil {
			return werr
		}
		if err == nil {
			c.done(b.batch, due)
		}
		return err
	})
	return b.result("relay", c), err
}

type pipeEnds struct{ to, relayIn, relayOut, from net.Conn }

func pipe(in, out net.Listener) (p pipeEnds, err error) {
	if p.to, err = net.Dial("tcp", in.Addr().String()); err != nil {
		return p, err
	}
	if p.relayIn, err = in.Accept(); err != nil {
		return p, err
	}
	if p.from, err = net.Dial("tcp", out.Addr().String()); err != nil {
		return p, err
	}
	p.relayOut, err = out.Accept()
	return p, err
}

// file writes the batches of all writers to one file, and syncs each.
func (b *benching) file(ctx context.Context) (benchResult, error) {
	f, err := os.CreateTemp("", "logbook-bench-")
	if err != nil {
		return benchResult{}, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	const size = 64 << 20
	if err := f.Truncate(size); err != nil {
		return benchResult{}, err
	}
	c := b.newClock()
	at := int64(0)
	for time.Now().Before(c.to) && ctx.Err() == nil {
		due := time.Now()
		all := bytes.Join(b.values(due), nil)
		if at+int64(len(all)) > size {
			at = 0
		}
		if _, err := f.WriteAt(all, at); err != nil {
			return benchResult{}, err
		}
		if err := f.Sync(); err != nil {
			return benchResult{}, err
		}
		at += int64(len(all))
		c.done(b.batch, due)
	}
	return b.result("file", c), ctx.Err()
}

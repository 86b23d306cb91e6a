package kafka

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/xdg-go/scram"

	"logbook/engine/admission"
)

// conn is a client's connection.
type conn struct {
	f     *Front
	net   net.Conn
	place *admission.Place
	in    *bufio.Reader
	owed  atomic.Int64 // bytes of replies that are not written yet
	out   chan *slot   // replies, in the order of their requests
	name  string       // the client's id, as it last gave it
	host  string

	user      string                    // who has proved to be whom
	mechanism string                    // of the SASL exchange under way
	scram     *scram.ServerConversation // likewise, where the password is not said
	listener  string                    // the name of the endpoints that its clients are told
	session   *fetchSession
	spoken    bool // a request came
	trusted   bool // it need prove nothing, or has
}

// slot is the place of a reply.
type slot struct {
	ready chan struct{} // closed when frame is set
	frame []byte        // nil: there is none, as after a produce without acknowledgement
	bytes int64         // of memory, held until the reply is written
	fatal error         // the connection ends after it
	done  chan struct{} // closed when it is written
}

// maxPipelined is how many produce requests of a connection may be under way.
const maxPipelined = 64

// What requests may take that carry no records.
const maxPlainRequest = 4 << 20

// plainGrowth is how much larger such a request may be when it is read: a name takes two
// bytes on the wire, and a struct and a string in memory.
const plainGrowth = 25

// errHandled: the connection is over, and there is nothing to say about it.
var errHandled = errors.New("kafka: the connection is over")

// serve reads requests until the connection ends.
func (c *conn) serve() error {
	written := make(chan error, 1)
	go func() { written <- c.write() }()
	err := c.read()
	close(c.out)
	if werr := <-written; err == nil {
		err = werr
	}
	return err
}

// write sends replies in the order of their requests.
func (c *conn) write() (failed error) {
	w := bufio.NewWriterSize(c.place.Writer(c.net), 64<<10)
	for s := range c.out {
		<-s.ready
		if failed == nil && s.frame != nil {
			_ = c.net.SetWriteDeadline(time.Now().Add(c.f.cfg.RequestTimeout))
			c.place.Hold(admission.Out, max(1, c.owed.Load()))
			if _, err := w.Write(s.frame); err != nil {
				failed = err
			}
		}
		if failed == nil && (len(c.out) == 0 || s.fatal != nil) {
			failed = w.Flush()
			c.place.Hold(admission.Out, 0)
		}
		if failed == nil {
			failed = s.fatal
		}
		if failed != nil {
			c.net.Close() // and the reader notices
		}
		c.f.cfg.Memory.Give(s.bytes)
		c.owed.Add(-int64(len(s.frame)))
		c.place.End()
		s.frame = nil
		close(s.done)
	}
	return failed
}

func (c *conn) read() error {
	for {
		_ = c.net.SetReadDeadline(time.Now().Add(c.f.patience(c)))
		body, held, err := c.frame()
		if err != nil {
			c.f.cfg.Memory.Give(held)
			if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
				return nil
			}
			return err
		}
		h, err := parseHeader(body)
		if err != nil {
			c.f.cfg.Memory.Give(held)
			return err
		}
		c.name, c.spoken = h.client, true
		c.f.count(h.key)
		if err := c.begin(h, held); err != nil {
			return err
		}
	}
}

// frame reads a request. held is what it takes of the budget.
func (c *conn) frame() (body []byte, held int64, err error) {
	var size [4]byte
	if _, err := io.ReadFull(c.in, size[:]); err != nil {
		return nil, 0, err
	}
	n := int64(int32(binary.BigEndian.Uint32(size[:])))
	if n < 8 || n > c.f.cfg.MaxRequest {
		return nil, 0, fmt.Errorf("kafka: a request of %d bytes; they have 8 to %d", n, c.f.cfg.MaxRequest)
	}
	_ = c.net.SetReadDeadline(time.Now().Add(c.f.cfg.RequestTimeout)) // it has begun
	key, err := c.in.Peek(2)
	if err != nil {
		return nil, 0, err
	}
	if kmsg.Key(int16(binary.BigEndian.Uint16(key))) != kmsg.Produce && n > maxPlainRequest {
		return nil, 0, fmt.Errorf("kafka: a request of %d bytes that is no produce; the limit is %d", n, maxPlainRequest)
	}
	c.place.Hold(admission.In, 1)
	defer c.place.Hold(admission.In, 0)
	return c.f.cfg.Memory.Read(c.f.ctx, c.place.Reader(c.in), n, c.f.cfg.RequestTimeout)
}

// header is a request's.
type header struct {
	key, version int16
	correlation  int32
	client       string
	body         []byte
}

// parseHeader reads a request's header, of version 1, or 2 where the request is flexible.
func parseHeader(b []byte) (header, error) {
	if len(b) < 10 {
		return header{}, fmt.Errorf("kafka: a request of %d bytes has no header", len(b))
	}
	be := binary.BigEndian
	h := header{key: int16(be.Uint16(b)), version: int16(be.Uint16(b[2:])), correlation: int32(be.Uint32(b[4:]))}
	n := int(int16(be.Uint16(b[8:])))
	b = b[10:]
	if n > len(b) || n < -1 {
		return h, fmt.Errorf("kafka: a client id of %d bytes in a request that has %d left", n, len(b))
	}
	if n > 0 {
		h.client, b = string(b[:n]), b[n:]
	}
	if k, known := keys[kmsg.Key(h.key)]; known && h.version <= k.max { // else it is refused unread
		req := kmsg.RequestForKey(h.key)
		req.SetVersion(h.version)
		if req.IsFlexible() {
			var err error
			if b, err = skipTags(b); err != nil {
				return h, err
			}
		}
	}
	h.body = b
	return h, nil
}

// skipTags passes over a header's tagged fields, of which none means anything to us.
func skipTags(b []byte) ([]byte, error) {
	bad := errors.New("kafka: a request whose tagged fields cannot be read")
	n, used := binary.Uvarint(b)
	if used <= 0 || n > uint64(len(b)) {
		return nil, bad
	}
	b = b[used:]
	for range n {
		_, used := binary.Uvarint(b)
		if used <= 0 {
			return nil, bad
		}
		size, more := binary.Uvarint(b[used:])
		if more <= 0 || size > uint64(len(b)-used-more) {
			return nil, bad
		}
		b = b[used+more+int(size):]
	}
	return b, nil
}

// begin begins a request, and waits for its reply to be written unless it is a produce.
func (c *conn) begin(h header, held int64) error {
	s := &slot{ready: make(chan struct{}), done: make(chan struct{}), bytes: held}
	c.place.Begin()
	c.out <- s
	reply := func(resp kmsg.Response) {
		if resp != nil {
			s.frame = encode(h, resp)
			c.owed.Add(int64(len(s.frame)))
			s.bytes += c.f.replyMemory(resp, len(s.frame))
		}
		close(s.ready)
	}
	end := func(err error) error {
		s.fatal = err
		close(s.ready)
		<-s.done
		return err
	}
	k, known := keys[kmsg.Key(h.key)]
	switch {
	case h.key == int16(kmsg.ApiVersions) && (!known || h.version > k.max || h.version < 0):
		// KIP-511: the client learns which versions there are, from the oldest reply.
		h.version = 0
		reply(apiVersions(0, 35))
		<-s.done
		return nil
	case !known || h.version < k.min || h.version > k.max:
		return end(fmt.Errorf("kafka: request %s in version %d is not served", kmsg.NameForKey(h.key), h.version))
	case !c.trusted && !k.strangers:
		return end(fmt.Errorf("kafka: %s before the client has proved who it is", kmsg.NameForKey(h.key)))
	}
	req := kmsg.RequestForKey(h.key)
	req.SetVersion(h.version)
	if h.key != int16(kmsg.Produce) { // whose bytes stay where they are
		decoded := plainGrowth * int64(len(h.body))
		if err := c.f.cfg.Memory.Take(c.f.ctx, decoded, c.f.cfg.RequestTimeout); err != nil {
			return end(err)
		}
		s.bytes += decoded
	}
	if err := req.ReadFrom(h.body); err != nil {
		return end(fmt.Errorf("kafka: a request %s that cannot be read: %w", kmsg.NameForKey(h.key), err))
	}
	if p, ok := req.(*kmsg.ProduceRequest); ok {
		c.produce(p, reply)
		return nil
	}
	resp, err := k.handle(c, req)
	if err != nil {
		return end(err)
	}
	resp.SetVersion(h.version)
	reply(resp)
	<-s.done
	return nil
}

// replyMemory takes memory for a reply, and returns how much is to be given back once it is
// written. For what a fetch read, memory was reserved.
func (f *Front) replyMemory(resp kmsg.Response, size int) int64 {
	r, ok := resp.(*kmsg.FetchResponse)
	if !ok {
		f.cfg.Memory.Use(int64(size))
		return int64(size)
	}
	n := int64(0)
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			n += int64(len(p.RecordBatches))
		}
	}
	return fetchMemory * n
}

// encode makes a frame of a reply.
func encode(h header, resp kmsg.Response) []byte {
	resp.SetVersion(h.version)
	b := make([]byte, 8, sizeOf(resp))
	binary.BigEndian.PutUint32(b[4:], uint32(h.correlation))
	if resp.IsFlexible() && h.key != int16(kmsg.ApiVersions) { // its header stays as it was, so that anybody can read it
		b = append(b, 0)
	}
	b = resp.AppendTo(b)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

// sizeOf is about what a reply takes, so that large ones are not moved while they grow.
func sizeOf(resp kmsg.Response) int {
	n := 256
	if r, ok := resp.(*kmsg.FetchResponse); ok {
		for _, t := range r.Topics {
			n += 64 + len(t.Topic)
			for _, p := range t.Partitions {
				n += 80 + len(p.RecordBatches)
			}
		}
	}
	return n
}

// Package peer encodes what brokers say to each other (service.PeerMessage).
//
// A frame carries many messages, of many partitions:
//
//	u32 length, of what follows; then for each message
//	u8 kind, uvarint length, body
//
// Messages between replicas, which carry the records, are binary: every field in order,
// integers as varints, bytes and strings after their length. All others are seldom, and
// JSON.
package peer

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"logbook/engine/commitlog"
	"logbook/engine/controller"
	"logbook/engine/replica"
	"logbook/engine/service"
)

// MaxFrame is the longest frame that Read accepts, and that Append makes of small messages.
const MaxFrame = 64 << 20

// FrameError: bytes from another broker are not a frame.
type FrameError struct {
	Reason string
	Err    error
}

func (e *FrameError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("peer: %s: %v", e.Reason, e.Err)
	}
	return "peer: " + e.Reason
}

func (e *FrameError) Unwrap() error { return e.Err }

// The kinds of messages. Their numbers are the protocol's.
const (
	kindReplica         = 1
	kindReportRequest   = 2
	kindReportResponse  = 3
	kindGroupsRequest   = 4
	kindGroupsResponse  = 5
	kindGroupRequest    = 6
	kindGroupResponse   = 7
	kindLeaving         = 8
	kindIntroduce       = 9
	kindCommandRequest  = 11
	kindCommandResponse = 12
	kindQuorumRequest   = 13
	kindQuorumResponse  = 14
	kindRaft            = 10 // a controller.RaftMessage: the cluster's id and the library's own bytes
	kindController      = 32 // and the number of the controller's message in this list
)

// decoders of the controller's messages, by kind - kindController.
var controllerKinds = []struct {
	is     func(controller.Message) bool
	decode func([]byte) (controller.Message, error)
}{
	of[controller.Heartbeat](), of[controller.HeartbeatAck](), of[controller.FetchDecisions](), of[controller.Decisions](),
	of[controller.ProposeChange](), of[controller.ChangeProposed](), of[controller.CreateReplicas](), of[controller.ReplicasCreated](),
	of[controller.AskReport](), of[controller.ReportReply](), of[controller.AskDigests](), of[controller.DigestsReply](),
	of[controller.Meet](), of[controller.Form](), of[controller.BrokerHeartbeat](), of[controller.BrokerHeartbeatAck](), of[controller.Recall](), of[controller.Recalled](),
}

func of[M controller.Message]() (k struct {
	is     func(controller.Message) bool
	decode func([]byte) (controller.Message, error)
}) {
	k.is = func(m controller.Message) bool { _, ok := m.(M); return ok }
	k.decode = func(body []byte) (controller.Message, error) {
		var m M
		err := json.Unmarshal(body, &m)
		return m, err
	}
	return k
}

// Append encodes messages as one frame onto dst.
func Append(dst []byte, messages ...service.PeerMessage) ([]byte, error) {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	for _, m := range messages {
		var err error
		if dst, err = appendMessage(dst, m); err != nil {
			return dst[:start], err
		}
	}
	n := len(dst) - start - 4
	if n > math.MaxInt32 {
		return dst[:start], fmt.Errorf("peer: %d bytes fit no frame", n)
	}
	binary.BigEndian.PutUint32(dst[start:], uint32(n))
	return dst, nil
}

func appendMessage(dst []byte, m service.PeerMessage) ([]byte, error) {
	switch m := m.(type) {
	case service.ReplicaMessage:
		body := appendReplica(make([]byte, 0, 96+len(m.Message.Frames)), m)
		return appendBody(dst, kindReplica, body), nil
	case service.ControllerMessage:
		if r, ok := m.Message.(controller.RaftMessage); ok {
			return appendBody(dst, kindRaft, append(binary.BigEndian.AppendUint64(r.Cluster[:], r.Life), r.Data...)), nil
		}
		for i, k := range controllerKinds {
			if k.is(m.Message) {
				return appendJSON(dst, byte(kindController+i), m.Message)
			}
		}
	case service.Introduce:
		return appendJSON(dst, kindIntroduce, m)
	case service.Leaving:
		return appendBody(dst, kindLeaving, nil), nil
	case service.CommandRequest:
		return appendJSON(dst, kindCommandRequest, m)
	case service.CommandResponse:
		return appendJSON(dst, kindCommandResponse, m)
	case service.QuorumRequest:
		return appendJSON(dst, kindQuorumRequest, m)
	case service.QuorumResponse:
		return appendJSON(dst, kindQuorumResponse, m)
	case service.ReportRequest:
		return appendJSON(dst, kindReportRequest, m)
	case service.ReportResponse:
		return appendJSON(dst, kindReportResponse, m)
	case service.GroupsRequest:
		return appendJSON(dst, kindGroupsRequest, m)
	case service.GroupsResponse:
		return appendJSON(dst, kindGroupsResponse, m)
	case service.GroupRequest:
		return appendJSON(dst, kindGroupRequest, m)
	case service.GroupResponse:
		return appendJSON(dst, kindGroupResponse, m)
	}
	return dst, fmt.Errorf("peer: a message that has no encoding: %T", m)
}

func appendBody(dst []byte, kind byte, body []byte) []byte {
	dst = append(dst, kind)
	dst = binary.AppendUvarint(dst, uint64(len(body)))
	return append(dst, body...)
}

func appendJSON(dst []byte, kind byte, m any) ([]byte, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return dst, fmt.Errorf("peer: encoding a %T: %w", m, err)
	}
	return appendBody(dst, kind, body), nil
}

// Read reads a frame of at most limit bytes. Its memory grows as bytes arrive.
func Read(r io.Reader, limit int) ([]service.PeerMessage, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if int64(n) > int64(limit) {
		return nil, &FrameError{Reason: fmt.Sprintf("a frame of %d bytes, the limit is %d", n, limit)}
	}
	body, err := readBody(r, int(n))
	if err != nil {
		return nil, err
	}
	return Decode(body)
}

// readBody reads n bytes, in steps, so that a length that is announced costs nothing.
func readBody(r io.Reader, n int) ([]byte, error) {
	const step = 1 << 20
	body := make([]byte, 0, min(n, step))
	for len(body) < n {
		if len(body) == cap(body) {
			grown := make([]byte, len(body), min(n, 2*cap(body)))
			copy(grown, body)
			body = grown
		}
		to := body[len(body):cap(body)]
		if _, err := io.ReadFull(r, to); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		body = body[:cap(body)]
	}
	return body, nil
}

// Decode decodes the messages of a frame, without its length. Frames of records share its memory.
func Decode(body []byte) ([]service.PeerMessage, error) {
	var out []service.PeerMessage
	for len(body) > 0 {
		kind := body[0]
		n, used := binary.Uvarint(body[1:])
		if used <= 0 || n > uint64(len(body)-1-used) {
			return nil, &FrameError{Reason: "a message is cut off"}
		}
		from := 1 + used
		m, err := decode(kind, body[from:from+int(n):from+int(n)])
		if err != nil {
			return nil, err
		}
		out = append(out, m)
		body = body[from+int(n):]
	}
	return out, nil
}

func decode(kind byte, body []byte) (service.PeerMessage, error) {
	switch kind {
	case kindReplica:
		return decodeReplica(body)
	case kindRaft:
		var r controller.RaftMessage
		if len(body) < len(r.Cluster)+8 {
			return nil, &FrameError{Reason: "a message of the quorum that is cut off"}
		}
		n := copy(r.Cluster[:], body)
		r.Life, r.Data = binary.BigEndian.Uint64(body[n:]), body[n+8:]
		return service.ControllerMessage{Message: r}, nil
	case kindIntroduce:
		return fromJSON[service.Introduce](body)
	case kindLeaving:
		return service.Leaving{}, nil
	case kindCommandRequest:
		return fromJSON[service.CommandRequest](body)
	case kindCommandResponse:
		return fromJSON[service.CommandResponse](body)
	case kindQuorumRequest:
		return fromJSON[service.QuorumRequest](body)
	case kindQuorumResponse:
		return fromJSON[service.QuorumResponse](body)
	case kindReportRequest:
		return fromJSON[service.ReportRequest](body)
	case kindReportResponse:
		return fromJSON[service.ReportResponse](body)
	case kindGroupsRequest:
		return fromJSON[service.GroupsRequest](body)
	case kindGroupsResponse:
		return fromJSON[service.GroupsResponse](body)
	case kindGroupRequest:
		return fromJSON[service.GroupRequest](body)
	case kindGroupResponse:
		return fromJSON[service.GroupResponse](body)
	}
	if i := int(kind) - kindController; i >= 0 && i < len(controllerKinds) {
		m, err := controllerKinds[i].decode(body)
		if err != nil {
			return nil, &FrameError{Reason: "a controller's message that cannot be read", Err: err}
		}
		return service.ControllerMessage{Message: m}, nil
	}
	return nil, &FrameError{Reason: fmt.Sprintf("a message of kind %d, which this version does not know", kind)}
}

func fromJSON[M service.PeerMessage](body []byte) (service.PeerMessage, error) {
	var m M
	if err := json.Unmarshal(body, &m); err != nil {
		return nil, &FrameError{Reason: fmt.Sprintf("a %T that cannot be read", m), Err: err}
	}
	return m, nil
}

// replicaKinds number the kinds of replicas' messages.
var replicaKinds = []replica.Kind{replica.Lead, replica.Fetch, replica.Frames, replica.Diverging, replica.Refused, replica.AskDigests, replica.Digests}

// reasons number the reasons of refusals.
var reasons = []replica.Reason{replica.NotLeading, replica.NotReplica, replica.OutOfRange, replica.Behind, replica.OldRequest, replica.NotActive, replica.CannotRead, replica.InsideBatch}

func appendReplica(b []byte, m service.ReplicaMessage) []byte {
	w := &m.Message
	b = appendBytes(b, []byte(m.Partition.Topic))
	b = binary.AppendVarint(b, int64(m.Partition.ID))
	b = append(b, number(replicaKinds, w.Kind))
	for _, v := range []int64{
		int64(w.From), int64(w.To), int64(w.LeaderEpoch), int64(w.LastEpoch), int64(w.FrameEpoch),
		w.Offset, w.NextOffset, w.HighWatermark, w.EpochEnd, w.LogStartOffset, w.LogEndOffset,
	} {
		b = binary.AppendVarint(b, v)
	}
	flags := byte(0)
	if w.CatchUp {
		flags |= 1
	}
	if w.Verified {
		flags |= 2
	}
	if w.Readers {
		flags |= 4
	}
	b = append(b, flags, number(reasons, w.Reason))
	b = binary.AppendUvarint(b, w.Seq)
	b = appendBytes(b, []byte(w.Failed))
	b = appendBytes(b, []byte(w.Detail))
	b = binary.AppendUvarint(b, uint64(len(w.Digests)))
	for _, d := range w.Digests {
		b = binary.AppendVarint(b, d.BaseOffset)
		b = binary.AppendVarint(b, d.NextOffset)
		b = binary.AppendVarint(b, int64(d.LeaderEpoch))
		b = binary.BigEndian.AppendUint64(b, d.Hash)
	}
	return appendBytes(b, w.Frames)
}

// number is a name's place in a list, counted from 1; 0: it is not there.
func number[T comparable](list []T, name T) byte {
	for i, n := range list {
		if n == name {
			return byte(i + 1)
		}
	}
	return 0
}

func appendBytes(b, data []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(data))), data...)
}

// reader reads fields until one is not there.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

// int32 reads a number that must fit 32 bits.
func (r *reader) int32() int32 {
	v := r.varint()
	if v < math.MinInt32 || v > math.MaxInt32 {
		r.bad = true
	}
	return int32(v)
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) take(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return nil
	}
	out := r.b[:n:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) byte() byte {
	if b := r.take(1); len(b) == 1 {
		return b[0]
	}
	return 0
}

func (r *reader) bytes() []byte { return r.take(r.uvarint()) }

// named returns what a place in a list, counted from 1, names.
func named[T any](r *reader, list []T, n byte, optional bool) (name T) {
	switch {
	case n == 0 && optional:
	case n == 0 || int(n) > len(list):
		r.bad = true
	default:
		name = list[n-1]
	}
	return name
}

func decodeReplica(body []byte) (service.PeerMessage, error) {
	r := &reader{b: body}
	var m service.ReplicaMessage
	w := &m.Message
	m.Partition.Topic = string(r.bytes())
	m.Partition.ID = int(r.int32())
	w.Kind = named(r, replicaKinds, r.byte(), false)
	w.From, w.To = replica.BrokerID(r.int32()), replica.BrokerID(r.int32())
	w.LeaderEpoch, w.LastEpoch, w.FrameEpoch = r.int32(), r.int32(), r.int32()
	for _, v := range []*int64{&w.Offset, &w.NextOffset, &w.HighWatermark, &w.EpochEnd, &w.LogStartOffset, &w.LogEndOffset} {
		if *v = r.varint(); *v < 0 {
			r.bad = true
		}
	}
	flags := r.byte()
	w.CatchUp, w.Verified, w.Readers = flags&1 != 0, flags&2 != 0, flags&4 != 0
	w.Reason = named(r, reasons, r.byte(), true)
	w.Seq = r.uvarint()
	w.Failed, w.Detail = string(r.bytes()), string(r.bytes())
	n := r.uvarint()
	if n > uint64(len(r.b)/11) { // a digest has eleven bytes at least
		r.bad = true
		n = 0
	}
	for range n {
		d := commitlog.FrameDigest{BaseOffset: r.varint(), NextOffset: r.varint(), LeaderEpoch: r.int32()}
		if h := r.take(8); len(h) == 8 {
			d.Hash = binary.BigEndian.Uint64(h)
		}
		w.Digests = append(w.Digests, d)
	}
	if frames := r.bytes(); len(frames) > 0 {
		w.Frames = frames
	}
	if r.bad || len(r.b) > 0 {
		return nil, &FrameError{Reason: "a replica's message that is not what brokers send"}
	}
	return m, nil
}

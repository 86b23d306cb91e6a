package replica

import "logbook/engine/commitlog"

// BrokerID names a broker. They are positive; None is nobody.
type BrokerID int32

// None is no broker: a partition without a leader.
const None BrokerID = 0

// Kind is a kind of message between replicas.
type Kind string

const (
	// Lead: a leader makes itself known, so that its followers fetch.
	Lead Kind = "lead"
	// Fetch: a follower asks for what follows its log end, and so says what it holds.
	Fetch Kind = "fetch"
	// Frames: the leader's records from there on, or none, and its high watermark.
	Frames Kind = "frames"
	// Diverging: the follower's log parts from the leader's before its end.
	Diverging Kind = "diverging"
	// Refused: the fetch cannot be served.
	Refused Kind = "refused"
	// AskSums and Sums compare logs by content.
	AskDigests Kind = "ask-sums"
	Digests    Kind = "sums"
)

// Message goes from one replica of a partition to another. Which fields count depends on
// its kind.
type Message struct {
	Kind        Kind     `json:"kind"`
	From        BrokerID `json:"from"`
	To          BrokerID `json:"to"`
	LeaderEpoch int32    `json:"epoch"`         // leader epoch that the sender takes for the present one
	Seq         uint64   `json:"seq,omitempty"` // of a follower's request; its reply repeats it

	// Fetch: the follower's log end, exactly. AskSums: the first offset to compare.
	// Frames: the first offset sent. Sums: the first offset compared. Refused, because the
	// offset is out of range or inside a batch: where an empty log can begin.
	Offset    int64  `json:"offset"`
	LastEpoch int32  `json:"last_epoch,omitempty"` // Fetch: of the follower's last record, -1: it has none. Diverging: the leader's latest up to that
	CatchUp   bool   `json:"catch_up,omitempty"`   // Fetch: on command
	Verified  bool   `json:"verified,omitempty"`   // Fetch: all of the log was compared with the leader's
	Failed    string `json:"failed,omitempty"`     // Fetch: why the follower cannot store more
	// Readers, Fetch: consumers read from the follower, which wants to hear at once when the high
	// watermark is past HighWatermark, its own.
	Readers bool `json:"readers,omitempty"`

	NextOffset     int64                   `json:"next,omitempty"`           // Frames: offset after the last one sent
	FrameEpoch     int32                   `json:"frame_epoch,omitempty"`    // Frames: leader epoch of them all
	Frames         []byte                  `json:"frames,omitempty"`         // Frames: as stored
	HighWatermark  int64                   `json:"high_watermark,omitempty"` // Frames, and Fetch for readers
	EpochEnd       int64                   `json:"epoch_end,omitempty"`      // Diverging: where LastEpoch ends on the leader
	LogStartOffset int64                   `json:"start,omitempty"`          // Frames, Refused, Sums: the leader's log start
	LogEndOffset   int64                   `json:"end,omitempty"`            // Frames, Refused, Sums: the leader's log end
	Digests        []commitlog.FrameDigest `json:"sums,omitempty"`           // Sums
	Reason         Reason                  `json:"reason,omitempty"`         // Refused
	Detail         string                  `json:"detail,omitempty"`         // Refused: more, for a person
}

// Reason says why a fetch was refused.
type Reason string

const (
	NotLeading Reason = "not the leader in this epoch"
	NotReplica Reason = "not a replica of this partition"
	OutOfRange Reason = "offset outside the leader's log"
	Behind     Reason = "behind: catch up by command"
	OldRequest Reason = "older than a request seen before"
	NotActive  Reason = "could not be added to the ISR"
	CannotRead Reason = "the leader cannot read its log"
	// InsideBatch: the leader has no batch that begins at the follower's log end.
	InsideBatch Reason = "the offset lies within a batch"
)

// Effect is something that the driver has to do. They come in an order that counts.
type Effect interface{ effect() }

type (
	// StartEpoch: begin the epoch in the log. Answer with Logged.
	StartEpoch struct{ Epoch int32 }
	// Copy: store the leader's frames at the log end. Answer with Logged.
	Copy struct {
		Frames []byte
		Epoch  int32
	}
	// Truncate: remove the records from an offset on. Answer with Logged.
	Truncate struct{ To int64 }
	// Reset: empty the log, to go on at an offset. Answer with Logged.
	Reset struct{ To int64 }
	// Advance: the leader's log starts there now; drop what lies below. Answer with Logged.
	Advance struct{ To int64 }
	// Compare: compare the leader's sums with the log's own from the offset on. Answer
	// with Compared.
	Compare struct {
		From    int64
		Digests []commitlog.FrameDigest
	}
	// Send: deliver the message.
	Send struct{ Message Message }
	// SendFrames: fill in Next, FrameEpoch and Frames from the log (commitlog.ReadChunk
	// from Offset, below End, at most Max bytes), and deliver.
	SendFrames struct {
		Message Message
		Max     int
	}
	// SendSums: fill in Sums from the log, from Offset on, at most Max, and deliver.
	SendDigests struct {
		Message Message
		Max     int
	}
	// Propose: ask the controller for this change of the in-sync replicas. It is answered
	// by Assign, or by Rejected.
	Propose struct{ Assignment Assignment }
	// Done: a write has its outcome.
	Done struct {
		ID  uint64
		Err error
	}
	// Finished: a command has its outcome.
	Finished struct {
		ID  uint64
		Err error
	}
)

func (StartEpoch) effect()  {}
func (Copy) effect()        {}
func (Truncate) effect()    {}
func (Reset) effect()       {}
func (Advance) effect()     {}
func (Compare) effect()     {}
func (Send) effect()        {}
func (SendFrames) effect()  {}
func (SendDigests) effect() {}
func (Propose) effect()     {}
func (Done) effect()        {}
func (Finished) effect()    {}

package service

import (
	"time"

	"logbook/engine/commitlog"
	"logbook/engine/record"
	"logbook/engine/replica"
	"logbook/engine/topic"
)

// AnyPartition lets the key decide, or the turn.
const AnyPartition = -1

// Produce stores a batch in a partition.
type Produce struct {
	Topic     string
	Partition int    // AnyPartition: Key decides, by the topic's rule, or the turn where it is nil
	Key       []byte // of the first record
	// Acks says when it is acknowledged; nil is the broker's default.
	Acks  *replica.Acks
	Batch *commitlog.Batch // the service's from then on
	// Timeout is the longest that the followers are waited for; 0 is Config.WriteTimeout.
	Timeout time.Duration
}

// NewBatch encodes records as Produce wants them, for who has records and not bytes.
//
// Errors: TooLarge, BadRequest.
func (s *Service) NewBatch(records []record.Record) (*commitlog.Batch, error) {
	format := s.cfg.Log.Format
	if format == nil {
		format = record.V2
	}
	limits := commitlog.Limits{MaxRecordBytes: s.cfg.Log.MaxRecordBytes, MaxKeyBytes: s.cfg.Log.MaxKeyBytes, MaxBatchBytes: s.cfg.Log.MaxBatchBytes}
	b, err := commitlog.NewBatch(format, records, record.Encoding{Timestamp: s.now(), Compression: s.cfg.Log.Compression}, limits)
	return b, s.fail(err)
}

// defaultMessageBytes is the largest batch of frames that a topic takes that does not say.
const defaultMessageBytes = 1048588

// ParseBatch checks frames that a client encoded, for Produce, which stores them as they
// are. They are the batch's from then on. Where the topic's timestamps are the broker's,
// these are put in.
//
// Errors: UnknownTopic, TooLarge, BadRequest.
func (s *Service) ParseBatch(name string, frames []byte) (*commitlog.Batch, error) {
	t := s.Image().Topic(name)
	if t == nil {
		return nil, s.fail(&topic.UnknownError{Name: name})
	}
	most := int64(defaultMessageBytes)
	if n, ok := t.Settings.Number("max.message.bytes"); ok {
		most = n
	}
	if int64(len(frames)) > most {
		return nil, s.fail(&commitlog.TooLargeError{What: "batch", Size: len(frames), Limit: int(most)})
	}
	limits := commitlog.Limits{MaxRecordBytes: int(most), MaxKeyBytes: int(most), MaxBatchBytes: int(most)}
	b, err := commitlog.ParseBatch(record.V2, frames, limits)
	if err == nil && t.Settings["message.timestamp.type"] == "LogAppendTime" {
		b.Stamp(s.now())
	}
	if err == nil && t.Settings.Compacts() && b.Keyless() {
		err = &record.FrameError{Version: 2, Field: "key", Err: record.ErrMalformed, Reason: "a record without a key in a topic that is compacted"}
	}
	return b, s.fail(err)
}

// Produced says where a batch landed.
type Produced struct {
	Partition  int
	BaseOffset int64
	Timestamp  time.Time // of its first record, as stored
	Stamped    bool      // it is the broker's, not the producer's
}

// Produce gives a batch its place in its partition before it returns, and calls done, once,
// when it is acknowledged, or is not.
//
// Errors: UnknownTopic, UnknownPartition, BadRequest (a topic of the broker's own),
// NotLeader, NotEnough, Replication, Unavailable, Damaged.
func (s *Service) Produce(q Produce, done func(Produced, error)) {
	fail := func(err error) { done(Produced{}, s.fail(err)) }
	if IsInternal(q.Topic) {
		fail(badRequest("topic %q is the broker's own", q.Topic))
		return
	}
	p := Partition{Topic: q.Topic, ID: q.Partition}
	if q.Partition == AnyPartition {
		partitioner, n, err := s.Partitioner(q.Topic)
		if err != nil {
			fail(err)
			return
		}
		p.ID = s.turns.Choose(q.Topic, partitioner, q.Key, n)
	}
	if err := s.Image().Check(p); err != nil {
		fail(err)
		return
	}
	acks := s.cfg.Acks
	if q.Acks != nil {
		acks = *q.Acks
	}
	enough := func() error { return nil }
	if n, ok := s.Image().Topic(p.Topic).Settings.Number("min.insync.replicas"); ok && acks != replica.OnLeader {
		enough = func() error { return s.enough(p, int(n)) }
	}
	err := s.leased(p)
	if err == nil {
		err = enough()
	}
	if err != nil {
		fail(err)
		return
	}
	stamp, stamped := q.Batch.Timestamp(), q.Batch.Stamped()
	var limit *timer
	cancel := make(chan func(), 1) // there once the batch has its place
	if q.Timeout > 0 {
		limit = s.after(q.Timeout, func() { s.run(func() { (<-cancel)() }) })
	}
	cancel <- s.node.Append(p, acks, 0, q.Batch, func(at commitlog.Appended, err error) {
		s.timers.stop(limit)
		if err == nil {
			err = enough()
		}
		if err == nil && acks == replica.OnLeader {
			err = s.leased(p) // nobody but this broker has it, perhaps
		}
		if err != nil {
			fail(err)
			return
		}
		done(Produced{Partition: p.ID, BaseOffset: at.BaseOffset, Timestamp: stamp, Stamped: stamped}, nil)
	})
}

// enough says that fewer replicas are in sync than a topic asks for, if that is so.
func (s *Service) enough(p Partition, least int) error {
	look, err := s.node.Look(p)
	if err == nil && look.ISR < least {
		a, _ := s.Image().Assignment(p)
		return &replica.NotEnoughReplicasError{ISR: a.ISR, Min: least}
	}
	return err
}

// DeleteRecords makes an offset the first that can be read of a partition, as far as that
// is safe: never beyond the high watermark. done gets the log start offset.
//
// Errors: NotLeader, OutOfRange, Unavailable, Damaged.
func (s *Service) DeleteRecords(p Partition, below int64, done func(int64, error)) {
	if err := s.Image().Check(p); err != nil {
		done(0, s.fail(err))
		return
	}
	s.work(func() {
		start, err := s.node.DeleteRecords(p, below)
		done(start, s.fail(err))
	})
}

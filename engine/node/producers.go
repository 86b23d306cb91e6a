package node

import (
	"errors"
	"fmt"
	"math"

	"logbook/engine/commitlog"
)

// An idempotent producer numbers its batches, so that one that it sends again, because the
// answer was lost, is recognized (KIP-98). The leader remembers the last few batches of each
// producer. What it remembers is read from its log when it is first asked in its term, so
// that it lasts over restarts and changes of leader.

// rememberedBatches is how many batches of a producer are remembered: as many as it may have
// under way.
const rememberedBatches = 5

// maxProducers is how many producers a partition remembers; the one that was silent longest
// is forgotten first, and may then begin with any number.
const maxProducers = 20_000

// SequenceError: a producer's batch does not follow the one before: one in between is missing.
type SequenceError struct {
	Partition     Partition
	ProducerID    int64
	Expected, Got int32
}

func (e *SequenceError) Error() string {
	return fmt.Sprintf("node: %s: producer %d sent a batch from sequence number %d on, where %d is due", e.Partition, e.ProducerID, e.Got, e.Expected)
}

// ProducerFencedError: a producer of that id with a higher epoch has written since.
type ProducerFencedError struct {
	Partition    Partition
	ProducerID   int64
	Epoch, Known int16
}

func (e *ProducerFencedError) Error() string {
	return fmt.Sprintf("node: %s: producer %d writes in epoch %d, and has written in epoch %d", e.Partition, e.ProducerID, e.Epoch, e.Known)
}

// producers is what a leader remembers of them.
type producers struct {
	byID  map[int64]*producerState
	clock int64
}

type producerState struct {
	epoch   int16
	used    int64            // clock when it was last heard
	batches []*producerBatch // the last ones, oldest first
}

type producerBatch struct {
	first, last int32
	at          commitlog.Appended
	append      *pendingAppend // while it is under way
}

// next is the sequence number after another; they begin again from 0.
func next(sequence int32) int32 {
	if sequence == math.MaxInt32 {
		return 0
	}
	return sequence + 1
}

// check says what a batch is: one that may follow, one that is there already, or one that
// may not be stored.
func (s *producers) check(p Partition, b commitlog.ProducerBatch) (duplicate *producerBatch, err error) {
	st := s.byID[b.ID]
	switch {
	case st == nil:
		return nil, nil // nothing is known: it may begin anywhere
	case b.Epoch < st.epoch:
		return nil, &ProducerFencedError{Partition: p, ProducerID: b.ID, Epoch: b.Epoch, Known: st.epoch}
	case b.Epoch > st.epoch:
		if b.First != 0 {
			return nil, &SequenceError{Partition: p, ProducerID: b.ID, Expected: 0, Got: b.First}
		}
		return nil, nil
	}
	for _, old := range st.batches {
		if old.first == b.First && old.last == b.Last {
			return old, nil
		}
	}
	if n := len(st.batches); n > 0 {
		if due := next(st.batches[n-1].last); b.First != due {
			return nil, &SequenceError{Partition: p, ProducerID: b.ID, Expected: due, Got: b.First}
		}
	}
	return nil, nil
}

// add remembers a batch.
func (s *producers) add(b commitlog.ProducerBatch, at commitlog.Appended, a *pendingAppend) {
	s.clock++
	st := s.byID[b.ID]
	if st == nil || st.epoch != b.Epoch {
		st = &producerState{epoch: b.Epoch}
		s.byID[b.ID] = st
	}
	st.used = s.clock
	st.batches = append(st.batches, &producerBatch{first: b.First, last: b.Last, at: at, append: a})
	if len(st.batches) > rememberedBatches {
		st.batches = st.batches[1:]
	}
	if len(s.byID) > maxProducers {
		oldest, used := int64(0), int64(math.MaxInt64)
		for id, st := range s.byID {
			if st.used < used {
				oldest, used = id, st.used
			}
		}
		delete(s.byID, oldest)
	}
}

// loadProducers reads from the log which batches of which producers it holds. d.role is
// shared, and no append of this replica's is under way.
func (d *replicaDriver) loadProducers() error {
	s := &producers{byID: map[int64]*producerState{}}
	err := d.log.ProducerBatches(func(b commitlog.ProducerBatch, at commitlog.Appended) { s.add(b, at, nil) })
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.producers = s
	d.mu.Unlock()
	return nil
}

// checkProducer looks whether an append of an idempotent producer may be stored, or is there
// already. d.mu is held.
func (d *replicaDriver) checkProducer(a *pendingAppend) error {
	if !a.numbered {
		return nil
	}
	b := a.producer
	if d.producers == nil {
		return errProducersUnknown
	}
	old, err := d.producers.check(d.partition, b)
	if err != nil {
		return err
	}
	if old != nil {
		a.duplicate, a.original, a.stored = true, old.append, old.at
		return nil
	}
	d.producers.add(b, commitlog.Appended{}, a)
	return nil
}

// errProducersUnknown: the log could not be read for what it holds of producers.
var errProducersUnknown = errors.New("node: the log could not be read to see what producers have written; try again")

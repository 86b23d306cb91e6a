package replica

import "logbook/engine/commitlog"

// Log is what the state machine knows of the partition's log.
type Log struct {
	LogStartOffset, LogEndOffset int64
	Epochs                       []commitlog.EpochStart
	// FirstOffset is where the frame begins that holds the log start: what a follower copies
	// first. It is the log start itself, unless that lies within a batch.
	FirstOffset int64
}

// EpochEnd returns the latest leader epoch in the log that is not after the given one,
// and the offset after its last record: KIP-101's question. The epoch is -1 where the log
// has no record that old.
func (l Log) EpochEnd(epoch int32) (int32, int64) {
	if epoch < 0 || l.LogEndOffset == l.LogStartOffset {
		return -1, l.LogStartOffset
	}
	found, end := int32(-1), l.LogEndOffset
	if len(l.Epochs) == 0 || l.Epochs[0].Start > l.LogStartOffset {
		found = 0 // records from before anybody counted
	}
	for _, e := range l.Epochs {
		if e.Start >= l.LogEndOffset {
			break // it has no records
		}
		if e.Epoch > epoch {
			return found, e.Start
		}
		found = e.Epoch
	}
	return found, end
}

// LastEpoch is the leader epoch of the last record, -1 where there is none.
func (l Log) LastEpoch() int32 {
	epoch, _ := l.EpochEnd(1<<31 - 1)
	return epoch
}

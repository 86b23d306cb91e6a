package commitlog

import (
	"fmt"
	"slices"
)

// EpochStart says that a leader epoch begins at an offset: the records from there on, up
// to where the next one starts, were appended by that epoch's leader (KIP-101).
type EpochStart struct {
	Epoch int32 `json:"epoch"`
	Start int64 `json:"start_offset"`
}

// EpochError: a leader epoch is behind the one that the log is in.
type EpochError struct {
	Dir            string
	Epoch, Current int32
}

func (e *EpochError) Error() string {
	return fmt.Sprintf("commitlog: the log in %s is in leader epoch %d and cannot go back to %d; whoever says %d was replaced as leader", e.Dir, e.Current, e.Epoch, e.Epoch)
}

// Epochs returns the leader epochs that the log has been in, oldest first. The last one
// may have no records yet.
func (l *Log) Epochs() []EpochStart { return slices.Clone(*l.epochs.Load()) }

// LatestEpoch returns the leader epoch that the log is in, 0 if none ever began.
func (l *Log) LatestEpoch() int32 {
	epochs := *l.epochs.Load()
	if len(epochs) == 0 {
		return 0
	}
	return epochs[len(epochs)-1].Epoch
}

// StartEpoch begins a leader epoch at the log end: the records appended from now on are
// of that epoch. It is durable when StartEpoch returns, so before the first of them.
// Starting the epoch that the log is in does nothing.
//
// Errors: *EpochError, ErrClosed, *PoisonedError.
func (l *Log) StartEpoch(epoch int32) error {
	l.round.Lock()
	defer l.round.Unlock()
	if err := l.Usable(); err != nil {
		return err
	}
	return l.enterEpoch(epoch)
}

// enterEpoch makes an epoch the one that the next frame belongs to. Epochs that began at
// the log end hold no record: the new one takes their place. The round lock is held.
func (l *Log) enterEpoch(epoch int32) error {
	epochs := l.epochsBelow(l.active.end)
	current := int32(0)
	if len(epochs) > 0 {
		current = epochs[len(epochs)-1].Epoch
	}
	if epoch < current {
		return &EpochError{Dir: l.dir, Epoch: epoch, Current: current}
	}
	if epoch > current {
		epochs = append(epochs, EpochStart{Epoch: epoch, Start: l.active.end})
	}
	if !slices.Equal(epochs, *l.epochs.Load()) {
		l.epochs.Store(&epochs)
		if err := l.writeCheckpoint(nil); err != nil {
			l.poison(err) // the disk may say either
			return &PoisonedError{Dir: l.dir, Cause: err}
		}
	}
	l.epoch = epoch
	return nil
}

// openEpochs makes the epochs agree with the log that recovery found. Without a sync on
// every append (SyncOS) a crash may take all records of an epoch and some of the one
// before: it must not claim records that come later.
func (l *Log) openEpochs() error {
	// An epoch that starts at the log end has no records, and may get some.
	epochs := l.epochsBelow(l.active.end + 1)
	if n := len(epochs); n > 0 {
		l.epoch = epochs[n-1].Epoch
	}
	if len(epochs) == len(*l.epochs.Load()) || l.failed != nil {
		return nil
	}
	l.epochs.Store(&epochs)
	if err := l.writeCheckpoint(nil); err != nil {
		return fmt.Errorf("commitlog: saving the leader epochs: %w", err)
	}
	return nil
}

// epochsBelow returns the epochs that begin below an offset.
func (l *Log) epochsBelow(offset int64) []EpochStart {
	epochs := slices.Clone(*l.epochs.Load())
	for len(epochs) > 0 && epochs[len(epochs)-1].Start >= offset {
		epochs = epochs[:len(epochs)-1]
	}
	return epochs
}

// dropEpochs forgets leader epochs that began in the removed part.
func (l *Log) dropEpochs(to int64) {
	epochs := l.epochsBelow(to)
	l.epochs.Store(&epochs)
	l.epoch = 0
	if n := len(epochs); n > 0 {
		l.epoch = epochs[n-1].Epoch
	}
}

// epochAt returns the leader epoch that the log was in at an offset.
func (l *Log) epochAt(offset int64) int32 {
	epoch := int32(0)
	for _, e := range *l.epochs.Load() {
		if e.Start > offset {
			break
		}
		epoch = e.Epoch
	}
	return epoch
}

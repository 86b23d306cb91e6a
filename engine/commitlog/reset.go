package commitlog

// Reset empties the log, which goes on at an offset of the caller's choice: the log start
// and the log end are that offset then, and no leader epoch is remembered. It is for a
// replica that is so far behind that its leader no longer has what it would need next.
//
// Like Truncate it survives a crash at any moment and makes appends wait.
//
// Errors: *OffsetOutOfRangeError (a negative offset), ErrClosed, *PoisonedError. A failure
// on the way poisons the log.
func (l *Log) Reset(offset int64) error {
	l.round.Lock()
	defer l.round.Unlock()
	if err := l.Usable(); err != nil {
		return err
	}
	if offset < 0 {
		return &OffsetOutOfRangeError{Offset: offset, Start: l.start, End: l.active.end}
	}
	if err := l.reset(offset); err != nil {
		l.poison(err)
		return &PoisonedError{Dir: l.dir, Cause: err}
	}
	return nil
}

func (l *Log) reset(to int64) error {
	c := checkpoint{Version: 1, Start: to, First: to, Reset: &to, Epochs: []EpochStart{}}
	if err := writeSealed(l.fs, l.path(checkpointName), c); err != nil {
		return err
	}
	s, err := l.emptyFiles(to)
	if err != nil {
		return err
	}
	old := l.segments
	l.segments, l.active, l.start, l.first = []*segment{s}, s, to, to
	l.checkpointed, l.epoch = 0, 0
	l.epochs.Store(&[]EpochStart{})
	l.compacted.Store(false)
	l.cuts++
	l.publish()
	for _, o := range old {
		o.file.Close()
	}
	return l.writeCheckpoint(nil)
}

// emptyFiles removes every segment and makes an empty one at an offset. It can be stopped
// anywhere and run again: the checkpoint says that no segment counts any more.
func (l *Log) emptyFiles(to int64) (*segment, error) {
	bases, err := l.listSegments()
	if err != nil {
		return nil, err
	}
	// The mark must not promise bytes of files that are about to go; what it names
	// instead comes after them, so that a file of that name is surely the new one.
	if err := l.mark.note(mark{segment: to, next: to, loose: l.loose()}, true); err != nil {
		return nil, err
	}
	for _, base := range bases {
		if err := removeSegment(l.fs, segmentPath(l.dir, base)); err != nil {
			return nil, err
		}
	}
	if err := l.fs.SyncDir(l.dir); err != nil {
		return nil, err
	}
	return l.createSegment(to)
}

// finishReset completes a reset that a crash interrupted.
func (l *Log) finishReset(c *checkpoint) (mark, error) {
	s, err := l.emptyFiles(*c.Reset)
	if err != nil {
		return mark{}, err
	}
	if err := s.file.Close(); err != nil {
		return mark{}, err
	}
	c.Reset = nil
	l.opt.Logger.Warn("finished a reset that was interrupted", "dir", l.dir, "log start offset", c.Start)
	return l.mark.last, writeSealed(l.fs, l.path(checkpointName), *c)
}

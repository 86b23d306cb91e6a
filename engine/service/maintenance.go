package service

import (
	"errors"
	"time"

	"logbook/engine/commitlog"
	"logbook/engine/node"
	"logbook/engine/topic"
)

// maintain looks after this broker's replicas: segments that have grown old are closed, old
// ones deleted, and topics compacted that ask for it.
func (s *Service) maintain() {
	s.run(func() {
		for _, p := range s.node.Partitions() {
			t := s.Image().Topic(p.Topic)
			if t == nil || IsInternal(p.Topic) {
				continue
			}
			if err := s.maintainPartition(p, t.Settings); err != nil && !errors.Is(err, node.ErrClosed) {
				s.logger.Error("looking after a partition failed", "partition", p, "error", err)
			}
		}
		s.after(s.cfg.MaintainEvery, s.maintain)
	})
}

// scrub reads all of this broker's logs, one after another: what rots where nobody reads would be
// found when the other copies are gone. The node notes what it finds, and the controller acts on it.
func (s *Service) scrub() {
	s.run(func() {
		for _, p := range s.node.Partitions() {
			if s.isClosed() {
				return
			}
			if err := s.node.Scrub(p); err != nil && !errors.Is(err, node.ErrClosed) {
				s.logger.Error("a replica is not what was written to it", "partition", p, "error", err)
			}
		}
		s.after(s.cfg.ScrubEvery, s.scrub)
	})
}

func (s *Service) maintainPartition(p Partition, set topic.Settings) error {
	s.configure(p, set)
	roll := time.Duration(0)
	if age, ok := set.Duration("segment.ms"); ok {
		roll = age
	}
	keep := s.cfg.Retention
	if age, ok := set.Duration("retention.ms"); ok {
		keep.Age = max(age, 0) // -1: for ever
		if age == 0 {
			keep.Age = time.Millisecond
		}
	}
	if n, ok := set.Number("retention.bytes"); ok {
		keep.Bytes = max(n, 0)
		if n == 0 {
			keep.Bytes = 1
		}
	}
	// A segment that is never full must grow old all the same.
	if roll == 0 && keep.Age > 0 && set.Deletes() {
		roll = keep.Age
	}
	var problems []error
	if roll > 0 {
		problems = append(problems, s.node.Roll(p, roll))
	}
	if set.Compacts() {
		tombstones, ok := set.Duration("delete.retention.ms")
		if !ok {
			tombstones = 24 * time.Hour
		}
		lag, _ := set.Duration("min.compaction.lag.ms")
		problems = append(problems, s.node.Compact(p, tombstones, lag))
	}
	if set.Deletes() && (keep.Age > 0 || keep.Bytes > 0) {
		if err := s.node.Retain(p, keep); !is[*node.NotLeaderError](err) { // followers follow
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

// configure has a replica's log heed its topic's settings.
func (s *Service) configure(p Partition, set topic.Settings) {
	size := s.cfg.Log.SegmentBytes
	if n, ok := set.Number("segment.bytes"); ok {
		size = n
	} else if size == 0 {
		size = commitlog.DefaultSegmentBytes
	}
	s.node.SetSegmentBytes(p, size)
}

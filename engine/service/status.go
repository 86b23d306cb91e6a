package service

import (
	"iter"
	"slices"

	"logbook/engine/commitlog"
	"logbook/engine/controller"
	"logbook/engine/record"
	"logbook/engine/replica"
)

// ReplicaReport is what a broker says of its replica.
type ReplicaReport struct {
	Role           replica.Role `json:"role"` // "" where it cannot be asked
	LogStartOffset int64        `json:"log_start"`
	LogEndOffset   int64        `json:"log_end"`
	LastEpoch      int32        `json:"last_epoch"`
	HighWatermark  int64        `json:"high_watermark"`
	LeaderEpoch    int32        `json:"leader_epoch"` // of the assignment that the replica has
	ISR            []BrokerID   `json:"isr"`          // likewise
	Usable         bool         `json:"usable"`       // it could lead
	Problem        string       `json:"problem,omitempty"`
}

// report describes this broker's replica.
func (s *Service) report(p Partition) ReplicaReport {
	rep := s.node.Report(p)
	r := ReplicaReport{LogStartOffset: rep.LogStartOffset, LogEndOffset: rep.LogEndOffset, LastEpoch: rep.LastEpoch, Usable: rep.Err == nil}
	if rep.Err != nil {
		r.Problem = rep.Err.Error()
	}
	if st, err := s.node.Status(p); err == nil {
		r.Role, r.HighWatermark, r.LogStartOffset, r.LogEndOffset = st.Role, st.HighWatermark, st.LogStartOffset, st.LogEndOffset
		r.LeaderEpoch, r.ISR = st.Assignment.LeaderEpoch, st.Assignment.ISR
		if st.Problem != nil && r.Problem == "" {
			r.Problem = st.Problem.Error()
		}
	}
	return r
}

// Replicas iterates over this broker's replicas that can be asked.
func (s *Service) Replicas() iter.Seq2[Partition, replica.Status] {
	return func(yield func(Partition, replica.Status) bool) {
		for _, p := range s.node.Partitions() {
			if st, err := s.node.Status(p); err == nil && !yield(p, st) {
				return
			}
		}
	}
}

// Own iterates over the records of this broker's replica, safe or not, leader or not: for
// looking at it. See node.Node.Own.
//
// Errors: node.NoReplicaError, MissingReplicaError, OpenReplicaError, and commitlog's where
// the log is damaged.
func (s *Service) Own(p Partition) iter.Seq2[record.Record, error] { return s.node.Own(p) }

// FrameDigests returns the digests of at most max frames of this broker's replica.
//
// Errors: those of Own.
func (s *Service) FrameDigests(p Partition, from int64, max int) ([]commitlog.FrameDigest, error) {
	return s.node.FrameDigests(p, from, max)
}

// Unusable lists this broker's replicas that can neither lead nor follow: damaged, missing,
// or refused by the disk.
func (s *Service) Unusable() []Partition {
	return slices.DeleteFunc(s.node.Partitions(), func(p Partition) bool { return s.node.Report(p).Err == nil })
}

// QuorumProblem is why this broker takes no part in decisions any more, and leads nothing; "": it
// does.
func (s *Service) QuorumProblem() string { return s.view.Load().problem }

// Problem is why this broker cannot use its replica of a partition; nil if it can.
func (s *Service) Problem(p Partition) error { return s.node.Report(p).Err }

// reports asks a broker about replicas, this one too. done gets a report for each, in order.
func (s *Service) reports(id BrokerID, ps []Partition, done func([]ReplicaReport, error)) {
	if id == s.cfg.ID {
		out := make([]ReplicaReport, len(ps))
		for i, p := range ps {
			out[i] = s.report(p)
		}
		done(out, nil)
		return
	}
	s.call(id, func(call uint64) PeerMessage { return ReportRequest{call, ps} }, func(m PeerMessage, err error) {
		r, _ := m.(ReportResponse)
		if err == nil && len(r.Reports) != len(ps) {
			err = unavailable("broker %d answered about %d replicas, not %d", id, len(r.Reports), len(ps))
		}
		done(r.Reports, err)
	})
}

// PartitionStatus describes a partition: an observation, each replica asked.
type PartitionStatus struct {
	Leader        BrokerID
	LeaderEpoch   int32
	ISR           []BrokerID
	HighWatermark int64           // the leader's; -1: unknown
	Replicas      []ReplicaStatus // in the order of the assignment, the preferred leader first
}

// ReplicaStatus describes one replica.
type ReplicaStatus struct {
	Broker BrokerID
	InSync bool
	Known  bool // the replica could be asked; else Lag and the offsets are unknown, not zero
	Report ReplicaReport
	Lag    int64 // how many records it lacks; meaningful if HasLag
	HasLag bool
}

// PartitionStatus describes a partition, asking the brokers that have it.
//
// Errors: UnknownTopic, UnknownPartition.
func (s *Service) PartitionStatus(p Partition, done func(PartitionStatus, error)) {
	if err := s.Image().Check(p); err != nil {
		done(PartitionStatus{}, s.fail(err))
		return
	}
	a, _ := s.Image().Assignment(p)
	g := newGathering(len(a.Replicas))
	answers := make([]ReplicaStatus, len(a.Replicas))
	for i, id := range a.Replicas {
		s.reports(id, []Partition{p}, func(r []ReplicaReport, err error) {
			answers[i] = ReplicaStatus{Broker: id, Known: err == nil}
			if err != nil {
				answers[i].Report.Problem = err.Error()
			} else {
				answers[i].Report = r[0]
			}
			g.arrived(func() { done(partitionStatus(a, answers), nil) })
		})
	}
}

func partitionStatus(a replica.Assignment, replicas []ReplicaStatus) PartitionStatus {
	st := PartitionStatus{Leader: a.Leader, LeaderEpoch: a.LeaderEpoch, ISR: a.ISR, HighWatermark: -1, Replicas: replicas}
	end := int64(-1)
	for _, r := range replicas {
		if r.Broker == a.Leader && r.Known && r.Report.Role != "" {
			// The leader knows best who is in sync.
			end, st.HighWatermark, st.ISR, st.LeaderEpoch = r.Report.LogEndOffset, r.Report.HighWatermark, r.Report.ISR, r.Report.LeaderEpoch
		}
	}
	for i := range replicas {
		r := &replicas[i]
		r.InSync = slices.Contains(st.ISR, r.Broker)
		if r.Known && end >= 0 {
			r.Lag, r.HasLag = end-r.Report.LogEndOffset, true
		}
	}
	return st
}

// Failover gives a partition whose leader is gone a new one.
//
// Errors: UnknownPartition, LeaderAvailable, NoEligible, Diverged, BadRequest (nothing is decided
// by command), Unavailable.
func (s *Service) Failover(p Partition, done func(controller.FailoverResult, error)) {
	s.order(Command{Failover: &p}, done)
}

// Reassign moves a partition to brokers, in their order of preference; without any it takes back
// a move that is under way. done is called when it has begun: the partition's assignment shows
// when it is over.
//
// Errors: UnknownPartition, BadRequest (what is wrong with the brokers, nothing is under way, or
// the controller does not move partitions), Unavailable.
func (s *Service) Reassign(p Partition, to []BrokerID, done func(error)) {
	s.order(Command{Reassign: &MoveTo{p, to}}, func(_ controller.FailoverResult, err error) { done(err) })
}

// ChangeMember changes who belongs to the cluster, or votes in it.
//
// Errors: BadRequest, around *controller.MemberError and controller.ErrNoMembers; Unavailable.
func (s *Service) ChangeMember(change MemberChange, done func(error)) {
	s.order(Command{ChangeMember: &change}, func(_ controller.FailoverResult, err error) { done(err) })
}

// CatchUp makes this broker's replica copy what it lacks, after comparing what it has.
//
// Errors: NotLeader (there is no replica here), Diverged, Damaged, Unavailable.
func (s *Service) CatchUp(p Partition, done func(error)) {
	s.work(func() { s.node.CatchUp(p, func(err error) { done(s.fail(err)) }) })
}

// Recover makes this broker's replica what its leader's is, and in sync again.
//
// Errors: as CatchUp, but for Diverged, which it mends.
func (s *Service) Recover(p Partition, done func(error)) {
	s.work(func() { s.node.Recover(p, func(err error) { done(s.fail(err)) }) })
}

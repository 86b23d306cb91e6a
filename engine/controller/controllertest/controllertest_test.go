package controllertest_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/controller"
	"logbook/engine/controller/controllertest"
	"logbook/engine/replica"
)

func TestTheRightChoicePasses(t *testing.T) {
	require.NoError(t, controllertest.TestChoice(controller.Longest))
}

func TestWrongChoicesAreCaught(t *testing.T) {
	longest := func(a replica.Assignment, reports []controller.Report) replica.BrokerID {
		best := replica.None
		end := int64(-1)
		for _, r := range reports {
			if r.Err == nil && r.LogEndOffset > end {
				best, end = r.Broker, r.LogEndOffset
			}
		}
		return best
	}
	calls := 0
	for name, c := range map[string]struct {
		choose controller.Choice
		want   string
	}{
		"the longest log, in sync or not":          {longest, "acknowledged records are lost"},
		"the lowest id that is in sync, up or not": {func(a replica.Assignment, _ []controller.Report) replica.BrokerID { return a.ISR[0] }, "broker"},
		"the first in-sync one that is up": {func(a replica.Assignment, reports []controller.Report) replica.BrokerID {
			for _, r := range reports {
				if r.Err == nil && slices.Contains(a.ISR, r.Broker) {
					return r.Broker
				}
			}
			return replica.None
		}, "longer"},
		"nobody": {func(replica.Assignment, []controller.Report) replica.BrokerID { return replica.None }, "nobody leads"},
		"now this one, now that one": {func(a replica.Assignment, reports []controller.Report) replica.BrokerID {
			calls++
			return reports[calls%len(reports)].Broker
		}, "asked again"},
	} {
		assert.ErrorContains(t, controllertest.TestChoice(c.choose), c.want, name)
	}
}

// raftVote is Raft's rule (Ongaro and Ousterhout, 2014, section 5.4.1).
func raftVote(b controllertest.Ballot) bool {
	free := b.CandidateTerm > b.Term || b.CandidateTerm == b.Term && (b.VotedFor == replica.None || b.VotedFor == b.Candidate)
	whole := b.CandidateLastTerm > b.LastTerm || b.CandidateLastTerm == b.LastTerm && b.CandidateLastIndex >= b.LastIndex
	return free && whole
}

func TestVotesThatAreGrantedWrongly(t *testing.T) {
	require.NoError(t, controllertest.TestVote(raftVote))
	for name, bad := range map[string]struct {
		rule func(controllertest.Ballot) bool
		says string
	}{
		"everybody":       {func(controllertest.Ballot) bool { return true }, "were both elected"},
		"nobody":          {func(controllertest.Ballot) bool { return false }, "nobody can be elected"},
		"twice in a term": {func(b controllertest.Ballot) bool { b.VotedFor = replica.None; return raftVote(b) }, "were both elected"},
		"whatever it has": {func(b controllertest.Ballot) bool {
			b.CandidateLastTerm, b.CandidateLastIndex = b.LastTerm, b.LastIndex
			return raftVote(b)
		}, "without an entry that counts"},
		"the longer log": {func(b controllertest.Ballot) bool {
			b.CandidateLastTerm, b.LastTerm = 0, 0
			return raftVote(b)
		}, "without an entry that counts"},
		"an old term": {func(b controllertest.Ballot) bool {
			if b.CandidateTerm < b.Term {
				b.CandidateTerm = b.Term + 1
			}
			return raftVote(b)
		}, ""},
	} {
		err := controllertest.TestVote(bad.rule)
		require.Error(t, err, name)
		require.Contains(t, err.Error(), bad.says, name)
	}
}

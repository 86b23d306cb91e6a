package stage

import (
	"fmt"
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"logbook/engine/controller"
	"logbook/engine/service"
	"logbook/engine/spacetime"
)

// talk draws what the members of the quorum say to each other, in words: elections, decisions,
// and that they count. What is only said so that something is said is left out.
type talk struct {
	d       spacetime.Diagram
	elected map[uint64][]BrokerID
	counts  map[BrokerID]uint64 // how far decisions count, as each was told last
}

func newTalk(n int) *talk {
	t := &talk{elected: map[uint64][]BrokerID{}, counts: map[BrokerID]uint64{}}
	for id := range n {
		t.d.Processes = append(t.d.Processes, fmt.Sprint("broker ", id+1))
	}
	return t
}

func (t *talk) clear() {
	t.d.Events, t.d.Messages = nil, nil
	clear(t.counts)
}

// said takes in a message that leaves. What it returns is to be called when it arrives.
func (t *talk) said(from, to BrokerID, m service.PeerMessage) (heard func()) {
	c, ok := m.(service.ControllerMessage)
	if !ok {
		return func() {}
	}
	r, ok := c.Message.(controller.RaftMessage)
	var q raftpb.Message
	if !ok || q.Unmarshal(r.Data) != nil {
		return func() {}
	}
	t.leads(from, q)
	text := t.words(to, q)
	if text == "" {
		return func() {}
	}
	left := t.d.Add(int(from)-1, spacetime.Plain, "")
	at := len(t.d.Messages)
	t.d.Messages = append(t.d.Messages, spacetime.Message{From: left, To: -1, Toward: int(to) - 1, Text: text})
	events := len(t.d.Events)
	return func() {
		if at < len(t.d.Messages) && events <= len(t.d.Events) && t.d.Messages[at].Text == text {
			t.d.Messages[at].To = t.d.Add(int(to)-1, spacetime.Plain, "")
		}
	}
}

// leads notes who speaks as the elected one of a term.
func (t *talk) leads(from BrokerID, q raftpb.Message) {
	switch q.Type {
	case raftpb.MsgApp, raftpb.MsgHeartbeat, raftpb.MsgSnap:
		if !slices.Contains(t.elected[q.Term], from) {
			t.elected[q.Term] = append(t.elected[q.Term], from)
			t.d.Add(int(from)-1, spacetime.Good, "is elected, in term %d", q.Term)
		}
	}
}

// words are what a message says; none where it says nothing new.
func (t *talk) words(to BrokerID, q raftpb.Message) string {
	switch q.Type {
	case raftpb.MsgPreVote:
		return fmt.Sprintf("would you vote for me, in term %d?", q.Term)
	case raftpb.MsgPreVoteResp:
		if q.Reject {
			return "I would not"
		}
		return "I would"
	case raftpb.MsgVote:
		return fmt.Sprintf("vote for me in term %d, I end at %d of term %d", q.Term, q.Index, q.LogTerm)
	case raftpb.MsgVoteResp:
		if q.Reject {
			return fmt.Sprintf("no, not in term %d", q.Term)
		}
		return fmt.Sprintf("my vote, in term %d", q.Term)
	case raftpb.MsgApp:
		counts := q.Commit > t.counts[to]
		t.counts[to] = max(t.counts[to], q.Commit)
		switch {
		case len(q.Entries) == 1:
			return fmt.Sprintf("entry %d", q.Entries[0].Index)
		case len(q.Entries) > 0:
			return fmt.Sprintf("entries %d to %d", q.Entries[0].Index, q.Entries[len(q.Entries)-1].Index)
		case counts:
			return fmt.Sprintf("%d counts", q.Commit)
		}
	case raftpb.MsgAppResp:
		if q.Reject {
			return fmt.Sprintf("no: I do not have entry %d", q.Index)
		}
		if q.Index > 0 {
			return fmt.Sprintf("I have %d", q.Index)
		}
	case raftpb.MsgSnap:
		return fmt.Sprintf("all that was decided up to %d", q.Snapshot.Metadata.Index)
	case raftpb.MsgTimeoutNow:
		return "be elected"
	}
	return ""
}

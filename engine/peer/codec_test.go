package peer_test

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/commitlog"
	"logbook/engine/controller"
	"logbook/engine/metadata"
	"logbook/engine/peer"
	"logbook/engine/replica"
	"logbook/engine/service"
	"logbook/engine/topic"
)

var flights = topic.Partition{Topic: "flights", ID: 3}

// messages has one of each kind, with every field set somewhere.
var messages = []service.PeerMessage{
	service.ReplicaMessage{Partition: flights, Message: replica.Message{
		Kind: replica.Frames, From: 1, To: 2, LeaderEpoch: 3, Seq: 1 << 60, Offset: 4, LastEpoch: -1, NextOffset: 5, FrameEpoch: 6, Frames: []byte("frames"),
		HighWatermark: 7, EpochEnd: 8, LogStartOffset: 9, LogEndOffset: 1 << 50,
	}},
	service.ReplicaMessage{Partition: flights, Message: replica.Message{Kind: replica.Fetch, From: 2, To: 1, CatchUp: true, Verified: true, Readers: true, Failed: "no space"}},
	service.ReplicaMessage{Partition: flights, Message: replica.Message{
		Kind: replica.Digests, From: 2, To: 1, Reason: replica.CannotRead, Detail: "why", Digests: []commitlog.FrameDigest{{BaseOffset: 1, NextOffset: 2, LeaderEpoch: 3, Hash: 1 << 63}, {}},
	}},
	service.ReportRequest{ID: 1, Partitions: []topic.Partition{flights}},
	service.ReportResponse{ID: 1, Reports: []service.ReplicaReport{{Role: replica.Leader, LogEndOffset: 4, ISR: []replica.BrokerID{1}}}},
	service.CommandRequest{ID: 4, Command: service.Command{CreateTopic: &service.TopicSpec{Name: "t", Partitions: 3}}}, service.CommandResponse{ID: 4, Applied: 7, Code: service.TopicExists, Err: "there is one", Kind: "name", Leader: 2, Offset: 3},
	service.QuorumRequest{ID: 5}, service.QuorumResponse{ID: 5, Lag: map[replica.BrokerID]uint64{1: 2}},
	service.GroupsRequest{ID: 2}, service.GroupsResponse{ID: 2, Names: []string{"g"}},
	service.GroupRequest{ID: 3, Name: "g"}, service.GroupResponse{ID: 3, Code: service.Unavailable, Err: "not now"},
	service.ControllerMessage{Message: controller.Heartbeat{Seq: 1, State: &controller.State{Generation: 2, Claims: []controller.LeadershipClaim{{Partition: flights, LeaderEpoch: 3, ISR: []replica.BrokerID{1}}}}}},
	service.ControllerMessage{Message: controller.HeartbeatAck{Seq: 1, Version: 2}},
	service.ControllerMessage{Message: controller.FetchDecisions{ID: 1, Since: 2, Register: true}},
	service.ControllerMessage{Message: controller.Decisions{ID: 1, Version: 2, Records: []metadata.Record{{Broker: &metadata.BrokerRecord{ID: 3}}}}},
	service.ControllerMessage{Message: controller.ProposeChange{ID: 1, Partition: flights, Assignment: replica.Assignment{Version: 2, Leader: 1}}},
	service.ControllerMessage{Message: controller.ChangeProposed{ID: 1, Err: "stale"}},
	service.ControllerMessage{Message: controller.CreateReplicas{ID: 1, Topic: "t", Partitions: []int{1}}},
	service.ControllerMessage{Message: controller.ReplicasCreated{ID: 1}},
	service.ControllerMessage{Message: controller.AskReport{ID: 1, Partition: flights}},
	service.ControllerMessage{Message: controller.ReportReply{ID: 1, LastEpoch: -1}},
	service.ControllerMessage{Message: controller.AskDigests{ID: 1, Partition: flights, Max: 3}},
	service.ControllerMessage{Message: controller.DigestsReply{ID: 1, Digests: []commitlog.FrameDigest{{Hash: 9}}}},
	service.ControllerMessage{Message: controller.Meet{Cluster: topic.ID{1}, Member: 2, Role: metadata.DecidesOnly}},
	service.ControllerMessage{Message: controller.Recall{Cluster: topic.ID{1}, Member: 2, Life: 3}}, service.ControllerMessage{Message: controller.Recalled{Cluster: topic.ID{1}, Member: 2, Term: 3, Last: 4}},
	service.ControllerMessage{Message: controller.Form{Cluster: topic.ID{1}, Voters: []uint64{1 << 63}, Learners: []uint64{5}}},
	service.ControllerMessage{Message: controller.RaftMessage{Cluster: topic.ID{15: 1}, Data: []byte("data")}},
	service.ControllerMessage{Message: controller.BrokerHeartbeat{Cluster: topic.ID{1}, Seq: 2, Life: 1 << 63, Applied: 3, Fenced: true, Leaving: true, Unusable: []topic.Partition{flights}}},
	service.ControllerMessage{Message: controller.BrokerHeartbeatAck{Seq: 1, Life: 2}},
}

func TestFramesComeBackAsTheyWere(t *testing.T) {
	frame, err := peer.Append(nil, messages...)
	require.NoError(t, err)
	got, err := peer.Read(bytes.NewReader(frame), peer.MaxFrame)
	require.NoError(t, err)
	assert.Equal(t, messages, got)
}

func TestEveryCutIsFound(t *testing.T) {
	frame, err := peer.Append(nil, messages...)
	require.NoError(t, err)
	for n := range frame {
		_, err := peer.Read(bytes.NewReader(frame[:n]), peer.MaxFrame)
		if n == 0 {
			require.ErrorIs(t, err, io.EOF)
			continue
		}
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, "%d bytes", n)
	}
	_, err = peer.Read(bytes.NewReader([]byte{0x7f, 0, 0, 0}), peer.MaxFrame)
	var fe *peer.FrameError
	require.ErrorAs(t, err, &fe)
}

func FuzzDecode(f *testing.F) {
	frame, err := peer.Append(nil, messages...)
	require.NoError(f, err)
	f.Add(frame[4:])
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := peer.Decode(body)
		if err != nil {
			return
		}
		again, err := peer.Append(nil, got...)
		require.NoError(t, err)
		same, err := peer.Decode(again[4:])
		require.NoError(t, err)
		assert.Equal(t, got, same)
	})
}

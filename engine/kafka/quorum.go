package kafka

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"logbook/engine/controller"
	"logbook/engine/metadata"
	"logbook/engine/replica"
	"logbook/engine/service"
)

// What Kafka's tools ask about the quorum (KIP-595, KIP-853), and about who belongs to it.

// quorum asks what the quorum is like; nil: no majority decides here.
func (c *conn) quorum() *controller.QuorumStatus {
	q, _ := awaitErr(func(done func(*controller.QuorumStatus, error)) {
		c.f.svc.Quorum(func(q *controller.QuorumStatus) { done(q, nil) })
	})
	return q
}

func (c *conn) describeQuorum(q *kmsg.DescribeQuorumRequest) *kmsg.DescribeQuorumResponse {
	r := q.ResponseKind().(*kmsg.DescribeQuorumResponse)
	status := c.quorum()
	if status == nil {
		r.ErrorCode = kerr.UnsupportedVersion.Code
		r.ErrorMessage = kmsg.StringPtr("decisions are not made by a quorum here: the controller is " + c.f.svc.Controller())
		return r
	}
	for _, t := range q.Topics {
		rt := kmsg.NewDescribeQuorumResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewDescribeQuorumResponseTopicPartition()
			rp.Partition = p.Partition
			if t.Topic == metadata.LogName && p.Partition == 0 {
				fillQuorum(&rp, status)
			} else {
				rp.ErrorCode = kerr.UnknownTopicOrPartition.Code
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		r.Topics = append(r.Topics, rt)
	}
	if q.Version >= 2 {
		for _, b := range c.f.svc.Processes() {
			n := kmsg.NewDescribeQuorumResponseNode()
			n.NodeID = int32(b.ID)
			if host, port, ok := c.endpoint(b.ID); ok {
				l := kmsg.NewDescribeQuorumResponseNodeListener()
				l.Name, l.Host, l.Port = "CONTROLLER", host, uint16(port)
				n.Listeners = append(n.Listeners, l)
			}
			r.Nodes = append(r.Nodes, n)
		}
	}
	return r
}

func fillQuorum(r *kmsg.DescribeQuorumResponseTopicPartition, q *controller.QuorumStatus) {
	r.LeaderID, r.LeaderEpoch, r.HighWatermark = int32(q.Active), int32(min(q.Term, 1<<31-1)), int64(q.Committed)
	if q.Active == replica.None {
		r.LeaderID = -1
	}
	states := func(ids []replica.BrokerID) (out []kmsg.DescribeQuorumResponseTopicPartitionReplicaState) {
		for _, id := range ids {
			s := kmsg.NewDescribeQuorumResponseTopicPartitionReplicaState()
			s.ReplicaID, s.LogEndOffset = int32(id), -1
			if lag, known := q.Lag[id]; known {
				s.LogEndOffset = int64(q.Committed) - int64(min(lag, q.Committed))
			}
			out = append(out, s)
		}
		return out
	}
	r.CurrentVoters, r.Observers = states(q.Voters), states(q.Learners)
}

// changeMember changes who belongs to the cluster, or votes.
func (c *conn) changeMember(id int32, kind controller.MemberChangeKind) (int16, *string) {
	err := await(func(done func(error)) {
		c.f.svc.ChangeMember(service.MemberChange{Broker: service.BrokerID(id), Kind: kind}, done)
	})
	return adminNumber(err), text(err)
}

func (c *conn) unregisterBroker(q *kmsg.UnregisterBrokerRequest) *kmsg.UnregisterBrokerResponse {
	r := q.ResponseKind().(*kmsg.UnregisterBrokerResponse)
	if _, known := c.f.svc.Image().Broker(service.BrokerID(q.BrokerID)); !known {
		r.ErrorCode = kerr.BrokerIDNotRegistered.Code
		return r
	}
	r.ErrorCode, r.ErrorMessage = c.changeMember(q.BrokerID, controller.RemoveBroker)
	return r
}

func (c *conn) addVoter(q *kmsg.AddRaftVoterRequest) *kmsg.AddRaftVoterResponse {
	r := q.ResponseKind().(*kmsg.AddRaftVoterResponse)
	r.ErrorCode, r.ErrorMessage = c.changeVoter(q.ClusterID, q.VoterID, false, kerr.DuplicateVoter, controller.GiveVote)
	return r
}

func (c *conn) removeVoter(q *kmsg.RemoveRaftVoterRequest) *kmsg.RemoveRaftVoterResponse {
	r := q.ResponseKind().(*kmsg.RemoveRaftVoterResponse)
	r.ErrorCode, r.ErrorMessage = c.changeVoter(q.ClusterID, q.VoterID, true, kerr.VoterNotFound, controller.TakeVote)
	return r
}

// changeVoter changes a vote of a broker that votes, or does not yet; otherwise is what to answer
// where that is not so.
func (c *conn) changeVoter(cluster *string, id int32, votes bool, otherwise *kerr.Error, kind controller.MemberChangeKind) (int16, *string) {
	switch status := c.quorum(); {
	case cluster != nil && *cluster != clusterID:
		return kerr.InconsistentClusterID.Code, nil
	case status != nil && slices.Contains(status.Voters, service.BrokerID(id)) != votes:
		return otherwise.Code, nil
	}
	return c.changeMember(id, kind)
}

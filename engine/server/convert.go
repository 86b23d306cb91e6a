package server

import (
	"errors"
	"maps"
	"slices"

	"logbook/engine/group"
	"logbook/engine/metadata"
	"logbook/engine/replica"
	"logbook/engine/service"
	"logbook/engine/wire"
)

// What the service says, in the words of the JSON protocol.

// wireError turns an error into what a client is told.
func (b *Server) wireError(err error) *wire.Error {
	e := b.service.AsError(err)
	we := &wire.Error{
		Code: wire.Code(e.Code), Message: e.Message, Leader: wire.BrokerID(e.Leader), LeaderEpoch: e.LeaderEpoch, Offset: e.Offset,
		LogStartOffset: e.LogStartOffset, LogEndOffset: e.LogEndOffset,
	}
	if e.Leader != 0 {
		we.Address = b.AddressOf(replica.BrokerID(e.Leader))
	}
	return we
}

// WireError is wireError for other fronts of the same broker.
func (b *Server) WireError(err error) *wire.Error {
	if we, ok := errors.AsType[*wire.Error](err); ok {
		return we
	}
	return b.wireError(err)
}

func nonNil[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

func toWireIDs(ids []replica.BrokerID) []wire.BrokerID {
	out := make([]wire.BrokerID, len(ids))
	for i, id := range ids {
		out[i] = wire.BrokerID(id)
	}
	return out
}

func toWireTopic(t *metadata.Topic) wire.Topic {
	out := wire.Topic{Name: t.Name, Partitioner: t.Partitioner, Replication: t.Replication, Internal: service.IsInternal(t.Name), Settings: t.Settings}
	for _, a := range t.Partitions {
		out.Partitions = append(out.Partitions, wire.Partition{Leader: wire.BrokerID(a.Leader), LeaderEpoch: a.LeaderEpoch, Replicas: toWireIDs(a.Replicas), ISR: toWireIDs(a.ISR)})
	}
	return out
}

func partition(q wire.PartitionRequest) service.Partition {
	return service.Partition{Topic: q.Topic, ID: q.Partition}
}

func toWirePartitions(ps []service.Partition) []wire.TopicPartition {
	out := make([]wire.TopicPartition, len(ps))
	for i, p := range ps {
		out[i] = wire.TopicPartition{Topic: p.Topic, Partition: p.ID}
	}
	return out
}

// toWireOffsets returns the offsets of the partitions wanted, of all where none is named, in order.
func toWireOffsets(all map[service.Partition]int64, wanted []wire.TopicPartition) []wire.CommitOffset {
	out := []wire.CommitOffset{}
	for _, p := range slices.SortedFunc(maps.Keys(all), service.Partition.Compare) {
		if len(wanted) == 0 || slices.Contains(wanted, wire.TopicPartition{Topic: p.Topic, Partition: p.ID}) {
			out = append(out, wire.CommitOffset{Topic: p.Topic, Partition: p.ID, Offset: all[p]})
		}
	}
	return out
}

func toWireStatus(st service.PartitionStatus) wire.StatusReply {
	out := wire.StatusReply{Leader: wire.BrokerID(st.Leader), LeaderEpoch: st.LeaderEpoch, ISR: toWireIDs(st.ISR), HighWatermark: st.HighWatermark}
	for _, r := range st.Replicas {
		role := string(r.Report.Role)
		if role == "" {
			role = "unknown"
		}
		out.Replicas = append(out.Replicas, wire.ReplicaStatus{
			Broker: wire.BrokerID(r.Broker), Role: role, InSync: r.InSync, Known: r.Known, LogStartOffset: r.Report.LogStartOffset, LogEndOffset: r.Report.LogEndOffset,
			Lag: r.Lag, HasLag: r.HasLag, Problem: r.Report.Problem,
		})
	}
	return out
}

func toWireGroup(name string, d service.GroupDescription) wire.DescribeGroupReply {
	out := wire.DescribeGroupReply{Group: name, State: string(d.State), Generation: d.Generation, Members: []wire.GroupMember{}, Offsets: []wire.GroupOffset{}}
	for _, m := range d.Members {
		out.Members = append(out.Members, wire.GroupMember{Member: group.Shown(m.ID), Partitions: toWirePartitions(m.Partitions)})
	}
	for _, o := range d.Offsets {
		out.Offsets = append(out.Offsets, wire.GroupOffset{Topic: o.Partition.Topic, Partition: o.Partition.ID, Offset: o.Offset, HighWatermark: o.HighWatermark, Lag: o.Lag})
	}
	return out
}

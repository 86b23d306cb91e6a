package kafka

import (
	"net"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"logbook/engine/failure"
	"logbook/engine/metadata"
	"logbook/engine/replica"
	"logbook/engine/service"
	"logbook/engine/topic"
)

// errTransactions answers what only transactions need.
var errTransactions = &failure.Error{Code: failure.BadRequest, Message: "kafka: this broker has no transactions"}

// errAcks: a produce asks for an acknowledgement that there is not.
var errAcks = &failure.Error{Code: failure.BadRequest, Message: "kafka: acks must be 0, 1 or -1"}

// clusterID is what clients are told the cluster is called.
var clusterID = "logbook"

// topic finds a topic by the name that Kafka's clients use.
func (c *conn) topic(name string) *metadata.Topic { return named(c.f.svc.Image(), name) }

func named(image *metadata.Image, name string) *metadata.Topic {
	if name == service.OffsetsTopic {
		name = service.GroupsTopic
	}
	return image.Topic(name)
}

// shown is the name by which Kafka's clients know a topic.
func shown(name string) string {
	if name == service.GroupsTopic {
		return service.OffsetsTopic
	}
	return name
}

// endpoint is where clients of this one's listener find a broker.
func (c *conn) endpoint(id service.BrokerID) (host string, port int32, ok bool) {
	address := c.f.svc.Endpoint(id, c.listener)
	host, p, err := net.SplitHostPort(address)
	n, perr := strconv.ParseInt(p, 10, 32)
	return host, int32(n), err == nil && perr == nil
}

// controller is the broker that commands are sent to: the one that decides, or this one, which
// passes them on, where that is not one for clients.
func (f *Front) controller() int32 {
	id := f.svc.ControllerID()
	if slices.ContainsFunc(f.svc.Brokers(), func(b service.BrokerStatus) bool { return b.ID == id }) {
		return int32(id)
	}
	return int32(f.svc.ID())
}

func (c *conn) metadata(q *kmsg.MetadataRequest) *kmsg.MetadataResponse {
	r := q.ResponseKind().(*kmsg.MetadataResponse)
	alive := map[service.BrokerID]bool{}
	for _, b := range c.f.svc.Brokers() {
		host, port, ok := c.endpoint(b.ID)
		if !ok {
			continue
		}
		// Also one that this broker takes for dead: it may be this one that is cut off, and
		// a client that knows no other would never find out.
		alive[b.ID] = b.Alive
		rb := kmsg.NewMetadataResponseBroker()
		rb.NodeID, rb.Host, rb.Port, rb.Rack = int32(b.ID), host, port, rack(b)
		r.Brokers = append(r.Brokers, rb)
	}
	r.ClusterID, r.ControllerID = &clusterID, c.f.controller()
	image := c.f.svc.Image()
	if q.Topics == nil || q.Version == 0 && len(q.Topics) == 0 {
		for _, name := range image.Topics() {
			r.Topics = append(r.Topics, c.describe(image.Topic(name), alive))
		}
		return r
	}
	for _, t := range q.Topics {
		var found *metadata.Topic
		code := kerr.UnknownTopicOrPartition.Code
		switch {
		case t.Topic != nil:
			if found = c.topic(*t.Topic); found == nil {
				found, code = c.autoCreate(*t.Topic, c.f.cfg.AutoCreate && (q.Version < 4 || q.AllowAutoTopicCreation))
			}
		default:
			found, code = image.TopicByID(topic.ID(t.TopicID)), kerr.UnknownTopicID.Code
		}
		if found != nil {
			r.Topics = append(r.Topics, c.describe(found, alive))
			continue
		}
		rt := kmsg.NewMetadataResponseTopic()
		rt.Topic, rt.TopicID, rt.ErrorCode = t.Topic, t.TopicID, code
		r.Topics = append(r.Topics, rt)
	}
	return r
}

// autoCreate makes a topic that a client asks for, if it may.
func (c *conn) autoCreate(name string, may bool) (*metadata.Topic, int16) {
	if err := topic.CheckName("topic", name); err != nil {
		return nil, kerr.InvalidTopicException.Code
	}
	if !may || service.IsInternal(name) {
		return nil, kerr.UnknownTopicOrPartition.Code
	}
	// The client is told to come again, as by Kafka: it is being made.
	c.f.svc.AutoCreateTopic(name, c.f.cfg.Partitions, func(error) {})
	return nil, kerr.LeaderNotAvailable.Code
}

func ids(all []replica.BrokerID) []int32 {
	out := make([]int32, len(all))
	for i, id := range all {
		out[i] = int32(id)
	}
	return out
}

// leads reports whether a broker leads a partition, as far as this one knows: it is told of
// its own leadership a moment before it can take writes.
func (c *conn) leads(id replica.BrokerID, p service.Partition) bool {
	if id != c.f.svc.ID() {
		return true
	}
	_, err := c.f.svc.Look(p)
	return err == nil
}

func (c *conn) describe(t *metadata.Topic, alive map[service.BrokerID]bool) kmsg.MetadataResponseTopic {
	rt := kmsg.NewMetadataResponseTopic()
	rt.Topic, rt.TopicID, rt.IsInternal = kmsg.StringPtr(shown(t.Name)), t.ID, service.IsInternal(t.Name)
	for i, a := range t.Partitions {
		rp := kmsg.NewMetadataResponseTopicPartition()
		rp.Partition, rp.Leader, rp.LeaderEpoch, rp.Replicas, rp.ISR = int32(i), int32(a.Leader), a.LeaderEpoch, ids(a.Replicas), ids(a.ISR)
		if a.Leader == replica.None || !alive[a.Leader] || !c.leads(a.Leader, service.Partition{Topic: t.Name, ID: i}) {
			rp.Leader, rp.ErrorCode = -1, kerr.LeaderNotAvailable.Code
		}
		for _, id := range a.Replicas {
			if !alive[id] {
				rp.OfflineReplicas = append(rp.OfflineReplicas, int32(id))
			}
		}
		rt.Partitions = append(rt.Partitions, rp)
	}
	return rt
}

func (c *conn) describeCluster(q *kmsg.DescribeClusterRequest) *kmsg.DescribeClusterResponse {
	r := q.ResponseKind().(*kmsg.DescribeClusterResponse)
	r.ClusterID, r.ControllerID = clusterID, c.f.controller()
	for _, b := range c.f.svc.Brokers() {
		if host, port, ok := c.endpoint(b.ID); ok {
			rb := kmsg.NewDescribeClusterResponseBroker()
			rb.NodeID, rb.Host, rb.Port, rb.Rack = int32(b.ID), host, port, rack(b)
			r.Brokers = append(r.Brokers, rb)
		}
	}
	return r
}

// rack is where a broker is; nil where it did not say.
func rack(b service.BrokerStatus) *string {
	if b.Rack == "" {
		return nil
	}
	return &b.Rack
}

func (c *conn) describeTopicPartitions(q *kmsg.DescribeTopicPartitionsRequest) *kmsg.DescribeTopicPartitionsResponse {
	r := q.ResponseKind().(*kmsg.DescribeTopicPartitionsResponse)
	image := c.f.svc.Image()
	var names []string
	for _, t := range q.Topics {
		names = append(names, t.Topic)
	}
	if len(names) == 0 {
		for _, name := range image.Topics() {
			names = append(names, shown(name))
		}
	}
	slices.Sort(names)
	left := int(q.ResponsePartitionLimit)
	if left <= 0 || left > 2000 {
		left = 2000
	}
	for _, name := range slices.Compact(names) {
		from := 0
		if q.Cursor != nil {
			if name < q.Cursor.Topic {
				continue
			}
			if name == q.Cursor.Topic {
				from = int(max(0, q.Cursor.Partition))
			}
		}
		rt := kmsg.NewDescribeTopicPartitionsResponseTopic()
		rt.Topic = kmsg.StringPtr(name)
		t := c.topic(name)
		if t == nil {
			rt.ErrorCode = kerr.UnknownTopicOrPartition.Code
			r.Topics = append(r.Topics, rt)
			continue
		}
		rt.TopicID, rt.IsInternal = t.ID, service.IsInternal(name)
		for i := from; i < len(t.Partitions); i++ {
			if left == 0 {
				next := kmsg.NewDescribeTopicPartitionsResponseNextCursor()
				next.Topic, next.Partition = name, int32(i)
				r.NextCursor = &next
				break
			}
			left--
			a := t.Partitions[i]
			rp := kmsg.NewDescribeTopicPartitionsResponseTopicPartition()
			rp.EligibleLeaderReplicas, rp.LastKnownELR = append([]int32{}, ids(a.Eligible)...), []int32{} // null is allowed, and Java's client falls over it
			rp.Partition, rp.LeaderID, rp.LeaderEpoch, rp.Replicas, rp.ISR = int32(i), int32(a.Leader), a.LeaderEpoch, ids(a.Replicas), ids(a.ISR)
			if a.Leader == replica.None {
				rp.LeaderID, rp.ErrorCode = -1, kerr.LeaderNotAvailable.Code
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		r.Topics = append(r.Topics, rt)
		if r.NextCursor != nil {
			break
		}
	}
	return r
}

func (c *conn) describeLogDirs(q *kmsg.DescribeLogDirsRequest) *kmsg.DescribeLogDirsResponse {
	r := q.ResponseKind().(*kmsg.DescribeLogDirsResponse)
	dir := kmsg.NewDescribeLogDirsResponseDir()
	dir.Dir, dir.TotalBytes, dir.UsableBytes = c.f.svc.Dir(), -1, -1
	wanted := func(p service.Partition) bool {
		if q.Topics == nil {
			return true
		}
		for _, t := range q.Topics {
			if t.Topic == p.Topic && slices.Contains(t.Partitions, int32(p.ID)) {
				return true
			}
		}
		return false
	}
	for p, size := range c.f.svc.Sizes() {
		if !wanted(p) {
			continue
		}
		if n := len(dir.Topics); n == 0 || dir.Topics[n-1].Topic != p.Topic {
			t := kmsg.NewDescribeLogDirsResponseDirTopic()
			t.Topic = p.Topic
			dir.Topics = append(dir.Topics, t)
		}
		rp := kmsg.NewDescribeLogDirsResponseDirTopicPartition()
		rp.Partition, rp.Size = int32(p.ID), size
		t := &dir.Topics[len(dir.Topics)-1]
		t.Partitions = append(t.Partitions, rp)
	}
	r.Dirs = append(r.Dirs, dir)
	return r
}

func (c *conn) alterReassignments(q *kmsg.AlterPartitionAssignmentsRequest) *kmsg.AlterPartitionAssignmentsResponse {
	r := q.ResponseKind().(*kmsg.AlterPartitionAssignmentsResponse)
	for _, t := range q.Topics {
		rt := kmsg.NewAlterPartitionAssignmentsResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
			rp.Partition = p.Partition
			var to []service.BrokerID
			for _, id := range p.Replicas {
				to = append(to, service.BrokerID(id))
			}
			err := await(func(done func(error)) {
				c.f.svc.Reassign(service.Partition{Topic: t.Topic, ID: int(p.Partition)}, to, done)
			})
			rp.ErrorCode, rp.ErrorMessage = adminNumber(err), text(err)
			rt.Partitions = append(rt.Partitions, rp)
		}
		r.Topics = append(r.Topics, rt)
	}
	return r
}

// listReassignments lists the partitions that are being moved; all, where none is named.
func (c *conn) listReassignments(q *kmsg.ListPartitionReassignmentsRequest) *kmsg.ListPartitionReassignmentsResponse {
	r := q.ResponseKind().(*kmsg.ListPartitionReassignmentsResponse)
	wanted := func(topic string, partition int) bool {
		return q.Topics == nil || slices.ContainsFunc(q.Topics, func(t kmsg.ListPartitionReassignmentsRequestTopic) bool {
			return t.Topic == topic && slices.Contains(t.Partitions, int32(partition))
		})
	}
	image := c.f.svc.Image()
	for _, name := range image.Topics() {
		rt := kmsg.NewListPartitionReassignmentsResponseTopic()
		rt.Topic = name
		for i, a := range image.Topic(name).Partitions {
			if a.Target == nil || !wanted(name, i) {
				continue
			}
			rp := kmsg.NewListPartitionReassignmentsResponseTopicPartition()
			rp.Partition, rp.Replicas = int32(i), ids(a.Replicas)
			rp.AddingReplicas, rp.RemovingReplicas = ids(lacking(a.Target, a.Origin)), ids(lacking(a.Origin, a.Target))
			rt.Partitions = append(rt.Partitions, rp)
		}
		if len(rt.Partitions) > 0 {
			r.Topics = append(r.Topics, rt)
		}
	}
	return r
}

// lacking are the brokers of one list that the other has not.
func lacking(of, in []replica.BrokerID) []replica.BrokerID {
	return slices.DeleteFunc(slices.Clone(of), func(id replica.BrokerID) bool { return slices.Contains(in, id) })
}

func (c *conn) electLeaders(q *kmsg.ElectLeadersRequest) *kmsg.ElectLeadersResponse {
	r := q.ResponseKind().(*kmsg.ElectLeadersResponse)
	for _, t := range q.Topics {
		rt := kmsg.NewElectLeadersResponseTopic()
		rt.Topic = t.Topic
		for _, id := range t.Partitions {
			rp := kmsg.NewElectLeadersResponseTopicPartition()
			rp.Partition = id
			p := service.Partition{Topic: t.Topic, ID: int(id)}
			a, ok := c.f.svc.Image().Assignment(p)
			switch {
			case !ok:
				rp.ErrorCode = kerr.UnknownTopicOrPartition.Code
			case a.Leader != replica.None:
				rp.ErrorCode = kerr.ElectionNotNeeded.Code
			default:
				err := await(func(done func(error)) { c.f.svc.Elect(p, done) })
				rp.ErrorCode, rp.ErrorMessage = adminNumber(err), text(err)
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		r.Topics = append(r.Topics, rt)
	}
	return r
}

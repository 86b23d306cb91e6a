package kafka

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"logbook/engine/node"
	"logbook/engine/replica"
	"logbook/engine/service"
	"logbook/engine/topic"
)

// produce begins to store the batches of a request, each in its place when it returns.
func (c *conn) produce(q *kmsg.ProduceRequest, reply func(kmsg.Response)) {
	r := q.ResponseKind().(*kmsg.ProduceResponse)
	acks := replica.Quorum
	if q.Acks == 0 || q.Acks == 1 {
		acks = replica.OnLeader
	}
	type stored struct{ topic, partition int }
	var mu sync.Mutex
	left := 1
	arrived := func() { // the lock is held
		if left--; left > 0 {
			return
		}
		if q.Acks == 0 {
			reply(nil) // the client does not wait
			return
		}
		r.SetVersion(q.Version)
		reply(r)
	}
	answer := func(at stored, p service.Partition, out service.Produced, err error) {
		mu.Lock()
		defer mu.Unlock()
		rp := &r.Topics[at.topic].Partitions[at.partition]
		rp.ErrorCode, rp.ErrorMessage = number(err), text(err)
		if rp.ErrorCode == kerr.InvalidRequest.Code && q.Acks != 0 {
			rp.ErrorCode = kerr.InvalidTopicException.Code // a topic of the broker's own
		}
		rp.BaseOffset, rp.LogStartOffset = -1, -1
		if err == nil {
			rp.BaseOffset, rp.LogStartOffset = out.BaseOffset, max(0, c.logStart(p))
			if out.Stamped {
				rp.LogAppendTime = out.Timestamp.UnixMilli()
			}
		}
		arrived()
	}
	refused := error(nil)
	switch {
	case q.TransactionID != nil:
		refused = errTransactions
	case q.Acks < -1 || q.Acks > 1:
		refused = errAcks
	}
	for _, t := range q.Topics {
		rt := kmsg.NewProduceResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewProduceResponseTopicPartition()
			rp.Partition, rp.LogAppendTime = p.Partition, -1
			rt.Partitions = append(rt.Partitions, rp)
			left++
		}
		r.Topics = append(r.Topics, rt)
	}
	for i, t := range q.Topics {
		for k, p := range t.Partitions {
			at, of := stored{i, k}, service.Partition{Topic: t.Topic, ID: int(p.Partition)}
			if refused != nil {
				answer(at, of, service.Produced{}, refused)
				continue
			}
			batch, err := c.f.svc.ParseBatch(t.Topic, p.Records)
			if err != nil {
				answer(at, of, service.Produced{}, err)
				continue
			}
			c.f.svc.Produce(service.Produce{Topic: t.Topic, Partition: int(p.Partition), Acks: &acks, Batch: batch, Timeout: time.Duration(q.TimeoutMillis) * time.Millisecond},
				func(out service.Produced, err error) { answer(at, of, out, err) })
		}
	}
	mu.Lock()
	arrived()
	mu.Unlock()
}

func (c *conn) logStart(p service.Partition) int64 {
	look, err := c.f.svc.Look(p)
	if err != nil {
		return -1
	}
	return look.LogStartOffset
}

// fetchMemory is how much memory a fetched byte takes: as it was read, and in the reply.
const fetchMemory = 2

// maxFetch is the most that a fetch returns, whatever the client allows.
const maxFetch = 50 << 20

func (c *conn) fetch(q *kmsg.FetchRequest) *kmsg.FetchResponse {
	r := q.ResponseKind().(*kmsg.FetchResponse)
	incremental, code := c.openSession(q)
	if code != 0 {
		r.ErrorCode = code
		return r
	}
	defer func() {
		if c.session != nil {
			c.session.answer(r, incremental)
		}
	}()
	total := int(q.MaxBytes)
	if q.Version < 3 || total <= 0 || total > maxFetch {
		total = maxFetch
	}
	var want service.Fetch
	type place struct{ topic, partition int }
	var places []place
	var epochs []int32
	failed, redirected := false, false
	var near []service.BrokerID
	if q.Version >= nearVersion && q.Rack != "" {
		near = c.near(q.Rack)
	}
	for i, t := range q.Topics {
		rt := kmsg.NewFetchResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		name, err := c.topicName(t.Topic, t.TopicID, q.Version >= 13)
		if err == 0 && service.IsInternal(name) { // its records are not in Kafka's format, and nobody's business
			err = kerr.TopicAuthorizationFailed.Code
		}
		for k, p := range t.Partitions {
			rp := kmsg.NewFetchResponseTopicPartition()
			rp.Partition, rp.HighWatermark, rp.LogStartOffset, rp.LastStableOffset = p.Partition, -1, -1, -1
			rp.RecordBatches = []byte{}
			rp.ErrorCode = err
			rt.Partitions = append(rt.Partitions, rp)
			if err != 0 {
				failed = true
				continue
			}
			if c.redirect(near, service.Partition{Topic: name, ID: int(p.Partition)}, p.FetchOffset, &rt.Partitions[k]) {
				redirected = true
				continue
			}
			places = append(places, place{i, k})
			epochs = append(epochs, p.CurrentLeaderEpoch)
			want.Partitions = append(want.Partitions, service.FetchPartition{
				Partition: service.Partition{Topic: name, ID: int(p.Partition)}, Offset: p.FetchOffset, MaxBytes: max(1, min(total, int(p.PartitionMaxBytes))), LeaderEpoch: max(0, p.CurrentLeaderEpoch), Copies: q.Version >= nearVersion,
			})
		}
		r.Topics = append(r.Topics, rt)
	}
	if len(places) == 0 {
		if !failed && !redirected && q.MaxWaitMillis > 0 {
			time.Sleep(min(time.Duration(q.MaxWaitMillis)*time.Millisecond, 100*time.Millisecond))
		}
		return r
	}
	want.MaxBytes, want.MinBytes = total, int(q.MinBytes)
	if !failed && !redirected && q.MinBytes > 0 {
		want.MaxWait = time.Duration(q.MaxWaitMillis) * time.Millisecond
	}
	want.Reserve, want.Release = c.f.cfg.Memory.Reserver(fetchMemory)
	result := make(chan []service.Fetched, 1)
	stop := context.AfterFunc(c.f.drain, c.f.svc.Fetch(want, func(f []service.Fetched) { result <- f }))
	got := <-result
	stop()
	for i, f := range got {
		rp := &r.Topics[places[i].topic].Partitions[places[i].partition]
		rp.ErrorCode = fetchNumber(f.Err)
		if f.Err == nil {
			rp.ErrorCode = checkEpoch(epochs[i], f.Look.LeaderEpoch)
		}
		if rp.ErrorCode != 0 {
			want.Release(int64(len(f.Frames)))
		}
		if is[*node.NotLeaderError](f.Err) {
			continue
		}
		rp.HighWatermark, rp.LastStableOffset, rp.LogStartOffset = f.Look.HighWatermark, f.Look.HighWatermark, f.Look.LogStartOffset
		if rp.ErrorCode == 0 && f.Frames != nil {
			rp.RecordBatches = f.Frames
		}
	}
	return r
}

// nearVersion is the first version of fetches that followers answer too, and in which leaders send
// clients to a follower in their own rack (KIP-392).
const nearVersion = 11

// near lists the brokers in a client's rack that it can read from; none where this one is in it.
func (c *conn) near(rack string) (out []service.BrokerID) {
	for _, b := range c.f.svc.Brokers() {
		if b.Rack != rack {
			continue
		}
		if b.ID == c.f.svc.ID() {
			return nil
		}
		if _, _, ok := c.endpoint(b.ID); ok && b.Alive {
			out = append(out, b.ID)
		}
	}
	return out
}

// redirect tells a client to read from a replica near it, if there is one in sync. It is for the
// leader, and for offsets that the leader would serve.
func (c *conn) redirect(near []service.BrokerID, p service.Partition, offset int64, r *kmsg.FetchResponseTopicPartition) bool {
	if len(near) == 0 {
		return false
	}
	a, ok := c.f.svc.Image().Assignment(p)
	to := slices.IndexFunc(near, func(id service.BrokerID) bool { return slices.Contains(a.ISR, id) })
	if !ok || a.Leader != c.f.svc.ID() || to < 0 {
		return false
	}
	look, err := c.f.svc.Look(p)
	if err != nil || offset < look.LogStartOffset || offset > look.HighWatermark {
		return false
	}
	r.HighWatermark, r.LastStableOffset, r.LogStartOffset = look.HighWatermark, look.HighWatermark, look.LogStartOffset
	r.PreferredReadReplica = int32(near[to])
	return true
}

// topicName finds the topic of a request, by its name or, in later versions, its id.
func (c *conn) topicName(name string, id [16]byte, byID bool) (string, int16) {
	if !byID {
		return name, 0
	}
	t := c.f.svc.Image().TopicByID(topic.ID(id))
	if t == nil {
		return "", kerr.UnknownTopicID.Code
	}
	return t.Name, 0
}

// checkEpoch compares the leader epoch that a client knows, -1 where it says none, with the
// leader's.
func checkEpoch(known, leader int32) int16 {
	switch {
	case known >= 0 && known < leader:
		return kerr.FencedLeaderEpoch.Code
	case known > leader:
		return kerr.UnknownLeaderEpoch.Code
	}
	return 0
}

func (c *conn) listOffsets(q *kmsg.ListOffsetsRequest) *kmsg.ListOffsetsResponse {
	r := q.ResponseKind().(*kmsg.ListOffsetsResponse)
	for _, t := range q.Topics {
		rt := kmsg.NewListOffsetsResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewListOffsetsResponseTopicPartition()
			rp.Partition, rp.Offset, rp.Timestamp, rp.LeaderEpoch = p.Partition, -1, -1, -1
			c.listOffset(service.Partition{Topic: t.Topic, ID: int(p.Partition)}, p.Timestamp, p.CurrentLeaderEpoch, &rp)
			rt.Partitions = append(rt.Partitions, rp)
		}
		r.Topics = append(r.Topics, rt)
	}
	return r
}

func (c *conn) listOffset(p service.Partition, at int64, known int32, rp *kmsg.ListOffsetsResponseTopicPartition) {
	type found struct {
		offset int64
		look   node.Look
	}
	find := func(where service.Where, t time.Time) (found, error) {
		return awaitErr(func(done func(found, error)) {
			c.f.svc.ListOffset(p, where, t, func(offset int64, look node.Look, err error) { done(found{offset, look}, err) })
		})
	}
	var f found
	var err error
	switch at {
	case -1:
		f, err = find(service.Latest, time.Time{})
	case -2, -4: // nothing is tiered, so all that there is is local
		f, err = find(service.Earliest, time.Time{})
	case -5: // the last that is tiered
		f, err = find(service.Latest, time.Time{})
		f.offset = -1
	case -3:
		var newest time.Time
		if f, err = find(service.Latest, time.Time{}); err == nil {
			if f.offset, newest, err = c.f.svc.Newest(p); err == nil && f.offset >= 0 {
				rp.Timestamp = newest.UnixMilli()
			}
		}
	default:
		if f, err = find(service.AtTime, time.UnixMilli(at)); err == nil {
			if f.offset >= f.look.HighWatermark {
				f.offset = -1
				break
			}
			if rp.Timestamp, err = c.timestamp(p, f.offset); err != nil {
				rp.Timestamp = at
				err = nil
			}
		}
	}
	if err != nil {
		rp.ErrorCode = number(err)
		return
	}
	if rp.ErrorCode = checkEpoch(known, f.look.LeaderEpoch); rp.ErrorCode != 0 {
		return
	}
	rp.Offset, rp.LeaderEpoch = f.offset, f.look.LeaderEpoch
}

// timestamp is that of the record at an offset, ms.
func (c *conn) timestamp(p service.Partition, offset int64) (int64, error) {
	got := await(func(done func([]service.Fetched)) {
		c.f.svc.Fetch(service.Fetch{Partitions: []service.FetchPartition{{Partition: p, Offset: offset, MaxBytes: 1}}}, done)
	})
	if got[0].Err != nil {
		return 0, got[0].Err
	}
	for rec, err := range got[0].Records(offset) {
		return rec.Timestamp.UnixMilli(), err
	}
	return -1, nil
}

func (c *conn) offsetForLeaderEpoch(q *kmsg.OffsetForLeaderEpochRequest) *kmsg.OffsetForLeaderEpochResponse {
	r := q.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
	for _, t := range q.Topics {
		rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			rp.Partition, rp.LeaderEpoch, rp.EndOffset = p.Partition, -1, -1
			of := service.Partition{Topic: t.Topic, ID: int(p.Partition)}
			look, err := c.f.svc.Look(of)
			if err != nil {
				rp.ErrorCode = number(err)
			} else if rp.ErrorCode = checkEpoch(p.CurrentLeaderEpoch, look.LeaderEpoch); rp.ErrorCode == 0 {
				if rp.LeaderEpoch, rp.EndOffset, err = c.f.svc.EpochEnd(of, p.LeaderEpoch); err != nil {
					rp.ErrorCode = number(err)
				} else if rp.LeaderEpoch < 0 || p.LeaderEpoch > look.LeaderEpoch {
					rp.LeaderEpoch, rp.EndOffset = -1, -1
				}
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		r.Topics = append(r.Topics, rt)
	}
	return r
}

func (c *conn) deleteRecords(q *kmsg.DeleteRecordsRequest) *kmsg.DeleteRecordsResponse {
	r := q.ResponseKind().(*kmsg.DeleteRecordsResponse)
	for _, t := range q.Topics {
		rt := kmsg.NewDeleteRecordsResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewDeleteRecordsResponseTopicPartition()
			rp.Partition, rp.LowWatermark = p.Partition, -1
			of := service.Partition{Topic: t.Topic, ID: int(p.Partition)}
			look, err := c.f.svc.Look(of)
			below := p.Offset
			switch {
			case err != nil:
			case below == -1:
				below = look.HighWatermark
			case below < 0 || below > look.HighWatermark:
				rp.ErrorCode = kerr.OffsetOutOfRange.Code
			}
			if err == nil && rp.ErrorCode == 0 {
				rp.LowWatermark, err = awaitErr(func(done func(int64, error)) { c.f.svc.DeleteRecords(of, below, done) })
			}
			if err != nil {
				rp.ErrorCode, rp.LowWatermark = number(err), -1
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		r.Topics = append(r.Topics, rt)
	}
	return r
}

func (c *conn) initProducerID(q *kmsg.InitProducerIDRequest) *kmsg.InitProducerIDResponse {
	r := q.ResponseKind().(*kmsg.InitProducerIDResponse)
	r.ProducerID, r.ProducerEpoch = -1, -1
	if q.TransactionalID != nil {
		r.ErrorCode = number(errTransactions)
		return r
	}
	if q.Version >= 3 && q.ProducerID >= 0 && q.ProducerEpoch >= 0 && q.ProducerEpoch < 1<<15-2 {
		r.ProducerID, r.ProducerEpoch = q.ProducerID, q.ProducerEpoch+1 // it begins its sequence anew
		return r
	}
	id, err := c.f.svc.NewProducerID()
	if err != nil {
		r.ErrorCode = number(err)
		return r
	}
	r.ProducerID, r.ProducerEpoch = id, 0
	return r
}

func (c *conn) describeProducers(q *kmsg.DescribeProducersRequest) *kmsg.DescribeProducersResponse {
	r := q.ResponseKind().(*kmsg.DescribeProducersResponse)
	for _, t := range q.Topics {
		rt := kmsg.NewDescribeProducersResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewDescribeProducersResponseTopicPartition()
			rp.Partition = p
			all, err := c.f.svc.Producers(service.Partition{Topic: t.Topic, ID: int(p)})
			rp.ErrorCode, rp.ErrorMessage = number(err), text(err)
			for _, b := range all {
				a := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
				a.ProducerID, a.ProducerEpoch, a.LastSequence, a.LastTimestamp, a.CurrentTxnStartOffset = b.ID, int32(b.Epoch), b.Last, -1, -1
				rp.ActiveProducers = append(rp.ActiveProducers, a)
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		r.Topics = append(r.Topics, rt)
	}
	return r
}

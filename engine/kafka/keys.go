package kafka

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// served is a kind of request that is served, and in which versions.
type served struct {
	min, max  int16
	strangers bool // also for who has not proved who it is
	handle    func(c *conn, req kmsg.Request) (kmsg.Response, error)
}

// on makes a handler of a method for one kind of request.
func on[Q kmsg.Request, R kmsg.Response](f func(c *conn, q Q) R) func(*conn, kmsg.Request) (kmsg.Response, error) {
	return func(c *conn, req kmsg.Request) (kmsg.Response, error) { return f(c, req.(Q)), nil }
}

// keys are filled by init, since the handler of ApiVersions lists them.
var keys map[kmsg.Key]served

func init() {
	keys = map[kmsg.Key]served{
		kmsg.Produce:                      {min: 3, max: 11}, // see conn.produce
		kmsg.Fetch:                        {min: 4, max: 16, handle: on((*conn).fetch)},
		kmsg.ListOffsets:                  {min: 1, max: 7, handle: on((*conn).listOffsets)},
		kmsg.Metadata:                     {min: 0, max: 12, handle: on((*conn).metadata)},
		kmsg.OffsetCommit:                 {min: 2, max: 9, handle: on((*conn).offsetCommit)},
		kmsg.OffsetFetch:                  {min: 1, max: 9, handle: on((*conn).offsetFetch)},
		kmsg.FindCoordinator:              {min: 0, max: 5, handle: on((*conn).findCoordinator)},
		kmsg.JoinGroup:                    {min: 0, max: 9, handle: on((*conn).joinGroup)},
		kmsg.Heartbeat:                    {min: 0, max: 4, handle: on((*conn).heartbeat)},
		kmsg.LeaveGroup:                   {min: 0, max: 5, handle: on((*conn).leaveGroup)},
		kmsg.SyncGroup:                    {min: 0, max: 5, handle: on((*conn).syncGroup)},
		kmsg.DescribeGroups:               {min: 0, max: 5, handle: on((*conn).describeGroups)},
		kmsg.ListGroups:                   {min: 0, max: 5, handle: on((*conn).listGroups)},
		kmsg.SASLHandshake:                {min: 0, max: 1, strangers: true, handle: on((*conn).saslHandshake)},
		kmsg.ApiVersions:                  {min: 0, max: 4, strangers: true, handle: on((*conn).apiVersions)},
		kmsg.CreateTopics:                 {min: 2, max: 7, handle: on((*conn).createTopics)},
		kmsg.DeleteTopics:                 {min: 1, max: 6, handle: on((*conn).deleteTopics)},
		kmsg.DeleteRecords:                {min: 0, max: 2, handle: on((*conn).deleteRecords)},
		kmsg.InitProducerID:               {min: 0, max: 4, handle: on((*conn).initProducerID)},
		kmsg.OffsetForLeaderEpoch:         {min: 2, max: 4, handle: on((*conn).offsetForLeaderEpoch)},
		kmsg.DescribeConfigs:              {min: 1, max: 4, handle: on((*conn).describeConfigs)},
		kmsg.AlterConfigs:                 {min: 0, max: 2, handle: on((*conn).alterConfigs)},
		kmsg.DescribeLogDirs:              {min: 1, max: 4, handle: on((*conn).describeLogDirs)},
		kmsg.SASLAuthenticate:             {min: 0, max: 2, strangers: true, handle: (*conn).saslAuthenticate},
		kmsg.CreatePartitions:             {min: 0, max: 3, handle: on((*conn).createPartitions)},
		kmsg.DeleteGroups:                 {min: 0, max: 2, handle: on((*conn).deleteGroups)},
		kmsg.AlterPartitionAssignments:    {min: 0, max: 0, handle: on((*conn).alterReassignments)},
		kmsg.ListPartitionReassignments:   {min: 0, max: 0, handle: on((*conn).listReassignments)},
		kmsg.ElectLeaders:                 {min: 0, max: 2, handle: on((*conn).electLeaders)},
		kmsg.IncrementalAlterConfigs:      {min: 0, max: 1, handle: on((*conn).incrementalAlterConfigs)},
		kmsg.OffsetDelete:                 {min: 0, max: 0, handle: on((*conn).offsetDelete)},
		kmsg.DescribeUserSCRAMCredentials: {min: 0, max: 0, handle: on((*conn).describeUsers)},
		kmsg.AlterUserSCRAMCredentials:    {min: 0, max: 0, handle: on((*conn).alterUsers)},
		kmsg.DescribeQuorum:               {min: 0, max: 2, handle: on((*conn).describeQuorum)},
		kmsg.UnregisterBroker:             {min: 0, max: 0, handle: on((*conn).unregisterBroker)},
		kmsg.AddRaftVoter:                 {min: 0, max: 1, handle: on((*conn).addVoter)},
		kmsg.RemoveRaftVoter:              {min: 0, max: 0, handle: on((*conn).removeVoter)},
		kmsg.DescribeCluster:              {min: 0, max: 1, handle: on((*conn).describeCluster)},
		kmsg.DescribeProducers:            {min: 0, max: 0, handle: on((*conn).describeProducers)},
		kmsg.DescribeTopicPartitions:      {min: 0, max: 0, handle: on((*conn).describeTopicPartitions)},
		kmsg.DescribeClientQuotas:         {min: 0, max: 1, handle: on((*conn).describeQuotas)},
		kmsg.ListConfigResources:          {min: 0, max: 1, handle: on((*conn).listConfigResources)},
		kmsg.ConsumerGroupHeartbeat:       {min: 0, max: 1, handle: on((*conn).consumerHeartbeat)},
		kmsg.ConsumerGroupDescribe:        {min: 0, max: 1, handle: on((*conn).describeConsumers)},
	}
}

// Keys lists the requests that are served: key, lowest and highest version.
func Keys() [][3]int16 {
	var out [][3]int16
	for k, s := range keys {
		out = append(out, [3]int16{int16(k), s.min, s.max})
	}
	slices.SortFunc(out, func(a, b [3]int16) int { return int(a[0]) - int(b[0]) })
	return out
}

func apiVersions(version, code int16) *kmsg.ApiVersionsResponse {
	r := kmsg.NewPtrApiVersionsResponse()
	r.SetVersion(version)
	r.ErrorCode = code
	for _, k := range Keys() {
		a := kmsg.NewApiVersionsResponseApiKey()
		a.ApiKey, a.MinVersion, a.MaxVersion = k[0], k[1], k[2]
		if kmsg.Key(k[0]) == kmsg.Produce {
			a.MinVersion = 0 // else old clients of librdkafka believe that nothing can be compressed
		}
		r.ApiKeys = append(r.ApiKeys, a)
	}
	return r
}

func (c *conn) apiVersions(q *kmsg.ApiVersionsRequest) *kmsg.ApiVersionsResponse {
	return apiVersions(q.Version, 0)
}

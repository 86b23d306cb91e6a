package kafka

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"logbook/engine/metadata"
	"logbook/engine/service"
	"logbook/engine/topic"
)

// adminNumber is number for what the controller decides.
func adminNumber(err error) int16 {
	n := number(err)
	switch {
	case n == kerr.NotCoordinator.Code:
		return kerr.NotController.Code
	case is[*service.BrokerError](err):
		return kerr.InvalidReplicationFactor.Code
	}
	return n
}

func (c *conn) createTopics(q *kmsg.CreateTopicsRequest) *kmsg.CreateTopicsResponse {
	r := q.ResponseKind().(*kmsg.CreateTopicsResponse)
	seen := map[string]int{}
	for _, t := range q.Topics {
		seen[t.Topic]++
	}
	for _, t := range q.Topics {
		rt := kmsg.NewCreateTopicsResponseTopic()
		rt.Topic = t.Topic
		var made *metadata.Topic
		var code int16
		var err error
		if seen[t.Topic] > 1 {
			code = kerr.InvalidRequest.Code
			rt.ErrorMessage = kmsg.StringPtr("the topic is named more than once")
		} else if made, code, err = c.createTopic(t, q.ValidateOnly); err != nil {
			rt.ErrorMessage = text(err)
		}
		rt.ErrorCode = code
		rt.NumPartitions, rt.ReplicationFactor = -1, -1
		if made != nil {
			rt.TopicID, rt.NumPartitions, rt.ReplicationFactor = made.ID, int32(len(made.Partitions)), int16(made.Replication)
			for _, s := range topic.AllSettings() {
				rc := kmsg.NewCreateTopicsResponseTopicConfig()
				v, set := made.Settings[s.Name]
				rc.Name, rc.Source = s.Name, 5
				if rc.Value = kmsg.StringPtr(s.Default); set {
					rc.Value, rc.Source = &v, 1
				}
				rt.Configs = append(rt.Configs, rc)
			}
		}
		r.Topics = append(r.Topics, rt)
	}
	return r
}

func (c *conn) createTopic(t kmsg.CreateTopicsRequestTopic, validateOnly bool) (*metadata.Topic, int16, error) {
	spec := service.TopicSpec{Name: t.Topic, Partitions: int(t.NumPartitions), Replication: int(t.ReplicationFactor), Settings: topic.Settings{}}
	if n := len(t.ReplicaAssignment); n > 0 {
		if t.NumPartitions != -1 || t.ReplicationFactor != -1 {
			return nil, kerr.InvalidRequest.Code, errors.New("with a manual assignment the number of partitions and the replication factor must be -1")
		}
		var err error
		if spec.Partitions, spec.Replication, err = c.assigned(t.ReplicaAssignment); err != nil {
			return nil, kerr.InvalidReplicaAssignment.Code, err
		}
	} else {
		switch {
		case t.NumPartitions == -1:
			spec.Partitions = c.f.cfg.Partitions
		case t.NumPartitions < 1:
			return nil, kerr.InvalidPartitions.Code, fmt.Errorf("%d partitions; there must be one at least, or -1 for the broker's default", t.NumPartitions)
		}
		switch {
		case t.ReplicationFactor == -1:
			spec.Replication = 0
		case t.ReplicationFactor < 1 || int(t.ReplicationFactor) > len(c.f.svc.Brokers()):
			return nil, kerr.InvalidReplicationFactor.Code, fmt.Errorf("a replication factor of %d; it must be from 1 to the number of brokers, %d, or -1 for the default", t.ReplicationFactor, len(c.f.svc.Brokers()))
		}
	}
	for _, x := range t.Configs {
		if x.Value == nil {
			return nil, kerr.InvalidConfig.Code, fmt.Errorf("the setting %q has no value", x.Name)
		}
		spec.Settings[x.Name] = *x.Value
	}
	if service.IsInternal(t.Topic) {
		return nil, kerr.InvalidTopicException.Code, fmt.Errorf("topic %q: names that begin with __ are the brokers' own", t.Topic)
	}
	if validateOnly {
		spec.Partitioner = topic.Murmur2.Name()
		err := c.f.svc.CheckTopic(spec)
		return nil, adminNumber(err), err
	}
	made, err := awaitErr(func(done func(*metadata.Topic, error)) { c.f.svc.CreateTopic(spec, done) })
	return made, adminNumber(err), err
}

// assigned reads a manual assignment: brokers place replicas by a rule of their own, so
// that it counts only as far as counts go.
func (c *conn) assigned(all []kmsg.CreateTopicsRequestTopicReplicaAssignment) (partitions, replication int, err error) {
	brokers := map[int32]bool{}
	for _, b := range c.f.svc.Brokers() {
		brokers[int32(b.ID)] = true
	}
	for i, a := range all {
		if i > 0 && len(a.Replicas) != replication || len(a.Replicas) == 0 {
			return 0, 0, fmt.Errorf("partition %d has %d replicas; each must have one at least, and all the same number", a.Partition, len(a.Replicas))
		}
		replication = len(a.Replicas)
		once := map[int32]bool{}
		for _, id := range a.Replicas {
			if !brokers[id] || once[id] {
				return 0, 0, fmt.Errorf("partition %d names broker %d, which is unknown or named twice", a.Partition, id)
			}
			once[id] = true
		}
	}
	seen := map[int32]bool{}
	for _, a := range all {
		if a.Partition < 0 || int(a.Partition) >= len(all) || seen[a.Partition] {
			return 0, 0, fmt.Errorf("partition %d is not one of 0 to %d, or is named twice", a.Partition, len(all)-1)
		}
		seen[a.Partition] = true
	}
	return len(all), replication, nil
}

// listConfigResources lists what has settings: topics and brokers. Of clients' metrics there
// are none, which is all that version 0 asks for.
func (c *conn) listConfigResources(q *kmsg.ListConfigResourcesRequest) *kmsg.ListConfigResourcesResponse {
	r := q.ResponseKind().(*kmsg.ListConfigResourcesResponse)
	if q.Version == 0 {
		return r
	}
	list := func(kind kmsg.ConfigResourceType, name string) {
		if len(q.ResourceTypes) == 0 || slices.Contains(q.ResourceTypes, int8(kind)) {
			x := kmsg.NewListConfigResourcesResponseConfigResource()
			x.Name, x.Type = name, int8(kind)
			r.ConfigResources = append(r.ConfigResources, x)
		}
	}
	for _, name := range c.f.svc.Image().Topics() {
		list(kmsg.ConfigResourceTypeTopic, shown(name))
	}
	for _, b := range c.f.svc.Brokers() {
		list(kmsg.ConfigResourceTypeBroker, strconv.Itoa(int(b.ID)))
	}
	return r
}

func (c *conn) change(change service.TopicChange) error {
	return await(func(done func(error)) { c.f.svc.ChangeTopic(change, done) })
}

func (c *conn) deleteTopics(q *kmsg.DeleteTopicsRequest) *kmsg.DeleteTopicsResponse {
	r := q.ResponseKind().(*kmsg.DeleteTopicsResponse)
	remove := func(name string) (int16, *string) {
		err := c.change(service.TopicChange{Name: name, Delete: true})
		return adminNumber(err), text(err)
	}
	if q.Version < 6 {
		for _, name := range q.TopicNames {
			rt := kmsg.NewDeleteTopicsResponseTopic()
			rt.Topic = kmsg.StringPtr(name)
			rt.ErrorCode, rt.ErrorMessage = remove(name)
			r.Topics = append(r.Topics, rt)
		}
		return r
	}
	for _, t := range q.Topics {
		rt := kmsg.NewDeleteTopicsResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		var found *metadata.Topic
		if t.Topic != nil {
			found = c.f.svc.Image().Topic(*t.Topic)
		} else {
			found = c.f.svc.Image().TopicByID(topic.ID(t.TopicID))
		}
		switch {
		case found != nil:
			rt.Topic, rt.TopicID = &found.Name, found.ID
			rt.ErrorCode, rt.ErrorMessage = remove(found.Name)
		case t.Topic == nil:
			rt.ErrorCode = kerr.UnknownTopicID.Code
		default:
			rt.ErrorCode = kerr.UnknownTopicOrPartition.Code
		}
		r.Topics = append(r.Topics, rt)
	}
	return r
}

func (c *conn) createPartitions(q *kmsg.CreatePartitionsRequest) *kmsg.CreatePartitionsResponse {
	r := q.ResponseKind().(*kmsg.CreatePartitionsResponse)
	for _, t := range q.Topics {
		rt := kmsg.NewCreatePartitionsResponseTopic()
		rt.Topic = t.Topic
		found := c.f.svc.Image().Topic(t.Topic)
		switch {
		case found == nil:
			rt.ErrorCode = kerr.UnknownTopicOrPartition.Code
		case int(t.Count) <= len(found.Partitions):
			rt.ErrorCode = kerr.InvalidPartitions.Code
			rt.ErrorMessage = text(&topic.FewerError{Name: t.Topic, Count: len(found.Partitions), Wanted: int(t.Count)})
		case len(t.Assignment) > 0 && len(t.Assignment) != int(t.Count)-len(found.Partitions):
			rt.ErrorCode = kerr.InvalidReplicaAssignment.Code
		case !q.ValidateOnly:
			err := c.change(service.TopicChange{Name: t.Topic, Partitions: int(t.Count)})
			rt.ErrorCode, rt.ErrorMessage = adminNumber(err), text(err)
		}
		r.Topics = append(r.Topics, rt)
	}
	return r
}

// configTypes are Kafka's numbers for the kinds of settings.
var configTypes = map[string]kmsg.ConfigType{
	"boolean": kmsg.ConfigTypeBoolean, "string": kmsg.ConfigTypeString, "int": kmsg.ConfigTypeInt, "long": kmsg.ConfigTypeLong, "list": kmsg.ConfigTypeList,
}

func (c *conn) describeConfigs(q *kmsg.DescribeConfigsRequest) *kmsg.DescribeConfigsResponse {
	r := q.ResponseKind().(*kmsg.DescribeConfigsResponse)
	for _, res := range q.Resources {
		rr := kmsg.NewDescribeConfigsResponseResource()
		rr.ResourceType, rr.ResourceName = res.ResourceType, res.ResourceName
		add := func(name, value, kind, doc string, source kmsg.ConfigSource, readOnly bool) {
			if res.ConfigNames != nil && !slices.Contains(res.ConfigNames, name) {
				return
			}
			rc := kmsg.NewDescribeConfigsResponseResourceConfig()
			rc.Name, rc.Value, rc.Source, rc.ConfigType, rc.ReadOnly = name, &value, source, configTypes[kind], readOnly
			if q.IncludeDocumentation {
				rc.Documentation = &doc
			}
			rr.Configs = append(rr.Configs, rc)
		}
		switch res.ResourceType {
		case kmsg.ConfigResourceTypeTopic:
			t := c.topic(res.ResourceName)
			if t == nil {
				rr.ErrorCode = kerr.UnknownTopicOrPartition.Code
				if topic.CheckName("topic", res.ResourceName) != nil {
					rr.ErrorCode = kerr.InvalidTopicException.Code
				}
				break
			}
			for _, s := range topic.AllSettings() {
				if v, set := t.Settings[s.Name]; set {
					add(s.Name, v, s.Kind, s.Doc, kmsg.ConfigSourceDynamicTopicConfig, false)
				} else {
					add(s.Name, c.defaultOf(s), s.Kind, s.Doc, kmsg.ConfigSourceDefaultConfig, false)
				}
			}
		case kmsg.ConfigResourceTypeBroker:
			if id, err := strconv.Atoi(res.ResourceName); res.ResourceName != "" && (err != nil || id != int(c.f.svc.ID())) {
				rr.ErrorCode = kerr.InvalidRequest.Code
				break
			}
			for _, x := range [][4]string{
				{"broker.id", strconv.Itoa(int(c.f.svc.ID())), "int", "this broker's number in the cluster (LOGBOOK_BROKER_ID)"},
				{"auto.create.topics.enable", strconv.FormatBool(c.f.cfg.AutoCreate), "boolean", "whether topics are made that clients ask for (LOGBOOK_AUTO_CREATE)"},
				{"num.partitions", strconv.Itoa(c.f.cfg.Partitions), "int", "partitions of topics that do not say (LOGBOOK_PARTITIONS)"},
				{"default.replication.factor", strconv.Itoa(min(3, len(c.f.svc.Brokers()))), "int", "replicas of topics that do not say: one on each broker, at most three"},
				{"min.insync.replicas", strconv.Itoa(c.f.svc.MinInSync()), "int", "how many must be in sync for a write with acks=all (LOGBOOK_MIN_IN_SYNC)"},
				{"log.dirs", c.f.svc.Dir(), "string", "where the logs are (LOGBOOK_DATA)"},
			} {
				add(x[0], x[1], x[2], x[3], kmsg.ConfigSourceStaticBrokerConfig, true)
			}
		default:
			rr.ErrorCode = kerr.InvalidRequest.Code
		}
		r.Resources = append(r.Resources, rr)
	}
	return r
}

func (c *conn) defaultOf(s topic.Setting) string {
	if s.Name == "min.insync.replicas" {
		return strconv.Itoa(c.f.svc.MinInSync())
	}
	return s.Default
}

func (c *conn) alterConfigs(q *kmsg.AlterConfigsRequest) *kmsg.AlterConfigsResponse {
	r := q.ResponseKind().(*kmsg.AlterConfigsResponse)
	for _, res := range q.Resources {
		rr := kmsg.NewAlterConfigsResponseResource()
		rr.ResourceType, rr.ResourceName = res.ResourceType, res.ResourceName
		changes := map[string]*string{}
		if t := c.f.svc.Image().Topic(res.ResourceName); t != nil {
			for name := range t.Settings {
				changes[name] = nil // what is not named goes back to its default
			}
		}
		for _, x := range res.Configs {
			changes[x.Name] = x.Value
		}
		rr.ErrorCode, rr.ErrorMessage = c.alter(res.ResourceType, res.ResourceName, changes, q.ValidateOnly)
		r.Resources = append(r.Resources, rr)
	}
	return r
}

func (c *conn) incrementalAlterConfigs(q *kmsg.IncrementalAlterConfigsRequest) *kmsg.IncrementalAlterConfigsResponse {
	r := q.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	for _, res := range q.Resources {
		rr := kmsg.NewIncrementalAlterConfigsResponseResource()
		rr.ResourceType, rr.ResourceName = res.ResourceType, res.ResourceName
		set := topic.Settings(nil)
		if t := c.f.svc.Image().Topic(res.ResourceName); t != nil {
			set = t.Settings
		}
		changes := map[string]*string{}
		for _, x := range res.Configs {
			switch x.Op {
			case kmsg.IncrementalAlterConfigOpSet:
				changes[x.Name] = x.Value
			case kmsg.IncrementalAlterConfigOpDelete:
				changes[x.Name] = nil
			default: // append to, or subtract from, a list
				v := edited(set, x.Name, value(x.Value), x.Op == kmsg.IncrementalAlterConfigOpAppend)
				changes[x.Name] = &v
			}
		}
		rr.ErrorCode, rr.ErrorMessage = c.alter(res.ResourceType, res.ResourceName, changes, q.ValidateOnly)
		r.Resources = append(r.Resources, rr)
	}
	return r
}

// edited adds elements to a setting that is a list, or takes them out.
func edited(set topic.Settings, name, elements string, add bool) string {
	now, ok := set[name]
	if !ok {
		if s, err := topic.SettingByName(name); err == nil {
			now = s.Default
		}
	}
	list := strings.Split(now, ",")
	for e := range strings.SplitSeq(elements, ",") {
		list = slices.DeleteFunc(list, func(x string) bool { return x == e || x == "" })
		if add {
			list = append(list, e)
		}
	}
	slices.Sort(list)
	return strings.Join(list, ",")
}

func (c *conn) alter(kind kmsg.ConfigResourceType, name string, changes map[string]*string, validateOnly bool) (int16, *string) {
	if kind != kmsg.ConfigResourceTypeTopic {
		return kerr.InvalidRequest.Code, kmsg.StringPtr("only topics have settings that can be changed while the broker runs")
	}
	for n := range changes {
		if _, err := topic.SettingByName(n); err != nil {
			return kerr.InvalidConfig.Code, text(err)
		}
	}
	t := c.f.svc.Image().Topic(name)
	if t == nil {
		return kerr.UnknownTopicOrPartition.Code, nil
	}
	var err error
	if validateOnly {
		err = t.Settings.With(changes).Check()
	} else {
		err = c.change(service.TopicChange{Name: name, Settings: changes})
	}
	return adminNumber(err), text(err)
}

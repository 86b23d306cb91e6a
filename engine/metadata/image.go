package metadata

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"

	"logbook/engine/replica"
	"logbook/engine/topic"
)

// Topic is a topic as it was decided. It must not be changed.
type Topic struct {
	Name        string
	ID          topic.ID
	Partitioner string // name of the rule that keys follow
	Replication int
	Partitions  []replica.Assignment // partition i is the i-th
	Settings    topic.Settings       // what was set
	Version     int64
}

// Image is all that was decided, at one moment. It is safe for concurrent use, since it
// never changes. The zero value is an empty cluster's.
type Image struct {
	brokers []replica.BrokerID                // ascending
	lives   map[replica.BrokerID]BrokerRecord // of those that were registered with more than their id, and removed ones
	topics  map[string]*Topic
	deleted map[string]*TopicRecord // topics that were deleted, and not made again
	users   map[string]*UserRecord  // those too that were deleted
}

// Brokers returns the ids of the cluster's brokers, ascending. It must not be changed.
func (i *Image) Brokers() []replica.BrokerID { return i.brokers }

// Broker returns what is decided about a broker; false where it is not one of the cluster's.
func (i *Image) Broker(id replica.BrokerID) (BrokerRecord, bool) {
	if _, known := slices.BinarySearch(i.brokers, id); !known {
		return BrokerRecord{}, false
	}
	if r, ok := i.lives[id]; ok {
		return r, true
	}
	return BrokerRecord{ID: id}, true
}

// Stores reports whether a broker is one of the cluster's and has replicas.
func (i *Image) Stores(id replica.BrokerID) bool {
	r, known := i.Broker(id)
	return known && r.Role.Stores()
}

// Removed returns what is known of a broker that was removed; false where it was not, or is back.
func (i *Image) Removed(id replica.BrokerID) (BrokerRecord, bool) {
	r := i.lives[id]
	return r, r.Removed
}

// Members returns the brokers of a list and those of the image, ascending, without those that
// were removed.
func (i *Image) Members(list []replica.BrokerID) []replica.BrokerID {
	all := slices.Concat(list, i.brokers)
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(id replica.BrokerID) bool { return i.lives[id].Removed })
}

// Usable reports whether a broker is one of the cluster's and not fenced.
func (i *Image) Usable(id replica.BrokerID) bool {
	r, known := i.Broker(id)
	return known && !r.Fenced
}

// Topics returns the topics' names, sorted.
func (i *Image) Topics() []string { return slices.Sorted(maps.Keys(i.topics)) }

// Topic returns a topic, nil where there is none of that name.
func (i *Image) Topic(name string) *Topic { return i.topics[name] }

// Deleted returns what is known of a topic that was deleted; nil where there is none of
// that name, or it was made again.
func (i *Image) Deleted(name string) *TopicRecord { return i.deleted[name] }

// AllDeleted returns the names of topics that were deleted, sorted.
func (i *Image) AllDeleted() []string { return slices.Sorted(maps.Keys(i.deleted)) }

// TopicByID returns a topic, nil where there is none of that id.
func (i *Image) TopicByID(id topic.ID) *Topic {
	for _, t := range i.topics {
		if t.ID == id {
			return t
		}
	}
	return nil
}

// Assignment returns the decision about a partition. Its slices must not be changed.
func (i *Image) Assignment(p topic.Partition) (replica.Assignment, bool) {
	t := i.topics[p.Topic]
	if t == nil || p.ID < 0 || p.ID >= len(t.Partitions) {
		return replica.Assignment{}, false
	}
	return t.Partitions[p.ID], true
}

// Assignments iterates over the decisions about all partitions, in order. Their slices must not be
// changed.
func (i *Image) Assignments() iter.Seq2[topic.Partition, replica.Assignment] {
	return func(yield func(topic.Partition, replica.Assignment) bool) {
		for _, name := range i.Topics() {
			for id, a := range i.topics[name].Partitions {
				if !yield(topic.Partition{Topic: name, ID: id}, a) {
					return
				}
			}
		}
	}
}

// ReplicasOn returns the partitions of which a broker has a replica, in order.
func (i *Image) ReplicasOn(id replica.BrokerID) []topic.Partition {
	var all []topic.Partition
	for p, a := range i.Assignments() {
		if slices.Contains(a.Replicas, id) {
			all = append(all, p)
		}
	}
	return all
}

// Check says what is wrong with a partition that there is not.
//
// Errors: *topic.UnknownError, *topic.PartitionError.
func (i *Image) Check(p topic.Partition) error {
	t := i.topics[p.Topic]
	switch {
	case t == nil:
		return &topic.UnknownError{Name: p.Topic}
	case p.ID < 0 || p.ID >= len(t.Partitions):
		return &topic.PartitionError{Topic: p.Topic, Partition: p.ID, Count: len(t.Partitions)}
	}
	return nil
}

// Apply returns the image that decisions lead to. The records count together: where one
// contradicts what is there, or each other, none does, and the error says which.
func (i *Image) Apply(records ...Record) (*Image, error) {
	next := &Image{brokers: i.brokers, lives: i.lives, topics: maps.Clone(i.topics), deleted: maps.Clone(i.deleted), users: i.users}
	if next.topics == nil {
		next.topics = map[string]*Topic{}
	}
	if next.deleted == nil {
		next.deleted = map[string]*TopicRecord{}
	}
	fresh := map[string]bool{} // topics that this image alone has, and so may be written to
	for _, r := range records {
		if err := next.apply(r, fresh); err != nil {
			return nil, fmt.Errorf("metadata: %s: %w", r.key(), err)
		}
	}
	for name := range fresh {
		if next.topics[name] == nil {
			continue // deleted
		}
		if err := next.validate(next.topics[name]); err != nil {
			return nil, fmt.Errorf("metadata: topic %q: %w", name, err)
		}
	}
	return next, nil
}

func (i *Image) apply(r Record, fresh map[string]bool) error {
	switch {
	case r.Broker != nil:
		if r.Broker.ID <= replica.None {
			return fmt.Errorf("a broker cannot have the id %d; ids are positive", r.Broker.ID)
		}
		switch at, found := slices.BinarySearch(i.brokers, r.Broker.ID); {
		case !found && !r.Broker.Removed:
			i.brokers = slices.Insert(slices.Clone(i.brokers), at, r.Broker.ID)
		case found && r.Broker.Removed:
			if on := i.ReplicasOn(r.Broker.ID); len(on) > 0 {
				return fmt.Errorf("it has replicas of %d partitions, one of %s", len(on), on[0])
			}
			i.brokers = slices.Delete(slices.Clone(i.brokers), at, at+1)
		}
		old, registered := i.lives[r.Broker.ID]
		if !registered {
			old = BrokerRecord{ID: r.Broker.ID}
		}
		if old != *r.Broker {
			if r.Broker.Life < old.Life {
				return fmt.Errorf("its life %d is over, %d has begun", r.Broker.Life, old.Life)
			}
			i.lives = maps.Clone(i.lives)
			if i.lives == nil {
				i.lives = map[replica.BrokerID]BrokerRecord{}
			}
			i.lives[r.Broker.ID] = *r.Broker
		}
	case r.User != nil:
		if err := r.User.validate(); err != nil {
			return err
		}
		i.users = maps.Clone(i.users)
		if i.users == nil {
			i.users = map[string]*UserRecord{}
		}
		i.users[r.User.Name] = r.User
	case r.Topic != nil:
		return i.addTopic(*r.Topic, fresh)
	case r.Partition != nil:
		p := r.Partition
		t := i.topics[p.Topic]
		if t == nil || p.Partition < 0 || p.Partition >= len(t.Partitions) || p.TopicID != (topic.ID{}) && p.TopicID != t.ID {
			return fmt.Errorf("there is no such partition")
		}
		if !fresh[p.Topic] {
			changed := *t
			changed.Partitions = slices.Clone(t.Partitions)
			t, fresh[p.Topic] = &changed, true
			i.topics[p.Topic] = t
		}
		t.Partitions[p.Partition] = p.Assignment.Clone()
	default:
		return fmt.Errorf("an empty decision")
	}
	return nil
}

func (i *Image) addTopic(r TopicRecord, fresh map[string]bool) error {
	if err := topic.CheckName("topic", r.Name); err != nil {
		return err
	}
	if _, err := topic.PartitionerByName(r.Partitioner); err != nil {
		return err
	}
	if r.Partitions < 1 || r.Partitions > topic.MaxPartitions {
		return fmt.Errorf("%d partitions", r.Partitions)
	}
	r.Version = max(r.Version, 1)
	old, gone := i.topics[r.Name], i.deleted[r.Name]
	if r.Deleted {
		if old != nil && r.Version <= old.Version {
			return fmt.Errorf("it is deleted in version %d and was changed in version %d", r.Version, old.Version)
		}
		delete(i.topics, r.Name)
		delete(fresh, r.Name)
		i.deleted[r.Name] = &r
		return nil
	}
	if gone != nil && r.Version <= gone.Version {
		return fmt.Errorf("it is made in version %d and was deleted in version %d", r.Version, gone.Version)
	}
	if err := r.Settings.Check(); err != nil {
		return err
	}
	t := &Topic{Name: r.Name, ID: r.ID, Partitioner: r.Partitioner, Replication: r.Replication, Partitions: make([]replica.Assignment, r.Partitions), Settings: r.Settings, Version: r.Version}
	switch {
	case old == nil:
	case old.ID == r.ID && len(old.Partitions) <= r.Partitions:
		copy(t.Partitions, old.Partitions)
	case r.Version < old.Version || r.Version == old.Version && !r.prevails(old.Record()):
		return fmt.Errorf("there is another topic of that name")
	}
	delete(i.deleted, r.Name)
	i.topics[r.Name], fresh[r.Name] = t, true
	return nil
}

// Supersedes reports whether a record takes the place of another of the same name: the later
// version does. Where two were made of one name by brokers that could not hear each other,
// every broker chooses the same.
func (r *TopicRecord) Supersedes(old *TopicRecord) bool {
	if v, was := max(r.Version, 1), max(old.Version, 1); v != was {
		return v > was
	}
	return r.prevails(old)
}

// prevails decides between two of one version: what is there before what is deleted, more
// partitions before fewer, and then the id, and what is set.
func (r *TopicRecord) prevails(old *TopicRecord) bool {
	switch {
	case r.Deleted != old.Deleted:
		return old.Deleted
	case r.Partitions != old.Partitions:
		return r.Partitions > old.Partitions
	case r.ID != old.ID:
		return bytes.Compare(r.ID[:], old.ID[:]) < 0
	}
	mine, _ := json.Marshal(r.Settings)
	theirs, _ := json.Marshal(old.Settings)
	return bytes.Compare(mine, theirs) < 0
}

func (i *Image) validate(t *Topic) error {
	for p, a := range t.Partitions {
		if err := a.Validate(); err != nil {
			return fmt.Errorf("partition %d: %w", p, err)
		}
		if a.Version < 1 || len(a.Replicas) != t.Replication && len(a.Target) != t.Replication {
			return fmt.Errorf("partition %d: version %d with %d replicas, the replication factor is %d", p, a.Version, len(a.Replicas), t.Replication)
		}
		for _, id := range a.Replicas {
			if _, known := slices.BinarySearch(i.brokers, id); !known {
				return fmt.Errorf("partition %d: replica on broker %d, which is not one of %v", p, id, i.brokers)
			}
		}
	}
	return nil
}

// Records returns the decisions that make this image of an empty one.
func (i *Image) Records() []Record { return new(Image).Diff(i) }

// Diff returns the decisions that make next of this image, in an order that Apply takes.
// next must have come from this one: nothing is ever taken back.
func (i *Image) Diff(next *Image) []Record {
	var out []Record
	var removed []Record // after what moves replicas away
	for _, id := range slices.Sorted(maps.Keys(next.lives)) {
		if r := next.lives[id]; r.Removed && i.lives[id] != r {
			removed = append(removed, Record{Broker: &r})
		}
	}
	for _, id := range next.brokers {
		is, _ := next.Broker(id)
		if was, known := i.Broker(id); !known || was != is {
			out = append(out, Record{Broker: &is})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(next.users)) {
		if r := next.users[name]; i.users[name] != r {
			out = append(out, Record{User: r})
		}
	}
	for _, name := range next.AllDeleted() {
		if r := next.deleted[name]; i.deleted[name] == nil || i.deleted[name].Version != r.Version {
			out = append(out, Record{Topic: r})
		}
	}
	for _, name := range next.Topics() {
		t, old := next.topics[name], i.topics[name]
		if t == old {
			continue
		}
		if old == nil || old.ID != t.ID || old.Version != t.Version || len(old.Partitions) != len(t.Partitions) {
			out = append(out, Record{Topic: t.Record()})
		}
		for p, a := range t.Partitions {
			if old == nil || old.ID != t.ID || p >= len(old.Partitions) || old.Partitions[p].Version != a.Version {
				out = append(out, Record{Partition: &PartitionRecord{Topic: name, TopicID: t.ID, Partition: p, Assignment: a}})
			}
		}
	}
	return append(out, removed...)
}

// Record is the decision that makes the topic, without its assignments.
func (t *Topic) Record() *TopicRecord {
	return &TopicRecord{Name: t.Name, ID: t.ID, Partitions: len(t.Partitions), Replication: t.Replication, Partitioner: t.Partitioner, Settings: t.Settings, Version: t.Version}
}

// Reckoned returns an image in which partitions have other assignments, whatever these are:
// for what a broker believes, and nobody decided. Partitions that there are not are left out.
func (i *Image) Reckoned(changes iter.Seq2[topic.Partition, replica.Assignment]) *Image {
	next := &Image{brokers: i.brokers, lives: i.lives, topics: maps.Clone(i.topics), deleted: i.deleted, users: i.users}
	fresh := map[string]bool{}
	for p, a := range changes {
		t := next.topics[p.Topic]
		if t == nil || p.ID < 0 || p.ID >= len(t.Partitions) {
			continue
		}
		if !fresh[p.Topic] {
			changed := *t
			changed.Partitions = slices.Clone(t.Partitions)
			t, fresh[p.Topic] = &changed, true
			next.topics[p.Topic] = t
		}
		t.Partitions[p.ID] = a
	}
	return next
}

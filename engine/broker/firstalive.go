package broker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"logbook/engine/controller"
	"logbook/engine/replica"
	"logbook/engine/topic"
	"logbook/engine/vfs"
	"logbook/engine/wire"
)

// firstAlive is the directory of a cluster in which each broker reckons for itself. Topics
// are made wherever somebody asks; the others hear of them with the next sign of life.
type firstAlive struct {
	*controller.FirstAlive
	b    *Broker
	file string

	mu    sync.Mutex
	known map[string]wire.CreateTopic
}

// topicsName is the file in which a broker keeps the topics that it knows.
const topicsName = "topics.meta"

// topicsFile is its content.
type topicsFile struct {
	Version int                `json:"version"`
	Topics  []wire.CreateTopic `json:"topics"`
}

func newFirstAlive(b *Broker) (*firstAlive, error) {
	c, err := controller.NewFirstAlive(b.cfg.ID, b.cfg.all(), controller.FirstAliveOptions{FailAfter: b.cfg.FailAfter, AssumeDead: b.cfg.AssumeDead})
	if err != nil {
		return nil, err
	}
	d := &firstAlive{FirstAlive: c, b: b, file: filepath.Join(b.cfg.Data, topicsName), known: map[string]wire.CreateTopic{}}
	return d, d.load()
}

func (d *firstAlive) disk() vfs.FS {
	if d.b.cfg.Log.FS != nil {
		return d.b.cfg.Log.FS
	}
	return vfs.OS
}

func (d *firstAlive) load() error {
	data, err := vfs.ReadFile(d.disk(), d.file, 64<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var f topicsFile
	if err == nil {
		err = d.disk().SyncDir(filepath.Dir(d.file)) // a rename that was not made durable
	}
	if err == nil {
		err = json.Unmarshal(data, &f)
	}
	if err == nil && f.Version != 1 {
		err = fmt.Errorf("version %d, this program reads 1", f.Version)
	}
	for _, t := range f.Topics {
		if err == nil {
			err = checkTopic(t)
		}
		d.known[t.Name] = t
	}
	if err != nil {
		return &controller.MetadataError{File: d.file, Reason: "cannot be read", Err: err}
	}
	return nil
}

func checkTopic(t wire.CreateTopic) error {
	if err := topic.CheckName("topic", t.Name); err != nil {
		return err
	}
	if _, err := topic.RouterByName(t.Router); err != nil {
		return err
	}
	if t.Partitions < 1 || t.Partitions > topic.MaxPartitions || t.Replication < 1 {
		return fmt.Errorf("topic %q: %d partitions, %d replicas", t.Name, t.Partitions, t.Replication)
	}
	return nil
}

// started makes the groups' topic, and opens the replicas of those that are known.
func (d *firstAlive) started() {
	d.mu.Lock()
	if _, ok := d.known[groupsTopic]; !ok {
		if err := d.add(groupsTopicFor(len(d.b.cfg.Peers) + 1)); err != nil {
			d.b.cfg.Logger.Error("cannot make the groups' topic", "error", err)
		}
	}
	var known []wire.CreateTopic
	for _, t := range d.known {
		known = append(known, t)
	}
	d.mu.Unlock()
	for _, t := range known {
		d.open(t)
	}
}

// replicas are the partitions of a topic of which this broker has a replica.
func (d *firstAlive) replicas(t wire.CreateTopic) []controller.Partition {
	var mine []controller.Partition
	for i := range t.Partitions {
		if slices.Contains(controller.AssignReplicas(t.Name, i, t.Replication, d.b.cfg.all()), d.b.cfg.ID) {
			mine = append(mine, partition(t.Name, i))
		}
	}
	return mine
}

// open opens a topic's replicas on this broker, which add has made, and tells the
// controller of it.
func (d *firstAlive) open(t wire.CreateTopic) {
	epochs := map[int]int32{}
	for _, p := range d.replicas(t) {
		d.b.node.Open(p)
		if l, err := d.b.node.Log(p); err == nil {
			epochs[p.ID] = l.LatestEpoch()
		}
	}
	d.AddTopic(t.Name, t.Partitions, t.Replication, t.Router, epochs)
}

// add records a topic durably, after its replicas were made. d.mu is held.
func (d *firstAlive) add(t wire.CreateTopic) error {
	for _, p := range d.replicas(t) {
		if err := d.b.node.Create(p); err != nil {
			return err
		}
	}
	f := topicsFile{Version: 1, Topics: []wire.CreateTopic{t}}
	for _, old := range d.known {
		f.Topics = append(f.Topics, old)
	}
	slices.SortFunc(f.Topics, func(a, b wire.CreateTopic) int { return cmp.Compare(a.Name, b.Name) })
	data, err := json.Marshal(f)
	if err == nil {
		err = vfs.WriteFileAtomic(d.disk(), d.file, append(data, '\n'))
	}
	if err == nil {
		d.known[t.Name] = t
	}
	return err
}

func (d *firstAlive) createTopic(ctx context.Context, t wire.CreateTopic) error {
	if t.Replication > len(d.b.cfg.all()) {
		return &controller.BrokerError{Reason: fmt.Sprintf("a replication factor of %d with %d brokers", t.Replication, len(d.b.cfg.all()))}
	}
	if err := checkTopic(t); err != nil {
		return err
	}
	d.mu.Lock()
	if _, ok := d.known[t.Name]; ok {
		d.mu.Unlock()
		return &topic.ExistsError{Name: t.Name}
	}
	err := d.add(t)
	d.mu.Unlock()
	if err != nil {
		return err
	}
	d.open(t)
	// Those who are away hear of it when they come back.
	_ = d.b.everybody(func(l *link) error { return l.call(ctx, "create_replicas", t, nil) })
	d.hurry()
	return nil
}

// learn takes in a topic that a peer made.
func (d *firstAlive) learn(t wire.CreateTopic) {
	if checkTopic(t) != nil {
		return
	}
	d.mu.Lock()
	old, ok := d.known[t.Name]
	var err error
	if !ok {
		err = d.add(t)
	}
	d.mu.Unlock()
	switch {
	case ok && (old.Partitions != t.Partitions || old.Router != t.Router):
		d.b.cfg.Logger.Error("two brokers made a topic of the same name, and not the same topic; this one keeps its own", "topic", t.Name, "partitions here", old.Partitions, "there", t.Partitions)
	case err != nil:
		d.b.cfg.Logger.Error("cannot make a topic's replicas", "topic", t.Name, "error", err)
	case !ok:
		d.open(t)
	}
}

func (d *firstAlive) topics() map[string]controller.Topic { return d.Topics() }

func (d *firstAlive) topic(name string) (controller.Topic, bool) { return d.Topic(name) }

func (d *firstAlive) alive() map[replica.BrokerID]bool { _, alive := d.Brokers(); return alive }

func (d *firstAlive) decider() replica.BrokerID { return replica.None }

func (d *firstAlive) claims() []wire.Claim {
	var out []wire.Claim
	for _, c := range d.Claims() {
		out = append(out, wire.Claim{Topic: c.Partition.Topic, Partition: c.Partition.ID, Epoch: c.Epoch, Active: c.Active})
	}
	return out
}

func (d *firstAlive) ping() wire.Ping { return wire.Ping{Claims: d.claims()} }

func (d *firstAlive) pinged(peer replica.BrokerID, p wire.Ping) wire.PingReply {
	d.heard(peer, p.Claims)
	d.mu.Lock()
	defer d.mu.Unlock()
	r := wire.PingReply{Claims: d.claims()}
	for _, t := range d.known {
		r.Topics = append(r.Topics, t)
	}
	return r
}

func (d *firstAlive) answered(peer replica.BrokerID, r wire.PingReply) {
	for _, t := range r.Topics {
		d.learn(t)
	}
	d.heard(peer, r.Claims)
}

func (d *firstAlive) heard(peer replica.BrokerID, claims []wire.Claim) {
	var in []controller.Claim
	for _, c := range claims {
		in = append(in, controller.Claim{Partition: controller.Partition{Topic: c.Topic, ID: c.Partition}, Epoch: c.Epoch, Active: c.Active})
	}
	d.unlessSame(func() { d.Heard(peer, in) })
}

func (d *firstAlive) silent(peer replica.BrokerID) {
	d.unlessSame(func() { d.Failed(peer) })
}

// unlessSame tells the others of new claims at once, if f has led to some.
func (d *firstAlive) unlessSame(f func()) {
	before := len(d.Claims())
	f()
	if len(d.Claims()) != before {
		d.hurry()
	}
}

// hurry tells the others of new claims at once.
func (d *firstAlive) hurry() {
	for _, l := range d.b.links {
		l.soon()
	}
}

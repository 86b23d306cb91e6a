package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"logbook/engine/client"
	"logbook/engine/stream"
)

const (
	topicName  = "audit"
	partitions = 3
	groupName  = "auditors"
	// underWay is how many records of a producer wait for their acknowledgement.
	underWay = 100
)

// audit writes and reads, and remembers what was promised.
type audit struct {
	t        *town
	producer *kgo.Client
	stop     context.CancelFunc
	ctx      context.Context
	writers  sync.WaitGroup
	readers  sync.WaitGroup

	mu    sync.Mutex
	sent  [partitions]int // values 0 to sent-1 were acknowledged, in that order
	seen  [partitions]map[string]bool
	gap   [partitions]time.Duration // longest time without an acknowledgement
	late  [partitions]time.Duration // likewise, since that was last asked for
	last  [partitions]time.Time     // the latest acknowledgement
	wrong []string
}

func newAudit(ctx context.Context, t *town) (*audit, error) {
	if err := t.start(); err != nil {
		return nil, err
	}
	a := &audit{t: t}
	a.ctx, a.stop = context.WithCancel(ctx)
	var err error
	a.producer, err = kgo.NewClient(kgo.SeedBrokers(t.addresses(1)...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.AllowAutoTopicCreation(),
		kgo.UnknownTopicRetries(-1), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		return nil, err
	}
	first, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for p := range int32(partitions) { // it makes the topic
		if err := a.producer.ProduceSync(first, &kgo.Record{Topic: topicName, Partition: p, Value: []byte("0")}).FirstErr(); err != nil {
			return nil, fmt.Errorf("the brokers do not come up: %w", err)
		}
		a.sent[p], a.seen[p] = 1, map[string]bool{}
	}
	for p := range partitions {
		a.writers.Go(func() { a.write(int32(p)) })
	}
	a.readers.Go(a.read)
	return a, nil
}

// write writes numbers to a partition until it is told to stop.
func (a *audit) write(p int32) {
	slots := make(chan struct{}, underWay)
	a.mu.Lock()
	a.last[p] = time.Now()
	a.mu.Unlock()
	for i := 1; a.ctx.Err() == nil; i++ {
		slots <- struct{}{}
		a.producer.Produce(context.Background(), &kgo.Record{Topic: topicName, Partition: p, Value: fmt.Append(nil, i)}, func(r *kgo.Record, err error) {
			defer func() { <-slots }()
			a.mu.Lock()
			defer a.mu.Unlock()
			if err != nil {
				a.wrong = append(a.wrong, fmt.Sprintf("a producer was told to give up: %v", err))
				return
			}
			a.sent[p]++
			gap := time.Since(a.last[p])
			a.gap[p], a.late[p], a.last[p] = max(a.gap[p], gap), max(a.late[p], gap), time.Now()
		})
	}
	for range underWay {
		slots <- struct{}{}
	}
}

// read reads as a member of a group, and joins again when that ends.
func (a *audit) read() {
	for a.ctx.Err() == nil {
		if err := a.member(); err != nil && a.ctx.Err() == nil {
			wait(a.ctx, 200*time.Millisecond)
		}
	}
}

func (a *audit) member() error {
	c, err := client.New(client.Options{Brokers: a.t.addresses(0)})
	if err != nil {
		return err
	}
	defer c.Close()
	s := c.Stream()
	defer s.Close()
	m, err := s.JoinGroup(a.ctx, groupName, stream.MemberOptions{Topics: []string{topicName}, Reset: stream.ResetToEarliest})
	if err != nil {
		return err
	}
	defer m.Close()
	for a.ctx.Err() == nil {
		records, err := m.Fetch(a.ctx, 1000)
		if err != nil {
			return err
		}
		a.mu.Lock()
		for _, r := range records {
			a.seen[r.Partition][string(r.Value)] = true
		}
		a.mu.Unlock()
		if err := m.Commit(a.ctx); err != nil {
			return err
		}
	}
	return nil
}

func (a *audit) count() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.sent {
		n += s
	}
	return n
}

// longest is the longest time that a partition was without an acknowledgement since this was last
// asked for, now included.
func (a *audit) longest() (most time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for p := range a.late {
		most = max(most, a.late[p], time.Since(a.last[p]))
		a.late[p] = 0
	}
	return most.Round(time.Millisecond)
}

func (a *audit) seenCount() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.seen {
		n += len(s)
	}
	return n
}

// patience is how long the clients have to finish once all is well.
const patience = 60 * time.Second

// judge lets the clients finish, reads everything, and says which promises were broken.
func (a *audit) judge(ctx context.Context) error {
	a.stop()
	done := make(chan struct{})
	go func() { a.writers.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(patience):
		return errors.New("broken: writes do not go on although all is well")
	}
	a.readers.Wait()
	a.ctx, a.stop = context.WithCancel(ctx)
	a.readers.Go(a.read)
	total := a.count()
	log, err := a.everything(ctx, total)
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(patience); a.seenCount() < total && time.Now().Before(deadline); {
		wait(ctx, 100*time.Millisecond)
	}
	a.stop()
	a.readers.Wait()
	a.producer.Close()
	a.mu.Lock()
	defer a.mu.Unlock()
	for p := range partitions {
		for i, v := range log[p] {
			if v != fmt.Sprint(i) {
				a.wrong = append(a.wrong, fmt.Sprintf("partition %d holds %s where %d belongs: lost, doubled or out of order", p, v, i))
				break
			}
		}
		if n := a.sent[p] - len(a.seen[p]); n > 0 {
			a.wrong = append(a.wrong, fmt.Sprintf("the group was never handed %d of %d records of partition %d", n, a.sent[p], p))
		}
		fmt.Printf("partition %d: %d acknowledged, %d in the log, %d handed to the group; longest time without an acknowledgement %s\n", p, a.sent[p], len(log[p]), len(a.seen[p]), a.gap[p].Round(time.Millisecond))
	}
	if len(a.wrong) > 0 {
		return fmt.Errorf("broken: %q", a.wrong)
	}
	fmt.Println("no promise was broken")
	return nil
}

// everything reads all partitions.
func (a *audit) everything(ctx context.Context, total int) (log [partitions][]string, err error) {
	r, err := kgo.NewClient(kgo.SeedBrokers(a.t.addresses(1)...), kgo.ConsumeTopics(topicName), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		return log, err
	}
	defer r.Close()
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	for n := 0; n < total; {
		r.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			n++
			log[r.Partition] = append(log[r.Partition], string(r.Value))
		})
		if ctx.Err() != nil {
			return log, fmt.Errorf("broken: %d records were acknowledged, and %d can be read", total, n)
		}
	}
	return log, nil
}

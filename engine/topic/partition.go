package topic

import (
	"cmp"
	"fmt"
	"sync"
	"sync/atomic"
)

// Partition names a partition of a topic.
type Partition struct {
	Topic string `json:"topic"`
	ID    int    `json:"partition"`
}

func (p Partition) String() string { return fmt.Sprintf("%s/%d", p.Topic, p.ID) }

// Compare orders partitions by topic, then by id.
func (p Partition) Compare(q Partition) int {
	return cmp.Or(cmp.Compare(p.Topic, q.Topic), cmp.Compare(p.ID, q.ID))
}

// Turns are the partitions that records without a key are sent to: each topic's
// partitions one after another, from 0 on. They are kept in memory only. The zero value
// is ready to use, and safe for concurrent use.
type Turns struct{ next sync.Map }

// Take returns the partition whose turn it is, among n.
func (t *Turns) Take(topic string, n int) int {
	cursor, _ := t.next.LoadOrStore(topic, new(atomic.Uint64))
	return int((cursor.(*atomic.Uint64).Add(1) - 1) % uint64(n))
}

// Choose returns the partition of a record among n: by its key, or, where that is nil,
// the one whose turn it is.
func (t *Turns) Choose(topic string, p Partitioner, key []byte, n int) int {
	if key == nil {
		return t.Take(topic, n)
	}
	return p.Partition(key, n)
}

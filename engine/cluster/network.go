package cluster

import (
	"maps"
	"slices"
	"sync"

	"logbook/engine/node"
	"logbook/engine/replica"
)

// network is the Transport between the nodes of one process: a message is in the other
// node's inbox when Send returns.
type network struct {
	mu      sync.RWMutex
	nodes   map[BrokerID]*node.Node
	running map[BrokerID]func() // stop what drives each
}

func (w *network) Send(p Partition, m replica.Message) error {
	n := w.node(m.To)
	if n == nil {
		return &BrokerDownError{m.To}
	}
	n.Deliver(p, m)
	return nil
}

func (w *network) node(id BrokerID) *node.Node {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.nodes[id]
}

func (w *network) join(n *node.Node, stop func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nodes[n.ID()], w.running[n.ID()] = n, stop
}

// leave takes a node off the network and tells the others.
func (w *network) leave(id BrokerID) *node.Node {
	w.mu.Lock()
	n, stop := w.nodes[id], w.running[id]
	delete(w.nodes, id)
	w.mu.Unlock()
	if n != nil {
		stop()
		for _, other := range w.all() {
			other.Unreachable(id, (&BrokerDownError{id}).Error())
		}
	}
	return n
}

func (w *network) all() []*node.Node {
	w.mu.RLock()
	defer w.mu.RUnlock()
	var nodes []*node.Node
	for _, id := range slices.Sorted(maps.Keys(w.nodes)) {
		nodes = append(nodes, w.nodes[id])
	}
	return nodes
}

// settle waits until the replicas of a partition have heard of a decision and have
// talked about it: the leader calls, a follower fetches, is answered, stores and fetches.
// Each round carries a message at least one hop further.
func (w *network) settle(p Partition, a replica.Assignment) {
	const hops = 6
	for range hops {
		for _, id := range a.Replicas {
			if n := w.node(id); n != nil {
				n.Flush(p)
			}
		}
	}
}

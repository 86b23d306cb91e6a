package node

import (
	"errors"
	"path/filepath"
	"time"

	"logbook/engine/commitlog"
	"logbook/engine/replica"
	"logbook/engine/vfs"
)

// A log whose disk failed refuses everything until it is opened again, and one that could
// not be opened (no descriptors left, no space) is not there at all. Neither is damaged, and
// the cause may pass: so the node looks at them again, and opens them, through recovery,
// once the disk takes a write. What is damaged or missing stays so until a person decides.

// mendEvery is the pause between attempts.
const mendEvery = 5 * time.Second

// troubled sees to it that a replica whose log cannot be used is looked at again.
func (n *Node) troubled() {
	if n.mendAt.CompareAndSwap(0, n.now().Add(mendEvery).UnixNano()) && n.opt.Wake != nil {
		n.opt.Wake()
	}
}

// mend looks at every replica that cannot be used.
func (n *Node) mend() {
	for _, d := range n.all() {
		if !n.mendReplica(d) {
			n.troubled()
		}
	}
}

// mendReplica opens a log again, if that is what it needs. It reports false where it is to
// be tried again.
func (n *Node) mendReplica(d *replicaDriver) bool {
	d.mu.Lock()
	log, broken := d.log, d.broken
	d.mu.Unlock()
	if log == nil {
		if _, refused := errors.AsType[*OpenReplicaError](broken); !refused {
			return true
		}
		d.mu.Lock()
		d.open(false)
		still := d.broken
		d.mu.Unlock()
		if _, refused := errors.AsType[*OpenReplicaError](still); refused {
			return false
		}
		n.mended(d, d)
		return true
	}
	if _, poisoned := errors.AsType[*commitlog.PoisonedError](log.Usable()); !poisoned {
		return true
	}
	if there := d.exists(log.Dir()); there && n.probe(log.Dir()) != nil {
		return false
	}
	fresh := n.newDriver(d.partition)
	d.stop(replica.ErrLeadershipLost)
	if err := d.close(); err != nil {
		n.logger.Warn("closing a log whose disk failed", "broker", n.opt.ID, "partition", d.partition, "error", err)
	}
	n.marks.note(d.partition, d.hw.Load())
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return true
	}
	n.drivers[d.partition] = fresh
	n.mu.Unlock()
	fresh.mu.Lock()
	fresh.open(false)
	fresh.mu.Unlock()
	n.mended(d, fresh)
	return true
}

// mended gives a replica that was opened again the role that it has by now.
func (n *Node) mended(old, fresh *replicaDriver) {
	fresh.mu.Lock()
	broken := fresh.broken
	fresh.mu.Unlock()
	if broken != nil {
		n.logger.Error("a replica's log cannot be opened again", "broker", n.opt.ID, "partition", fresh.partition, "error", broken)
	} else {
		n.logger.Warn("a replica's log was opened again: its disk works", "broker", n.opt.ID, "partition", fresh.partition)
	}
	if a := old.assigned.Load(); a != nil {
		n.Assign(fresh.partition, *a)
	}
}

// probe reports whether a disk takes a write.
func (n *Node) probe(dir string) error {
	name := filepath.Join(dir, "probe"+vfs.TempSuffix)
	err := vfs.WriteNew(n.fs, name, make([]byte, 64<<10))
	return errors.Join(err, n.fs.Remove(name))
}

// Scrub reads all of a replica's log, and reports whether it is what was written: what rots where
// nobody reads would be found when the other copies are gone.
//
// Errors: *NoReplicaError, *MissingReplicaError, *OpenReplicaError, *CorruptReplicaError,
// *commitlog.CorruptionError, ErrClosed.
func (n *Node) Scrub(p Partition) error {
	d, err := n.opened(p)
	if err != nil {
		return err
	}
	return d.damaged(d.log.Verify())
}

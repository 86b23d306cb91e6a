package node

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"logbook/engine/commitlog"
	"logbook/engine/replica"
	"logbook/engine/vfs"
)

// ErrRemoved: the replica's topic was deleted.
var ErrRemoved = errors.New("node: the topic was deleted")

// Remove deletes replicas, with all their records: of a topic that is no more. Writes and
// commands that wait get ErrRemoved. It can be stopped anywhere: see RemoveLeftovers.
func (n *Node) Remove(all ...Partition) error { return n.remove(ErrRemoved, all) }

// Release deletes replicas that other brokers have now. Writes that wait may be stored all the
// same: they get replica.ErrLeadershipLost.
func (n *Node) Release(all ...Partition) error { return n.remove(replica.ErrLeadershipLost, all) }

func (n *Node) remove(why error, all []Partition) error {
	var problems []error
	for _, p := range all {
		err := n.takeOut(p, why)
		if errors.Is(err, ErrClosed) {
			return err // it is done when the broker starts
		}
		if err == nil {
			err = removeDir(n.fs, n.Dir(p))
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("node: deleting %s: %w", p, err))
			continue
		}
		dir := filepath.Dir(n.Dir(p))
		if names, err := n.fs.ReadDir(dir); err == nil && len(names) == 0 {
			problems = append(problems, removeDir(n.fs, dir))
		}
	}
	return errors.Join(problems...)
}

// takeOut ends a replica's work, closes its log and forgets its high watermark, which must not be
// taken for that of what comes in its place. Whoever waits gets why.
func (n *Node) takeOut(p Partition, why error) error {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return ErrClosed
	}
	d := n.drivers[p]
	delete(n.drivers, p)
	n.mu.Unlock()
	if d != nil {
		d.stop(why)
		n.deadlines.remove(d)
		if err := d.close(); err != nil && !errors.Is(err, commitlog.ErrClosed) {
			n.logger.Warn("closing a log that is given up", "broker", n.opt.ID, "partition", p, "error", err)
		}
	}
	return n.marks.forget(p)
}

// RemoveLeftovers deletes what is left of a topic that was deleted, when a deletion was
// interrupted.
func (n *Node) RemoveLeftovers(name string) error {
	dir := filepath.Join(n.opt.Dir, TopicsDir, name)
	names, err := n.fs.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, partition := range names {
		if err := removeDir(n.fs, filepath.Join(dir, partition)); err != nil {
			return err
		}
	}
	return removeDir(n.fs, dir)
}

// removeDir removes a directory of files, durably.
func removeDir(fsys vfs.FS, dir string) error {
	names, err := fsys.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := fsys.Remove(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	if err := fsys.Remove(dir); err != nil {
		return err
	}
	return fsys.SyncDir(filepath.Dir(dir))
}

// Remake begins a replica anew whose log is damaged or missing. What is left of it is put aside,
// in the same directory, for a person. It is for a replica that is not in sync,
// of a partition that others have.
func (n *Node) Remake(p Partition) error {
	if n.Usable(p) {
		return nil // again
	}
	dir := n.Dir(p)
	err := n.takeOut(p, replica.ErrLeadershipLost)
	if err == nil {
		err = commitlog.PutAside(n.fs, dir)
	}
	if err != nil {
		return fmt.Errorf("node: beginning %s anew: %w", p, err)
	}
	n.logger.Warn("a replica is begun anew, and copied from its leader", "broker", n.opt.ID, "partition", p, "what is left of it", dir)
	d := n.driver(p, true)
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.broken
}

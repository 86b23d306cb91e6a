package vfs

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
)

// Crash is a state in which a crash may leave the disk.
type Crash struct {
	FS   *Mem
	What string // which unsynced changes reached the disk
}

// maxLooseBlocks bounds the blocks of one file whose fate is enumerated one by one.
const maxLooseBlocks = 8

// Crashes lists the states in which a crash at this moment may leave the disk:
//
//   - of each file's unsynced writes and truncations: none, all, the first few, the
//     first few and any prefix of the next; or the final size with any subset of up to
//     8 unsynced blocks, the lost ones with their old content, which is zeros where the
//     file has grown;
//   - of each directory's unsynced creations, renames and removals: any subset; a lost
//     directory takes with it all that is below it.
//
// The states are the product of these choices. With a limit of 0, all of those are made
// in which at most one file or directory strays from "nothing reached the disk" or from
// "everything did", and the whole product where it is small. Otherwise up to limit
// states are drawn by rng: the two corners, then strays, then any.
func (m *Mem) Crashes(limit int, rng *rand.Rand) iter.Seq[Crash] {
	dims := m.choices()
	corners := [2][]int{make([]int, len(dims)), make([]int, len(dims))}
	total := 1
	for i, d := range dims {
		corners[1][i] = 1 // option 0 is "none", option 1 is "all"
		total = min(total*len(d.options), 1<<30)
	}
	return func(yield func(Crash) bool) {
		emit := func(pick []int) bool { return yield(m.state(dims, pick)) }
		switch {
		case total <= max(limit, smallProduct) && (limit == 0 || total <= limit):
			product(dims, emit)
		case limit == 0:
			strays(dims, corners, emit)
		default:
			sample(dims, corners, limit, rng, emit)
		}
	}
}

// smallProduct is how many states are few enough to make all of.
const smallProduct = 4096

func product(dims []choice, emit func([]int) bool) {
	pick := make([]int, len(dims))
	for emit(pick) {
		i := 0
		for ; i < len(dims); i++ {
			if pick[i]++; pick[i] < len(dims[i].options) {
				break
			}
			pick[i] = 0
		}
		if i == len(dims) {
			return
		}
	}
}

func strays(dims []choice, corners [2][]int, emit func([]int) bool) {
	for c, corner := range corners {
		if !emit(corner) {
			return
		}
		for i, d := range dims {
			for o := range d.options {
				if o == c {
					continue // the corner itself
				}
				pick := slices.Clone(corner)
				pick[i] = o
				if !emit(pick) {
					return
				}
			}
		}
	}
}

func sample(dims []choice, corners [2][]int, limit int, rng *rand.Rand, emit func([]int) bool) {
	made := map[string]bool{}
	for try := 0; len(made) < limit && try < 4*limit; try++ {
		pick := slices.Clone(corners[try%2])
		switch {
		case try < 2:
		case try%4 < 2: // one file strays
			i := rng.IntN(len(dims))
			pick[i] = rng.IntN(len(dims[i].options))
		default:
			for i := range pick {
				pick[i] = rng.IntN(len(dims[i].options))
			}
		}
		key := fmt.Sprint(pick)
		if made[key] {
			continue
		}
		if made[key] = true; !emit(pick) {
			return
		}
	}
}

// choice is one independent part of the disk and what may become of it: options[0] is
// that nothing reached the disk, options[1] that everything did.
type choice struct {
	node    *inode
	dir     string
	options []option
}

type option struct {
	what string
	data []byte        // content, for a file
	make func() []byte // content, made when needed
	ops  []nameOp      // those that reached the disk, for a directory
}

func (m *Mem) choices() []choice {
	m.mu.Lock()
	defer m.mu.Unlock()
	block := m.BlockSize
	if block == 0 {
		block = 4096
	}
	var dims []choice
	seen := map[*inode]bool{}
	file := func(name string, n *inode) {
		if n != nil && !seen[n] && len(n.pending) > 0 {
			seen[n] = true
			dims = append(dims, choice{node: n, options: fileOptions(name, n, block)})
		}
	}
	var paths []string
	for path := range m.dirs {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	for _, path := range paths {
		d := m.dirs[path]
		if len(d.pending) > 0 {
			dims = append(dims, choice{dir: path, options: dirOptions(path, d.pending)})
		}
		var names []string
		for name := range d.now {
			names = append(names, name)
		}
		for name := range d.durable {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			file(name, d.durable[name])
			file(name, d.now[name])
		}
		for _, op := range d.pending {
			file(op.name, op.node)
		}
	}
	return dims
}

func dirOptions(path string, ops []nameOp) []option {
	if len(ops) > 10 {
		ops = ops[:10] // more than a log ever has; the rest stays lost
	}
	all := 1<<len(ops) - 1
	out := []option{{what: filepath.Base(path) + ": no names"}, {what: filepath.Base(path) + ": all names", ops: ops}}
	for mask := 1; mask < all; mask++ {
		var kept []nameOp
		var names []string
		for i, op := range ops {
			if mask&(1<<i) != 0 {
				kept = append(kept, op)
				names = append(names, op.name)
			}
		}
		out = append(out, option{what: filepath.Base(path) + ": names " + strings.Join(names, ", "), ops: kept})
	}
	return out
}

func fileOptions(name string, n *inode, block int) []option {
	out := []option{
		{what: name + ": old", data: n.durable},
		{what: name + ": new", data: n.now},
	}
	add := func(what string, make func() []byte) {
		out = append(out, option{what: name + ": " + what, make: make})
	}
	upTo := func(k int) []byte {
		b := slices.Clone(n.durable)
		for _, op := range n.pending[:k] {
			b = op.apply(b)
		}
		return b
	}
	// A long-unsynced file (the mark) has many writes pending; its last ones say it all.
	for k := max(0, len(n.pending)-6); k < len(n.pending); k++ {
		if k > 0 {
			add(fmt.Sprintf("first %d writes", k), func() []byte { return upTo(k) })
		}
		for cut := 1; cut < len(n.pending[k].data); cut++ {
			op := n.pending[k]
			op.data = op.data[:cut]
			add(fmt.Sprintf("first %d writes and %d bytes", k, cut), func() []byte { return op.apply(upTo(k)) })
		}
	}
	blocks := dirtyBlocks(n, block)
	final := int64(len(n.now))
	for mask := range 1 << len(blocks) {
		add(fmt.Sprintf("blocks %0*b kept", len(blocks), mask), func() []byte {
			b := resize(slices.Clone(n.durable), final)
			for i, at := range blocks {
				if mask&(1<<i) != 0 {
					end := min(at+int64(block), final)
					copy(b[at:end], n.now[at:end])
				}
			}
			return b
		})
	}
	return out
}

// dirtyBlocks returns the positions of the blocks that unsynced writes touched, at most
// maxLooseBlocks of them: the last ones.
func dirtyBlocks(n *inode, block int) []int64 {
	set := map[int64]bool{}
	for _, op := range n.pending {
		for at := op.at / int64(block) * int64(block); at < op.at+int64(len(op.data)); at += int64(block) {
			if at < int64(len(n.now)) {
				set[at] = true
			}
		}
	}
	var out []int64
	for at := range set {
		out = append(out, at)
	}
	slices.Sort(out)
	return out[max(0, len(out)-maxLooseBlocks):]
}

func (m *Mem) state(dims []choice, pick []int) Crash {
	content := map[*inode][]byte{}
	names := map[string][]nameOp{}
	var what []string
	for i, d := range dims {
		o := d.options[pick[i]]
		what = append(what, o.what)
		switch {
		case d.node == nil:
			names[d.dir] = o.ops
		case o.make != nil:
			content[d.node] = o.make()
		default:
			content[d.node] = o.data
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	c := NewMem()
	c.BlockSize = m.BlockSize
	for path, d := range m.dirs {
		nd := &memDir{now: map[string]*inode{}, durable: map[string]*inode{}}
		c.dirs[path] = nd
		kept := make(map[string]*inode, len(d.durable))
		for name, node := range d.durable {
			kept[name] = node
		}
		for _, op := range names[path] {
			op.apply(kept)
		}
		for name, node := range kept {
			data, ok := content[node]
			if !ok {
				data = node.durable
			}
			n := &inode{dir: node.dir, now: slices.Clone(data), durable: slices.Clone(data)}
			nd.now[name], nd.durable[name] = n, n
		}
	}
	for path := range c.dirs {
		if !c.reachable(path) {
			delete(c.dirs, path)
		}
	}
	return Crash{FS: c, What: strings.Join(what, "; ")}
}

// reachable reports whether a directory and all above it have their names.
func (m *Mem) reachable(dir string) bool {
	for parent := filepath.Dir(dir); parent != dir; dir, parent = parent, filepath.Dir(parent) {
		d := m.dirs[parent]
		if d == nil || d.now[filepath.Base(dir)] == nil {
			return false
		}
	}
	return true
}

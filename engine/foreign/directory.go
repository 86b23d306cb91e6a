package foreign

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"logbook/engine/consumer"
	"logbook/engine/stream"
	"logbook/engine/topic"
)

// Kind is the program that laid a directory out.
type Kind string

// The kinds.
const (
	PyStream  Kind = "pystream"
	KafkaLite Kind = "kafka-lite"
)

// Directory is a directory that was laid out by another program. It is safe for concurrent use.
type Directory struct {
	kind   Kind
	dir    string
	topics map[string]*foreignTopic
	groups map[string]map[stream.Partition]int64
}

type foreignTopic struct {
	stream.Topic
	logs []*log // by partition
}

// Options say where there is more than a directory of topics.
type Options struct {
	// Offsets is the directory of committed offsets, in PyStream's layout; "": there is none.
	Offsets string
}

// Tail is what stands after a log's last whole record.
type Tail struct {
	Partition stream.Partition
	File      string
	Position  int64
	Bytes     int64
}

// Open reads a directory through, and checks every frame.
//
// Errors: *LayoutError, *DamagedError.
func Open(kind Kind, dir string, opt Options) (*Directory, error) {
	d := &Directory{kind: kind, dir: dir, topics: map[string]*foreignTopic{}, groups: map[string]map[stream.Partition]int64{}}
	var err error
	switch kind {
	case PyStream:
		if _, e := os.Stat(filepath.Join(dir, "cluster.meta")); e == nil {
			err = d.openCluster()
		} else {
			err = d.openTopics()
		}
	case KafkaLite:
		err = d.openSegments()
	default:
		return nil, fmt.Errorf("foreign: there is no layout %q; there are %s and %s", kind, PyStream, KafkaLite)
	}
	if err == nil && len(d.topics) == 0 {
		err = &LayoutError{Path: dir, Reason: "there is no topic in it"}
	}
	if err == nil && opt.Offsets != "" {
		err = d.openOffsets(opt.Offsets)
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// Close closes the files.
func (d *Directory) Close() error {
	var problems []error
	for _, t := range d.topics {
		for _, l := range t.logs {
			if l != nil {
				problems = append(problems, l.close())
			}
		}
	}
	return errors.Join(problems...)
}

// Tails are the unfinished records at the ends of logs, which are not read.
func (d *Directory) Tails() []Tail {
	var out []Tail
	for _, name := range slices.Sorted(maps.Keys(d.topics)) {
		for id, l := range d.topics[name].logs {
			if t := l.tail; t != nil {
				out = append(out, Tail{Partition: stream.Partition{Topic: name, ID: id}, File: t.File, Position: t.Position, Bytes: t.Bytes})
			}
		}
	}
	return out
}

// add makes a topic of its partitions' logs, which must be all from 0 on.
func (d *Directory) add(name, path, rule string, logs map[int]*log) error {
	if err := topic.CheckName("topic", name); err != nil {
		return &LayoutError{Path: path, Reason: err.Error()}
	}
	t := &foreignTopic{Topic: stream.Topic{Name: name, Partitions: len(logs), Replication: 1, Partitioner: rule}, logs: make([]*log, len(logs))}
	d.topics[name] = t // Close closes what is in it
	for id, l := range logs {
		if id < len(logs) {
			t.logs[id] = l
		}
	}
	for id := range t.logs {
		if t.logs[id] == nil {
			return &LayoutError{Path: path, Reason: fmt.Sprintf("partition %d is missing, and there is partition %d", id, slices.Max(slices.Collect(maps.Keys(logs))))}
		}
	}
	return nil
}

var partitionDir = regexp.MustCompile(`^partition-(\d{6,9})$`)

// openTopics reads PyStream's topics.
func (d *Directory) openTopics() error {
	directories, err := subdirectories(d.dir)
	if err != nil {
		return err
	}
	for _, e := range directories {
		path := filepath.Join(d.dir, e.Name())
		meta, err := readMeta(filepath.Join(path, "topic.meta"))
		if errors.Is(err, fs.ErrNotExist) {
			continue // some other folder
		}
		if err != nil {
			return err
		}
		if meta.Name != e.Name() {
			return &LayoutError{Path: filepath.Join(path, "topic.meta"), Reason: fmt.Sprintf("it is about topic %q", meta.Name)}
		}
		logs, err := partitions(path)
		if err == nil && len(logs) != meta.Partitions {
			err = &LayoutError{Path: path, Reason: fmt.Sprintf("topic.meta says %d partitions, and there are %d", meta.Partitions, len(logs))}
		}
		if err == nil {
			err = d.add(e.Name(), path, "sha256", logs)
		}
		if err != nil {
			closeAll(logs)
			return err
		}
	}
	return nil
}

func closeAll(logs map[int]*log) {
	for _, l := range logs {
		_ = l.close() // they were only read
	}
}

type topicMeta struct {
	Name       string
	Partitions int
}

// readMeta reads a topic.meta.
func readMeta(file string) (topicMeta, error) {
	data, err := readSmall(file)
	if err != nil {
		return topicMeta{}, err
	}
	var raw struct {
		Version    *int    `json:"version"`
		Name       *string `json:"name"`
		Partitions *int    `json:"partition_count"`
	}
	err = json.Unmarshal(data, &raw)
	switch {
	case err != nil:
	case raw.Version == nil || raw.Name == nil || raw.Partitions == nil:
		err = errors.New("a field is missing: it must be like {\"version\":1,\"name\":\"events\",\"partition_count\":3}")
	case *raw.Version != 1:
		err = fmt.Errorf("version %d, this program reads 1", *raw.Version)
	case topic.CheckCount(*raw.Name, *raw.Partitions) != nil:
		err = topic.CheckCount(*raw.Name, *raw.Partitions)
	}
	if err != nil {
		return topicMeta{}, &LayoutError{Path: file, Reason: err.Error()}
	}
	return topicMeta{*raw.Name, *raw.Partitions}, nil
}

// maxSmall is the largest file of metadata that is read.
const maxSmall = 1 << 20

func readSmall(file string) ([]byte, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxSmall {
		return nil, &LayoutError{Path: file, Reason: fmt.Sprintf("it has %d bytes, more than metadata has", info.Size())}
	}
	return os.ReadFile(file)
}

// partitions opens the log of each partition-NNNNNN in a directory.
func partitions(dir string) (map[int]*log, error) {
	entries, err := entriesOf(dir)
	if err != nil {
		return nil, err
	}
	out := map[int]*log{}
	for _, e := range entries {
		m := partitionDir.FindStringSubmatch(e.Name())
		if m == nil {
			continue
		}
		id, _ := strconv.Atoi(m[1]) // at most nine digits
		if out[id], err = openLog(0, []string{filepath.Join(dir, e.Name(), "log.bin")}); err != nil {
			delete(out, id)
			return out, err
		}
	}
	return out, nil
}

// openCluster reads PyStream's cluster: for each partition the longest replica, of which
// the others must be beginnings.
func (d *Directory) openCluster() error {
	brokers, err := filepath.Glob(filepath.Join(d.dir, "broker-*", "topics", "*"))
	if err != nil {
		return err
	}
	found := map[string]map[int]*log{}
	for _, path := range brokers {
		logs, err := partitions(path)
		if err != nil {
			closeAll(logs)
			return err
		}
		name := filepath.Base(path)
		if found[name] == nil {
			found[name] = map[int]*log{}
		}
		for id, l := range logs {
			other := found[name][id]
			if other == nil {
				found[name][id] = l
				continue
			}
			long, short := l, other
			if other.size() > l.size() {
				long, short = other, l
			}
			at, err := long.beginsWith(short)
			if err == nil && at >= 0 {
				err = &LayoutError{Path: long.files[0].name, Reason: fmt.Sprintf("it differs from %s at position %d; decide which of them is right, and read that broker's folder alone", short.files[0].name, at)}
			}
			_ = short.close() // it was only read
			found[name][id] = long
			if err != nil {
				return err
			}
		}
	}
	for name, logs := range found {
		if err := d.add(name, d.dir, "sha256", logs); err != nil {
			return err
		}
	}
	return nil
}

var (
	liteDir     = regexp.MustCompile(`^(?:partition-)?(\d{1,9})$`)
	liteFlatDir = regexp.MustCompile(`^(.+)-(\d{1,9})$`)
	segmentFile = regexp.MustCompile(`^\d{20}\.log$`)
)

// openSegments reads kafka-lite's topics.
func (d *Directory) openSegments() error {
	found := map[string]map[int]*log{}
	add := func(name, number, path string) error {
		id, _ := strconv.Atoi(number)
		segments, err := segmentsOf(path)
		if err != nil || len(segments) == 0 {
			return err
		}
		if found[name] == nil {
			found[name] = map[int]*log{}
		}
		if found[name][id] != nil {
			return &LayoutError{Path: path, Reason: fmt.Sprintf("there are two directories for partition %d of %q", id, name)}
		}
		l, err := openLog(1, segments)
		if err == nil {
			found[name][id] = l
		}
		return err
	}
	directories, err := subdirectories(d.dir)
	if err != nil {
		return err
	}
	for _, e := range directories {
		path := filepath.Join(d.dir, e.Name())
		if m := liteFlatDir.FindStringSubmatch(e.Name()); m != nil {
			if err := add(m[1], m[2], path); err != nil {
				return err
			}
		}
		inner, err := subdirectories(path)
		if err != nil {
			return err
		}
		for _, p := range inner {
			if m := liteDir.FindStringSubmatch(p.Name()); m != nil {
				if err := add(e.Name(), m[1], filepath.Join(path, p.Name())); err != nil {
					return err
				}
			}
		}
	}
	for name, logs := range found {
		if err := d.add(name, d.dir, "fnv1a", logs); err != nil {
			return err
		}
	}
	return nil
}

// entriesOf lists what is in dir, sorted by name.
func entriesOf(dir string) ([]os.DirEntry, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, &LayoutError{Path: dir, Reason: err.Error()}
	}
	return entries, nil
}

// subdirectories lists the directories in dir, sorted by name.
func subdirectories(dir string) ([]os.DirEntry, error) {
	entries, err := entriesOf(dir)
	return slices.DeleteFunc(entries, func(e os.DirEntry) bool { return !e.IsDir() }), err
}

func segmentsOf(dir string) ([]string, error) {
	entries, err := entriesOf(dir)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if segmentFile.MatchString(e.Name()) {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	slices.Sort(out) // their names have leading zeros
	return out, nil
}

// openOffsets reads PyStream's committed offsets: a consumer's are a group's.
func (d *Directory) openOffsets(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*", "*", "partition-*.offset"))
	if err != nil {
		return err
	}
	if _, err := os.Stat(dir); err != nil {
		return &LayoutError{Path: dir, Reason: err.Error()}
	}
	store := consumer.NewFileStore(nil, dir)
	for _, file := range files {
		number, ok := trim(filepath.Base(file), "partition-", ".offset")
		id, err := strconv.Atoi(number)
		if !ok || err != nil {
			continue
		}
		key := consumer.OffsetKey{Consumer: filepath.Base(filepath.Dir(filepath.Dir(file))), Topic: filepath.Base(filepath.Dir(file)), Partition: id}
		offset, ok, err := store.Committed(key)
		if err != nil || !ok {
			return cmp.Or(err, error(&LayoutError{Path: file, Reason: "its name is not that of a partition's offset"}))
		}
		if d.groups[key.Consumer] == nil {
			d.groups[key.Consumer] = map[stream.Partition]int64{}
		}
		d.groups[key.Consumer][stream.Partition{Topic: key.Topic, ID: id}] = offset
	}
	return nil
}

func trim(s, before, after string) (string, bool) {
	if len(s) < len(before)+len(after) || s[:len(before)] != before || s[len(s)-len(after):] != after {
		return "", false
	}
	return s[len(before) : len(s)-len(after)], true
}

package commitlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"logbook/engine/record"
	"logbook/engine/vfs"
)

// Repair is what can be done about a log that Open refuses: PlanRepair finds out, Apply does
// it. Every intact frame is kept. What is damaged is not mended, since nobody knows what
// stood there: in format 2 an empty batch takes its place, so that the records after it keep
// their offsets; in formats 0 and 1, which have no checksum to find the next frame by, the
// log ends there. Files that change are kept beside the new ones, as NAME.damaged.
type Repair struct {
	Dir    string
	Format record.Format
	Found  []string // what is wrong; empty: nothing, as far as Open cares
	Do     []string // what Apply would do
	Start  int64    // the log afterwards: offsets [Start, End)
	End    int64
	Lost   []OffsetRange // offsets whose records cannot be read

	fs       vfs.FS
	meta     *meta // to be written; nil: it is intact
	cp       checkpoint
	mark     mark
	rewrites []rewrite
}

// OffsetRange is the offsets [From, To).
type OffsetRange struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// rewrite is a segment file that changes.
type rewrite struct {
	base int64
	data []byte
}

// damagedSuffix ends the names of files that Repair put aside.
const damagedSuffix = ".damaged"

// PlanRepair reads every file of a log and says what is wrong and what can be done. It
// changes nothing and takes no lock. format is for a log whose log.meta is gone and whose
// format cannot be told: formats 0 and 1 look alike; otherwise it may be nil.
//
// Errors: *NotALogError, and the file system's.
func PlanRepair(fsys vfs.FS, dir string, format record.Format) (*Repair, error) {
	if fsys == nil {
		fsys = vfs.OS
	}
	r := &Repair{Dir: dir, fs: fsys}
	l := &Log{dir: dir, fs: fsys}
	l.opt, _ = Options{FS: fsys}.withDefaults() // the zero options are right
	bases, err := l.listSegments()
	if err != nil {
		return nil, err
	}
	if err := r.planMeta(l, bases, format); err != nil {
		return nil, err
	}
	known, err := r.planCheckpoint(l)
	if err != nil {
		return nil, err
	}
	m, err := r.planMark(l, bases)
	if err != nil {
		return nil, err
	}
	if known && r.cp.Truncate != nil || r.cp.Reset != nil {
		if len(r.Found) > 0 {
			return nil, fmt.Errorf("commitlog: %s: a truncation or reset was interrupted, and files are damaged besides: restore the log from a replica or a backup", dir)
		}
		r.Start, r.End = r.cp.Start, m.next // Open finishes it
		return r, nil
	}
	if err := r.planSegments(l, bases, known, m); err != nil {
		return nil, err
	}
	if len(r.Found) == 0 {
		r.Do, r.rewrites = nil, nil
	}
	return r, nil
}

func (r *Repair) found(format string, args ...any) {
	r.Found = append(r.Found, fmt.Sprintf(format, args...))
}
func (r *Repair) do(format string, args ...any) { r.Do = append(r.Do, fmt.Sprintf(format, args...)) }

// damaged tells damage and absence from a disk that fails.
func damaged(err error) bool { return errors.Is(err, fs.ErrNotExist) || isDamage(err) }

func (r *Repair) planMeta(l *Log, bases []int64, format record.Format) error {
	var m meta
	err := readSealed(r.fs, l.path(metaName), &m)
	if err == nil && m.Version == 1 {
		if r.Format, err = record.ByVersion(m.Format); err != nil {
			return &NotALogError{Dir: r.Dir, Reason: err.Error()}
		}
		l.format = r.Format
		l.id, _ = strconv.ParseUint(m.ID, 16, 64)
		return nil
	}
	if err != nil && !damaged(err) {
		return err
	}
	if len(bases) == 0 {
		return &NotALogError{Dir: r.Dir, Reason: "it holds neither a readable " + metaName + " nor a segment"}
	}
	r.found("%s: %v", metaName, err)
	if format == nil {
		data, err := r.segment(bases[0])
		if err != nil {
			return err
		}
		if _, err := record.V2.Parse(data); err != nil {
			return &NotALogError{Dir: r.Dir, Reason: "its " + metaName + " cannot be read, and its first segment does not tell the format: say which it is, 0, 1 or 2"}
		}
		format = record.V2
	}
	r.Format, l.format = format, format
	r.meta = &meta{Version: 1, Format: format.Version(), ID: l.makeID()}
	r.do("write a new %s: format %d, as the segments show", metaName, format.Version())
	return nil
}

func (r *Repair) planCheckpoint(l *Log) (known bool, err error) {
	err = readSealed(r.fs, l.path(checkpointName), &r.cp)
	if err == nil {
		err = r.cp.validate()
		known = err == nil
	} else if !damaged(err) {
		return false, err
	}
	if !known {
		r.cp = checkpoint{Version: 1, Epochs: []EpochStart{}}
		r.found("%s: %v", checkpointName, err)
		r.do("write a new %s from the segments; records that were deleted from the front of the first segment show again", checkpointName)
	}
	return known, nil
}

func (r *Repair) planMark(l *Log, bases []int64) (mark, error) {
	m, harm, err := readMark(r.fs, l.path(markName))
	if errors.Is(err, fs.ErrNotExist) || err != nil && strings.Contains(err.Error(), "no slot is intact") {
		r.found("%s: %v", markName, err)
		r.do("write a new %s: all intact frames count", markName)
		return mark{segment: -1}, nil
	}
	if harm != nil {
		r.do("write %s anew: %v", markName, harm)
	}
	return m, err
}

func (r *Repair) segment(base int64) ([]byte, error) {
	return vfs.ReadFile(r.fs, segmentPath(r.Dir, base), 2*maxSegmentBytes)
}

// planSegments reads the segments and works out what the log is afterwards.
func (r *Repair) planSegments(l *Log, bases []int64, known bool, m mark) error {
	if known {
		for len(bases) > 0 && bases[0] < r.cp.First {
			bases = bases[1:] // left over by retention
		}
	}
	if len(bases) == 0 {
		return r.planEmpty(m, known)
	}
	if !known {
		r.cp.Start = bases[0]
	} else if bases[0] > r.cp.First {
		r.found("the segments below offset %d are missing", bases[0])
		r.Lost = append(r.Lost, OffsetRange{r.cp.Start, max(r.cp.Start, bases[0])})
		r.do("begin the log at offset %d", max(r.cp.Start, bases[0]))
	}
	r.cp.First, r.cp.Start = bases[0], max(r.cp.Start, bases[0])
	s := salvage{Repair: r, epochs: r.cp.Epochs, known: known}
	closed := r.cp.Segments
	r.cp.Segments = nil
	for i, base := range bases {
		to := int64(-1) // the last one may end anywhere
		if i+1 < len(bases) {
			to = bases[i+1]
		}
		data, err := r.segment(base)
		if err != nil {
			return err
		}
		out, end, err := s.read(base, to, data, m)
		if err != nil {
			return err
		}
		if to >= 0 {
			r.cp.Segments = append(r.cp.Segments, closedSegment{Base: base, End: to, Bytes: int64(len(out))})
			if i < len(closed) && closed[i].Base == base && closed[i].Bytes != int64(len(data)) && closed[i].Compacted == nil && int64(len(out)) == int64(len(data)) {
				r.found("%s has %d bytes, the checkpoint says %d", SegmentName(base)+logSuffix, len(data), closed[i].Bytes)
			}
		} else {
			r.mark = mark{seq: m.seq + 2, segment: base, position: int64(len(out)), next: end, loose: m.loose}
			r.End = end
		}
	}
	r.Start = r.cp.Start
	r.cp.Epochs = s.epochs
	if r.cp.Epochs == nil {
		r.cp.Epochs = []EpochStart{}
	}
	return nil
}

// planEmpty: no segment is left, but perhaps there is word of how far the log had come.
func (r *Repair) planEmpty(m mark, known bool) error {
	end := max(m.next, r.cp.Start)
	for _, s := range r.cp.Segments {
		end = max(end, s.End)
	}
	if end == 0 && !known {
		return &NotALogError{Dir: r.Dir, Reason: "no segment is left, and nothing says which offset comes next"}
	}
	r.found("no segment is left; the log had come to offset %d at least", end)
	r.do("make an empty segment at offset %d, so that no offset is given twice", end)
	r.Lost = append(r.Lost, OffsetRange{r.cp.Start, end})
	r.cp = checkpoint{Version: 1, Start: end, First: end, Epochs: r.cp.Epochs, Compacted: r.cp.Compacted}
	r.mark = mark{seq: m.seq + 2, segment: end, next: end, loose: m.loose}
	r.rewrites = append(r.rewrites, rewrite{base: end})
	r.Start, r.End = end, end
	return nil
}

// salvage copies what is intact.
type salvage struct {
	*Repair
	epochs []EpochStart
	known  bool // the epochs are the checkpoint's
}

// read takes the intact frames out of a segment that must reach an offset, if to is not
// negative, and returns the segment as it should be.
func (s *salvage) read(base, to int64, data []byte, m mark) (out []byte, end int64, err error) {
	name := SegmentName(base) + logSuffix
	next, changed := base, false
	for at := 0; ; {
		size, first, last, epoch := s.frame(data[at:], next, to)
		if size == 0 {
			rest, skip := trimZeros(data[at:]), -1
			if rest > 0 {
				skip = s.nextFrame(data[at:], next, to)
			}
			if skip < 0 && (to < 0 || next == to || s.cp.Compacted) {
				if rest > 0 || to >= 0 && len(data) > at {
					s.found("%s at byte %d: %d bytes that are no frame (offset %d)", name, at, rest, next)
					s.do("cut %s to %d bytes; the rest is kept in %s", name, at, name+damagedSuffix)
					changed = true
				}
				break
			}
			lostTo := to
			if skip >= 0 {
				lostTo = int64(binary.BigEndian.Uint64(data[at+skip:]))
				s.found("%s at byte %d: %d bytes that are no frame (offsets %d to %d)", name, at, skip, next, lostTo-1)
			} else {
				s.found("%s at byte %d: it should reach offset %d and ends at %d", name, at, to, next)
			}
			if s.Format != record.V2 {
				return nil, 0, fmt.Errorf("commitlog: %s: format %d has no checksum to find the next frame by, and later segments are there: restore %s from a replica or a backup", s.Dir, s.Format.Version(), name)
			}
			s.Lost = append(s.Lost, OffsetRange{next, lostTo})
			s.do("put an empty batch in the place of offsets %d to %d", next, lostTo-1)
			if out, err = s.cover(out, next, lostTo, s.epochAt(next)); err != nil {
				return nil, 0, err
			}
			next, changed = lostTo, true
			if skip < 0 {
				break
			}
			at += skip
			continue
		}
		if s.Format == record.V2 {
			s.note(epoch, first)
		} else if first > next {
			s.cp.Compacted = true
		}
		out = append(out, data[at:at+size]...)
		at, next = at+size, last+1
	}
	if to < 0 && m.segment >= base && m.next > next { // the mark promised more than is left
		s.found("the log ends at offset %d; %s says that records below %d were acknowledged", next, markName, m.next)
		s.Lost = append(s.Lost, OffsetRange{next, m.next})
		s.do("end the log at offset %d, so that no offset is given twice", m.next)
		if s.Format == record.V2 {
			if out, err = s.cover(out, next, m.next, s.epochAt(next)); err != nil {
				return nil, 0, err
			}
			changed = true
		} else {
			s.cp.Compacted = true
		}
		next = m.next
	}
	if changed {
		s.rewrites = append(s.rewrites, rewrite{base: base, data: out})
	}
	return out, next, nil
}

// frame describes the frame at data[0] if it is intact and may stand where next is due.
func (s *salvage) frame(data []byte, next, to int64) (size int, first, last int64, epoch int32) {
	f, err := s.Format.Parse(data)
	if err != nil || f.BaseOffset != next && (f.Version == 2 || f.BaseOffset < next || !s.cp.Compacted) || to >= 0 && f.LastOffset >= to {
		return 0, 0, 0, 0
	}
	if s.known && f.Version == 2 && f.LeaderEpoch != s.epochAt(f.BaseOffset) {
		return 0, 0, 0, 0
	}
	return len(f.Bytes), f.BaseOffset, f.LastOffset, f.LeaderEpoch
}

// nextFrame returns the position of the next intact batch after damage, or -1.
func (s *salvage) nextFrame(data []byte, next, to int64) int {
	if s.Format != record.V2 {
		return -1
	}
	for at := 1; at < len(data); at++ {
		if data[at] != 0 { // offsets below 2^56 begin with a zero
			continue
		}
		f, err := record.V2.Parse(data[at:])
		if err == nil && f.BaseOffset > next && (to < 0 || f.LastOffset < to) && (!s.known || f.LeaderEpoch == s.epochAt(f.BaseOffset)) {
			return at
		}
	}
	return -1
}

func (s *salvage) epochAt(offset int64) int32 {
	epoch := int32(0)
	for _, e := range s.epochs {
		if e.Start <= offset {
			epoch = e.Epoch
		}
	}
	return epoch
}

// note remembers the epoch of a frame, where the checkpoint does not.
func (s *salvage) note(epoch int32, first int64) {
	if !s.known && epoch > 0 && (len(s.epochs) == 0 || s.epochs[len(s.epochs)-1].Epoch < epoch) {
		s.epochs = append(s.epochs, EpochStart{Epoch: epoch, Start: first})
	}
}

// cover appends empty batches for offsets [from, to).
func (s *salvage) cover(out []byte, from, to int64, epoch int32) ([]byte, error) {
	const most = 1 << 30
	for ; from < to; from += most {
		var err error
		out, err = record.V2.AppendFrames(out, nil, record.Encoding{KeepOffsets: true, BaseOffset: from, LastOffset: min(to, from+most) - 1, LeaderEpoch: epoch})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Apply does what the plan says. The log must not be open. It can be stopped anywhere, and
// planned and applied again.
//
// Errors: *LockedError, and the file system's.
func (r *Repair) Apply() error {
	if len(r.Found) == 0 {
		return nil
	}
	l := &Log{dir: r.Dir, fs: r.fs}
	names, err := r.fs.ReadDir(r.Dir)
	if err != nil {
		return err
	}
	if err := l.takeLock(names); err != nil {
		return err
	}
	defer l.lock.Close()
	for _, w := range r.rewrites {
		path := segmentPath(r.Dir, w.base)
		if err := r.setAside(path); err != nil {
			return err
		}
		if err := vfs.WriteFileAtomic(r.fs, path, w.data); err != nil {
			return err
		}
	}
	for _, name := range names {
		if strings.HasSuffix(name, indexSuffix) { // rebuilt from the segments
			if err := r.fs.Remove(l.path(name)); err != nil {
				return err
			}
		}
	}
	if r.meta != nil {
		if err := r.setAside(l.path(metaName)); err != nil {
			return err
		}
		if err := writeSealed(r.fs, l.path(metaName), *r.meta); err != nil {
			return err
		}
	}
	for _, name := range []string{checkpointName, markName} {
		if err := r.setAside(l.path(name)); err != nil {
			return err
		}
	}
	b := make([]byte, markFileSize)
	slot := r.mark.encode(nil)
	copy(b, slot)
	copy(b[markSlotGap:], slot)
	if err := vfs.WriteFileAtomic(r.fs, l.path(markName), b); err != nil {
		return err
	}
	return writeSealed(r.fs, l.path(checkpointName), r.cp)
}

// setAside copies a file to NAME.damaged, or NAME.damaged-2 and so on.
func (r *Repair) setAside(path string) error {
	data, err := vfs.ReadFile(r.fs, path, 2*maxSegmentBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	names, err := r.fs.ReadDir(r.Dir)
	if err != nil {
		return err
	}
	name := asideName(names, filepath.Base(path))
	if err := vfs.WriteNew(r.fs, filepath.Join(r.Dir, name), data); err != nil {
		return err
	}
	return r.fs.SyncDir(r.Dir)
}

package main

// mutant is a deliberate bug.
type mutant struct {
	change
	// seeds, if not 0: the simulator must catch it within so many, of each promise.
	seeds int
}

// change is one piece of source, changed.
type change struct {
	name     string
	bug      string // what a programmer might have done
	file     string // below engine/
	old, new string // old stands in the file exactly once
}

var mutants = append(with(0, logBugs), with(2000, replicationBugs)...)

func with(seeds int, bugs []change) (out []mutant) {
	for _, b := range bugs {
		out = append(out, mutant{b, seeds})
	}
	return out
}

var logBugs = []change{
	{"ack-before-sync", "acknowledges when the bytes are written, not when they are synced", "commitlog/append.go",
		"if err := s.file.Sync(); err != nil {", "if err := error(nil); err != nil {"},
	{"publish-before-sync", "shows readers what is written, not what is acknowledged", "commitlog/append.go",
		"err = l.writeCohort(co)", "err = l.writeCohort(co)\n\t\tl.publish()"},
	{"mark-before-sync", "notes bytes as durable before they are", "commitlog/append.go",
		"return l.active.write(co.buf[from:], co.frames[first:], l.opt.SegmentBytes)",
		"if err := l.active.write(co.buf[from:], co.frames[first:], l.opt.SegmentBytes); err != nil {\n\t\treturn err\n\t}\n\treturn l.note(false, true)"},
	{"mark-unsynced", "believes frames without a checksum above a mark that a crash takes back", "commitlog/append.go",
		"return l.mark.file.Sync()", "return nil"},
	{"no-poison", "goes on after a failed write or sync", "commitlog/append.go",
		"if l.failed == nil && !errors.As(err, &p) {", "if false && !errors.As(err, &p) {"},
	{"no-directory-sync", "does not sync the directory after making a segment", "commitlog/segment.go",
		"if err := l.fs.SyncDir(l.dir); err != nil {", "if err := error(nil); err != nil {"},
	{"roll-unsynced", "closes a segment without syncing it", "commitlog/segment.go",
		"if err := s.file.Sync(); err != nil {", "if err := error(nil); err != nil {"},
	{"gaps-accepted", "does not check that offsets follow one another", "commitlog/segment.go",
		"if f.BaseOffset != expected {", "if false {"},
	{"epoch-unchecked", "does not compare a batch's leader epoch with the log's", "commitlog/segment.go",
		"f.LeaderEpoch != want {", "false && f.LeaderEpoch != want {"},
	{"index-trusted", "believes an index without its checksum", "commitlog/index.go",
		"sum != be.Uint32(b[len(b)-4:])", "false && sum != be.Uint32(b[len(b)-4:])"},
	{"foreign-index-trusted", "believes the index of another log", "commitlog/index.go",
		"x.log != log || ", "false || "},
	{"stale-index-kept", "leaves the index of bytes that were cut", "commitlog/tail.go",
		"if t.stale {", "if false {"},
	{"silent-truncation", "takes all damage for a torn tail", "commitlog/tail.go",
		"if end < t.durable {", "if false {"},
	{"checksumless-tail-believed", "takes zeros after a torn frame for its payload", "commitlog/tail.go",
		"limit = min(limit, t.durable)", "_ = t"},
	{"tail-not-cut", "skips a torn tail and leaves it behind the next append", "commitlog/tail.go",
		"if s.allocated == s.size {", "if false {"},
	{"recovered-unsynced", "serves what recovery found in the page cache without syncing it", "commitlog/tail.go",
		"	return s.file.Sync()\n", "	return nil\n"},
	{"recovered-not-rewritten", "trusts a sync after one that failed", "commitlog/tail.go",
		"for at := from; at < s.size; {", "for at := s.size; at < s.size; {"},
	{"recovered-names-unsynced", "relies on names that a failed process left undurable", "commitlog/tail.go",
		"	if err := l.fs.SyncDir(l.dir); err != nil {\n		return fmt.Errorf(\"commitlog: syncing the recovered", "	if err := error(nil); err != nil {\n		return fmt.Errorf(\"commitlog: syncing the recovered"},
	{"one-mark-slot", "writes the mark over the only good one", "commitlog/mark.go",
		"w.file.WriteAt(slot, int64(m.seq%2)*markSlotGap)", "w.file.WriteAt(slot, 0)"},
	{"truncate-without-intent", "truncates without writing down first what it is about to do", "commitlog/truncate.go",
		"if err := l.writeCheckpoint(&to); err != nil {", "if err := l.writeCheckpoint(nil); err != nil {"},
	{"truncate-mark-kept", "leaves the mark above a truncated tail", "commitlog/truncate.go",
		"if err := l.mark.note(mark{segment: s.base, position: position, next: to, loose: l.loose()}, true); err != nil {", "if err := error(nil); err != nil {"},
	{"active-segment-deleted", "lets retention take the active segment", "commitlog/retain.go",
		"for ; n < len(l.segments)-1; n++ {", "for ; n < len(l.segments); n++ {"},
	{"young-segments-deleted", "looks for old segments after young ones", "commitlog/retain.go",
		"			break\n", "			continue\n"},
	{"retention-forgotten", "deletes segments without noting the new start", "commitlog/retain.go",
		"	if err := l.writeCheckpoint(nil); err != nil {", "	if err := error(nil); err != nil {"},
	{"compaction-keeps-first", "keeps the first record of a key and not the last", "commitlog/compact.go",
		"c.latest[string(r.Key)] = r.Offset", "if _, ok := c.latest[string(r.Key)]; !ok {\n\t\t\t\t\tc.latest[string(r.Key)] = r.Offset\n\t\t\t\t}"},
	{"tombstones-dropped", "removes tombstones at once", "commitlog/compact.go",
		"return r.Value != nil || !r.Timestamp.Before(c.deadline)", "return r.Value != nil"},
	{"compaction-without-intent", "replaces a segment by one of another size without noting it first", "commitlog/compact.go",
		"	cp.Segments[i].Compacted = &size\n", "	_ = size\n"},
	{"atomic-write-unsynced", "renames a file before its bytes are durable", "vfs/vfs.go",
		"if err := f.Sync(); err != nil {", "if err := error(nil); err != nil {"},
	{"watermark-kept-above-the-cut", "leaves the saved high watermark above a log that was cut", "node/driver.go",
		"			err := d.node.marks.lower(d.partition, e.To)", "			err := error(nil)"},
	{"commit-unchecked", "takes a commit that goes back", "service/groups.go",
		"if was, ok := h.committed[p]; ok && offset < was && !reset {", "if was, ok := h.committed[p]; false && ok && offset < was && !reset {"},
	{"register-keeps-the-epoch", "lets a leader that starts again lead in its old epoch", "controller/manual.go",
		"					a.LeaderEpoch = epoch\n", "					_ = epoch\n"},
}

package main

import "slices"

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

var mutants = slices.Concat(with(0, logBugs), with(2000, replicationBugs), with(quorumSeeds, quorumBugs))

// quorumSeeds is for those of quorumBugs that the controller's own tests do not catch.
const quorumSeeds = 200

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
		"return l.active.write(buf[from:], frames[first:], l.segmentBytes.Load())",
		"if err := l.active.write(buf[from:], frames[first:], l.segmentBytes.Load()); err != nil {\n\t\treturn err\n\t}\n\treturn l.note(false, true)"},
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
		"	if err := l.syncNames(); err != nil {", "	if err := error(nil); err != nil {"},
	{"one-mark-slot", "writes the mark over the only good one", "commitlog/mark.go",
		"w.file.WriteAt(slot, int64(m.seq%2)*markSlotGap)", "w.file.WriteAt(slot, 0)"},
	{"truncate-without-intent", "truncates without writing down first what it is about to do", "commitlog/truncate.go",
		"if err := l.writeCheckpoint(&to); err != nil {", "if err := l.writeCheckpoint(nil); err != nil {"},
	{"truncate-mark-kept", "leaves the mark above a truncated tail", "commitlog/truncate.go",
		"if err := l.mark.note(mark{segment: s.base, position: position, next: to, loose: l.loose()}, true); err != nil {", "if err := error(nil); err != nil {"},
	{"active-segment-deleted", "lets retention take the active segment", "commitlog/retain.go",
		"for ; n < len(l.segments)-1; n++ {", "for ; n < len(l.segments); n++ {"},
	{"young-segments-deleted", "looks for old segments after young ones", "commitlog/retain.go",
		"			if !old {\n				break\n", "			if !old {\n				continue\n"},
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
	{"failed-flush-believed", "takes a flush that failed for one that worked", "commitlog/flush.go",
		"flusher.Flush(activeFiles(begun)) == nil", "(flusher.Flush(activeFiles(begun)) == nil || true)"},
	{"watermark-kept-above-the-cut", "leaves the saved high watermark above a log that was cut", "node/driver.go",
		"return d.node.marks.lower(d.partition, from)", "return nil"},
	{"commit-unchecked", "takes a commit that goes back", "service/groups.go",
		"if was, ok := h.committed[p]; ok && offset < was && !reset {", "if was, ok := h.committed[p]; false && ok && offset < was && !reset {"},
	{"register-keeps-the-epoch", "lets a leader that starts again lead in its old epoch", "controller/manual.go",
		"			out = append(out, assignedIn(image, p, next))\n", "			next.LeaderEpoch = a.LeaderEpoch\n			out = append(out, assignedIn(image, p, next))\n"},
	{"rot-taken-for-a-torn-tail", "cuts what no crash can have torn", "commitlog/torn.go",
		"		if lostSector(buf[:whole], at) {", "		if true {"},
	{"new-although-marked", "takes a log without a checkpoint for new, whatever its mark says", "commitlog/recover.go",
		"if err != nil || m.seq <= 1 && m.next == 0 {", "if err != nil || m.seq <= 1 || true {"},
	{"read-ahead-kept", "serves what was read ahead of a truncation", "commitlog/read.go",
		"		if v.cuts != r.cuts {", "		if false {"},
	{"own-name-unsynced", "relies on the name of a directory that somebody else made", "commitlog/recover.go",
		"	if err := l.fs.SyncDir(parent); err != nil {", "	if err := error(nil); err != nil {"},
	{"future-pins-retention", "lets a record from the future hold its segment", "commitlog/retain.go",
		"newest = x.newestPast", "newest = x.newest"},
	{"lie-about-the-newest", "believes a batch's word for its newest record", "commitlog/batch.go",
		"	if !newest.Equal(f.MaxTimestamp) {", "	if false {"},
	{"removed-file-written", "acknowledges into a file that was removed", "vfs/mem_file.go",
		"		if injected == nil && f.node.removed {", "		if false {"},
	{"never-mended", "leaves a log that failed closed until a restart", "node/node.go",
		"	if due(&n.mendAt, now) {", "	if false && due(&n.mendAt, now) {"},
	{"cut-not-kept", "cuts on a leader's word without keeping what it cuts", "node/driver.go",
		"kept, err := d.log.KeepAside(from)", "kept, err := \"\", error(nil)"},
	{"start-inside-a-batch", "cannot serve a follower where the log starts inside a batch", "node/driver.go",
		"	if c.Base < m.Offset {", "	if false {"},
	{"retention-without-a-watermark", "retains by size alone where nothing is safe yet", "node/command.go",
		"		if hw == 0 {", "		if false {"},
	{"duplicate-stored", "stores a batch again that a producer sent twice", "node/producers.go",
		"		if old.first == b.First && old.last == b.Last {", "		if false {"},
	{"gap-of-a-producer", "takes a producer's batch although one before it is missing", "node/producers.go",
		"b.First != due {", "false && b.First != due {"},
	{"old-epoch-of-a-producer", "takes batches of a producer that was fenced", "node/producers.go",
		"	case b.Epoch < st.epoch:", "	case false && b.Epoch < st.epoch:"},
	{"broken-leader-leads-on", "keeps the leadership of a log that failed", "controller/reckoning.go",
		"claim.LeaderEpoch == 0 || id == c.id && c.unusable(id, p) {", "claim.LeaderEpoch == 0 {"},
	{"leaves-no-files", "leaves the files of a deleted topic", "node/remove.go",
		"			err = removeDir(n.fs, n.Dir(p))", "			err = nil"},
	{"deleted-comes-back", "believes a broker that was away when a topic was deleted", "metadata/image.go",
		"		return v > was\n", "		return v < was\n"},
	{"commit-beyond-the-end", "refuses every commit below one that is beyond the log's end", "service/groups.go",
		"known && was > end {", "false && known && was > end {"},
	{"old-generation-commits", "takes a commit of a generation that is over", "group/classic.go",
		"	case q.Generation != g.generation:", "	case false:"},
	{"sync-before-the-leader", "does not wait for the leader's assignment", "group/classic.go",
		"	if g.state == Completing {\n		if m.sync != 0 {", "	if false {\n		if m.sync != 0 {"},
}

// Package commitlog is one partition's log: an append-only sequence of records,
// numbered from 0, in segment files on disk.
//
// # Files
//
// A log owns a directory:
//
//	log.meta                    JSON: which frame format the log was made with. Written once, last proof that a directory is a log.
//	lock                        empty; locked while a process has the log open
//	checkpoint                  JSON: log start offset, closed segments with their sizes, leader epochs. Replaced atomically.
//	mark                        two slots: how far the log is known to be durable
//	00000000000000000000.log    frames from offset 0 on, nothing else
//	00000000000000000000.index  sparse: every few KiB a frame's offset and position, and the newest timestamp so far
//	00000000000000004711.log    the active segment: preallocated with zeros while open, cut to its size on Close
//
// The log files are the only truth about records. An index is a cache: one that is
// missing, stale or damaged is rebuilt from its log file.
//
// # Appends
//
// An append is acknowledged after its bytes are synced. Whoever finds nobody committing
// writes and syncs what is queued, its own records among it; whoever comes in the
// meantime queues and is served by the next round: one write and one sync for all
// (group commit, see Committer). A failed write or sync poisons the log: nothing later
// is acknowledged until it is reopened and recovered from what is on disk.
//
// # The mark
//
// A file cut at a frame's edge looks exactly like one that was never longer. After each
// sync and before the acknowledgement, the log therefore notes in the mark where the
// synced bytes end. The note itself is not synced, so after a power failure it may be
// behind, never ahead. (Formats 0 and 1 have no checksum, so there it is synced, and
// nothing above it is believed.) Recovery takes everything below the mark for acknowledged: a
// flipped bit or a missing byte there is a CorruptionError under either policy. What
// lies above it is a tail that nobody may have been promised; see RecoveryPolicy.
//
// # What crashes leave
//
// Open finishes or undoes what a crash interrupted, because each change is written down
// in the checkpoint before the first file changes (truncation, compaction) or before the
// first is removed (retention), and new files are durable, names and all, before anything
// refers to them. Bytes that Open found in the page cache it writes once more and syncs
// before a reader sees them: after a sync that failed, a sync that succeeds proves nothing.
//
// # Reads
//
// Readers work on an immutable view of the acknowledged log, which each commit replaces
// whole. They take no lock that appends take.
//
// # Goroutines
//
// A log has none of its own. While writers outpace the disk, its committer runs one
// that ends when the queue is empty; Close waits for it. With SyncInterval, a timer.
package commitlog

package commitlog

import (
	"fmt"
	"log/slog"
	"time"

	"logbook/engine/record"
	"logbook/engine/vfs"
)

// Options configure a log. The zero value is usable.
type Options struct {
	// FS is the file system; nil is the operating system's.
	FS vfs.FS
	// Now is the clock that stamps records without a timestamp; nil is time.Now.
	Now func() time.Time
	// Logger receives what recovery found; nil discards it.
	Logger *slog.Logger
	// Committer shares syncs between the logs that are given the same one; nil is one for this log alone.
	Committer *Committer

	// Format of a new log; nil is record.V2. For an existing log, nil takes what is
	// stored and anything else must match it.
	Format record.Format
	// Compression of batches that Append makes (format 2).
	Compression record.Compression

	// Recovery says what Open does about a torn tail.
	Recovery RecoveryPolicy
	// Verify makes Open read and check every frame, not only those that may be unsynced.
	Verify bool

	// Sync says when an append is acknowledged.
	Sync SyncPolicy
	// SyncEvery is the longest that written bytes stay unsynced under SyncInterval; 0 is 100 ms.
	SyncEvery time.Duration

	// SegmentBytes is the size at which a segment is closed and the next one made; 0 is 64 MiB.
	SegmentBytes int64
	// IndexBytes is the distance between index entries; 0 is 4 KiB.
	IndexBytes int64
	// CheckpointBytes is how much is appended before the active segment's index is saved
	// and the mark synced; 0 is 16 MiB.
	CheckpointBytes int64

	// MaxRecordBytes limits a record's key, value and headers together; 0 is 1 MiB.
	MaxRecordBytes int
	// MaxKeyBytes limits a key; 0 is 64 KiB.
	MaxKeyBytes int
	// MaxBatchBytes limits what one append may take, encoded; 0 is 32 MiB.
	MaxBatchBytes int
}

// RecoveryPolicy says what Open does when it finds bytes above the mark that are not
// whole frames. Damage below the mark is an error under both.
type RecoveryPolicy int

const (
	// TruncateTail cuts a torn tail and says so in the recovery report (kafka-lite's rule).
	TruncateTail RecoveryPolicy = iota
	// Strict reports it as a CorruptionError and changes nothing on disk (PyStream's rule).
	Strict
)

// SyncPolicy says when an append is acknowledged.
type SyncPolicy int

const (
	// SyncAlways: after its bytes are synced.
	SyncAlways SyncPolicy = iota
	// SyncInterval: after its bytes are written; they are synced within Options.SyncEvery.
	// A crash of the machine can lose acknowledged records of that time.
	SyncInterval
	// SyncOS: after its bytes are written; the operating system syncs when it likes.
	SyncOS
)

func (o Options) withDefaults() (Options, error) {
	if o.FS == nil {
		o.FS = vfs.OS
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Committer == nil {
		o.Committer = NewCommitter()
	}
	setDefault(&o.SyncEvery, 100*time.Millisecond)
	setDefault(&o.SegmentBytes, DefaultSegmentBytes)
	setDefault(&o.IndexBytes, 4<<10)
	setDefault(&o.CheckpointBytes, 16<<20)
	setDefault(&o.MaxRecordBytes, 1<<20)
	setDefault(&o.MaxKeyBytes, 64<<10)
	setDefault(&o.MaxBatchBytes, 32<<20)
	switch {
	case o.SyncEvery < 0, o.SegmentBytes < 0, o.IndexBytes < 0, o.CheckpointBytes < 0, o.MaxRecordBytes < 0, o.MaxKeyBytes < 0, o.MaxBatchBytes < 0:
		return o, fmt.Errorf("commitlog: an option is negative: %+v; leave it 0 for the default", o)
	case o.SegmentBytes > maxSegmentBytes:
		return o, fmt.Errorf("commitlog: SegmentBytes is %d, at most %d fit a segment's index", o.SegmentBytes, int64(maxSegmentBytes))
	case o.Recovery != TruncateTail && o.Recovery != Strict:
		return o, fmt.Errorf("commitlog: unknown recovery policy %d", o.Recovery)
	case o.Sync < SyncAlways || o.Sync > SyncOS:
		return o, fmt.Errorf("commitlog: unknown sync policy %d", o.Sync)
	}
	return o, nil
}

// DefaultSegmentBytes is what Options.SegmentBytes is when it is 0.
const DefaultSegmentBytes = 64 << 20

// maxSegmentBytes leaves room for one frame beyond it in 31 bits.
const maxSegmentBytes = 1 << 30

func setDefault[T ~int | ~int64](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}

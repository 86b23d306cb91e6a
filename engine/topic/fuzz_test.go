package topic_test

import (
	"errors"
	"testing"
	"time"

	"logbook/engine/commitlog"
	"logbook/engine/topic"
	"logbook/engine/vfs"
)

// FuzzMetadata opens a topic with arbitrary metadata: the topic, or a *MetadataError.
func FuzzMetadata(f *testing.F) {
	clean := vfs.NewMem()
	opt := topic.Options{Partitions: 1, Log: commitlog.Options{FS: clean, SegmentBytes: 1000, Now: func() time.Time { return time.Unix(1, 0) }}}
	tp, err := topic.Create("data", "events", opt)
	if err != nil {
		f.Fatal(err)
	}
	if err := tp.Close(); err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(`{"version":1,"name":"events","partition_count":1,"router":"murmur2"}`))
	f.Add([]byte(`{"version":1,"name":"events","partition_count":9999,"router":"fnv1a"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		disk := clean.Kill()
		disk.Edit("data/events/topic.meta", func([]byte) []byte { return data })
		opt := opt
		opt.Partitions, opt.Log.FS = 0, disk
		tp, err := topic.Open("data", "events", opt)
		if _, damaged := errors.AsType[*topic.MetadataError](err); err != nil && !damaged {
			t.Fatal(err)
		}
		if err == nil && tp.Partitions() != 1 {
			t.Fatalf("%d partitions", tp.Partitions())
		}
	})
}

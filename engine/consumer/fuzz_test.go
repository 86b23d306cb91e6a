package consumer_test

import (
	"errors"
	"testing"

	"logbook/engine/consumer"
	"logbook/engine/vfs"
)

// FuzzOffsetFile reads arbitrary offset files: a valid offset or an *OffsetCorruptionError.
func FuzzOffsetFile(f *testing.F) {
	f.Add([]byte(`{"version":1,"offset":123}`))
	f.Add([]byte(`{"version":1,"offset":-1}`))
	p := consumer.OffsetKey{Consumer: "w", Topic: "t"}
	clean := vfs.NewMem()
	if err := consumer.NewFileStore(clean, "offsets").Commit(p, 1); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		disk := clean.Kill()
		disk.Edit("offsets/w/t/partition-000000.offset", func([]byte) []byte { return data })
		offset, ok, err := consumer.NewFileStore(disk, "offsets").Committed(p)
		if _, damaged := errors.AsType[*consumer.OffsetCorruptionError](err); err != nil && !damaged || err == nil && (!ok || offset < 0) {
			t.Fatalf("offset %d, %v, %v", offset, ok, err)
		}
	})
}

package offsettest_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"logbook/engine/consumer"
	"logbook/engine/consumer/offsettest"
	"logbook/engine/vfs"
)

func openFiles(fsys vfs.FS, dir string) (consumer.OffsetStore, error) {
	return consumer.NewFileStore(fsys, dir), nil
}

func TestFileStorePasses(t *testing.T) { assert.NoError(t, offsettest.TestStore(openFiles)) }

// inMemory forgets with the process, and lets offsets go back.
type inMemory struct {
	mu      sync.Mutex
	offsets map[consumer.OffsetKey]int64
}

func (m *inMemory) Committed(p consumer.OffsetKey) (int64, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	offset, ok := m.offsets[p]
	return offset, ok, nil
}

func (m *inMemory) Commit(p consumer.OffsetKey, offset int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.offsets[p] = offset
	return nil
}

func (m *inMemory) Close() error { return nil }

func TestTheSuiteCatchesWhatItShould(t *testing.T) {
	err := offsettest.TestStore(func(vfs.FS, string) (consumer.OffsetStore, error) {
		return &inMemory{offsets: map[consumer.OffsetKey]int64{}}, nil
	})
	for _, want := range []string{"regression: ", "misuse: ", "restart: "} {
		assert.ErrorContains(t, err, want)
	}
}

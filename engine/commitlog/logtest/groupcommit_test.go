package logtest_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"logbook/engine/commitlog/logtest"
)

// What people write first, and what is said to it.
func TestGroupCommitRefusesWhatIsNone(t *testing.T) {
	for _, c := range []struct {
		name  string
		group func(flush func()) func()
		want  string
	}{
		{"a lock", func(flush func()) func() {
			var one sync.Mutex
			return func() { one.Lock(); defer one.Unlock(); flush() }
		}, "should share the next one"},
		{"no lock", func(flush func()) func() { return flush }, "two flushes ran at the same time"},
		{"the flush under way is joined", func(flush func()) func() {
			var mu sync.Mutex
			var running chan struct{}
			return func() {
				mu.Lock()
				if done := running; done != nil {
					mu.Unlock()
					<-done
					return
				}
				done := make(chan struct{})
				running = done
				mu.Unlock()
				flush()
				mu.Lock()
				running = nil
				mu.Unlock()
				close(done)
			}
		}, "what was written in between may be lost"},
		{"nobody waits", func(func()) func() { return func() {} }, "commit returned although"},
	} {
		t.Run(c.name, func(t *testing.T) { require.ErrorContains(t, logtest.TestGroupCommit(c.group), c.want) })
	}
}

package logtest_test

import (
	"sort"
	"testing"

	"github.com/stretchr/testify/assert"

	"logbook/engine/commitlog/logtest"
)

func TestFindSuite(t *testing.T) {
	search := func(off int) func([]logtest.Entry, int64) int64 {
		return func(entries []logtest.Entry, offset int64) int64 {
			i := sort.Search(len(entries), func(i int) bool { return entries[i].Base > offset }) - off
			if i < 0 {
				return 0
			}
			return entries[i].Position
		}
	}
	assert.NoError(t, logtest.TestFind(search(1)))
	assert.Error(t, logtest.TestFind(search(2)), "an entry too early costs a scan")
	assert.Error(t, logtest.TestFind(func([]logtest.Entry, int64) int64 { return 0 }))
}

// Package logtest tests implementations of a log and of its parts, in the style of
// testing/fstest: hand it yours and it returns what is wrong with it.
package logtest

import "fmt"

// Entry is an entry of a sparse index: a frame with a base offset starts at a position.
type Entry struct {
	Base     int64
	Position int64 // bytes from the start of the log file
}

// TestFind checks a lookup in a sparse index. find gets entries in ascending order and
// an offset, and returns the position from which a scan forward meets the offset's
// frame soonest: that of the last entry at or below the offset, and 0 where there is none.
func TestFind(find func(entries []Entry, offset int64) int64) error {
	var entries []Entry
	for n := range 40 {
		for offset := int64(0); offset < 300; offset++ {
			want := int64(0)
			for _, e := range entries { // plainly, from the front
				if e.Base <= offset {
					want = e.Position
				}
			}
			if got := find(entries, offset); got != want {
				return fmt.Errorf("offset %d in %d entries (%v): position %d, want %d", offset, len(entries), entries, got, want)
			}
		}
		entries = append(entries, Entry{Base: int64(5 + 7*n), Position: int64(100 + 4096*n)})
	}
	return nil
}

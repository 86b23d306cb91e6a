package logtest

import "fmt"

// TestRetention checks a rule for retention by size: given the sizes of a log's
// segments, the last of them active, and how many bytes must stay, expired returns how
// many segments from the front may go. It takes as many as it may, never the active one,
// and never leaves less than keep.
func TestRetention(expired func(sizes []int64, keep int64) int) error {
	for _, sizes := range [][]int64{{10}, {10, 10}, {100, 1, 100, 1}, {1, 100, 1, 100}, {5, 5, 5, 5, 5}, {0, 0, 7}} {
		total := int64(0)
		for _, s := range sizes {
			total += s
		}
		for keep := int64(0); keep <= total+1; keep++ {
			want, left := 0, total
			for want < len(sizes)-1 && left-sizes[want] >= keep {
				left -= sizes[want]
				want++
			}
			if got := expired(append([]int64(nil), sizes...), keep); got != want {
				return fmt.Errorf("segments of %v bytes, of which %d must stay: %d may go, not %d", sizes, keep, want, got)
			}
		}
	}
	return nil
}

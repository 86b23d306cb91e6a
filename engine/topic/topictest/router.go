// Package topictest tests implementations of topic.Router, in the style of
// testing/fstest: hand it yours and it returns what is wrong with it.
package topictest

import (
	"fmt"

	"logbook/engine/topic"
)

// TestRouter checks a router's promises: partitions from 0 to n-1, the same for the same
// key every time, also for the empty key and for any bytes, without changing the key, and
// keys spread so that no partition gets more than twice its share.
func TestPartitioner(r topic.Partitioner) error {
	if r.Name() == "" {
		return fmt.Errorf("the router has no name to be recorded")
	}
	for n := 1; n <= 13; n++ {
		load := make([]int, n)
		const keys = 4000
		for i := range keys {
			key := fmt.Appendf(nil, "key %d", i)
			if i%50 == 0 {
				key = []byte{byte(i), 0xff, byte(i >> 8)}[:i/50%4%3]
			}
			before := string(key)
			p := r.Partition(key, n)
			if p < 0 || p >= n {
				return fmt.Errorf("%s sends key %q to partition %d of %d", r.Name(), before, p, n)
			}
			if again := r.Partition(append(make([]byte, 0, 99), before...), n); again != p {
				return fmt.Errorf("%s sends key %q once to partition %d and once to %d", r.Name(), before, p, again)
			}
			if string(key) != before {
				return fmt.Errorf("%s changes the key %q", r.Name(), before)
			}
			load[p]++
		}
		for p, got := range load {
			if got > 2*keys/n {
				return fmt.Errorf("%s sends %d of %d keys to partition %d of %d", r.Name(), got, keys, p, n)
			}
		}
	}
	return nil
}

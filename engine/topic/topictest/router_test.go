package topictest_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"logbook/engine/topic"
	"logbook/engine/topic/topictest"
)

type router func(key []byte, n int) int

func (router) Name() string                      { return "mine" }
func (r router) Partition(key []byte, n int) int { return r(key, n) }

func TestRouterSuite(t *testing.T) {
	for _, r := range []topic.Partitioner{topic.SHA256, topic.FNV1a, topic.Murmur2} {
		assert.NoError(t, topictest.TestPartitioner(r))
	}
	turn := 0
	for want, bad := range map[string]router{
		"to partition -": func(key []byte, n int) int { return int(int8(len(key)*37)) % n },
		"once to":        func(_ []byte, n int) int { turn++; return turn % n },
		"keys to":        func(_ []byte, n int) int { return 0 },
		"changes":        func(key []byte, n int) int { clear(key); return topic.FNV1a.Partition([]byte{byte(len(key))}, n) },
	} {
		assert.ErrorContains(t, topictest.TestPartitioner(bad), want)
	}
}

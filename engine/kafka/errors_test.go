package kafka

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/twmb/franz-go/pkg/kerr"

	"logbook/engine/failure"
	"logbook/engine/node"
	"logbook/engine/service"
)

// Java's consumer knows a dozen answers to a fetch, and falls over any other.
func TestFetchesAnswerWhatConsumersKnow(t *testing.T) {
	known := map[int16]bool{0: true, kerr.UnknownServerError.Code: true}
	for _, e := range fetchNumbers {
		known[e.Code] = true
	}
	assert.True(t, known[fetchNumber(nil)])
	for code := range codes {
		n := fetchNumber(&failure.Error{Code: code})
		assert.True(t, known[n], "%s is answered with %v", code, kerr.ErrorForCode(n))
	}
	for err, want := range map[error]*kerr.Error{
		&failure.Error{Code: failure.Unavailable}: kerr.NotLeaderForPartition,
		&failure.Error{Code: failure.OutOfRange}:  kerr.OffsetOutOfRange,
		service.ErrClosed:                         kerr.NotLeaderForPartition,
		node.ErrOpening:                           kerr.NotLeaderForPartition,
	} {
		assert.Equal(t, want.Code, fetchNumber(err), "%v", err)
	}
}

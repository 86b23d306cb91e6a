package kafka_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/sasl"
	saslplain "github.com/twmb/franz-go/pkg/sasl/plain"

	"logbook/engine/record"
)

// batch encodes values as an idempotent producer would.
func batch(t *testing.T, id int64, epoch int16, sequence int32, values ...string) []byte {
	var rs []record.Record
	for _, v := range values {
		rs = append(rs, record.Record{Value: []byte(v), Timestamp: time.UnixMilli(1e12)})
	}
	b, err := record.V2.AppendFrames(nil, rs, record.Encoding{Producer: &record.Producer{ID: id, Epoch: epoch, BaseSequence: sequence}})
	require.NoError(t, err)
	return b
}

func plain(user, password string) sasl.Mechanism {
	return saslplain.Auth{User: user, Pass: password}.AsMechanism()
}

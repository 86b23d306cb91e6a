package recordtest_test

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"

	"logbook/engine/record"
	"logbook/engine/record/recordtest"
)

func engine(data []byte) (recordtest.Decoded, error) {
	f, err := record.V1.Parse(data)
	if err != nil {
		return recordtest.Decoded{}, err
	}
	rs, err := f.Records()
	if err != nil {
		return recordtest.Decoded{}, err
	}
	return recordtest.Decoded{Offset: f.BaseOffset, Nanos: f.BaseTimestamp.UnixNano(), Key: rs[0].Key, Value: rs[0].Value, Size: len(f.Bytes)}, nil
}

func TestTheEnginesDecoderPasses(t *testing.T) {
	assert.NoError(t, recordtest.TestV1Decoder(engine))
}

// The suite must catch what it is there to catch.
func TestWrongDecodersAreCaught(t *testing.T) {
	trusting := func(data []byte) (d recordtest.Decoded, err error) {
		k := binary.BigEndian.Uint32(data[16:])
		d.Key = data[20 : 20+k]
		v := binary.BigEndian.Uint32(data[20+k:])
		d.Value = data[24+k : 24+k+v]
		d.Offset, d.Nanos, d.Size = int64(binary.BigEndian.Uint64(data)), int64(binary.BigEndian.Uint64(data[8:])), int(24+k+v)
		return d, nil
	}
	assert.ErrorContains(t, recordtest.TestV1Decoder(trusting), "panics")
	assert.Error(t, recordtest.TestV1Decoder(func([]byte) (recordtest.Decoded, error) {
		return recordtest.Decoded{}, errors.New("not yet")
	}))
	assert.ErrorContains(t, recordtest.TestV1Decoder(func(data []byte) (recordtest.Decoded, error) {
		d, err := engine(data)
		d.Size = len(data) // takes everything for the frame
		return d, err
	}), "size")
	assert.ErrorContains(t, recordtest.TestV1Decoder(func(data []byte) (recordtest.Decoded, error) {
		d, err := engine(data)
		if err != nil && len(data) > 24 {
			return d, nil // swallows errors
		}
		return d, err
	}), "still decodes")
}

package topic

import (
	"encoding/base64"
	"fmt"
	"io"
)

// ID identifies a topic for good: one that is deleted and made again under the same name
// has another. It is a version 4 UUID, as Kafka's topic ids are (KIP-516).
type ID [16]byte

// NewID draws an ID from random bytes, crypto/rand.Reader outside tests.
func NewID(random io.Reader) (ID, error) {
	var id ID
	if _, err := io.ReadFull(random, id[:]); err != nil {
		return id, fmt.Errorf("topic: drawing an id: %w", err)
	}
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return id, nil
}

// String is the form that Kafka's tools print: 22 characters of base64 for URLs.
func (id ID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// ParseID is the inverse of String.
func ParseID(s string) (ID, error) {
	var id ID
	data, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(data) != len(id) {
		return id, fmt.Errorf("topic: %q is not a topic id: 22 characters of base64", s)
	}
	copy(id[:], data)
	return id, nil
}

// MarshalText and UnmarshalText make an ID a string in JSON.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (id *ID) UnmarshalText(text []byte) (err error) {
	*id, err = ParseID(string(text))
	return err
}

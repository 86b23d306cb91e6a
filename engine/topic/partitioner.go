package topic

import (
	"crypto/sha256"
	"hash/fnv"
)

// Router maps a key to a partition. It depends on the key's bytes alone, so that every
// process, today and after any restart, agrees. The three here are the only ones that a
// topic can be made with.
type Partitioner interface {
	// Name is what topic.meta records.
	Name() string
	// Partition returns the partition of a key among n, from 0 to n-1. An empty key is a
	// key like any other. n must be positive.
	Partition(key []byte, n int) int
}

// The routers.
var (
	// Murmur2 is what Kafka's own clients use: murmur2 without its sign bit, modulo n. It
	// is the default.
	Murmur2 Partitioner = murmur2{}
	// SHA256 is PyStream's: the digest as a big-endian number, modulo n.
	SHA256 Partitioner = sha{}
	// FNV1a is kafka-lite's: the 32-bit FNV-1a hash, modulo n. (kafka-lite takes it as a
	// signed number on 32-bit machines and then gets negative partitions; here it is
	// unsigned.)
	FNV1a Partitioner = fnv1a{}
)

// RouterByName returns the router that a topic's metadata names.
func PartitionerByName(name string) (Partitioner, error) {
	for _, r := range []Partitioner{Murmur2, SHA256, FNV1a} {
		if r.Name() == name {
			return r, nil
		}
	}
	return nil, &PartitionerError{Name: name}
}

type sha struct{}

func (sha) Name() string { return "sha256" }

func (sha) Partition(key []byte, n int) int {
	sum := sha256.Sum256(key)
	rest := uint64(0)
	for _, b := range sum { // 256 bits modulo n, byte by byte
		rest = (rest<<8 | uint64(b)) % uint64(n)
	}
	return int(rest)
}

type fnv1a struct{}

func (fnv1a) Name() string { return "fnv1a" }

func (fnv1a) Partition(key []byte, n int) int {
	h := fnv.New32a()
	h.Write(key)
	return int(uint64(h.Sum32()) % uint64(n))
}

type murmur2 struct{}

func (murmur2) Name() string { return "murmur2" }

func (murmur2) Partition(key []byte, n int) int {
	return int(uint64(hashMurmur2(key)&0x7fffffff) % uint64(n))
}

// hashMurmur2 is Austin Appleby's MurmurHash2 with the seed that Kafka uses.
func hashMurmur2(data []byte) uint32 {
	const (
		seed = 0x9747b28c
		m    = 0x5bd1e995
		r    = 24
	)
	h := uint32(seed) ^ uint32(len(data))
	for ; len(data) >= 4; data = data[4:] {
		k := uint32(data[0]) | uint32(data[1])<<8 | uint32(data[2])<<16 | uint32(data[3])<<24
		k *= m
		k ^= k >> r
		k *= m
		h *= m
		h ^= k
	}
	switch len(data) {
	case 3:
		h ^= uint32(data[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(data[1]) << 8
		fallthrough
	case 1:
		h ^= uint32(data[0])
		h *= m
	}
	h ^= h >> 13
	h *= m
	return h ^ h>>15
}

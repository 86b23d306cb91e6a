// Package record holds records, batches of records, and the three frame formats
// in which a log stores them. It does no I/O and keeps no state: bytes in, bytes out.
//
// All integers are big-endian.
//
// Format 0 is PyStream's. One frame is one record; there are no keys.
//
//	+----------------+------------+------------------+--------------------+---------+
//	| record_length  | offset     | timestamp_ns     | payload_length     | payload |
//	| uint32         | uint64     | int64            | uint32             |         |
//	+----------------+------------+------------------+--------------------+---------+
//
// record_length counts the bytes after itself, so it always equals 20 + payload_length.
// The redundancy finds torn and misframed records. A flipped payload bit goes unseen.
//
// Format 1 is kafka-lite's. One frame is one record, with a key.
//
//	+----------+--------------+------------+-----+--------------+-------+
//	| offset   | timestamp_ns | key_length | key | value_length | value |
//	| uint64   | uint64       | uint32     |     | uint32       |       |
//	+----------+--------------+------------+-----+--------------+-------+
//
// There is neither a frame length nor a checksum, and no way to store the difference
// between a nil and an empty key, or a nil and an empty value: a stored length of zero
// reads back as a nil key and an empty value.
//
// Format 2 is Kafka's RecordBatch, magic 2 (KIP-98). One frame is a batch of records.
//
//	offset size field
//	     0    8 base offset
//	     8    4 batch length: the bytes after this field
//	    12    4 partition leader epoch
//	    16    1 magic, 2
//	    17    4 CRC-32C of every byte from the attributes to the end
//	    21    2 attributes: bits 0-2 compression, 3 timestamp type, 4 transactional, 5 control
//	    23    4 last offset delta
//	    27    8 base timestamp, ms
//	    35    8 max timestamp, ms
//	    43    8 producer id, or -1
//	    51    2 producer epoch, or -1
//	    53    4 base sequence, or -1
//	    57    4 records count
//	    61      records, compressed as one block when the attributes say so
//
// and a record inside a batch is made of zig-zag varints:
//
//	length, attributes (one byte, 0), timestamp delta, offset delta,
//	key length (-1: nil), key, value length (-1: nil), value,
//	header count, then for each header: key length, key, value length (-1: nil), value
//
// The base offset and the leader epoch stand before the checksum, so a log can patch
// them into a batch that a client made without touching the rest. They are therefore the
// two fields the checksum does not protect: a log checks them against their neighbours.
//
// Invariants: decoding never allocates by a length it has not checked against the bytes
// at hand, never panics, and returns slices of its input; encoding allocates nothing per
// record when the destination has room.
package record

// Package metadata is what a cluster has decided: its brokers, its topics, and who leads
// each partition.
//
// An Image is all of it at one moment, and never changes: who has one may look as long
// as it likes, without a lock or a copy. Decisions are Records; Image.Apply makes the
// next image of them, which shares all that they leave alone.
//
// A Store keeps the records in a log (package commitlog), so that what is written is what
// changed, every bit of it is under a checksum, and compaction keeps each key's last.
package metadata

// Package sim runs whole clusters in one goroutine over virtual time: brokers with their
// logs on disks that crash, fail and rot, a controller, producers, consumers and a group
// with its members, and a network that delays, loses, repeats, reorders and cuts. It drives
// the very same replica, group, controller and commitlog code as the broker.
//
// Everything comes from a seed: which faults there are and when, what each message meets,
// which unsynced bytes a crash takes. The same seed gives the same trace, byte for byte.
//
// What happened is compared with what was promised: no acknowledged record is lost, nothing is
// served that was not written, offsets mean the same to everybody, replicas agree below
// the high watermark, an epoch has one leader and a generation one owner for each partition,
// committed offsets never go back, histories are linearizable, and some time after the
// faults have stopped the partition takes writes again.
package sim

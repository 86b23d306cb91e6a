// Package stream is how programs use a log: producers, consumers, members of groups, and
// the things that are done now and then. It is the same whatever is behind it: a directory
// (package engine), brokers (package client), or what else has a Transport.
//
// # Positions
//
// Two numbers are kept apart. The position is in memory: the next offset to be handed out;
// reading and seeking move it. The committed offset is stored: the next offset to read
// after a restart; only a commit moves it, and never back. The cycle is fetch, process,
// commit: a crash before the commit sees the records again, which is what makes delivery
// at-least-once.
//
// Where retention has removed what is next, nothing is skipped in silence: unless a Reset
// says otherwise, reading ends in an error that names both offsets.
//
// # Errors
//
// What a broker refuses is a *failure.Error. Transports try again by themselves what may
// succeed later.
package stream

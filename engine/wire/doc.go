// Package wire is the broker's protocol: frames of JSON with their length in front.
//
//	u32 length, big-endian
//	{"v":1,"id":7,"type":"produce","payload":{…}}
//
// PROTOCOL.md lists every message and field; it is generated from the types here, and a
// test keeps it so. What holds for all of them:
//
//   - A client sends requests and gets one reply to each, which repeats its id. It may send
//     many without waiting, and replies may overtake one another. Records of one connection
//     to one partition are stored in the order of their requests.
//   - A reply has the type of its request, or "error", with a code that programs can act on
//     and a message for people.
//   - Bytes (keys, values, frames) are base64 in JSON strings. A key or value that is null
//     is nil; an empty one is "".
//   - Offsets, times and sizes are integers of up to 63 bits, written in full: a decoder that
//     reads numbers as floating point loses them beyond 2^53.
//   - Fields that a reader does not know are ignored, missing ones are zero, and the version
//     in "v" changes only when that would not do. Version 1 is the only one so far.
//   - The first request of a connection may be "hello"; it must be where the broker has a
//     token.
//
// A length is checked against a limit before anything is allocated, and memory grows with
// the bytes that arrive, not with what the length promises.
package wire

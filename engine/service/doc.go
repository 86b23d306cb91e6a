// Package service is a broker without sockets and clock: what a broker can do, as typed
// requests and typed errors.
//
// It is driven like a state machine. Requests, messages of other brokers and the passing
// of time go in; replies are calls of the function that came with the request, and messages
// to other brokers go out through Config.Send. Nothing in it waits: disk work is given to
// Config.Go, and what must happen later is a timer that Tick looks at. A networked broker
// drives it with goroutines and sockets (package server), the embedded engine with
// goroutines alone (package engine), and a simulator with one goroutine and a clock of its
// own (package sim): all of them run this code.
//
// It holds topics, produce and fetch, offsets, groups with their coordinator, and the
// commands for replicas. Protocols are fronts on it: JSON (package wire), HTTP (package
// web), and in one process package stream. What is stored is opaque here: a batch comes in
// encoded and checked (commitlog.Batch), and goes out as the bytes that are stored.
//
// # Order
//
//   - Requests of one caller to one partition keep their order: Produce gives a batch its
//     place before it returns.
//   - Requests to one group are carried out one after another, each after the one before it
//     is stored.
//   - Reply functions are called without a lock, and must not wait.
//
// # Errors
//
// Every error that a reply gets is, or wraps, an *Error: a code for programs, whether to try
// again, and the fields that go with the code.
package service

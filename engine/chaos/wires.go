package main

import (
	"io"
	"net"
	"sync"
)

// wires are the network between brokers: each has an address of its own for each other one, and
// what passes there can be held up, as by a network that loses it all. It arrives late, once that
// is over, as what TCP sends again does. Clients reach the brokers without them.
type wires struct {
	listeners [][]net.Listener // from, to

	mu    sync.Mutex
	moved *sync.Cond // something is cut, or not any more
	lost  func(from, to int) bool
	conns map[net.Conn]bool
	ended bool
}

// newWires lays a wire from each broker to each other one's address.
func newWires(addresses []string) (*wires, error) {
	w := &wires{conns: map[net.Conn]bool{}}
	w.moved = sync.NewCond(&w.mu)
	for from := range addresses {
		w.listeners = append(w.listeners, make([]net.Listener, len(addresses)))
		for to, address := range addresses {
			if from == to {
				continue
			}
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				w.close()
				return nil, err
			}
			w.listeners[from][to] = ln
			go w.serve(ln, from, to, address)
		}
	}
	return w, nil
}

// address is where one broker finds another.
func (w *wires) address(from, to int) string { return w.listeners[from][to].Addr().String() }

// cut loses what is lost from one broker to another; what was cut before is whole again.
func (w *wires) cut(lost func(from, to int) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost = lost
	w.moved.Broadcast()
}

func (w *wires) heal() { w.cut(nil) }

func (w *wires) serve(ln net.Listener, from, to int, address string) {
	for {
		near, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer w.drop(near)
			if !w.keep(near) || !w.pass(from, to) || !w.pass(to, from) {
				return
			}
			far, err := net.Dial("tcp", address)
			if err != nil {
				return
			}
			defer w.drop(far)
			if !w.keep(far) {
				return
			}
			done := make(chan struct{}, 2)
			go func() { w.carry(far, near, from, to); done <- struct{}{} }()
			go func() { w.carry(near, far, to, from); done <- struct{}{} }()
			<-done
		}()
	}
}

// carry carries bytes that one broker sends to another.
func (w *wires) carry(dst io.Writer, src io.Reader, from, to int) {
	buf := make([]byte, 64<<10)
	for {
		n, err := src.Read(buf)
		if !w.pass(from, to) {
			return
		}
		if _, werr := dst.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}

// pass waits until what one broker sends reaches another; false: it is over.
func (w *wires) pass(from, to int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for !w.ended && w.lost != nil && w.lost(from, to) {
		w.moved.Wait()
	}
	return !w.ended
}

func (w *wires) keep(c net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns[c] = true
	return !w.ended
}

func (w *wires) drop(c net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.conns, c)
	c.Close()
}

func (w *wires) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	for _, list := range w.listeners {
		for _, ln := range list {
			if ln != nil {
				ln.Close()
			}
		}
	}
	for c := range w.conns {
		c.Close()
	}
	w.moved.Broadcast()
}

package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"logbook/engine/commitlog"
	"logbook/engine/replica"
	"logbook/engine/service"
	"logbook/engine/stream"
	"logbook/engine/vfs"
)

// ErrClosed: the engine was closed.
var ErrClosed = stream.ErrClosed

// Options configure an engine. The zero value is usable.
type Options struct {
	FS     vfs.FS           // nil: the operating system's
	Now    func() time.Time // nil: time.Now
	Logger *slog.Logger     // nil: discards
	// Log is the template for every partition's log; FS, Now, Logger and Committer in it
	// are the engine's.
	Log commitlog.Options
}

// Engine is the embedded front door: topics, producers, consumers and groups in one
// directory. It is a broker (package service) without a network; what it hands out is
// package stream's, as from a client of brokers.
//
//	dir/__cluster_metadata/  the topics, in a log of decisions
//	dir/topics/NAME/         each topic's partitions
//	dir/topics/__groups/     committed offsets, and the groups' state
//
// It is safe for concurrent use. One process owns a directory.
type Engine struct {
	*stream.Client
	service *service.Service
	quit    chan struct{}
	ticking sync.WaitGroup
}

// Open opens the engine in a directory, or makes it.
//
// Errors: those of service.Open; *commitlog.LockedError when another process has it.
func Open(dir string, opt Options) (*Engine, error) {
	if dir == "" {
		return nil, errors.New("engine: no directory is given")
	}
	e := &Engine{quit: make(chan struct{})}
	clock := service.NewClock()
	log := opt.Log
	log.FS, log.Now, log.Logger, log.Committer = opt.FS, opt.Now, opt.Logger, commitlog.NewCommitter()
	var err error
	e.service, err = service.Open(service.Config{
		ID: 1, Dir: dir, Controller: "manual", Acks: replica.OnLeader, GroupPartitions: 1, Log: log, Wake: clock.Wake,
	})
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	e.Client = stream.New(&local{s: e.service})
	e.ticking.Go(func() { clock.Run(e.service, e.quit) })
	e.service.Start()
	return e, nil
}

// Close makes group members leave, sends what producers hold, and returns when no
// goroutine of the engine's is left.
func (e *Engine) Close() error {
	err := e.Client.Close()
	if errors.Is(err, ErrClosed) {
		return err
	}
	err = errors.Join(err, e.service.Close())
	close(e.quit)
	e.ticking.Wait()
	return err
}

// await begins something and waits for its outcome, or for ctx to end.
func await[T any](ctx context.Context, begin func(done func(T, error)) (cancel func())) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	result := make(chan outcome, 1)
	cancel := begin(func(value T, err error) { result <- outcome{value, err} })
	select {
	case o := <-result:
		return o.value, o.err
	case <-ctx.Done():
		if cancel != nil {
			cancel()
		}
		var none T
		return none, ctx.Err()
	}
}

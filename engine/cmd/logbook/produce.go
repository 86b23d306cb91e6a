package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"logbook/engine/client"
	"logbook/engine/topic"
	"logbook/engine/wire"
)

// producing is the produce command's state.
type producing struct {
	o         *common
	separator string
	format    string
	partition int
	acks      string
	headers   []string
	null      bool
}

func produceCommand(o *common) *cobra.Command {
	p := producing{o: o}
	cmd := &cobra.Command{
		Use: "produce TOPIC", Short: "Send lines from standard input", Args: args(cobra.ExactArgs(1)),
		Long: `Produce sends each line of standard input as a record, in batches. With --format json each
line is a document like {"key":"DTW","value":"delayed","headers":{"source":"tower"}}, where
key and value may be null.`,
		Example: `  printf 'DTW:delayed\nORD:on time\n' | logbook produce flights --key-separator :`,
		RunE:    func(cmd *cobra.Command, a []string) error { return p.run(cmd, a[0]) },
	}
	f := cmd.Flags()
	f.StringVarP(&p.separator, "key-separator", "K", "", "what stands between key and value; empty: there are no keys")
	f.StringVar(&p.format, "format", "lines", "lines or json")
	f.IntVarP(&p.partition, "partition", "p", client.AnyPartition, "-1: by the key, or in turn")
	f.StringVar(&p.acks, "acks", "", "leader, all or quorum; empty: the brokers' default")
	f.StringArrayVarP(&p.headers, "header", "H", nil, "name=value, for every record")
	f.BoolVarP(&p.null, "null", "Z", false, "an empty value is null: a tombstone")
	return cmd
}

func (p *producing) run(cmd *cobra.Command, name string) error {
	if p.format != "lines" && p.format != "json" {
		return usageError{fmt.Errorf("--format is %q; it must be lines or json", p.format)}
	}
	return p.o.with(func(c *client.Client) error {
		t, err := c.Topic(cmd.Context(), name)
		if err != nil {
			return err
		}
		if p.partition >= len(t.Partitions) {
			return &wire.Error{Code: wire.UnknownPartition, Message: fmt.Sprintf("topic %q has partitions 0 to %d", name, len(t.Partitions)-1)}
		}
		total := int64(-1)
		if file, ok := cmd.InOrStdin().(*os.File); ok {
			if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
				total = info.Size()
			}
		}
		bar := progress(cmd.ErrOrStderr(), total, "sending")
		s := newSender(cmd.Context(), c, name, p.acks, len(t.Partitions))
		sent, err := p.feed(cmd.InOrStdin(), s, t, func(n int) { _ = bar.Add(n) })
		err = errors.Join(s.close(), err)
		_ = bar.Finish()
		if p.o.json {
			_ = json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]any{"topic": name, "records": s.stored, "read": sent})
		} else if err == nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s sent to %s\n", count(sent, "record"), name)
		}
		return err
	})
}

// feed reads records and hands them to the sender.
func (p *producing) feed(in io.Reader, s *sender, t wire.Topic, read func(n int)) (int64, error) {
	router, err := topic.RouterByName(t.Router)
	if err != nil {
		return 0, err
	}
	lines := bufio.NewReaderSize(in, 64<<10)
	turn := 0
	for n := int64(0); ; n++ {
		line, err := lines.ReadBytes('\n')
		if len(line) == 0 && err != nil {
			if err == io.EOF {
				err = nil
			}
			return n, err
		}
		read(len(line))
		r, perr := p.record(bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r")))
		if perr != nil {
			return n, fmt.Errorf("line %d: %w", n+1, perr)
		}
		to := p.partition
		switch {
		case to >= 0:
		case r.Key != nil:
			to = router.Partition(r.Key, len(t.Partitions))
		default:
			to, turn = turn%len(t.Partitions), turn+1
		}
		if err := s.send(to, r); err != nil {
			return n, err
		}
	}
}

func (p *producing) record(line []byte) (wire.Record, error) {
	var r wire.Record
	if p.format == "json" {
		var d struct {
			Key     *string           `json:"key"`
			Value   *string           `json:"value"`
			Headers map[string]string `json:"headers"`
		}
		dec := json.NewDecoder(bytes.NewReader(line))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&d); err != nil {
			return r, fmt.Errorf(`it must be like {"key":"k","value":"v"}: %w`, err)
		}
		if d.Key != nil {
			r.Key = []byte(*d.Key)
		}
		if d.Value != nil {
			r.Value = []byte(*d.Value)
		}
		for k, v := range d.Headers {
			r.Headers = append(r.Headers, wire.Header{Key: k, Value: []byte(v)})
		}
	} else {
		r.Value = line
		if p.separator != "" {
			key, value, ok := bytes.Cut(line, []byte(p.separator))
			if !ok {
				return r, fmt.Errorf("there is no %q between key and value", p.separator)
			}
			r.Key, r.Value = key, value
		}
	}
	if p.null && len(r.Value) == 0 {
		r.Value = nil
	}
	for _, h := range p.headers {
		k, v, ok := strings.Cut(h, "=")
		if !ok {
			return r, usageError{fmt.Errorf("--header %q must be name=value", h)}
		}
		r.Headers = append(r.Headers, wire.Header{Key: k, Value: []byte(v)})
	}
	return r, nil
}

// sender sends records in batches, one batch at a time for each partition, so that they
// stay in order.
type sender struct {
	c      *client.Client
	ctx    context.Context
	topic  string
	acks   string
	queues []chan wire.Record
	work   sync.WaitGroup

	mu     sync.Mutex
	err    error
	stored int64
}

const (
	batchRecords = 1000
	batchBytes   = 1 << 20
	batchWait    = 20 * time.Millisecond
)

func newSender(ctx context.Context, c *client.Client, name, acks string, partitions int) *sender {
	s := &sender{c: c, ctx: ctx, topic: name, acks: acks, queues: make([]chan wire.Record, partitions)}
	for p := range s.queues {
		s.queues[p] = make(chan wire.Record, batchRecords)
		s.work.Go(func() { s.run(p) })
	}
	return s
}

func (s *sender) send(p int, r wire.Record) error {
	s.mu.Lock()
	err := s.err
	s.mu.Unlock()
	if err != nil {
		return nil // close reports it
	}
	select {
	case s.queues[p] <- r:
		return nil
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}

func (s *sender) run(p int) {
	for first := range s.queues[p] {
		batch := s.gather(p, first)
		s.mu.Lock()
		failed := s.err != nil
		s.mu.Unlock()
		if failed {
			continue
		}
		_, err := s.c.Produce(s.ctx, s.topic, p, s.acks, batch...)
		s.mu.Lock()
		if err != nil && s.err == nil {
			s.err = fmt.Errorf("partition %d: %w", p, err)
		}
		if err == nil {
			s.stored += int64(len(batch))
		}
		s.mu.Unlock()
	}
}

// gather takes what follows soon.
func (s *sender) gather(p int, first wire.Record) []wire.Record {
	batch, size := []wire.Record{first}, len(first.Key)+len(first.Value)
	soon := time.After(batchWait)
	for len(batch) < batchRecords && size < batchBytes {
		select {
		case r, ok := <-s.queues[p]:
			if !ok {
				return batch
			}
			batch = append(batch, r)
			size += len(r.Key) + len(r.Value)
		case <-soon:
			return batch
		}
	}
	return batch
}

func (s *sender) close() error {
	for _, q := range s.queues {
		close(q)
	}
	s.work.Wait()
	return s.err
}

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
	"time"

	"github.com/spf13/cobra"

	"logbook/engine/client"
	"logbook/engine/record"
	"logbook/engine/stream"
)

// producing is the produce command's state.
type producing struct {
	o         *globalFlags
	separator string
	format    string
	partition int
	acks      string
	headers   []string
	null      bool
	encoding  encoding
}

func produceCommand(o *globalFlags) *cobra.Command {
	p := producing{o: o, encoding: "text"}
	cmd := &cobra.Command{
		Use: "produce TOPIC", Short: "Send lines from standard input", Args: args(cobra.ExactArgs(1)),
		Long: `Produce sends each line of standard input as a record, in batches. With --format json each
line is a document like {"key":"DTW","value":"delayed","headers":{"source":"tower"}}, where
key and value may be null, or {"base64":"…"} for what is not text. It takes what consume --json
prints; topic, partition and offset in it do not count.

What fails is the first line that was not stored; the lines before it were.`,
		Example: `  printf 'DTW:delayed\nORD:on time\n' | logbook produce flights --key-separator :`,
		RunE:    func(cmd *cobra.Command, a []string) error { return p.run(cmd, a[0]) },
	}
	f := cmd.Flags()
	f.StringVarP(&p.separator, "key-separator", "K", "", "what stands between key and value; empty: there are no keys")
	f.StringVar(&p.format, "format", "lines", "lines or json")
	f.Var(&p.encoding, "encoding", "what keys and values of lines are in: text, hex or base64")
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
		total := int64(-1)
		if file, ok := cmd.InOrStdin().(*os.File); ok {
			if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
				total = info.Size()
			}
		}
		s := c.Stream()
		producer, err := s.Producer(cmd.Context(), name, stream.ProducerOptions{Acks: stream.Acks(p.acks), Linger: lingerFor})
		if err != nil {
			return err
		}
		bar := progress(cmd.ErrOrStderr(), total, "sending")
		out := &sending{producer: producer, partition: p.partition}
		sent, err := p.feed(cmd.Context(), cmd.InOrStdin(), out, func(n int) { _ = bar.Add(n) })
		err = errors.Join(out.finish(), err, s.Close())
		_ = bar.Finish()
		stored := producer.Stats().Acknowledged
		if p.o.json {
			_ = json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]any{"topic": name, "records": stored, "read": sent})
		} else if err == nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s sent to %s\n", count(sent, "record"), name)
		} else {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s of %d read were stored\n", count(stored, "record"), sent)
		}
		return err
	})
}

// lingerFor is how long a line waits for others, to go with them.
const lingerFor = 20 * time.Millisecond

// sending hands lines to a producer, and finds out which was the first that was not stored.
type sending struct {
	producer  *stream.Producer
	partition int
	pending   []*stream.Pending // of the lines from done on
	done      int64             // lines whose outcome is known
	err       error
}

// waitFor is how many lines may be on their way before the first of them is waited for.
const waitFor = 100_000

func (s *sending) send(ctx context.Context, r record.Record) error {
	if len(s.pending) >= waitFor {
		s.settle(len(s.pending) / 2)
	}
	if s.err != nil {
		return nil // finish reports it
	}
	var p *stream.Pending
	var err error
	if s.partition >= 0 {
		p, err = s.producer.SendTo(ctx, s.partition, r)
	} else {
		p, err = s.producer.SendAsync(ctx, r)
	}
	if err == nil {
		s.pending = append(s.pending, p)
	}
	return err
}

// settle waits for the first n lines that are on their way.
func (s *sending) settle(n int) {
	for _, p := range s.pending[:n] {
		s.done++
		if _, err := p.Wait(context.Background()); err != nil && s.err == nil {
			s.err = fmt.Errorf("line %d: %w", s.done, err)
		}
	}
	s.pending = s.pending[n:]
}

func (s *sending) finish() error {
	_ = s.producer.Flush(context.Background()) // each line has its own outcome
	s.settle(len(s.pending))
	return s.err
}

// maxLine is the longest line that is read.
const maxLine = 32 << 20

// input is a line that was read, or why there are no more.
type input struct {
	line []byte
	err  error
}

// readLines reads lines on a goroutine of its own, which lasts as long as the reader: whoever
// is interrupted does not wait for somebody to press Enter.
func readLines(ctx context.Context, in io.Reader) <-chan input {
	out := make(chan input, 64)
	go func() {
		defer close(out)
		lines := bufio.NewReaderSize(in, 64<<10)
		for {
			line, err := readLine(lines)
			select {
			case out <- input{line, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return out
}

// readLine reads a line with its end, at most maxLine bytes.
func readLine(r *bufio.Reader) (line []byte, err error) {
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > maxLine {
			return nil, fmt.Errorf("it has more than %d bytes, the limit for a line", maxLine)
		}
		if err != bufio.ErrBufferFull {
			return line, err
		}
	}
}

// feed reads records and hands them on.
func (p *producing) feed(ctx context.Context, in io.Reader, s *sending, read func(n int)) (int64, error) {
	lines := readLines(ctx, in)
	for n := int64(0); ; n++ {
		var next input
		select {
		case next = <-lines:
		case <-ctx.Done():
			return n, ctx.Err()
		}
		if len(next.line) == 0 && next.err != nil {
			if next.err == io.EOF {
				return n, nil
			}
			return n, fmt.Errorf("line %d: %w", n+1, next.err)
		}
		read(len(next.line))
		r, err := p.record(bytes.TrimSuffix(next.line, []byte("\n")))
		if err != nil {
			return n, fmt.Errorf("line %d: %w", n+1, err)
		}
		if err := s.send(ctx, r); err != nil {
			return n, err
		}
	}
}

func (p *producing) record(line []byte) (record.Record, error) {
	var r record.Record
	if p.format == "json" {
		var err error
		if r, err = parseRecord(line); err != nil {
			return r, err
		}
	} else {
		r.Value = line
		if p.separator != "" {
			key, value, ok := bytes.Cut(line, []byte(p.separator))
			if !ok {
				return r, fmt.Errorf("there is no %q between key and value", p.separator)
			}
			var err error
			if r.Key, err = p.encoding.decode(key); err != nil {
				return r, fmt.Errorf("the key is not %s: %w", p.encoding, err)
			}
			r.Value = value
		}
		var err error
		if r.Value, err = p.encoding.decode(r.Value); err != nil {
			return r, fmt.Errorf("the value is not %s: %w", p.encoding, err)
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
		r.Headers = append(r.Headers, record.Header{Key: k, Value: []byte(v)})
	}
	return r, nil
}

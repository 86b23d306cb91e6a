package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"logbook/engine/client"
	"logbook/engine/wire"
)

// benchResult is what a run measured.
type benchResult struct {
	What       string        `json:"what"`
	Records    int64         `json:"records"`
	Seconds    float64       `json:"seconds"`
	PerSecond  float64       `json:"records_per_second"`
	Megabytes  float64       `json:"megabytes_per_second"`
	P50        time.Duration `json:"p50_ns"`
	P99        time.Duration `json:"p99_ns"`
	OfBaseline float64       `json:"of_echo,omitempty"` // throughput beside the echo of the same bytes
}

func benchCommand(o *globalFlags) *cobra.Command {
	var b benching
	cmd := &cobra.Command{
		Use: "bench TOPIC", Short: "Measure producing and consuming, beside a raw TCP echo", Args: args(cobra.ExactArgs(1)),
		Long: `Bench sends batches of records to a topic from several writers, and reads them back. Beside
that it sends the same bytes in the same pieces to a TCP echo in this process, which
stores nothing: the distance to it is what durability, replication and the protocol cost.
Compare the ratios; absolute times say more about the machine.`,
		RunE: func(cmd *cobra.Command, a []string) error {
			b.topic = a[0]
			if b.writers < 1 || b.batch < 1 || b.size < 0 || b.duration <= 0 {
				return usageError{fmt.Errorf("writers, batch and time must be positive, and the size not negative")}
			}
			return o.with(func(c *client.Client) error { return b.run(cmd.Context(), o, c, cmd.OutOrStdout(), cmd.ErrOrStderr()) })
		},
	}
	f := cmd.Flags()
	f.IntVar(&b.size, "size", 1024, "bytes of a value")
	f.IntVar(&b.batch, "batch", 1, "records in a request")
	f.IntVar(&b.writers, "writers", 8, "requests under way at the same time")
	f.StringVar(&b.acks, "acks", "", "leader, all or quorum; empty: the brokers' default")
	f.DurationVar(&b.duration, "for", 3*time.Second, "how long each measurement takes")
	return cmd
}

type benching struct {
	topic, acks          string
	size, batch, writers int
	duration             time.Duration
}

func (b *benching) run(ctx context.Context, o *globalFlags, c *client.Client, out, errOut io.Writer) error {
	t, err := c.Topic(ctx, b.topic)
	if err != nil {
		return err
	}
	var starts []int64
	for p := range t.Partitions {
		end, err := c.Latest(ctx, b.topic, p)
		if err != nil {
			return err
		}
		starts = append(starts, end)
	}
	records := make([]wire.Record, b.batch)
	for i := range records {
		records[i].Value = bytes.Repeat([]byte{'x'}, b.size)
	}
	bar := progress(errOut, 3, "measuring")
	echo, err := b.echo(ctx, records)
	if err != nil {
		return err
	}
	_ = bar.Add(1)
	produce, err := b.measure(ctx, "produce", func(writer int) error {
		_, err := c.Produce(ctx, b.topic, writer%len(t.Partitions), b.acks, records...)
		return err
	})
	if err != nil {
		return err
	}
	_ = bar.Add(1)
	consume, err := b.consume(ctx, c, starts)
	if err != nil {
		return err
	}
	_ = bar.Finish()
	produce.OfBaseline = produce.PerSecond / echo.PerSecond
	consume.OfBaseline = consume.PerSecond / echo.PerSecond
	results := []benchResult{echo, produce, consume}
	if o.json {
		for _, r := range results {
			if err := json.NewEncoder(out).Encode(r); err != nil {
				return err
			}
		}
		return nil
	}
	return o.print(out, nil, func(w io.Writer) {
		fmt.Fprintf(w, "WHAT\tRECORDS/S\tMB/S\tP50\tP99\tOF ECHO\n")
		for _, r := range results {
			fmt.Fprintf(w, "%s\t%.0f\t%.1f\t%v\t%v\t%.3f\n", r.What, r.PerSecond, r.Megabytes, r.P50.Round(time.Microsecond), r.P99.Round(time.Microsecond), r.OfBaseline)
		}
	})
}

// measure lets writers repeat a request, and times each.
func (b *benching) measure(ctx context.Context, what string, request func(writer int) error) (benchResult, error) {
	var mu sync.Mutex
	var times []time.Duration
	var failed error
	began := time.Now()
	end := began.Add(b.duration)
	var writers sync.WaitGroup
	for w := range b.writers {
		writers.Go(func() {
			var mine []time.Duration
			var err error
			for err == nil && time.Now().Before(end) && ctx.Err() == nil {
				start := time.Now()
				err = request(w)
				mine = append(mine, time.Since(start))
			}
			mu.Lock()
			defer mu.Unlock()
			times = append(times, mine...)
			if err != nil && failed == nil {
				failed = err
			}
		})
	}
	writers.Wait()
	if failed != nil {
		return benchResult{}, failed
	}
	return b.result(what, int64(len(times)*b.batch), time.Since(began), times), ctx.Err()
}

func (b *benching) result(what string, records int64, took time.Duration, times []time.Duration) benchResult {
	slices.Sort(times)
	r := benchResult{What: what, Records: records, Seconds: took.Seconds(), PerSecond: float64(records) / took.Seconds()}
	r.Megabytes = r.PerSecond * float64(b.size) / 1e6
	if len(times) > 0 {
		r.P50, r.P99 = times[len(times)/2], times[len(times)*99/100]
	}
	return r
}

// echo sends the bytes of a produce request to and fro over loopback.
func (b *benching) echo(ctx context.Context, records []wire.Record) (benchResult, error) {
	frame, err := wire.Append(nil, 1, "produce", wire.Produce{Topic: b.topic, Acks: b.acks, Records: records})
	if err != nil {
		return benchResult{}, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return benchResult{}, err
	}
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	conns := make([]net.Conn, b.writers)
	back := make([][]byte, b.writers)
	for i := range conns {
		if conns[i], err = net.Dial("tcp", ln.Addr().String()); err != nil {
			return benchResult{}, err
		}
		defer conns[i].Close()
		back[i] = make([]byte, len(frame))
	}
	return b.measure(ctx, "echo", func(w int) error {
		failed := make(chan error, 1)
		go func() { _, err := conns[w].Write(frame); failed <- err }()
		_, err := io.ReadFull(conns[w], back[w])
		if werr := <-failed; werr != nil {
			return werr
		}
		return err
	})
}

// consume reads back what was produced.
func (b *benching) consume(ctx context.Context, c *client.Client, starts []int64) (benchResult, error) {
	began := time.Now()
	end := began.Add(b.duration)
	var records int64
	var times []time.Duration
	for p, offset := range starts {
		for time.Now().Before(end) {
			start := time.Now()
			r, err := c.Fetch(ctx, b.topic, p, offset, 4<<20, 0)
			if err != nil {
				return benchResult{}, err
			}
			if len(r.Records) == 0 {
				break
			}
			times = append(times, time.Since(start))
			records += int64(len(r.Records))
			offset = r.NextOffset
		}
	}
	return b.result("consume", records, time.Since(began), times), nil
}

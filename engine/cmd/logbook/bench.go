package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/spf13/cobra"
)

// benchResult is what one measurement gave.
type benchResult struct {
	What      string        `json:"what"`
	Records   int64         `json:"records"`
	Seconds   float64       `json:"seconds"`
	PerSecond float64       `json:"records_per_second"`
	Megabytes float64       `json:"megabytes_per_second"`
	P50       time.Duration `json:"p50_ns"`
	P99       time.Duration `json:"p99_ns"`
	P999      time.Duration `json:"p999_ns"`
	CPU       float64       `json:"cpu_us_per_record"` // of this process
	OfRelay   float64       `json:"of_relay,omitempty"`
}

func benchCommand(o *globalFlags) *cobra.Command {
	var b benching
	cmd := &cobra.Command{
		Use: "bench [TOPIC]", Short: "Measure producing and consuming, beside the bare network and disk", Args: args(cobra.MaximumNArgs(1)),
		Long: `Bench sends batches of records to a topic from several writers, reads them back, and does
both at once. Without a topic it makes one, and deletes it afterwards. Beside that, in the
same run, it measures what is under every broker:

  relay   the same bytes in the same pieces, through a TCP relay that stores nothing
  file    the same pieces written to a file and synced, one after another

Compare the ratios; absolute times say more about the machine. With --rate, batches are due
at fixed times, and a time counts from when its batch was due: what waits because something
before it was slow counts too. Without, each writer waits for its batch, and then sends the
next. CPU is this process's, in microseconds a record; the relay's is the relay's own too.`,
		Example: `  logbook bench
  logbook bench --batch 1000 --writers 4
  logbook bench --protocol kafka --broker 127.0.0.1:9092
  logbook bench --rate 20000 --partitions 8 --json`,
		RunE: func(cmd *cobra.Command, a []string) error {
			if len(a) > 0 {
				b.topic = a[0]
			}
			if b.writers < 1 || b.batch < 1 || b.size < stampBytes || b.duration <= 0 || b.partitions < 1 || b.rate < 0 || b.warmUp < 0 {
				return usageError{fmt.Errorf("writers, batch, partitions and time must be positive, a value must have %d bytes or more, and rate and warm-up not be negative", stampBytes)}
			}
			if b.protocol == "kafka" && !cmd.Flags().Changed("broker") {
				o.brokers = "127.0.0.1:9092"
			}
			return b.run(cmd.Context(), o, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.StringVar(&b.protocol, "protocol", "logbook", "logbook (JSON) or kafka")
	f.IntVar(&b.size, "size", 1024, "bytes of a value")
	f.IntVar(&b.batch, "batch", 1, "records that a writer sends together")
	f.IntVar(&b.writers, "writers", 8, "writers at the same time")
	f.IntVar(&b.partitions, "partitions", 1, "of a topic that is made for this")
	f.Float64Var(&b.rate, "rate", 0, "records a second, of all writers together; 0: as fast as it goes")
	f.StringVar(&b.acks, "acks", "", "leader, all or quorum; empty: the brokers' default")
	f.DurationVar(&b.duration, "for", 3*time.Second, "how long each measurement takes")
	f.DurationVar(&b.warmUp, "warm-up", time.Second, "how long each runs before it counts")
	return cmd
}

type benching struct {
	topic, acks, protocol            string
	size, batch, writers, partitions int
	rate                             float64
	duration, warmUp                 time.Duration
}

// benchBroker is who is measured. Its methods are for many goroutines.
type benchBroker interface {
	// prepare makes sure that the topic is there, and returns its partitions. made: it was not.
	prepare(ctx context.Context, topic string, partitions int) (n int, made bool, err error)
	// write stores values in a partition.
	write(ctx context.Context, partition int, values [][]byte) error
	// read hands on the values from offsets on, until ctx ends.
	read(ctx context.Context, from []int64, visit func(value []byte)) error
	// ends returns the offsets after each partition's last record.
	ends(ctx context.Context) ([]int64, error)
	remove(ctx context.Context) error
	close()
}

func (b *benching) broker(o *globalFlags) (benchBroker, error) {
	switch b.protocol {
	case "logbook":
		return newBenchLogbook(o, b.acks, b.batch)
	case "kafka":
		return newBenchKafka(o, b.acks)
	}
	return nil, usageError{fmt.Errorf("protocol %q; it must be logbook or kafka", b.protocol)}
}

func (b *benching) run(ctx context.Context, o *globalFlags, out, errOut io.Writer) error {
	broker, err := b.broker(o)
	if err != nil {
		return err
	}
	defer broker.close()
	name := b.topic
	if name == "" {
		name = fmt.Sprintf("bench-%d", time.Now().UnixMilli())
	}
	partitions, made, err := broker.prepare(ctx, name, b.partitions)
	if err != nil {
		return err
	}
	if made {
		defer func() { _ = broker.remove(context.WithoutCancel(ctx)) }() // the results count
	}
	bar := progress(errOut, 5, "measuring")
	var results []benchResult
	for _, measure := range []func() (benchResult, error){
		func() (benchResult, error) { return b.relay(ctx) },
		func() (benchResult, error) { return b.file(ctx) },
		func() (benchResult, error) { return b.produce(ctx, broker, partitions) },
		func() (benchResult, error) { return b.consume(ctx, broker, partitions) },
		func() (benchResult, error) { return b.endToEnd(ctx, broker) },
	} {
		r, err := measure()
		if err != nil {
			return err
		}
		results = append(results, r)
		_ = bar.Add(1)
	}
	_ = bar.Finish()
	for i := range results[1:] {
		results[i+1].OfRelay = results[i+1].PerSecond / results[0].PerSecond
	}
	if o.json {
		for _, r := range results {
			if err := json.NewEncoder(out).Encode(r); err != nil {
				return err
			}
		}
		return nil
	}
	return o.print(out, nil, func(w io.Writer) {
		fmt.Fprintf(w, "WHAT\tRECORDS/S\tMB/S\tP50\tP99\tP99.9\tCPU US/RECORD\tOF RELAY\n")
		for _, r := range results {
			fmt.Fprintf(w, "%s\t%.0f\t%.1f\t%v\t%v\t%v\t%.1f\t%.3f\n", r.What, r.PerSecond, r.Megabytes, round(r.P50), round(r.P99), round(r.P999), r.CPU, r.OfRelay)
		}
	})
}

func round(d time.Duration) time.Duration { return d.Round(time.Microsecond) }

// stampBytes is what a value begins with: when it was due, ns since 1970.
const stampBytes = 8

// values makes a batch that is due at a time.
func (b *benching) values(due time.Time) [][]byte {
	all := bytes.Repeat([]byte{'x'}, b.batch*b.size)
	out := make([][]byte, b.batch)
	for i := range out {
		out[i] = all[i*b.size : (i+1)*b.size : (i+1)*b.size]
		binary.BigEndian.PutUint64(out[i], uint64(due.UnixNano()))
	}
	return out
}

// clock measures: what ends within the time that counts is counted.
type clock struct {
	from, to time.Time
	records  atomic.Int64
	mu       sync.Mutex
	times    *hdrhistogram.Histogram
	cpu      time.Duration // used when it began to count
}

func (b *benching) newClock() *clock {
	from := time.Now().Add(b.warmUp)
	c := &clock{from: from, to: from.Add(b.duration), times: hdrhistogram.New(1, int64(10*time.Minute), 3)}
	time.AfterFunc(b.warmUp, func() {
		used := cpuTime()
		c.mu.Lock()
		c.cpu = used
		c.mu.Unlock()
	})
	return c
}

// done counts records whose batch was due at a time.
func (c *clock) done(records int, due time.Time) {
	now := time.Now()
	if now.Before(c.from) || now.After(c.to) {
		return
	}
	c.records.Add(int64(records))
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.times.RecordValue(max(1, int64(now.Sub(due)))) // ten minutes are enough
}

func (b *benching) result(what string, c *clock) benchResult {
	used := cpuTime()
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.records.Load()
	took := min(time.Since(c.from), c.to.Sub(c.from)).Seconds()
	r := benchResult{What: what, Records: n, Seconds: took, PerSecond: float64(n) / took}
	r.Megabytes = r.PerSecond * float64(b.size) / 1e6
	at := func(p float64) time.Duration { return time.Duration(c.times.ValueAtPercentile(p)) }
	r.P50, r.P99, r.P999 = at(50), at(99), at(99.9)
	if n > 0 {
		r.CPU = float64((used - c.cpu).Microseconds()) / float64(n)
	}
	return r
}

// writersRun lets each writer write batches until the clock is over: one after another, or when
// they are due.
func (b *benching) writersRun(ctx context.Context, c *clock, write func(writer int, due time.Time) error) error {
	errs := make([]error, b.writers)
	began := time.Now()
	var group sync.WaitGroup
	for w := range b.writers {
		group.Go(func() {
			for n := 0; errs[w] == nil && ctx.Err() == nil; n++ {
				due := time.Now()
				if b.rate > 0 {
					due = began.Add(time.Duration(float64(n*b.writers+w) * float64(b.batch) / b.rate * float64(time.Second)))
					time.Sleep(time.Until(due))
				}
				if time.Now().After(c.to) {
					return
				}
				errs[w] = write(w, due)
			}
		})
	}
	group.Wait()
	return errors.Join(errors.Join(errs...), ctx.Err())
}

func (b *benching) produce(ctx context.Context, broker benchBroker, partitions int) (benchResult, error) {
	c := b.newClock()
	err := b.writersRun(ctx, c, func(w int, due time.Time) error {
		err := broker.write(ctx, w%partitions, b.values(due))
		if err == nil {
			c.done(b.batch, due)
		}
		return err
	})
	return b.result("produce", c), err
}

// consume reads from the beginning, again and again.
func (b *benching) consume(ctx context.Context, broker benchBroker, partitions int) (benchResult, error) {
	ends, err := broker.ends(ctx)
	if err != nil {
		return benchResult{}, err
	}
	total := int64(0)
	for _, end := range ends {
		total += end
	}
	c := b.newClock()
	for time.Now().Before(c.to) && ctx.Err() == nil {
		reading, stop := context.WithDeadline(ctx, c.to)
		var n atomic.Int64
		began := time.Now()
		err := broker.read(reading, make([]int64, partitions), func([]byte) {
			if n.Add(1) == total {
				stop()
			}
			c.done(1, began)
		})
		stop()
		if err != nil {
			return benchResult{}, err
		}
	}
	r := b.result("consume", c)
	r.P50, r.P99, r.P999 = 0, 0, 0 // a time from the beginning of a scan says nothing
	return r, ctx.Err()
}

// endToEnd writes and reads at the same time; a time ends when the record was read.
func (b *benching) endToEnd(ctx context.Context, broker benchBroker) (benchResult, error) {
	ends, err := broker.ends(ctx)
	if err != nil {
		return benchResult{}, err
	}
	c := b.newClock()
	reading, stop := context.WithCancel(ctx)
	defer stop()
	read := make(chan error, 1)
	go func() {
		read <- broker.read(reading, ends, func(value []byte) {
			if len(value) >= stampBytes {
				c.done(1, time.Unix(0, int64(binary.BigEndian.Uint64(value))))
			}
		})
	}()
	err = b.writersRun(ctx, c, func(w int, due time.Time) error { return broker.write(ctx, w%len(ends), b.values(due)) })
	r := b.result("end to end", c)
	stop()
	return r, errors.Join(err, <-read)
}

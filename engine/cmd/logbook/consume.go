package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"logbook/engine/client"
	"logbook/engine/failure"
	"logbook/engine/record"
	"logbook/engine/stream"
	"logbook/engine/wire"
)

// consuming is the consume command's state.
type consuming struct {
	o         *globalFlags
	partition int
	from      string
	group     string
	last      int64
	until     string
	follow    bool
	count     int64
	format    string
	encoding  encoding

	mu   sync.Mutex
	out  *bufio.Writer
	seen int64
}

func consumeCommand(o *globalFlags) *cobra.Command {
	c := consuming{o: o, encoding: "text"}
	cmd := &cobra.Command{
		Use: "consume TOPIC...", Short: "Print records", Args: args(cobra.MinimumNArgs(1)),
		Long: `Consume prints the records of topics up to their present end; with --follow it waits for more.
With --group the partitions are shared with the group's other members, it begins where the
group was, follows, and commits what it has printed.

The format has kcat's words: %s value, %k key, %o offset, %p partition, %t topic,
%T timestamp in ms, %S and %K the lengths of value and key, %h headers, \n and \t. Keys and
values are printed as they are, or with --encoding as hex or base64.`,
		Example: `  logbook consume flights --from 2001-01-01T06:00:00Z --format '%p:%o %k %s\n'
  logbook consume flights --group dashboards`,
		RunE: func(cmd *cobra.Command, a []string) error { return c.run(cmd, a) },
	}
	f := cmd.Flags()
	f.IntVarP(&c.partition, "partition", "p", -1, "-1: all")
	f.StringVarP(&c.from, "from", "o", "earliest", "earliest, latest, an offset, a time (2001-01-31T12:00:00Z), or -N: N records before the end")
	f.Int64VarP(&c.last, "last", "n", 0, "begin so many records before the end of each partition; 0: see --from")
	f.StringVar(&c.until, "until", "", "stop before an offset, or a time")
	f.StringVarP(&c.group, "group", "g", "", "be a member of this group")
	f.BoolVarP(&c.follow, "follow", "f", false, "wait for more at the end")
	f.Int64VarP(&c.count, "count", "c", 0, "stop after so many; 0: never")
	f.StringVar(&c.format, "format", `%s\n`, "how to print a record")
	f.Var(&c.encoding, "encoding", "how to print keys and values: text, hex or base64")
	return cmd
}

// from is where to begin.
type from struct {
	word   string
	offset int64
	at     time.Time
}

func parseFrom(s string) (from, error) {
	if s == "earliest" || s == "latest" {
		return from{word: s}, nil
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && n >= 0 {
		return from{word: "offset", offset: n}, nil
	}
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return from{}, usageError{fmt.Errorf("%q is neither earliest, latest, an offset, nor a time like 2001-01-31T12:00:00Z", s)}
	}
	return from{word: "time", at: at}, nil
}

func (f from) find(ctx context.Context, c *client.Client, topic string, partition int) (int64, error) {
	switch f.word {
	case "earliest":
		return c.Earliest(ctx, topic, partition)
	case "latest":
		return c.Latest(ctx, topic, partition)
	case "time":
		return c.OffsetAt(ctx, topic, partition, f.at)
	}
	return f.offset, nil
}

// errEnough ends consuming: --count is reached.
var errEnough = errors.New("enough")

func (c *consuming) run(cmd *cobra.Command, names []string) error {
	if n, err := strconv.ParseInt(c.from, 10, 64); err == nil && n < 0 {
		c.from, c.last = "earliest", -n
	}
	at, err := parseFrom(c.from)
	if err != nil {
		return err
	}
	c.out = bufio.NewWriter(cmd.OutOrStdout())
	defer c.out.Flush()
	return c.o.with(func(cl *client.Client) error {
		var topics []wire.Topic
		for _, name := range names {
			t, err := cl.Topic(cmd.Context(), name)
			if err != nil {
				return err
			}
			topics = append(topics, t)
		}
		if c.group != "" {
			err = c.member(cmd.Context(), cl, names, at)
		} else {
			err = c.partitions(cmd.Context(), cl, topics, at)
		}
		if errors.Is(err, errEnough) {
			return nil
		}
		return err
	})
}

// partitions reads some or all partitions of topics beside one another.
func (c *consuming) partitions(ctx context.Context, cl *client.Client, topics []wire.Topic, at from) error {
	for _, t := range topics {
		if c.partition >= len(t.Partitions) {
			return &wire.Error{Code: wire.UnknownPartition, Message: fmt.Sprintf("topic %q has partitions 0 to %d", t.Name, len(t.Partitions)-1)}
		}
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var readers sync.WaitGroup
	for _, t := range topics {
		for id := range t.Partitions {
			if c.partition >= 0 && id != c.partition {
				continue
			}
			readers.Go(func() {
				if err := c.partitionFrom(ctx, cl, t.Name, id, at); err != nil {
					stop(err)
				}
			})
		}
	}
	readers.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return nil
}

func (c *consuming) partitionFrom(ctx context.Context, cl *client.Client, topic string, id int, at from) error {
	offset, err := c.begin(ctx, cl, topic, id, at)
	if err != nil {
		return err
	}
	end := int64(math.MaxInt64)
	if c.until != "" {
		to, err := parseFrom(c.until)
		if err != nil {
			return err
		}
		if end, err = to.find(ctx, cl, topic, id); err != nil {
			return err
		}
	}
	wait := time.Duration(0)
	if c.follow {
		wait = 5 * time.Second
	}
	for offset < end {
		r, err := cl.Fetch(ctx, topic, id, offset, 0, wait)
		if err != nil {
			return err
		}
		for _, rec := range r.Records {
			if rec.Offset >= end {
				break
			}
			if err := c.print(topic, id, rec); err != nil {
				return err
			}
		}
		if err := c.flush(); err != nil {
			return err
		}
		offset = r.NextOffset
		if !c.follow && offset >= r.HighWatermark {
			return nil
		}
	}
	return nil
}

// begin is where to begin to read a partition.
func (c *consuming) begin(ctx context.Context, cl *client.Client, topic string, id int, at from) (int64, error) {
	if c.last <= 0 {
		return at.find(ctx, cl, topic, id)
	}
	first, err := cl.Earliest(ctx, topic, id)
	if err != nil {
		return 0, err
	}
	end, err := cl.Latest(ctx, topic, id)
	return max(first, end-c.last), err
}

// member reads as a member of a group, and commits what was printed.
func (c *consuming) member(ctx context.Context, cl *client.Client, topics []string, at from) error {
	if at.word != "earliest" && at.word != "latest" {
		return usageError{errors.New("a group begins where it was; --from earliest or latest is for what it never read (see: logbook group reset)")}
	}
	opt := stream.MemberOptions{Topics: topics}
	if at.word == "latest" {
		opt.Reset = stream.ResetToLatest
	}
	m, err := cl.Stream().JoinGroup(ctx, c.group, opt)
	if err != nil {
		return err
	}
	defer m.Close()
	for {
		records, err := m.Fetch(ctx, c.atOnce())
		if err != nil {
			return err
		}
		for _, r := range records {
			if err = c.print(r.Topic, r.Partition, toWire(r.Record)); err != nil {
				break
			}
		}
		if ferr := c.flush(); ferr != nil {
			return ferr
		}
		if err != nil && !errors.Is(err, errEnough) {
			return err // not all of them were printed: they come again
		}
		cerr := m.Commit(ctx)
		if e, ok := errors.AsType[*failure.Error](cerr); ok && (e.Code == failure.Rejoin || e.Code == failure.UnknownMember) {
			cerr = nil // a rebalance came first
		}
		if err = errors.Join(err, cerr); err != nil {
			return err
		}
	}
}

// atOnce is how many records to take together: no more than are to be printed, since all
// that were taken are committed.
func (c *consuming) atOnce() int {
	if c.count > 0 {
		return max(1, min(1000, int(c.count-c.seen)))
	}
	return 1000
}

func toWire(r record.Record) wire.Record {
	out := wire.Record{Offset: r.Offset, Timestamp: new(r.Timestamp.UnixMilli()), Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, wire.Header{Key: h.Key, Value: h.Value})
	}
	return out
}

func (c *consuming) flush() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.Flush()
}

func (c *consuming) print(topic string, partition int, r wire.Record) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count > 0 && c.seen >= c.count {
		return errEnough
	}
	c.seen++
	if c.o.json {
		e := json.NewEncoder(c.out)
		e.SetEscapeHTML(false)
		err := e.Encode(asJSON(topic, partition, r))
		if err == nil && c.seen == c.count {
			err = errEnough
		}
		return err
	}
	if _, err := io.WriteString(c.out, format(c.format, c.encoding, topic, partition, r)); err != nil {
		return err
	}
	if c.seen == c.count {
		return errEnough
	}
	return nil
}

// asJSON shows a record to the byte: see recordJSON.
func asJSON(topic string, partition int, r wire.Record) any {
	out := recordJSON{Topic: topic, Partition: &partition, Offset: &r.Offset, Timestamp: r.Timestamp, Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, headerJSON{Name: []byte(h.Key), Value: h.Value})
	}
	return out
}

// timeOf is a time in ms since 1970.
func timeOf(ms int64) time.Time { return time.UnixMilli(ms) }

// format fills kcat's words in.
func format(f string, as encoding, topic string, partition int, r wire.Record) string {
	length := func(b []byte) string {
		if b == nil {
			return "-1"
		}
		return strconv.Itoa(len(b))
	}
	var headers []string
	for _, h := range r.Headers {
		headers = append(headers, h.Key+"="+as.encode(h.Value))
	}
	return strings.NewReplacer(
		`%%`, "%", `\n`, "\n", `\t`, "\t", `\\`, `\`,
		"%s", as.encode(r.Value), "%k", as.encode(r.Key), "%o", fmt.Sprint(r.Offset), "%p", fmt.Sprint(partition), "%t", topic,
		"%T", fmt.Sprint(r.Timestamp), "%S", length(r.Value), "%K", length(r.Key), "%h", strings.Join(headers, ","),
	).Replace(f)
}

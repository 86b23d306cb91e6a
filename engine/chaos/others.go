package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// other is a client of others, as a process: its producer is given numbers, line by line, and
// ends well only if all of them were acknowledged; its consumers print what they are handed.
type other struct {
	name     string
	produce  *exec.Cmd
	consume  []*exec.Cmd
	in       io.WriteCloser
	given    int
	producer sync.WaitGroup

	mu   sync.Mutex
	seen []map[string]bool // by consumer
}

// others are the clients that options ask for.
func newOthers(t *town) []*other {
	brokers := strings.Join(t.addresses(1), ",")
	var out []*other
	if t.o.kcat {
		const topic = "audit-librdkafka"
		out = append(out, &other{name: topic, produce: exec.Command("kcat", "-P", "-E", "-q", "-b", brokers, "-t", topic, "-p", "0",
			"-X", "enable.idempotence=true", "-X", "message.timeout.ms=600000", "-X", "linger.ms=5")})
	}
	if t.o.java != "" {
		const topic = "audit-java"
		java := func(args ...string) *exec.Cmd {
			return exec.Command("java", append([]string{"-Xmx256m", "-XX:+UseSerialGC", "-cp", t.o.java + "/*", "engine/chaos/Client.java"}, args...)...)
		}
		out = append(out, &other{name: topic, produce: java("produce", brokers, topic), consume: []*exec.Cmd{
			java("consume", brokers, topic, "classic"), java("consume", brokers, topic, "consumer"),
		}})
	}
	return out
}

// numbersEvery is how often an other's producer is given a hundred numbers.
const numbersEvery = 50 * time.Millisecond

func (o *other) start(ctx context.Context, t *town, k *kgo.Client) error {
	first, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := k.ProduceSync(first, &kgo.Record{Topic: o.name, Partition: 0, Value: []byte("0")}).FirstErr(); err != nil { // it makes the topic
		return err
	}
	o.given = 1
	var err error
	if o.in, err = o.produce.StdinPipe(); err != nil {
		return err
	}
	o.produce.Stderr = t.logs
	if err := o.produce.Start(); err != nil {
		return err
	}
	for i, c := range o.consume {
		o.seen = append(o.seen, map[string]bool{})
		c.Stderr = t.logs
		out, err := c.StdoutPipe()
		if err == nil {
			err = c.Start()
		}
		if err != nil {
			return err
		}
		go func() {
			for lines := bufio.NewScanner(out); lines.Scan(); {
				o.mu.Lock()
				o.seen[i][lines.Text()] = true
				o.mu.Unlock()
			}
		}()
	}
	o.producer.Go(func() {
		for ctx.Err() == nil {
			for range 100 {
				if _, err := fmt.Fprintln(o.in, o.given); err != nil {
					return // it has ended, and its exit code says how
				}
				o.given++
			}
			wait(ctx, numbersEvery)
		}
	})
	return nil
}

// judge lets the producer finish, and says what is wrong with what it wrote and its consumers read.
func (o *other) judge(ctx context.Context, t *town) error {
	o.producer.Wait()
	o.in.Close()
	ended := make(chan error, 1)
	go func() { ended <- o.produce.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			return fmt.Errorf("%s: the producer ended with %w; see the log", o.name, err)
		}
	case <-time.After(patience):
		return fmt.Errorf("%s: writes do not go on although all is well", o.name)
	}
	r, err := kgo.NewClient(kgo.SeedBrokers(t.addresses(1)...), kgo.ConsumeTopics(o.name))
	if err != nil {
		return err
	}
	defer r.Close()
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	var problems []error
	for n := 0; n < o.given; {
		r.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			if string(r.Value) != fmt.Sprint(n) && len(problems) == 0 {
				problems = append(problems, fmt.Errorf("%s: %s stands where %d belongs: lost, doubled or out of order", o.name, r.Value, n))
			}
			n++
		})
		if ctx.Err() != nil {
			return errors.Join(append(problems, fmt.Errorf("%s: %d records were acknowledged, and %d can be read", o.name, o.given, n))...)
		}
	}
	fmt.Printf("%s: %d acknowledged, each there once, in order\n", o.name, o.given)
	for i, c := range o.consume {
		count := func() int {
			o.mu.Lock()
			defer o.mu.Unlock()
			return len(o.seen[i])
		}
		for ctx.Err() == nil && count() < o.given {
			wait(ctx, 100*time.Millisecond)
		}
		fmt.Printf("%s: consumer %d was handed %d of them\n", o.name, i+1, count())
		if n := count(); n < o.given {
			problems = append(problems, fmt.Errorf("%s: consumer %d was never handed %d of %d records", o.name, i+1, o.given-n, o.given))
		}
		_ = c.Process.Kill()
		_ = c.Wait()
	}
	return errors.Join(problems...)
}

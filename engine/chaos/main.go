// Chaos runs brokers as processes, lets clients write and read, does to the brokers
// what happens to processes, and then counts: every record that was acknowledged must be
// there once, in its producer's order, and a group must have been handed each of them.
//
//	go run ./engine/chaos --for 10m --brokers 5
//
// The clients are franz-go, whose producers are idempotent, and Logbook's own, as a member of
// a group; --kcat and --java add librdkafka and Apache Kafka's own. What may be done to brokers:
// kill -9 of one, or of all at once; a pause, as of a virtual machine (SIGSTOP); a stop in good
// order; and a cut of the network between them: one that hears nobody, one that is heard by nobody,
// two halves. The exit code is 1 where a promise is broken.
package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

type options struct {
	length     time.Duration
	brokers    int
	deciding   int
	controller string
	dir        string
	seed       uint64
	pause      time.Duration
	what       []string
	kcat       bool
	java       string
}

func main() {
	var o options
	cmd := &cobra.Command{
		Use: "chaos", Short: "Do to brokers what happens to processes, and count the records", Args: cobra.NoArgs, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o) },
	}
	f := cmd.Flags()
	f.DurationVar(&o.length, "for", time.Minute, "how long")
	f.IntVar(&o.brokers, "brokers", 3, "how many")
	f.IntVar(&o.deciding, "deciding", 0, "so many of them, the last, only decide, and the others only store; 0: each does both")
	f.StringVar(&o.controller, "controller", "quorum", "quorum, first-alive, or manual, where a person's failovers are done at once")
	f.StringVar(&o.dir, "dir", "", "where the brokers keep their data; empty: a temporary directory, removed at the end")
	f.Uint64Var(&o.seed, "seed", 1, "of what is done, in which order")
	f.DurationVar(&o.pause, "every", 6*time.Second, "between one thing and the next")
	f.StringSliceVar(&o.what, "what", kinds, "what is done to brokers, with commas")
	f.BoolVar(&o.kcat, "kcat", false, "also librdkafka's producer, by kcat")
	f.StringVar(&o.java, "java", "", "also Apache Kafka's own producer, and consumers of both protocols: the folder with its jars (make kafka fetches them into .build/kafka/lib)")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if cmd.ExecuteContext(ctx) != nil {
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	if o.brokers < 1 || o.brokers > 9 || o.deciding < 0 || o.deciding >= o.brokers {
		return fmt.Errorf("--brokers is %d, it must be from 1 to 9, and --deciding is %d, fewer than that", o.brokers, o.deciding)
	}
	for _, kind := range o.what {
		if !slices.Contains(kinds, kind) {
			return fmt.Errorf("--what names %q; there are %s", kind, strings.Join(kinds, ", "))
		}
	}
	if o.dir == "" {
		dir, err := os.MkdirTemp("", "logbook-chaos-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		o.dir = dir
	}
	binary := filepath.Join(o.dir, "logbook")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", binary, "./engine/cmd/logbook").CombinedOutput(); err != nil {
		return fmt.Errorf("building the command (chaos runs in the project's root): %w\n%s", err, out)
	}
	t, err := newTown(binary, o)
	if err != nil {
		return err
	}
	defer t.end()
	a, err := newAudit(ctx, t)
	if err != nil {
		return err
	}
	others := newOthers(t)
	writing, enough := context.WithCancel(ctx)
	defer enough()
	for _, x := range others {
		if err := x.start(writing, t, a.producer); err != nil {
			return err
		}
	}
	rng := rand.New(rand.NewPCG(o.seed, 0))
	for end := time.Now().Add(o.length); time.Now().Before(end) && ctx.Err() == nil; {
		what := t.disturb(rng)
		if o.controller == "manual" {
			t.failover(ctx)
		}
		fmt.Printf("%s left: %s; acknowledged %d, the group has %d", time.Until(end).Round(time.Second), what, a.count(), a.seenCount())
		wait(ctx, o.pause)
		fmt.Printf("; at most %s without an acknowledgement\n", a.longest())
	}
	t.calm()
	enough()
	var problems []error
	for _, x := range others {
		problems = append(problems, x.judge(ctx, t))
	}
	return errors.Join(append(problems, a.judge(ctx))...)
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

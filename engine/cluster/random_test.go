package cluster_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"logbook/engine/cluster"
	"logbook/engine/commitlog"
	"logbook/engine/controller"
	"logbook/engine/node"
	"logbook/engine/record"
	"logbook/engine/replica"
	"logbook/engine/vfs"
)

var (
	seeds = flag.Int("seeds", 300, "random cluster histories to run")
	seed  = flag.Uint64("seed", 1, "the first of them")
)

// TestRandomHistories runs random sequences of sends, stops, starts, failovers,
// recoveries, catch-ups, disk faults and power failures over 3 to 5 brokers, and compares
// the cluster with a plain model after every step. A history that fails is cut down to
// the steps that matter.
//
//	go test -run TestRandomHistories ./engine/cluster -seeds 10000
//	go test -run TestRandomHistories ./engine/cluster -seeds 1 -seed 4711
func TestRandomHistories(t *testing.T) {
	if testing.Short() {
		t.Skip("a long enumeration")
	}
	total := 0
	seen := map[string]int{}
	for s := *seed; s < *seed+uint64(*seeds); s++ {
		brokers, steps := makeHistory(s)
		sequential = s%2 == 0
		failed, err := playHistory(brokers, steps, seen)
		total += failed
		if err != nil {
			steps = shrink(brokers, steps[:failed])
			_, err = playHistory(brokers, steps, seen)
			t.Fatalf("seed %d, %d brokers, cut down to\n%s\n%v", s, brokers, show(steps), err)
		}
	}
	fmt.Printf("random histories: %d, %d steps, 0 violations; outcomes %v\n", *seeds, total, seen)
	for _, outcome := range []string{"acknowledged", "not on all", "failed over", "nobody can lead", "recovered", "caught up", "leader still there"} {
		require.Positive(t, seen[outcome], "the histories never come to: %s", outcome)
	}
}

// sequential makes a history happen in the same order every time. The others run their
// replicas side by side.
var sequential bool

type step struct {
	what   string
	broker int
}

func (s step) String() string {
	if s.broker == 0 {
		return s.what
	}
	return fmt.Sprintf("%s %d", s.what, s.broker)
}

func show(steps []step) string {
	var out []string
	for _, s := range steps {
		out = append(out, "  "+s.String())
	}
	return strings.Join(out, "\n")
}

func makeHistory(seed uint64) (brokers int, steps []step) {
	rng := rand.New(rand.NewPCG(seed, 42))
	brokers = 3 + rng.IntN(3)
	kinds := []string{"send", "send", "send", "send", "stop", "start", "start", "failover", "failover", "recover", "recover", "catch up", "fault", "power failure"}
	for range 20 + rng.IntN(30) {
		s := step{what: kinds[rng.IntN(len(kinds))]}
		switch s.what {
		case "send", "failover":
		case "power failure":
			if rng.IntN(4) > 0 {
				s.what = "send"
			}
		default:
			s.broker = 1 + rng.IntN(brokers)
		}
		steps = append(steps, s)
	}
	return brokers, steps
}

// shrink leaves out steps as long as the history still fails.
func shrink(brokers int, steps []step) []step {
	for size := len(steps) / 2; size > 0; size /= 2 {
		for at := 0; at+size <= len(steps); {
			without := slices.Concat(steps[:at], steps[at+size:])
			if n, err := playHistory(brokers, without, map[string]int{}); err != nil {
				steps = without[:n]
			} else {
				at += size
			}
		}
	}
	return steps
}

// history is a cluster and the model of it.
type history struct {
	*cluster.Cluster
	disk         *vfs.Mem
	opt          cluster.Options
	brokers      int
	sent         int
	faulty       atomic.Int32     // broker whose disk takes no frames
	acknowledged map[int64]string // by offset
	seen         map[string]int
}

// playHistory runs steps, and returns how many it ran and the first violation.
func playHistory(brokers int, steps []step, seen map[string]int) (n int, err error) {
	h := &history{disk: vfs.NewMem(), brokers: brokers, acknowledged: map[int64]string{}, seen: seen}
	h.opt.Sequential = sequential
	h.opt.Log = commitlog.Options{SegmentBytes: 2 << 10, Now: time.Now}
	if err := h.open(); err != nil {
		return 0, err
	}
	defer func() { _ = h.Close() }()
	for id := 1; id <= brokers; id++ {
		if err := h.Start(replica.BrokerID(id)); err != nil {
			return 0, err
		}
	}
	if err := h.CreateTopic("flights", 1, brokers); err != nil {
		return 0, err
	}
	for i, s := range steps {
		// A step that takes so long hangs: everything is in memory.
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		err := h.step(ctx, s)
		if ctx.Err() != nil {
			err = errors.Join(errors.New("the step hangs"), err)
		}
		cancel()
		if err == nil {
			err = h.check()
		}
		if err != nil {
			return i + 1, fmt.Errorf("step %d, %s: %w", i+1, s, err)
		}
	}
	return len(steps), nil
}

func (h *history) open() error {
	h.disk.Before = func(op vfs.Op) error {
		if n := h.faulty.Load(); n > 0 && op.Kind == vfs.OpWrite && strings.HasSuffix(op.Name, ".log") && containsBroker(op.Name, int(n)) {
			return syscall.EIO
		}
		return nil
	}
	h.opt.Log.FS = h.disk
	c, err := cluster.Open("root", h.opt)
	h.Cluster = c
	return err
}

func (h *history) step(ctx context.Context, s step) error {
	id := replica.BrokerID(s.broker)
	switch s.what {
	case "send":
		return h.send(ctx)
	case "stop":
		if down, ok := errors.AsType[*cluster.BrokerDownError](h.Stop(id)); ok && down.Broker != id {
			return down
		}
	case "start":
		if _, err := h.Node(id); err == nil {
			return nil
		}
		h.faulty.CompareAndSwap(int32(s.broker), 0)
		return h.Start(id)
	case "fault":
		h.faulty.Store(int32(s.broker))
	case "failover":
		return h.failover(ctx)
	case "recover":
		h.note("recovered", h.Recover(ctx, flights0, id))
	case "catch up":
		h.note("caught up", h.CatchUp(ctx, flights0, id))
	case "power failure":
		h.faulty.Store(0)
		old := h.Cluster
		h.disk = powerFailure(h.disk)
		err := h.open()
		_ = old.Close()
		return err
	}
	return nil
}

func (h *history) note(what string, err error) {
	if err == nil {
		h.seen[what]++
	}
}

func (h *history) send(ctx context.Context) error {
	h.sent++
	value := fmt.Sprint("value ", h.sent)
	at, err := h.Append(ctx, flights0, record.Record{Value: []byte(value)})
	if err != nil {
		if _, ok := errors.AsType[*node.ReplicationError](err); ok {
			h.seen["not on all"]++
		}
		return nil
	}
	h.seen["acknowledged"]++
	if old, ok := h.acknowledged[at.Offset]; ok {
		return fmt.Errorf("offset %d is given to %q, and %q was acknowledged there", at.Offset, value, old)
	}
	h.acknowledged[at.Offset] = value
	return nil
}

func (h *history) failover(ctx context.Context) error {
	before, err := h.Assignment(flights0)
	if err != nil {
		return err
	}
	f, err := h.Failover(ctx, flights0)
	after, _ := h.Assignment(flights0)
	if err != nil {
		if _, ok := errors.AsType[*controller.LeaderStillAvailableError](err); ok {
			h.seen["leader still there"]++
		}
		if _, ok := errors.AsType[*controller.NoEligibleReplicaError](err); ok {
			h.seen["nobody can lead"]++
			for _, id := range before.ISR {
				if n, err := h.Node(id); err == nil && id != before.Leader && n.Report(flights0).Err == nil {
					return fmt.Errorf("nobody can lead, and broker %d is in sync and there", id)
				}
			}
		}
		if after.Version != before.Version {
			return fmt.Errorf("a failed failover (%w) changed the assignment to %+v", err, after)
		}
		return nil
	}
	h.seen["failed over"]++
	if after.Leader != f.New || after.LeaderEpoch != before.LeaderEpoch+1 || !slices.Contains(before.ISR, f.New) {
		return fmt.Errorf("failover %+v led from %+v to %+v", f, before, after)
	}
	return nil
}

// check compares the cluster with the model.
func (h *history) check() error {
	a, err := h.Assignment(flights0)
	if err != nil {
		return err
	}
	var leaderSums []commitlog.FrameDigest
	hw := int64(0)
	if n, err := h.Node(a.Leader); err == nil {
		if s, err := n.Status(flights0); err == nil {
			hw = s.HighWatermark
			if leaderSums, err = n.FrameDigests(flights0, 0, 1<<20); err != nil {
				return err
			}
		}
	}
	for _, id := range a.ISR {
		n, err := h.Node(id)
		if err != nil {
			continue
		}
		if err := h.checkActive(id, n); err != nil {
			return err
		}
		sums, err := n.FrameDigests(flights0, 0, 1<<20)
		if err != nil {
			return err
		}
		if leaderSums == nil {
			continue
		}
		if int64(len(sums)) < hw {
			return fmt.Errorf("broker %d is in sync and ends at %d, below the high watermark %d", id, len(sums), hw)
		}
		if len(sums) > len(leaderSums) || !slices.Equal(sums, leaderSums[:len(sums)]) {
			return fmt.Errorf("broker %d is in sync and its log is no prefix of leader %d's", id, a.Leader)
		}
	}
	return nil
}

// checkActive: an in-sync replica holds every acknowledged record, where it was.
func (h *history) checkActive(id replica.BrokerID, n *node.Node) error {
	held := map[int64]string{}
	for r, err := range n.Own(flights0) {
		if err != nil {
			return fmt.Errorf("broker %d: %w", id, err)
		}
		held[r.Offset] = string(r.Value)
	}
	for offset, value := range h.acknowledged {
		if held[offset] != value {
			return fmt.Errorf("broker %d is in sync and holds %q at offset %d, where %q was acknowledged", id, held[offset], offset, value)
		}
	}
	return nil
}

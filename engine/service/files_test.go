package service_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	_ "logbook/engine/controller/quorum" // one of those that are tried
	"logbook/engine/service"
	"logbook/engine/vfs"
)

// Every file that a broker keeps, in each of its bytes, or a sample of them: a bit that
// flips and a file that ends early are refused by name, with a remedy, or the broker finds
// out anew what stood there. Never is something else served, or an acknowledged record or a
// committed offset gone without a word.
func TestEveryFileOfABroker(t *testing.T) {
	for _, name := range []string{"manual", "quorum"} {
		t.Run(name, func(t *testing.T) { everyFile(t, name) })
	}
}

func everyFile(t *testing.T, controller string) {
	edit := func(c *service.Config) { c.Controller = controller }
	b := start(t, 1, edit)
	b.until("the broker counts", func() bool { return b.all[1].Image().Usable(1) })
	b.topic("flights", 2, 1)
	b.topic("quakes", 1, 1)
	var want []string
	for i := range 60 { // several segments
		v := fmt.Sprint("record ", i)
		_, err := b.produce(1, flights, v)
		require.NoError(t, err)
		want = append(want, v)
	}
	b.until("groups have their topic", func() bool {
		_, err := await(b, "a coordinator", func(done func(service.BrokerID, error)) { b.all[1].FindCoordinator("dashboards", done) })
		return err == nil
	})
	b.until("the coordinator is there, and takes a commit", func() bool {
		_, err := await(b, "a commit", func(done func(int, error)) {
			b.all[1].SetOffsets("dashboards", map[service.Partition]int64{flights: 42}, false, func(err error) { done(0, err) })
		})
		return err == nil
	})
	b.pass(10 * time.Second) // the high watermarks are saved
	require.NoError(t, b.close(1))
	live := b.disks[1]

	kinds := map[string]bool{}
	refused, whole, tried := 0, 0, 0
	rng := rand.New(rand.NewPCG(1, 2))
	for _, name := range live.Files("data") {
		kind := filepath.Base(name)
		if ext := filepath.Ext(kind); ext != "" && strings.Trim(kind[:len(kind)-len(ext)], "0123456789") == "" {
			kind = "*" + ext
		}
		kinds[kind] = true
		data, err := vfs.ReadFile(live, name, 1<<30)
		require.NoError(t, err)
		at := func(i int) int { return i }
		n := len(data)
		if n > 40 {
			n, at = 40, func(int) int { return rng.IntN(len(data)) }
		}
		for i := range n {
			for _, harm := range []string{"flip", "cut"} {
				position := at(i)
				disk := live.Kill()
				disk.Edit(name, func(b []byte) []byte {
					if harm == "cut" {
						return b[:position]
					}
					b[position] ^= 1 << rng.IntN(8)
					return b
				})
				tried++
				if checkBroker(t, disk, fmt.Sprintf("%s at %d of %d of %s", harm, position, len(data), name), want, edit) {
					whole++
				} else {
					refused++
				}
			}
		}
	}
	t.Logf("%d changes to files of %d kinds: %d refused by name, %d harmless", tried, len(kinds), refused, whole)
	// A new kind of file is tried by this test, and its reader must be told of here.
	assert.ElementsMatch(t, []string{"*.log", "*.index", "mark", "checkpoint", "log.meta", "lock", "high-watermarks"}, keys(kinds))
}

func keys(m map[string]bool) (out []string) {
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// checkBroker opens a broker on a disk, and reports whether all is there. Where it is not,
// an error must have said which file is damaged, and what to do.
func checkBroker(t *testing.T, disk *vfs.Mem, what string, want []string, edit func(*service.Config)) bool {
	t.Helper()
	blamed := func(err error) bool {
		if err == nil {
			return false
		}
		text := err.Error()
		require.True(t, strings.Contains(text, "data/"), "%s: the error names no file: %v", what, err)
		require.True(t, strings.Contains(text, "restore") || strings.Contains(text, "repair") || strings.Contains(text, "remove") || strings.Contains(text, "name a log's directory") || strings.Contains(text, "move"),
			"%s: the error names no remedy: %v", what, err)
		return true
	}
	b := &brokers{t: t, now: time.Unix(1_000_100_000, 0), all: map[service.BrokerID]*service.Service{}, disks: map[service.BrokerID]*vfs.Mem{1: disk}, down: map[service.BrokerID]bool{}, edit: edit}
	s, err := b.tryOpen(1)
	if err != nil {
		return !blamed(err)
	}
	defer func() { _ = b.close(1) }()
	b.pass(3 * time.Second)
	ok := true
	for _, topic := range []string{"flights", "quakes"} {
		require.NotNil(t, s.Image().Topic(topic), "%s: a topic is forgotten", what)
	}
	for _, p := range s.Unusable() {
		st, err := await(b, "a status", func(done func(service.PartitionStatus, error)) { s.PartitionStatus(p, done) })
		require.NoError(t, err)
		blamed(fmt.Errorf("%s", st.Replicas[0].Report.Problem))
		ok = false
	}
	var got []string
	for from := int64(0); ; {
		f := b.fetch(1, service.Fetch{Partitions: []service.FetchPartition{{Partition: flights, Offset: from, MaxBytes: 1 << 20}}})[0]
		if f.Err != nil {
			blamed(f.Err)
			ok = false
			break
		}
		v := values(t, f)
		if len(v) == 0 {
			require.Equal(t, want, got, what)
			break
		}
		got, from = append(got, v...), f.Next
	}
	require.Equal(t, append([]string(nil), want[:len(got)]...), got, what)
	offsets, err := await(b, "the offsets", func(done func(map[service.Partition]int64, error)) { s.Committed("dashboards", 0, done) })
	if err != nil {
		return false
	}
	require.EqualValues(t, 42, offsets[flights], what)
	return ok
}

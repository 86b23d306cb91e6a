package sim_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/sim"
)

var update = flag.Bool("update", false, "draw the counterexamples again, find those that are none any more, and save them")

const examples = "../../testdata/sim"

func exampleFile(p sim.Promise) string {
	return filepath.Join(examples, strings.ReplaceAll(fmt.Sprintf("%s-%s-%s", p.Controller, p.Acks, p.Fault), " ", "-"))
}

// Whatever is not promised comes with a schedule that breaks it: saved, minimal, and drawn.
//
//	go test -run TestCounterexamples ./engine/sim -update
func TestCounterexamples(t *testing.T) {
	if testing.Short() {
		t.Skip("a long enumeration")
	}
	for _, p := range sim.Promises() {
		file := exampleFile(p)
		if p.Promised {
			assert.NoFileExists(t, file+".json", "what is promised is broken")
			continue
		}
		if *update && !redrawn(t, file) {
			find(t, p, file)
		}
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			stillBreaks(t, file)
		})
	}
}

// stillBreaks runs a schedule that was saved, and compares its picture.
func stillBreaks(t *testing.T, file string) {
	data, err := os.ReadFile(file + ".json")
	require.NoError(t, err)
	s, err := sim.DecodeSchedule(data)
	require.NoError(t, err)
	r, err := sim.Run(s)
	require.NoError(t, err)
	require.NotEmpty(t, r.Violations, "%s no longer leads to a violation", file)
	drawn, err := os.ReadFile(file + ".svg")
	require.NoError(t, err)
	require.Equal(t, string(drawn), r.Diagram, "the same schedule, the same picture: run with -update")
}

// redrawn draws a schedule again that was saved, if it still leads to a violation.
func redrawn(t *testing.T, file string) bool {
	data, err := os.ReadFile(file + ".json")
	if err != nil {
		return false // it is a new one
	}
	s, err := sim.DecodeSchedule(data)
	require.NoError(t, err)
	r, err := sim.Run(s)
	require.NoError(t, err)
	if len(r.Violations) > 0 {
		require.NoError(t, os.WriteFile(file+".svg", []byte(r.Diagram), 0o644))
	}
	return len(r.Violations) > 0
}

func find(t *testing.T, p sim.Promise, file string) {
	for first := uint64(1); first < 20_000; first += 200 {
		bad, err := sim.Seeds(p.Config, first, 200, nil)
		require.NoError(t, err)
		if len(bad) == 0 {
			continue
		}
		r, err := sim.Shrink(bad[0].Schedule)
		require.NoError(t, err)
		fmt.Printf("%s: seed %d, %d steps: %s\n", filepath.Base(file), r.Schedule.Config.Seed, len(r.Schedule.Steps), r.Violations[0])
		require.NoError(t, os.MkdirAll(examples, 0o755))
		require.NoError(t, os.WriteFile(file+".json", r.Schedule.Encode(), 0o644))
		require.NoError(t, os.WriteFile(file+".svg", []byte(r.Diagram), 0o644))
		return
	}
	t.Fatalf("no counterexample for %+v in 20,000 seeds", p)
}

// The table in the lesson is the one that the promises make: what is promised was never
// violated, what is not was.
func TestTableInTheLesson(t *testing.T) {
	data, err := os.ReadFile("../../tutorials/17-chaos-lab/README.md")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(data), "<!-- table -->\n")
	require.True(t, ok)
	table, _, ok := strings.Cut(rest, "<!-- /table -->")
	require.True(t, ok)
	rows := strings.Split(strings.TrimSpace(table), "\n")
	require.Len(t, rows, 2+len(sim.Promises()), "paste what logbook sim table prints")
	for i, p := range sim.Promises() {
		cells := strings.Split(rows[2+i], " | ")
		require.Len(t, cells, 6, rows[2+i])
		require.Equal(t, []string{p.Controller, p.Acks, string(p.Fault)}, []string{strings.TrimPrefix(cells[0], "| "), cells[1], cells[2]})
		require.Equal(t, p.Promised, strings.HasPrefix(cells[3], "yes"), rows[2+i])
		require.Equal(t, p.Promised, strings.HasPrefix(cells[5], "0 "), rows[2+i])
	}
}

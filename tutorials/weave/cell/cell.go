// Package cell runs the cells of a lesson as tests. The files that weave tangles from
// the literate sources call it; nobody else does.
package cell

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Cell is a code cell with a main body.
type Cell struct {
	Number int
	Body   func()
	Source string // file:line of the body in the literate source
	Want   string // what it must print; see Diff
	ran    bool
}

const (
	cellEnv = "LOGBOOK_CELL"
	// ScratchEnv names the directory below which lab.Dir puts a lesson's scratch space.
	scratchEnv = "LOGBOOK_LAB"
)

var cells []*Cell

// Main is a lesson's TestMain. In the process that Run starts it runs one cell's body
// and exits; otherwise it runs the tests over a fresh scratch directory.
func Main(m *testing.M, lesson []*Cell) {
	cells = lesson
	if n, err := strconv.Atoi(os.Getenv(cellEnv)); err == nil {
		for _, c := range cells {
			if c.Number == n {
				c.Body()
				os.Exit(0)
			}
		}
		fmt.Fprintf(os.Stderr, "no cell %d\n", n)
		os.Exit(2)
	}
	dir, err := os.MkdirTemp("", "logbook-lesson-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	os.Setenv(scratchEnv, dir)
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// Run runs the body of cell n in a fresh process and compares what it prints with what
// it must. Cells that stand before it and have not run yet run first: they may have
// left on disk what this one needs.
func Run(t *testing.T, n int) {
	t.Helper()
	for _, c := range cells {
		if c.Number == n {
			c.run(t, true)
			return
		}
		if c.Number < n && !c.ran {
			c.run(t, false)
		}
	}
	t.Fatalf("no cell %d", n)
}

func (c *Cell) run(t *testing.T, compare bool) {
	t.Helper()
	c.ran = true
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), cellEnv+"="+strconv.Itoa(c.Number))
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	got := strings.TrimRight(stdout.String(), "\n")
	if err != nil {
		t.Fatalf("%s: the cell fails: %v\n%s\n%s", c.Source, err, got, stderr.String())
	}
	if diff := Diff(c.Want, got); compare && diff != "" {
		t.Errorf("%s: the cell prints something else: %s\n--- it prints:\n%s", c.Source, diff, got)
	}
}

// Diff compares output with what is wanted and describes the first difference; it
// returns "" when they match. In want, … stands for any text within a line.
func Diff(want, got string) string {
	if want == got {
		return ""
	}
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range max(len(w), len(g)) {
		switch {
		case i >= len(w):
			return fmt.Sprintf("line %d is not expected: %q", i+1, g[i])
		case i >= len(g):
			return fmt.Sprintf("line %d is missing: %q", i+1, w[i])
		case !lineMatches(w[i], g[i]):
			return fmt.Sprintf("line %d is %q, expected %q", i+1, g[i], w[i])
		}
	}
	return ""
}

func lineMatches(want, got string) bool {
	want, got = strings.TrimRight(want, " "), strings.TrimRight(got, " ")
	if want == got {
		return true
	}
	if !strings.Contains(want, "…") {
		return false
	}
	parts := strings.Split(want, "…")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	ok, err := regexp.MatchString("^"+strings.Join(parts, ".*")+"$", got)
	return err == nil && ok
}

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A violation is found, cut down, saved and drawn, and the file leads to it again.
func TestSimCommand(t *testing.T) {
	if testing.Short() {
		t.Skip("a long enumeration")
	}
	dir := t.TempDir()
	schedule, picture := filepath.Join(dir, "lost.json"), filepath.Join(dir, "lost.svg")

	out, errOut, code := run(t, "", "sim", "--acks", "leader", "--faults", "cut", "--first", "1", "--seeds", "1")
	require.NotZero(t, code, "violations are a failure\n%s", out)
	require.Contains(t, errOut, "1 seed of 1 had violations; logbook sim shrink with the same flags and --first 1 cuts one down")

	out, errOut, code = run(t, "", "sim", "shrink", "--acks", "leader", "--faults", "cut", "--first", "1", "--out", schedule, "--picture", picture)
	require.Zero(t, code, errOut)
	require.Contains(t, out, "violated: offset given twice: ")
	drawn, err := os.ReadFile(picture)
	require.NoError(t, err)
	require.Contains(t, string(drawn), "<svg")

	again, errOut, _ := run(t, "", "sim", "replay", schedule)
	require.Contains(t, again, "violated: offset given twice: ", errOut)

	_, errOut, code = run(t, "", "sim", "--faults", "gremlins")
	require.Equal(t, 2, code)
	require.Contains(t, errOut, `there is no fault "gremlins"; there are crash,cut,lossy,slow,disk error,silence,pause,drift,rot,lost disk`)

	out, errOut, code = run(t, "", "sim", "--seeds", "2", "--faults", "rot")
	require.NotZero(t, code, "rot is found\n%s%s", out, errOut)
}

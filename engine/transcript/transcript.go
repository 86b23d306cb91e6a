// Package transcript tests by transcripts: files that say what is done and what that leads
// to, which a person can read and a run must repeat. With -update a run writes what it led
// to instead.
package transcript

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write what happens into the transcripts")

// Test plays each file that pattern names, as a subtest, and compares: play takes a file's
// text and returns what it comes to.
func Test(t *testing.T, pattern string, play func(t *testing.T, text string) string) {
	files, err := filepath.Glob(pattern)
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			got := play(t, string(want))
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
				return
			}
			require.Equal(t, string(want), got)
		})
	}
}

// Play runs the commands of a text, one a line: each is written to out, followed by what
// command writes there, indented. Indented lines of text are of the last run; "#" begins a
// comment.
func Play(text string, out *strings.Builder, command func(words []string)) string {
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "  ") {
			continue
		}
		out.WriteString(line + "\n")
		if line != "" && !strings.HasPrefix(line, "#") {
			command(strings.Fields(line))
		}
	}
	return out.String()
}

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// Every link to a file leads somewhere, in the form that GitHub shows and in the one that Jupyter
// does, whose root is the project.
func TestLinksLeadSomewhere(t *testing.T) {
	const root = "../.."
	check := func(file, text string) {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			to, _, _ := strings.Cut(m[1], "#")
			if to == "" || strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
				continue
			}
			path := filepath.Join(filepath.Dir(file), to)
			_, err := os.Stat(path)
			assert.NoError(t, err, "%s links to %s", file, m[1])
			rel, err := filepath.Rel(root, path)
			require.NoError(t, err)
			assert.False(t, strings.HasPrefix(rel, ".."), "%s links out of the project: %s", file, m[1])
		}
	}
	pages, err := filepath.Glob(root + "/*.md")
	require.NoError(t, err)
	lessons, err := filepath.Glob("../*/README.md")
	require.NoError(t, err)
	require.NotEmpty(t, lessons)
	for _, file := range append(pages, lessons...) {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		check(file, string(data))
	}
	notebooks, err := filepath.Glob(root + "/notebooks/*.ipynb")
	require.NoError(t, err)
	require.Len(t, notebooks, len(lessons))
	for _, file := range notebooks {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		var n notebook
		require.NoError(t, json.Unmarshal(data, &n), file)
		for _, c := range n.Cells {
			if c.Type == "markdown" {
				text := string(c.Source)
				check(file, text)
				assert.NotContains(t, text, "/README.md)", "%s links to a lesson's source, not to its notebook", file)
			}
		}
	}
}

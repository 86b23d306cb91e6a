package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The sources of the whole book: every link leads to a page of it, and every picture that a
// cell drew says in words what it shows.
func TestSources(t *testing.T) {
	t.Chdir("../..")
	b := &book{src: t.TempDir(), pages: map[string]bool{}}
	require.NoError(t, b.prepare())
	lessons, err := filepath.Glob(filepath.Join(b.src, "*.ipynb"))
	require.NoError(t, err)
	require.Greater(t, len(lessons), 15)
	pictures := 0
	for _, file := range lessons {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		var nb struct {
			Cells []struct {
				Type     string `json:"cell_type"`
				Source   any
				Outputs  []struct{ Data map[string]any }
				Metadata struct {
					MystNB struct{ Image struct{ Alt string } } `json:"mystnb"`
				}
			}
		}
		require.NoError(t, json.Unmarshal(data, &nb))
		for _, c := range nb.Cells {
			for _, m := range regexp.MustCompile(`\]\(([^)#:]+)\)`).FindAllStringSubmatch(text(c.Source), -1) {
				if c.Type == "markdown" {
					assert.FileExists(t, filepath.Join(b.src, filepath.FromSlash(m[1])), filepath.Base(file))
				}
			}
			for _, o := range c.Outputs {
				if o.Data["image/svg+xml"] != nil {
					pictures++
					assert.NotEmpty(t, c.Metadata.MystNB.Image.Alt, "%s: a picture without words", filepath.Base(file))
				}
			}
		}
		index, err := os.ReadFile(filepath.Join(b.src, "index.md"))
		require.NoError(t, err)
		assert.Contains(t, string(index), filepath.Base(file[:len(file)-len(".ipynb")]), "the contents")
	}
	assert.Greater(t, pictures, 25)
	glossary, err := os.ReadFile(filepath.Join(b.src, "glossary.md"))
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`\]\(([^)]+)\)`).FindAllStringSubmatch(string(glossary), -1) {
		assert.FileExists(t, filepath.Join(b.src, m[1]), "the glossary")
	}
	var words []string
	for _, m := range regexp.MustCompile(`(?m)^\*\*([^.]+)\.\*\* .*$`).FindAllStringSubmatch(string(glossary), -1) {
		words = append(words, strings.ToLower(m[1]))
		assert.Contains(t, m[0], ".ipynb)", "the lesson that shows it")
	}
	assert.Greater(t, len(words), 40)
	assert.True(t, slices.IsSorted(words), "in order")
}

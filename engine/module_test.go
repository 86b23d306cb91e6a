package engine_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// outside runs a command in a directory without the internet.
func outside(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOPROXY=off", "GOFLAGS=-mod=mod", "GOWORK=off")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s %s\n%s", name, strings.Join(args, " "), out)
	return string(out)
}

// The README's programs compile and run in a module of their own, which finds this one as the
// README says; and they run twice.
func TestProgramsOfTheReadme(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles the engine anew, without the race detector")
	}
	t.Parallel()
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	here, err := filepath.Abs("..")
	require.NoError(t, err)
	found := regexp.MustCompile("(?s)```go\n(package main\n.*?)```").FindAllSubmatch(readme, -1)
	require.Len(t, found, 2)
	edit := regexp.MustCompile(`go mod edit -require (\S+) -replace (\S+)=/path/to/this/folder`).FindSubmatch(readme)
	require.NotNil(t, edit)
	sums, err := os.ReadFile("../go.sum")
	require.NoError(t, err)
	for _, program := range found {
		dir := filepath.Join(t.TempDir(), "a program")
		require.NoError(t, os.Mkdir(dir, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), program[1], 0o600))
		outside(t, dir, "go", "mod", "init", "example.com/program")
		outside(t, dir, "go", "mod", "edit", "-require", string(edit[1]), "-replace", string(edit[2])+"="+here)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o600))
		outside(t, dir, "go", "build", "-o", "program", ".")
		first := outside(t, dir, "./program")
		assert.Contains(t, first, "durable at")
		assert.Contains(t, first, "DTW is delayed")
		again := outside(t, dir, "./program")
		assert.Contains(t, again, "DTW is delayed")
		assert.NotEqual(t, first, again, "the disk remembers")
	}
}

// Everything goes on under another module path, lessons included.
func TestRenamingTheModule(t *testing.T) {
	if testing.Short() {
		t.Skip("it copies the project")
	}
	for _, program := range []string{"make", "getconf"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("there is no %s", program)
		}
	}
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "Привет мир", "log book")
	require.NoError(t, filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel("..", path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && (rel == ".git" || rel == ".build" || d.Name() == ".ipynb_checkpoints"):
			return fs.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(dir, rel), 0o700)
		case !d.Type().IsRegular():
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, rel), data, info.Mode())
	}))
	// A path with blanks harms nobody: what is cleaned is what was built here.
	neighbour := filepath.Join(filepath.Dir(dir), "log")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, ".build", "bin"), 0o700))
	require.NoError(t, os.MkdirAll(neighbour, 0o700))
	assert.Contains(t, outside(t, dir, "make"), "make notebook")
	outside(t, dir, "make", "clean")
	assert.DirExists(t, neighbour)
	assert.NoDirExists(t, filepath.Join(dir, ".build"))

	outside(t, dir, "make", "module", "PATH=example.org/logbook")
	// Every import is found, those of tests too; the sources are as gofmt has them; and the
	// notebooks and tests are what the lessons give.
	packages := outside(t, dir, "go", "list", "-deps", "-test", "./...")
	assert.Contains(t, packages, "example.org/logbook/engine/commitlog\n")
	assert.NotRegexp(t, `(?m)^logbook/`, packages)
	assert.Empty(t, outside(t, dir, "gofmt", "-l", "engine", "tutorials"))
	outside(t, dir, "go", "run", "./tutorials/weave", "-check")
	outside(t, dir, "go", "vet", "./engine/record", "./engine/topic", "./tutorials/01-framing-bytes")
}

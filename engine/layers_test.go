package engine_test

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// layers lists the engine's packages from the bottom up: imports point downwards only.
// doc.go shows the same order to readers.
var layers = []string{
	"transcript", "record", "record/compression", "record/recordtest", "vfs", "commitlog", "commitlog/logtest", "mutate",
	"topic", "topic/topictest", "consumer", "consumer/offsettest", "producer", "group", "coordinator", "replica", "controller", "controller/controllertest", "cluster", "spacetime",
	"wire", "client", "broker", "broker/brokertest", "sim", "replica/replicatest", "group/grouptest", "web", "lab", "cmd/logbook",
}

// standardOnly are the packages that depend on nothing but the standard library.
var standardOnly = []string{"record", "record/recordtest", "vfs", "commitlog", "commitlog/logtest", "topic", "topic/topictest", "consumer", "consumer/offsettest", "producer", "group", "coordinator", "replica", "controller", "controller/controllertest", "cluster", "spacetime", "wire", "client", "broker", "broker/brokertest"}

const root = "logbook/engine/"

type goPackage struct {
	ImportPath string
	Imports    []string
}

func enginePackages(t *testing.T) []goPackage {
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", "./...").Output()
	require.NoError(t, err)
	var packages []goPackage
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else {
			require.NoError(t, err)
		}
		packages = append(packages, p)
	}
}

func TestImportsPointDownwards(t *testing.T) {
	for _, p := range enginePackages(t) {
		name := strings.TrimPrefix(p.ImportPath, root)
		if name == p.ImportPath {
			continue // the root package
		}
		at := slices.Index(layers, name)
		require.GreaterOrEqual(t, at, 0, "%s has no place in layers and doc.go yet", name)
		for _, imported := range p.Imports {
			below, ok := strings.CutPrefix(imported, root)
			if ok {
				assert.Less(t, slices.Index(layers, below), at, "%s imports %s", name, below)
				assert.NotEqual(t, "lab", below, "%s imports lab, which is for lessons", name)
			}
			if slices.Contains(standardOnly, name) && !ok {
				assert.NotContains(t, strings.Split(imported, "/")[0], ".", "%s imports %s", name, imported)
			}
		}
	}
}

// Style that a person would have to remember.
func TestFilesAreSmallAndWellNamed(t *testing.T) {
	for _, dir := range []string{".", "../tutorials"} {
		require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				assert.NotContains(t, []string{"util", "utils", "common", "helpers", "manager"}, d.Name())
				return err
			}
			if !strings.HasSuffix(path, ".go") || d.Name() == "lesson_test.go" {
				return nil
			}
			data, err := os.ReadFile(path)
			assert.LessOrEqual(t, strings.Count(string(data), "\n"), 500, "%s is too long to take in", path)
			return err
		}))
	}
}

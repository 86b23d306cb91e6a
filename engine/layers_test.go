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

// besides are the packages that stand beside the list in doc.go, each with the package that
// it may import all that is above, and that itself.
var besides = map[string]string{
	"transcript": "", "record/recordtest": "record", "commitlog/logtest": "commitlog", "topic/topictest": "topic", "consumer/offsettest": "consumer",
	"group/grouptest": "sim", "controller/controllertest": "controller", "replica/replicatest": "sim", "server/servertest": "server", "kafkatest": "server", "streamtest": "stream", "mutate": "", "chaos": "cmd/logbook",
}

// freely are the packages that may use more than the standard library.
var freely = []string{"record/compression", "controller/quorum", "kafka", "kafkaclient", "opener", "sim", "transcript", "web", "lab", "lab/measure", "lab/stage", "cmd/logbook", "chaos", "replica/replicatest", "group/grouptest", "streamtest"}

// layers reads the engine's packages from the list in doc.go, from the bottom up. The root
// package is "".
func layers(t *testing.T) []string {
	data, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	var out []string
	for line := range strings.Lines(string(data)) {
		rest, ok := strings.CutPrefix(line, "//\t")
		if !ok {
			continue
		}
		if name := strings.Fields(rest)[0]; name == "(this" {
			out = append(out, "")
		} else {
			out = append(out, name)
		}
	}
	require.Greater(t, len(out), 20)
	return out
}

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

func TestImportsPointUpTheList(t *testing.T) {
	list := layers(t)
	place := func(name string) int {
		if beside, ok := besides[name]; ok && beside != "" {
			return slices.Index(list, beside)
		} else if ok {
			return 0
		}
		return slices.Index(list, name)
	}
	for _, p := range enginePackages(t) {
		name := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, strings.TrimSuffix(root, "/")), "/")
		at := place(name)
		require.GreaterOrEqual(t, at, 0, "%s has no place in doc.go yet", name)
		_, beside := besides[name]
		for _, imported := range p.Imports {
			if above, ok := strings.CutPrefix(imported+"/", root); ok {
				above = strings.TrimSuffix(above, "/")
				if beside {
					assert.LessOrEqual(t, place(above), at, "%s imports %s", name, above)
				} else {
					assert.Less(t, place(above), at, "%s imports %s", name, above)
				}
				if name != "lab/stage" && name != "lab/measure" {
					assert.NotEqual(t, "lab", above, "%s imports lab, which is for lessons", name)
				}
			} else if !slices.Contains(freely, name) {
				assert.NotContains(t, strings.Split(imported, "/")[0], ".", "%s imports %s", name, imported)
			}
		}
	}
}

// A client needs neither a log nor a replica, and must not carry them.
func TestTheClientIsLight(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "./client").Output()
	require.NoError(t, err)
	for _, heavy := range []string{"commitlog", "replica", "node", "service"} {
		assert.NotContains(t, strings.Split(string(out), "\n"), root+heavy)
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

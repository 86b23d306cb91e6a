// Package lab is what the notebooks show and where they work: annotated hexdumps,
// pictures of logs, real event streams, and a scratch directory that lasts from cell to
// cell. In a notebook it shows HTML and SVG; everywhere else the same facts as text, so
// that a lesson's output can be tested.
//
// Only lessons import it. It panics where a cell could do nothing but stop: a lesson's
// directory that cannot be made, a data file that is not there.
package lab

import (
	"fmt"
	"os"
	"path/filepath"
)

// scratchEnv names the directory below which the scratch directories are; tests set it.
const scratchEnv = "LOGBOOK_LAB"

// Fresh returns the scratch directory of a lesson, emptied. A lesson's first cell calls
// it, so that running the notebook again from the top starts over.
func Fresh(lesson string) string {
	dir := path(lesson)
	must(os.RemoveAll(dir))
	must(os.MkdirAll(dir, 0o755))
	return dir
}

// Dir returns the scratch directory of a lesson as the cells before left it.
func Dir(lesson string) string {
	dir := path(lesson)
	must(os.MkdirAll(dir, 0o755))
	return dir
}

func path(lesson string) string {
	if base := os.Getenv(scratchEnv); base != "" {
		return filepath.Join(base, lesson)
	}
	return filepath.Join(projectRoot(), ".build", "lab", lesson)
}

// projectRoot is the directory of the logbook module. A cell runs somewhere below it;
// the kernel says where in GONB_DIR.
func projectRoot() string {
	dir := os.Getenv("GONB_DIR")
	if dir == "" {
		var err error
		dir, err = os.Getwd()
		must(err)
	}
	for start := dir; ; dir = filepath.Dir(dir) {
		_, modErr := os.Stat(filepath.Join(dir, "go.mod"))
		_, labErr := os.Stat(filepath.Join(dir, "engine", "lab"))
		if modErr == nil && labErr == nil {
			return dir
		}
		if filepath.Dir(dir) == dir {
			panic(fmt.Sprintf("lab: %s is not inside the logbook project; start Jupyter with: make notebook", start))
		}
	}
}

func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("lab: %v", err))
	}
}

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
)

func main() {
	var o options
	flag.BoolVar(&o.check, "check", false, "change nothing; fail where a woven file is stale")
	flag.BoolVar(&o.run, "run", false, "execute the notebooks in the real kernel")
	flag.BoolVar(&o.accept, "accept", false, "with -run: write what cells print into the sources")
	flag.BoolVar(&o.back, "from-notebook", false, "write the sources from the notebooks")
	flag.Parse()
	if err := o.main(flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "weave:", err)
		os.Exit(1)
	}
}

type options struct {
	root                     string
	check, run, accept, back bool
}

var lessonName = regexp.MustCompile(`^\d\d-[a-z0-9-]+$`)

func (o *options) main(names []string) error {
	var err error
	if o.root, err = projectRoot(); err != nil {
		return err
	}
	dirs, err := os.ReadDir(filepath.Join(o.root, "tutorials"))
	if err != nil {
		return err
	}
	var lessons []string
	for _, d := range dirs {
		if lessonName.MatchString(d.Name()) && (len(names) == 0 || slices.Contains(names, d.Name())) {
			lessons = append(lessons, d.Name())
		}
	}
	if len(lessons) == 0 {
		return fmt.Errorf("no lesson of that name in tutorials/: %s", strings.Join(names, ", "))
	}
	problems := make([]error, len(lessons))
	var group sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for i, name := range lessons {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			problems[i] = o.lesson(name)
		})
	}
	group.Wait()
	return errors.Join(problems...)
}

// atOnce is how many lessons are woven, or executed, at a time: a kernel is idle half of the time.
const atOnce = 2

// projectRoot finds the project's directory, upwards from here: the one with go.mod and this tool.
func projectRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		_, modErr := os.Stat(filepath.Join(dir, "go.mod"))
		_, toolErr := os.Stat(filepath.Join(dir, "tutorials", "weave"))
		if modErr == nil && toolErr == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("not inside the logbook project: no go.mod with tutorials/weave from here upwards")
		}
		dir = parent
	}
}

// modulePath is the path of the project's module: "logbook", unless it was renamed.
func modulePath() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Path != "" {
		return info.Main.Path
	}
	return "logbook"
}

func (o *options) notebookFile(name string) string {
	return filepath.Join("notebooks", name+".ipynb")
}

func (o *options) lesson(name string) error {
	old, err := o.readNotebook(name)
	if err != nil {
		return err
	}
	l, err := readLesson(o.root, name)
	if err != nil {
		return err
	}
	if o.back {
		if old == nil {
			return fmt.Errorf("%s: there is no notebook", o.notebookFile(name))
		}
		return o.write(l.file, []byte(unweave(old, l)))
	}
	if err := o.weave(l, old); err != nil || !o.run {
		return err
	}
	return o.execute(l)
}

// weave writes, or checks, the two files that the source makes.
func (o *options) weave(l *lesson, old *notebook) error {
	test, err := l.tangle()
	if err != nil {
		return err
	}
	n := l.weaveNotebook(old)
	book, err := n.encode()
	if err != nil {
		return err
	}
	testFile := filepath.Join("tutorials", l.name, "lesson_test.go")
	if !o.check {
		if err := o.write(testFile, test); err != nil {
			return err
		}
		return o.write(o.notebookFile(l.name), book)
	}
	if err := o.compare(l, testFile, test); err != nil {
		return err
	}
	if err := o.compareCells(l, old, n); err != nil {
		return err
	}
	return o.compare(l, o.notebookFile(l.name), book)
}

func (o *options) compare(l *lesson, file string, want []byte) error {
	got, err := os.ReadFile(filepath.Join(o.root, file))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s:1: %s has not been woven from it; run: make weave", l.file, file)
	}
	if err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("%s:1: %s is stale: it is not what this source makes; run: make weave (or, to keep an edit of the notebook, make unweave)", l.file, file)
	}
	return nil
}

// compareCells finds the line of the source from which a notebook strays.
func (o *options) compareCells(l *lesson, old, want *notebook) error {
	if old == nil {
		return nil // compare says so
	}
	code := l.cells()
	i := 0
	for j, c := range want.Cells {
		if c.Type != "code" {
			continue
		}
		line := code[i].line
		i++
		if j >= len(old.Cells) || old.Cells[j].Source != c.Source {
			return fmt.Errorf("%s:%d: %s is stale from this cell on; run: make weave (or, to keep an edit of the notebook, make unweave)", l.file, line, o.notebookFile(l.name))
		}
	}
	for _, c := range code {
		for _, nc := range old.Cells {
			if nc.Type != "code" || string(nc.Source) != c.text || c.isTest() {
				continue
			}
			if got := textOf(nc.Outputs); !matches(c.want, got) {
				return fmt.Errorf("%s:%d: the notebook's committed output of this cell is not the one the source gives; run: make weave", l.file, c.line)
			}
		}
	}
	return nil
}

func (o *options) readNotebook(name string) (*notebook, error) {
	data, err := os.ReadFile(filepath.Join(o.root, o.notebookFile(name)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	n := &notebook{}
	if err := json.Unmarshal(data, n); err != nil {
		return nil, fmt.Errorf("%s: %w", o.notebookFile(name), err)
	}
	return n, nil
}

func (o *options) write(file string, data []byte) error {
	path := filepath.Join(o.root, file)
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
		return nil
	}
	fmt.Println("writing", file)
	return os.WriteFile(path, data, 0o644)
}

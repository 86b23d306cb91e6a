package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"logbook/tutorials/weave/cell"
)

// execute runs a lesson's notebook in the real kernel and checks what each cell printed
// against the source and the committed notebook. Unless it only checks, it stores the
// outputs.
func (o *options) execute(l *lesson) error {
	committed, err := o.readNotebook(l.name)
	if err != nil {
		return err
	}
	start := time.Now()
	ran, err := o.nbclient(l.name)
	if err != nil {
		return err
	}
	fmt.Printf("executed %s in %.1fs\n", o.notebookFile(l.name), time.Since(start).Seconds())
	results := map[string]nbCell{}
	for _, c := range ran.Cells {
		if c.Type == "code" {
			c.Outputs = normalize(c.Outputs)
			results[c.ID] = c
		}
	}
	for _, c := range l.cells() {
		r := results[fmt.Sprintf("cell-%02d", c.number)]
		if err := o.checkCell(l, c, r, committed); err != nil {
			return err
		}
	}
	if o.check {
		return nil
	}
	if o.accept {
		if l, err = o.acceptOutputs(l, results); err != nil {
			return err
		}
	}
	for i, c := range committed.Cells {
		if r, ok := results[c.ID]; ok {
			committed.Cells[i].Outputs = r.Outputs
		}
	}
	return o.weave(l, committed)
}

func (o *options) checkCell(l *lesson, c codeCell, r nbCell, committed *notebook) error {
	for _, out := range r.Outputs {
		if out.Type == "error" {
			return fmt.Errorf("%s:%d: the cell fails in the kernel: %s\n%s", l.file, c.line, out.ErrorText, textOf(r.Outputs))
		}
	}
	got := textOf(r.Outputs)
	if c.isTest() {
		switch {
		case strings.Contains(got, "no tests to run"), !strings.Contains(got, "PASS"):
			return fmt.Errorf("%s:%d: the %%test cell ran no test that passed:\n%s", l.file, c.line, got)
		case !o.check:
			return nil
		}
		for _, old := range committed.Cells {
			if old.ID == r.ID && normalizeTest(textOf(old.Outputs)) != normalizeTest(got) {
				return fmt.Errorf("%s:%d: the %%test cell prints something else than the committed notebook:\n%s", l.file, c.line, got)
			}
		}
		return nil
	}
	if diff := cell.Diff(c.want, got); diff != "" && !o.accept {
		return fmt.Errorf("%s:%d: in the kernel the cell prints something else: %s\n--- it prints:\n%s", l.file, c.line, diff, got)
	}
	return nil
}

// acceptOutputs writes what the cells printed into the source.
func (o *options) acceptOutputs(l *lesson, results map[string]nbCell) (*lesson, error) {
	var b strings.Builder
	data, err := os.ReadFile(filepath.Join(o.root, l.file))
	if err != nil {
		return nil, err
	}
	lines := strings.SplitAfter(string(data), "\n")
	at := 0 // lines copied
	for _, c := range l.cells() {
		end := c.line - 1 + strings.Count(c.text, "\n") + 1 // the closing fence
		for ; at <= end; at++ {
			b.WriteString(lines[at])
		}
		got := textOf(results[fmt.Sprintf("cell-%02d", c.number)].Outputs)
		if c.isTest() || matches(c.want, got) {
			continue
		}
		if c.wantLine > 0 {
			at = c.wantLine // the closing fence of an empty block
			if c.want != "" {
				at += strings.Count(c.want, "\n") + 1
			}
		}
		if got != "" {
			fmt.Fprintf(&b, "\n%soutput\n%s\n%s\n", fence, got, fence)
		}
	}
	for ; at < len(lines); at++ {
		b.WriteString(lines[at])
	}
	if err := o.write(l.file, []byte(b.String())); err != nil {
		return nil, err
	}
	return readLesson(o.root, l.name)
}

// nbclient executes a notebook as a headless Jupyter does and returns the result.
func (o *options) nbclient(name string) (*notebook, error) {
	tmp, err := os.CreateTemp("", "logbook-*.ipynb")
	if err != nil {
		return nil, err
	}
	tmp.Close()
	defer os.Remove(tmp.Name())
	build := filepath.Join(o.root, ".build")
	python := filepath.Join(build, "venv", "bin", "python")
	if _, err := os.Stat(python); err != nil {
		python = "python3"
	}
	cmd := exec.Command(python, filepath.Join(o.root, "notebooks", "kernel", "execute.py"),
		filepath.Join(o.root, o.notebookFile(name)), tmp.Name())
	cmd.Dir = filepath.Join(o.root, "notebooks")
	scratch, err := os.MkdirTemp("", "logbook-lesson-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(scratch)
	cmd.Env = append(os.Environ(),
		"JUPYTER_PATH="+filepath.Join(build, "jupyter"),
		"JUPYTER_DATA_DIR="+filepath.Join(build, "jupyter", "data"),
		"JUPYTER_CONFIG_DIR="+filepath.Join(build, "jupyter", "config"),
		"JUPYTER_RUNTIME_DIR="+filepath.Join(build, "jupyter", "runtime"),
		"IPYTHONDIR="+filepath.Join(build, "jupyter", "ipython"),
		"LOGBOOK_LAB="+scratch)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s: executing failed: %v\n%s\n(run: make tools, which builds the kernel and installs nbclient)", o.notebookFile(name), err, out)
	}
	data, err := os.ReadFile(tmp.Name())
	if err != nil {
		return nil, err
	}
	// Where the scratch directory was this time is nobody's business.
	data = bytes.ReplaceAll(data, []byte(scratch), []byte("…"))
	n := &notebook{}
	return n, json.Unmarshal(data, n)
}

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// lesson is a parsed source.
type lesson struct {
	name   string // NN-name
	file   string // path of its README.md, from the project root
	blocks []block
}

type kind int

const (
	prose  kind = iota
	code        // a code cell
	output      // what the code cell before it prints
	answer      // prose to the notebook, a test to Go
)

// block is a run of lines of the source.
type block struct {
	kind kind
	text string // without fences, without the last newline
	line int    // of its first line of text, from 1
}

func (l *lesson) at(b block) string { return fmt.Sprintf("%s:%d", l.file, b.line) }

const fence = "```"

// fenceKind says what a fence's info string makes of the block under it.
func fenceKind(info string) kind {
	switch strings.TrimSpace(info) {
	case "go":
		return code
	case "output":
		return output
	case "go answer":
		return answer
	}
	return prose
}

func readLesson(root, name string) (*lesson, error) {
	l := &lesson{name: name, file: filepath.Join("tutorials", name, "README.md")}
	data, err := os.ReadFile(filepath.Join(root, l.file))
	if err != nil {
		return nil, err
	}
	if err := l.parse(string(data)); err != nil {
		return nil, err
	}
	return l, nil
}

func (l *lesson) parse(source string) error {
	var text []string
	start := 1
	flush := func(k kind, next int) {
		if k != prose || strings.TrimSpace(strings.Join(text, "")) != "" {
			l.blocks = append(l.blocks, block{k, strings.Join(text, "\n"), start})
		}
		text, start = nil, next
	}
	current, inside := prose, false
	n := 0
	for line := range strings.Lines(source) {
		n++
		line = strings.TrimSuffix(line, "\n")
		isFence := strings.HasPrefix(line, fence)
		switch {
		case isFence && !inside:
			inside = true
			if current = fenceKind(line[len(fence):]); current == prose || current == answer {
				text = append(text, line) // part of the prose around it
				continue
			}
			flush(prose, n+1)
		case isFence && inside:
			inside = false
			if current == prose || current == answer {
				text = append(text, line)
				continue
			}
			flush(current, n+1)
		default:
			text = append(text, line)
		}
	}
	if inside {
		return fmt.Errorf("%s:%d: the last fenced block is not closed", l.file, start)
	}
	flush(prose, n+1)
	return l.validate()
}

func (l *lesson) validate() error {
	for i, b := range l.blocks {
		if b.kind == output && (i == 0 || l.blocks[i-1].kind != code) {
			return fmt.Errorf("%s: an output block must stand directly under a code cell", l.at(b))
		}
		if b.kind == code {
			if lines := strings.Count(b.text, "\n") + 1; lines > maxCellLines {
				return fmt.Errorf("%s: the cell has %d lines, at most %d can be taken in at a glance", l.at(b), lines, maxCellLines)
			}
		}
	}
	return nil
}

const maxCellLines = 25

// answers returns the "go answer" blocks inside prose.
func (l *lesson) answers() []block {
	var out []block
	for _, b := range l.blocks {
		if b.kind != prose {
			continue
		}
		var text []string
		inside, start := false, 0
		for i, line := range strings.Split(b.text, "\n") {
			switch {
			case !inside && strings.HasPrefix(line, fence) && fenceKind(line[len(fence):]) == answer:
				inside, text, start = true, nil, b.line+i+1
			case inside && strings.HasPrefix(line, fence):
				inside = false
				out = append(out, block{answer, strings.Join(text, "\n"), start})
			case inside:
				text = append(text, line)
			}
		}
	}
	return out
}

// cells returns the code cells, each with the output expected of it.
func (l *lesson) cells() []codeCell {
	var out []codeCell
	heading := l.name
	for i, b := range l.blocks {
		if b.kind == prose {
			heading = lastHeading(b.text, heading)
		}
		if b.kind != code {
			continue
		}
		c := codeCell{block: b, number: len(out) + 1, heading: heading}
		if i+1 < len(l.blocks) && l.blocks[i+1].kind == output {
			c.want = l.blocks[i+1].text
			c.wantLine = l.blocks[i+1].line
		}
		out = append(out, c)
	}
	return out
}

// lastHeading returns the last heading in some prose; fallback where there is none.
func lastHeading(text, fallback string) string {
	inside := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, fence) {
			inside = !inside
		}
		if level, heading, ok := strings.Cut(strings.TrimSpace(line), " "); ok && !inside && level != "" && strings.Trim(level, "#") == "" {
			fallback = heading
		}
	}
	return fallback
}

// codeCell is a code cell.
type codeCell struct {
	block
	number   int
	heading  string // that it stands under
	want     string // expected output; empty: none
	wantLine int
}

// isTest reports whether the cell runs its tests.
func (c codeCell) isTest() bool {
	for line := range strings.Lines(c.text) {
		if strings.TrimSpace(line) == "%test" {
			return true
		}
	}
	return false
}

// split returns the cell's declarations and main body, and the line of the body. A cell
// without "%%" has no body.
func (c codeCell) split() (decls, body string, bodyLine int, err error) {
	var d, b []string
	inBody := false
	for i, line := range strings.Split(c.text, "\n") {
		switch {
		case strings.TrimSpace(line) == "%%" && !inBody:
			inBody, bodyLine = true, c.line+i+1
		case strings.HasPrefix(line, "%test"):
			d = append(d, "")
		case strings.HasPrefix(line, "%"), strings.HasPrefix(line, "!"):
			return "", "", 0, fmt.Errorf("line %d: %q has no counterpart in a Go test", c.line+i, line)
		case inBody:
			b = append(b, line)
		default:
			d = append(d, line)
		}
	}
	return strings.Join(d, "\n"), strings.Join(b, "\n"), bodyLine, nil
}

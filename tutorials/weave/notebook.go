package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// notebook is the part of nbformat 4.5 that lessons use.
type notebook struct {
	Cells         []nbCell       `json:"cells"`
	Metadata      map[string]any `json:"metadata"`
	NBFormat      int            `json:"nbformat"`
	NBFormatMinor int            `json:"nbformat_minor"`
}

type nbCell struct {
	Type           string         `json:"cell_type"`
	ExecutionCount *int           `json:"execution_count,omitempty"`
	ID             string         `json:"id"`
	Metadata       map[string]any `json:"metadata"`
	Outputs        []nbOutput     `json:"outputs,omitempty"`
	Source         multiline      `json:"source"`
}

type nbOutput struct {
	Type      string               `json:"output_type"`
	Name      string               `json:"name,omitempty"` // of a stream
	Text      multiline            `json:"text,omitempty"`
	Data      map[string]multiline `json:"data,omitempty"`
	Metadata  map[string]any       `json:"metadata,omitempty"`
	ErrorName string               `json:"ename,omitempty"`
	ErrorText string               `json:"evalue,omitempty"`
	Traceback []string             `json:"traceback,omitempty"`
}

// multiline is text that nbformat stores as a list of lines.
type multiline string

func (m multiline) MarshalJSON() ([]byte, error) {
	lines := []string{}
	for line := range strings.Lines(string(m)) {
		lines = append(lines, line)
	}
	return marshal(lines)
}

func (m *multiline) UnmarshalJSON(data []byte) error {
	var lines []string
	if err := json.Unmarshal(data, &lines); err == nil {
		*m = multiline(strings.Join(lines, ""))
		return nil
	}
	return json.Unmarshal(data, (*string)(m))
}

// MarshalJSON writes the fields that a code cell must have, and a markdown cell must not.
func (c nbCell) MarshalJSON() ([]byte, error) {
	fields := map[string]any{"cell_type": c.Type, "id": c.ID, "metadata": map[string]any{}, "source": c.Source}
	if c.Type == "code" {
		fields["execution_count"] = c.ExecutionCount
		fields["outputs"] = append([]nbOutput{}, c.Outputs...)
	}
	return marshal(fields)
}

// MarshalJSON keeps the fields that nbformat demands even when they are empty.
func (o nbOutput) MarshalJSON() ([]byte, error) {
	fields := map[string]any{"output_type": o.Type}
	switch o.Type {
	case "stream":
		fields["name"], fields["text"] = o.Name, o.Text
	case "error":
		fields["ename"], fields["evalue"], fields["traceback"] = o.ErrorName, o.ErrorText, append([]string{}, o.Traceback...)
	default:
		fields["data"], fields["metadata"] = o.Data, map[string]any{}
		if o.Type == "execute_result" {
			fields["execution_count"] = nil
		}
	}
	return marshal(fields)
}

// marshal is JSON without HTML escapes: notebooks are read in diffs.
func marshal(v any) ([]byte, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return []byte(strings.TrimSuffix(b.String(), "\n")), nil
}

func (n *notebook) encode() ([]byte, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(n); err != nil {
		return nil, err
	}
	return []byte(b.String()), nil
}

// weaveNotebook makes a lesson's notebook. Outputs are taken from old, the notebook that
// is there, for cells whose source has not changed.
func (l *lesson) weaveNotebook(old *notebook) *notebook {
	n := &notebook{
		Metadata: map[string]any{
			"kernelspec":    map[string]any{"display_name": "Logbook (Go)", "language": "go", "name": "logbook"},
			"language_info": map[string]any{"file_extension": ".go", "mimetype": "text/x-go", "name": "go"},
		},
		NBFormat: 4, NBFormatMinor: 5,
	}
	outputs := map[string][]nbOutput{}
	if old != nil {
		for _, c := range old.Cells {
			if c.Type == "code" {
				outputs[string(c.Source)] = c.Outputs
			}
		}
	}
	cells := 0
	for _, b := range l.blocks {
		switch b.kind {
		case prose:
			for _, part := range splitAtHeadings(b.text) {
				n.Cells = append(n.Cells, nbCell{Type: "markdown", Source: multiline(toNotebook(part)), ID: fmt.Sprintf("text-%02d", len(n.Cells))})
			}
		case code:
			cells++
			count := cells
			n.Cells = append(n.Cells, nbCell{
				Type: "code", Source: multiline(b.text), ID: fmt.Sprintf("cell-%02d", cells),
				ExecutionCount: &count, Outputs: outputs[b.text],
			})
		}
	}
	return n
}

// Links in prose are relative to the source, two folders down; a notebook lies one down, beside
// its pictures. A link to another lesson's source is one to its notebook there.
func toNotebook(text string) string {
	text = sourceLink.ReplaceAllString(text, "]($1.ipynb")
	return strings.NewReplacer("](../../notebooks/", "](", "](../../", "](../").Replace(text)
}

// toSource is the inverse of toNotebook.
func toSource(text string) string {
	text = strings.NewReplacer("](../", "](../../", "](images/", "](../../notebooks/images/").Replace(text)
	return notebookLink.ReplaceAllString(text, "](../../tutorials/$1/README.md")
}

var (
	sourceLink   = regexp.MustCompile(`\]\(\.\./\.\./tutorials/([0-9][^/)]*)/README\.md`)
	notebookLink = regexp.MustCompile(`\]\(([0-9][^/)]*)\.ipynb`)
)

// splitAtHeadings cuts prose before each heading of the first or second level, so that
// Jupyter can fold and list sections. Lines inside fences are no headings.
func splitAtHeadings(text string) []string {
	var parts []string
	var part []string
	inside := false
	flush := func() {
		if p := strings.Trim(strings.Join(part, "\n"), "\n"); p != "" {
			parts = append(parts, p)
		}
		part = nil
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, fence) {
			inside = !inside
		}
		if !inside && (strings.HasPrefix(line, "# ") || strings.HasPrefix(line, "## ")) {
			flush()
		}
		part = append(part, line)
	}
	flush()
	return parts
}

// unweave makes a source from a notebook. What a cell must print is taken from the old
// source where the cell's code is still the same or its output still fits, and from the
// notebook's own output otherwise.
func unweave(n *notebook, old *lesson) string {
	wants := map[string]string{}
	for _, c := range old.cells() {
		wants[c.text] = c.want
	}
	var parts []string
	for _, c := range n.Cells {
		text := strings.Trim(string(c.Source), "\n")
		if c.Type != "code" {
			if text != "" {
				parts = append(parts, toSource(text))
			}
			continue
		}
		parts = append(parts, fence+"go\n"+text+"\n"+fence)
		got := textOf(c.Outputs)
		want, known := wants[text]
		isTest := (codeCell{block: block{text: text}}).isTest() // their output is go test's
		if !isTest && (!known || !matches(want, got) && got != "") {
			want = got
		}
		if want != "" {
			parts = append(parts, fence+"output\n"+want+"\n"+fence)
		}
	}
	return strings.Join(parts, "\n\n") + "\n"
}

// textOf is what a cell printed and showed, as plain text: streams first, then displays.
func textOf(outputs []nbOutput) string {
	var printed, shown strings.Builder
	for _, o := range outputs {
		switch o.Type {
		case "stream":
			printed.WriteString(string(o.Text))
		case "display_data", "execute_result":
			if text := string(o.Data["text/plain"]); text != "" {
				shown.WriteString(strings.TrimSuffix(text, "\n") + "\n")
			}
		}
	}
	return strings.TrimRight(printed.String()+shown.String(), "\n")
}

var duration = regexp.MustCompile(`\d+(\.\d+)?(ns|µs|us|ms|s)\b`)

// normalize removes from outputs what changes from run to run and says nothing.
func normalize(outputs []nbOutput) []nbOutput {
	var out []nbOutput
	for _, o := range outputs {
		o.Metadata = nil
		if o.Type == "stream" && len(out) > 0 && out[len(out)-1].Type == "stream" && out[len(out)-1].Name == o.Name {
			out[len(out)-1].Text += o.Text // the kernel sends pieces as they come
			continue
		}
		out = append(out, o)
	}
	return out
}

// normalizeTest evens out the durations in the output of go test.
func normalizeTest(text string) string { return duration.ReplaceAllString(text, "…") }

// Command book makes a web book, and an EPUB, of the notebooks: the same text, code, outputs
// and pictures. Sphinx with MyST-NB renders it; this program prepares what Sphinx reads. Code
// that lessons link to becomes pages of the book, so that it can be read without anything else.
//
//	go run ./tutorials/book -sphinx .build/book/venv/bin/sphinx-build -o .build/book
package main

import (
	"bytes"
	"embed"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

//go:embed conf.py style.css index.md
var assets embed.FS

func main() {
	sphinx := flag.String("sphinx", "sphinx-build", "Sphinx's command")
	out := flag.String("o", ".build/book", "where the book goes, with its sources")
	flag.Parse()
	if err := run(*sphinx, *out); err != nil {
		fmt.Fprintln(os.Stderr, "book:", err)
		os.Exit(1)
	}
}

func run(sphinx, out string) error {
	src := filepath.Join(out, "src")
	if err := os.RemoveAll(src); err != nil {
		return err
	}
	b := &book{src: src, pages: map[string]bool{}}
	if err := b.prepare(); err != nil {
		return err
	}
	for _, builder := range []string{"html", "epub"} {
		// Warnings are errors: a link that leads nowhere is one.
		cmd := exec.Command(sphinx, "-q", "-W", "--keep-going", "-b", builder, src, filepath.Join(out, builder))
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s: %w", builder, err)
		}
	}
	fmt.Printf("the book is in %s\n", filepath.Join(out, "html", "index.html"))
	return nil
}

// book is a book in the making.
type book struct {
	src   string
	pages map[string]bool // of code, by path in the project
}

func (b *book) write(name string, data []byte) error {
	file := filepath.Join(b.src, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o644)
}

func (b *book) prepare() error {
	for _, name := range []string{"conf.py", "index.md"} {
		data, err := assets.ReadFile(name)
		if err == nil {
			err = b.write(name, data)
		}
		if err != nil {
			return err
		}
	}
	style, err := assets.ReadFile("style.css")
	if err == nil {
		err = b.write("_static/style.css", style)
	}
	if err != nil {
		return err
	}
	if err := os.CopyFS(filepath.Join(b.src, "images"), os.DirFS("notebooks/images")); err != nil {
		return err
	}
	lessons, err := filepath.Glob("notebooks/*.ipynb")
	if err != nil {
		return err
	}
	for _, file := range lessons {
		if err := b.lesson(file); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	if err := b.glossary(); err != nil {
		return err
	}
	return b.codeIndex()
}

var toLesson = regexp.MustCompile(`\]\(([0-9a-z-]+)/README\.md\)`)

// glossary copies the glossary, whose links are to lessons.
func (b *book) glossary() error {
	data, err := os.ReadFile("tutorials/glossary.md")
	if err != nil {
		return err
	}
	return b.write("glossary.md", toLesson.ReplaceAll(data, []byte("](${1}.ipynb)")))
}

// lesson copies a notebook, with links that lead to pages of the book.
func (b *book) lesson(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var nb map[string]any
	if err := json.Unmarshal(data, &nb); err != nil {
		return err
	}
	nb["metadata"].(map[string]any)["language_info"].(map[string]any)["pygments_lexer"] = "go"
	for _, c := range nb["cells"].([]any) {
		cell := c.(map[string]any)
		if cell["cell_type"] == "markdown" {
			text, err := b.relink(text(cell["source"]))
			if err != nil {
				return err
			}
			cell["source"] = text
			continue
		}
		describe(cell)
	}
	if data, err = json.Marshal(nb); err != nil {
		return err
	}
	return b.write(filepath.Base(file), data)
}

// text is a notebook's text, which may be in lines.
func text(v any) string {
	if lines, ok := v.([]any); ok {
		var b strings.Builder
		for _, l := range lines {
			b.WriteString(l.(string))
		}
		return b.String()
	}
	s, _ := v.(string)
	return s
}

// describe gives the pictures that a cell drew their plain text as an alternative.
func describe(cell map[string]any) {
	outputs, _ := cell["outputs"].([]any)
	for _, o := range outputs {
		data, _ := o.(map[string]any)["data"].(map[string]any)
		if data["image/svg+xml"] == nil {
			continue
		}
		alt := strings.Join(strings.Fields(text(data["text/plain"])), " ")
		if len(alt) > 500 {
			alt = strings.ToValidUTF8(alt[:500], "") + " …"
		}
		cell["metadata"] = map[string]any{"mystnb": map[string]any{"image": map[string]any{"alt": alt}}}
	}
}

var link = regexp.MustCompile(`\]\(\.\./([^)#]+)(#[^)]*)?\)`)

// relink makes links to the project's files links to pages that show them.
func (b *book) relink(s string) (string, error) {
	var failed error
	s = link.ReplaceAllStringFunc(s, func(m string) string {
		target := path.Clean(link.FindStringSubmatch(m)[1])
		if err := b.page(target); err != nil && failed == nil {
			failed = err
		}
		return "](code/" + target + ".md)"
	})
	return s, failed
}

// page makes a page of a file, or of a directory and its files.
func (b *book) page(target string) error {
	if b.pages[target] {
		return nil
	}
	b.pages[target] = true
	info, err := os.Stat(filepath.FromSlash(target))
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return b.filePage(target)
	}
	entries, err := os.ReadDir(filepath.FromSlash(target))
	if err != nil {
		return err
	}
	var page bytes.Buffer
	fmt.Fprintf(&page, "# %s\n\n", target)
	for _, e := range entries {
		name := path.Join(target, e.Name())
		if e.IsDir() || strings.HasSuffix(name, "_test.go") || !readable(name) {
			continue
		}
		if err := b.page(name); err != nil {
			return err
		}
		fmt.Fprintf(&page, "- [%s](%s.md)\n", e.Name(), path.Join(path.Base(target), e.Name()))
	}
	return b.write("code/"+target+".md", page.Bytes())
}

// lexers name the language of a file for the highlighter.
var lexers = map[string]string{".go": "go", ".py": "python", ".md": "markdown", ".json": "json", ".yaml": "yaml", ".toml": "toml", ".txt": "text", ".tsv": "text", ".hex": "text", ".hash": "text"}

func readable(name string) bool { return lexers[path.Ext(name)] != "" }

func (b *book) filePage(target string) error {
	data, err := os.ReadFile(filepath.FromSlash(target))
	if err != nil {
		return err
	}
	const most = 200_000
	if len(data) > most {
		data = append(data[:most:most], "\n… (the file goes on)\n"...)
	}
	fence := "````````"
	page := fmt.Sprintf("# %s\n\n%s{code-block} %s\n:linenos:\n\n%s\n%s\n", target, fence, lexers[path.Ext(target)], strings.TrimRight(string(data), "\n"), fence)
	return b.write("code/"+target+".md", []byte(page))
}

// codeIndex lists the pages of code, so that each is part of the book.
func (b *book) codeIndex() error {
	var pages []string
	for p := range b.pages {
		pages = append(pages, p)
	}
	slices.Sort(pages)
	var s strings.Builder
	s.WriteString("# The code\n\nThe files that lessons point to.\n\n```{toctree}\n:maxdepth: 1\n\n")
	for _, p := range pages {
		fmt.Fprintf(&s, "code/%s.md\n", p)
	}
	s.WriteString("```\n")
	return b.write("code.md", []byte(s.String()))
}

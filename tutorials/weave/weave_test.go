package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const source = "# 90 A lesson\n\nProse with a [link](../../engine/doc.go).\n\n" +
	"```go\nimport \"fmt\"\n\nfunc double(n int) int { return 2 * n }\n\n%%\n\tfmt.Println(double(21))\n\tfmt.Println(\"took 3ms\")\n```\n\n" +
	"```output\n42\ntook …\n```\n\n## Tests\n\n```text\nnot a cell\n# not a heading\n```\n\n" +
	"```go\nimport \"testing\"\n\n%test\n\nfunc TestP90_Doubles(t *testing.T) {\n\tif double(2) != 4 {\n\t\tt.Fatal(\"no\")\n\t}\n}\n```\n\n" +
	"```go answer\nfunc answer() int { return double(1) }\n```\n\nThe end.\n"

// project makes a project with one lesson and returns its weaver.
func project(t *testing.T, text string) *options {
	t.Helper()
	o := &options{root: t.TempDir()}
	require.NoError(t, os.MkdirAll(filepath.Join(o.root, "tutorials", "90-test"), 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(o.root, "notebooks"), 0o755))
	edit(t, o, "tutorials/90-test/README.md", text)
	return o
}

func edit(t *testing.T, o *options, file, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(o.root, file), []byte(text), 0o644))
}

func read(t *testing.T, o *options, file string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(o.root, file))
	require.NoError(t, err)
	return string(data)
}

func lineOf(text string) int {
	return strings.Count(source[:strings.Index(source, text)], "\n") + 1
}

func TestSourceIsCutIntoCells(t *testing.T) {
	l := &lesson{name: "90-test", file: "README.md"}
	require.NoError(t, l.parse(source))
	cells := l.cells()
	require.Len(t, cells, 2)
	assert.Equal(t, "42\ntook …", cells[0].want)
	assert.Equal(t, lineOf("import \"fmt\""), cells[0].line)
	assert.False(t, cells[0].isTest())
	assert.True(t, cells[1].isTest())
	decls, body, line, err := cells[0].split()
	require.NoError(t, err)
	assert.Contains(t, decls, "func double")
	assert.Contains(t, body, "fmt.Println(double(21))")
	assert.Equal(t, lineOf("\tfmt.Println(double(21))"), line)
	require.Len(t, l.answers(), 1)
	assert.Equal(t, lineOf("func answer()"), l.answers()[0].line)
}

func TestBadSourcesAreReportedWithTheirLine(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"an open fence":         {"text\n\n```go\nfunc f() {}\n", "README.md:4: the last fenced block is not closed"},
		"output without a cell": {"text\n\n```output\nx\n```\n", "README.md:4: an output block must stand directly under a code cell"},
		"a long cell":           {"```go\n" + strings.Repeat("//\n", 26) + "```\n", "README.md:2: the cell has 26 lines"},
		"a name twice":          {"```go\nfunc f() {}\n```\n\n```go\n\nfunc f() {}\n```\n", "README.md:7: f is declared at"},
		"a shell line":          {"```go\n!ls\n```\n", "README.md:2: line 2: \"!ls\" has no counterpart"},
		"not Go":                {"\n```go\nfunc f( {}\n```\n", "README.md:3: the cell's declarations do not parse"},
	} {
		o := project(t, c.text)
		err := o.lesson("90-test")
		require.Error(t, err, name)
		assert.Contains(t, err.Error(), c.want, name)
	}
}

func TestTangledTestNamesTheSource(t *testing.T) {
	o := project(t, source)
	require.NoError(t, o.lesson("90-test"))
	test := read(t, o, "tutorials/90-test/lesson_test.go")
	for _, want := range []string{
		"func TestP90_Doubles", "func Test90ALesson(t *testing.T) { cell.Run(t, 1) }", "func answer() int",
		"//line README.md:" + strconv.Itoa(lineOf("\tfmt.Println(double(21))")),
		"//line README.md:" + strconv.Itoa(lineOf("func double")),
		"Want: `42\ntook …`",
	} {
		assert.Contains(t, test, want)
	}
}

func TestNotebookGoesBackToItsSource(t *testing.T) {
	o := project(t, source)
	require.NoError(t, o.lesson("90-test"))
	n, err := o.readNotebook("90-test")
	require.NoError(t, err)
	assert.Contains(t, string(n.Cells[0].Source), "](../engine/doc.go)", "links fit the notebook's folder")
	n.Cells[1].Outputs = []nbOutput{{Type: "stream", Name: "stdout", Text: "42\ntook 7ms\n"}}
	l, err := readLesson(o.root, "90-test")
	require.NoError(t, err)
	assert.Equal(t, source, unweave(n, l))
}

// The same for the real lessons: nothing in them is lost on the way.
func TestRealLessonsGoBackToTheirSources(t *testing.T) {
	root, err := projectRoot()
	require.NoError(t, err)
	o := &options{root: root}
	files, err := filepath.Glob(filepath.Join(root, "tutorials", "[0-9]*", "README.md"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		name := filepath.Base(filepath.Dir(file))
		l, err := readLesson(root, name)
		require.NoError(t, err)
		n, err := o.readNotebook(name)
		require.NoError(t, err)
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Equal(t, string(data), unweave(n, l), name)
	}
}

func TestAnEditInJupyterComesBack(t *testing.T) {
	o := project(t, source)
	require.NoError(t, o.lesson("90-test"))
	book := read(t, o, "notebooks/90-test.ipynb")
	book = strings.Replace(book, "double(21)", "double(4)", 1)
	edit(t, o, "notebooks/90-test.ipynb", book)
	n, err := o.readNotebook("90-test")
	require.NoError(t, err)
	n.Cells[1].Outputs = []nbOutput{{Type: "stream", Name: "stdout", Text: "8\ntook 1ms\n"}}
	data, err := n.encode()
	require.NoError(t, err)
	edit(t, o, "notebooks/90-test.ipynb", string(data))
	o.back = true
	require.NoError(t, o.lesson("90-test"))
	got := read(t, o, "tutorials/90-test/README.md")
	assert.Contains(t, got, "double(4)")
	assert.Contains(t, got, "```output\n8\n")
	assert.Contains(t, got, "```text\nnot a cell\n# not a heading\n```")
}

func TestStaleFilesFailTheCheck(t *testing.T) {
	o := project(t, source)
	o.check = true
	require.ErrorContains(t, o.lesson("90-test"), "has not been woven")
	o.check = false
	require.NoError(t, o.lesson("90-test"))
	n, err := o.readNotebook("90-test")
	require.NoError(t, err)
	n.Cells[1].Outputs = []nbOutput{{Type: "stream", Name: "stdout", Text: "42\ntook 1ms\n"}}
	good, err := n.encode()
	require.NoError(t, err)
	edit(t, o, "notebooks/90-test.ipynb", string(good))
	o.check = true
	require.NoError(t, o.lesson("90-test"), "a fresh weave passes")

	cellLine := "README.md:" + strconv.Itoa(lineOf("import \"fmt\""))
	edit(t, o, "tutorials/90-test/README.md", strings.Replace(source, "double(21)", "double(22)", 1))
	require.ErrorContains(t, o.lesson("90-test"), "stale")
	edit(t, o, "tutorials/90-test/README.md", source)
	edit(t, o, "notebooks/90-test.ipynb", strings.Replace(string(good), "double(21)", "double(22)", 1))
	require.ErrorContains(t, o.lesson("90-test"), cellLine)
	edit(t, o, "notebooks/90-test.ipynb", strings.Replace(string(good), "42\\n", "43\\n", 1))
	require.ErrorContains(t, o.lesson("90-test"), cellLine, "a committed output that the source does not give")
}

func TestExecutedCellsAreChecked(t *testing.T) {
	o := project(t, source)
	o.check = true
	l, err := readLesson(o.root, "90-test")
	require.NoError(t, err)
	cells := l.cells()
	printed := func(s string) nbCell {
		return nbCell{ID: "cell-01", Outputs: []nbOutput{{Type: "stream", Text: multiline(s)}}}
	}
	none := &notebook{}
	assert.NoError(t, o.checkCell(l, cells[0], printed("42\ntook 9ms\n"), none))
	assert.ErrorContains(t, o.checkCell(l, cells[0], printed("41\ntook 9ms\n"), none), "README.md:6: in the kernel the cell prints something else: line 1 is \"41\", expected \"42\"")
	assert.ErrorContains(t, o.checkCell(l, cells[0], printed("42\n"), none), "line 2 is missing")
	assert.ErrorContains(t, o.checkCell(l, cells[0], nbCell{Outputs: []nbOutput{{Type: "error", ErrorText: "exit status 1"}}}, none), "README.md:6: the cell fails")
	assert.ErrorContains(t, o.checkCell(l, cells[1], printed("testing: warning: no tests to run\nPASS\n"), none), "ran no test")
	old := &notebook{Cells: []nbCell{printed("--- PASS: TestP90 (0.00s)\nPASS\n")}}
	assert.NoError(t, o.checkCell(l, cells[1], printed("--- PASS: TestP90 (0.21s)\nPASS\n"), old))
	assert.ErrorContains(t, o.checkCell(l, cells[1], printed("--- SKIP: TestP90 (0.21s)\nPASS\n"), old), "something else than the committed")
}

func TestCellTestsAreNamedAfterTheirHeadings(t *testing.T) {
	o := project(t, "# 90 A lesson\n\n```go\n%%\nf()\n```\n\n## Who's there? (`x`)\n\n```go\nfunc f() {}\n```\n\n```go\n%%\nf()\n```\n\n```text\n## none\n```\n\n```go\n%%\nf()\n```\n")
	require.NoError(t, o.lesson("90-test"))
	test := read(t, o, "tutorials/90-test/lesson_test.go")
	for _, want := range []string{
		"func Test90ALesson(t *testing.T) { cell.Run(t, 1) }",
		"func TestWhosThereX(t *testing.T) { cell.Run(t, 3) }",
		"func TestWhosThereX2(t *testing.T) { cell.Run(t, 4) }",
	} {
		assert.Contains(t, test, want)
	}
}

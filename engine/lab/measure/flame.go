package measure

import (
	"bytes"
	"cmp"
	"fmt"
	"html"
	"maps"
	"runtime/pprof"
	"slices"
	"strings"

	"github.com/google/pprof/profile"

	"logbook/engine/lab"
)

// Flame is where a processor's time went, by who called whom.
type Flame struct {
	root frame
}

type frame struct {
	name  string
	time  int64 // ns, of it and of all that it called
	calls map[string]*frame
}

// Profile runs do and looks a hundred times a second which functions run. do should take a
// second or more.
func Profile(do func()) (Flame, error) {
	var raw bytes.Buffer
	if err := pprof.StartCPUProfile(&raw); err != nil {
		return Flame{}, err
	}
	do()
	pprof.StopCPUProfile()
	p, err := profile.Parse(&raw)
	if err != nil {
		return Flame{}, err
	}
	f := Flame{root: frame{name: "all"}}
	for _, s := range p.Sample {
		f.add(s)
	}
	return f, nil
}

func (f *Flame) add(s *profile.Sample) {
	spent := s.Value[len(s.Value)-1]
	at := &f.root
	at.time += spent
	for _, loc := range slices.Backward(s.Location) { // the caller is the last
		for _, line := range slices.Backward(loc.Line) {
			at = at.call(line.Function.Name)
			at.time += spent
		}
	}
}

func (f *frame) call(name string) *frame {
	if f.calls == nil {
		f.calls = map[string]*frame{}
	}
	c := f.calls[name]
	if c == nil {
		c = &frame{name: name}
		f.calls[name] = c
	}
	return c
}

// Share is the part of all time in functions whose name contains a text, and in what they
// called.
func (f Flame) Share(part string) float64 {
	if f.root.time == 0 {
		return 0
	}
	return float64(f.root.within(part)) / float64(f.root.time)
}

func (f *frame) within(part string) (n int64) {
	if strings.Contains(f.name, part) {
		return f.time
	}
	for _, c := range f.calls {
		n += c.within(part)
	}
	return n
}

const (
	flameWidth = 900
	flameRow   = 18
	flameDepth = 26
)

// Show shows the flame graph in a notebook: who is called hangs below its caller, and what is
// wide took long. Elsewhere it prints the widest functions.
func (f Flame) Show() { lab.ShowSVG(f.SVG(), f.Text()) }

// Text is the functions of the project and of the system that took most, with what they called.
func (f Flame) Text() string {
	times := map[string]int64{}
	f.root.sum(times, map[string]bool{})
	var b strings.Builder
	names := slices.SortedFunc(maps.Keys(times), func(x, y string) int { return cmp.Or(cmp.Compare(times[y], times[x]), cmp.Compare(x, y)) })
	for _, name := range names[:min(12, len(names))] {
		fmt.Fprintf(&b, "%3.0f %%  %s\n", 100*float64(times[name])/float64(max(1, f.root.time)), shortName(name))
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func (f *frame) sum(times map[string]int64, above map[string]bool) {
	if !above[f.name] && f.name != "all" { // one that calls itself counts once
		times[f.name] += f.time
		above[f.name] = true
		defer delete(above, f.name)
	}
	for _, c := range f.calls {
		c.sum(times, above)
	}
}

// SVG is the picture.
func (f Flame) SVG() string {
	rows := min(f.root.depth(), flameDepth)
	height := rows*flameRow + 34
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11" role="img" aria-label="%s">`,
		flameWidth+20, height, flameWidth+20, height, html.EscapeString("Flame graph. "+f.Text()))
	fmt.Fprintf(&b, `<rect width="%d" height="%d" rx="6" fill="#fff"/>`, flameWidth+20, height)
	f.root.draw(&b, 10, 10, float64(flameWidth)/float64(max(1, f.root.time)), rows)
	b.WriteString(`</svg>`)
	return b.String()
}

func (f *frame) depth() int {
	d := 0
	for _, c := range f.calls {
		d = max(d, c.depth())
	}
	return d + 1
}

func (f *frame) draw(b *strings.Builder, x, y, scale float64, rows int) {
	w := float64(f.time) * scale
	if w < 2 || rows == 0 {
		return
	}
	fmt.Fprintf(b, `<g><title>%s: %.1f %%</title><rect x="%.1f" y="%.0f" width="%.1f" height="%d" rx="2" fill="%s" stroke="#fff"/>`,
		html.EscapeString(f.name), 100*w/flameWidth, x, y, w, flameRow, colourOf(f.name))
	if n := int(w/6.2) - 1; n > 2 {
		name := []rune(shortName(f.name))
		if len(name) > n {
			name = append(name[:n-1], '…')
		}
		fmt.Fprintf(b, `<text x="%.1f" y="%.0f" fill="#111">%s</text>`, x+4, y+13, html.EscapeString(string(name)))
	}
	b.WriteString(`</g>`)
	for _, name := range slices.Sorted(maps.Keys(f.calls)) {
		c := f.calls[name]
		c.draw(b, x, y+flameRow, scale, rows-1)
		x += float64(c.time) * scale
	}
}

// colourOf tells apart the project's functions, the system's, and the runtime's.
func colourOf(name string) string {
	switch {
	case strings.Contains(name, "logbook/"):
		return "#9cc9ef"
	case strings.Contains(name, "syscall") || strings.HasPrefix(name, "internal/poll") || strings.HasPrefix(name, "os."):
		return "#f7c59f"
	case strings.HasPrefix(name, "runtime"):
		return "#d9d9d9"
	}
	return "#cfe8c6"
}

// shortName drops the path of a function's package.
func shortName(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

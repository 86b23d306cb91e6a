package measure

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"

	"logbook/engine/lab"
)

// Chart is lines over two axes.
type Chart struct {
	Title      string
	X, Y       string // what the axes show, with units
	LogX, LogY bool
	Lines      []Line
}

// Line is one of them.
type Line struct {
	Name   string
	Points []Point
}

// Point is a place on it.
type Point struct{ X, Y float64 }

const (
	chartWidth, chartHeight = 680, 340
	chartLeft, chartRight   = 70, 130
	chartTop, chartBottom   = 40, 50
)

var lineColours = []string{"#1f6fb4", "#c2570c", "#2f7d32", "#8e3a9e"}

// Show shows the chart in a notebook, and its numbers elsewhere.
func (c Chart) Show() { lab.ShowSVG(c.SVG(), c.Text()) }

// Text is the numbers, a line for each line.
func (c Chart) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s by %s", c.Title, c.Y, c.X)
	for _, l := range c.Lines {
		fmt.Fprintf(&b, "\n%s:", l.Name)
		for _, p := range l.Points {
			fmt.Fprintf(&b, " %s at %s,", short(p.Y), short(p.X))
		}
	}
	return strings.TrimSuffix(b.String(), ",")
}

// SVG is the picture.
func (c Chart) SVG() string {
	x, y := c.axis(c.LogX, func(p Point) float64 { return p.X }), c.axis(c.LogY, func(p Point) float64 { return p.Y })
	px := func(v float64) float64 { return chartLeft + x.place(v)*(chartWidth-chartLeft-chartRight) }
	py := func(v float64) float64 {
		return chartHeight - chartBottom - y.place(v)*(chartHeight-chartTop-chartBottom)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12" role="img" aria-label="%s">`,
		chartWidth, chartHeight, chartWidth, chartHeight, html.EscapeString(c.Text()))
	fmt.Fprintf(&b, `<rect width="%d" height="%d" rx="6" fill="#fff"/><text x="%d" y="22" fill="#111" font-size="14">%s</text>`, chartWidth, chartHeight, chartLeft, html.EscapeString(c.Title))
	for _, v := range y.ticks {
		fmt.Fprintf(&b, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#e4e4e4"/><text x="%d" y="%.1f" fill="#555" text-anchor="end">%s</text>`,
			chartLeft, py(v), chartWidth-chartRight, py(v), chartLeft-8, py(v)+4, short(v))
	}
	for _, v := range x.ticks {
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#999"/><text x="%.1f" y="%d" fill="#555" text-anchor="middle">%s</text>`,
			px(v), chartHeight-chartBottom, px(v), chartHeight-chartBottom+5, px(v), chartHeight-chartBottom+19, short(v))
	}
	fmt.Fprintf(&b, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="#999"/>`, chartLeft, chartHeight-chartBottom, chartWidth-chartRight, chartHeight-chartBottom)
	fmt.Fprintf(&b, `<text x="%d" y="%d" fill="#555" text-anchor="middle">%s</text>`, (chartLeft+chartWidth-chartRight)/2, chartHeight-10, html.EscapeString(c.X))
	fmt.Fprintf(&b, `<text x="16" y="%d" fill="#555" text-anchor="middle" transform="rotate(-90 16 %d)">%s</text>`, (chartTop+chartHeight-chartBottom)/2, (chartTop+chartHeight-chartBottom)/2, html.EscapeString(c.Y))
	names := c.nameRows(py)
	for i, l := range c.Lines {
		if len(l.Points) == 0 {
			continue
		}
		colour := lineColours[i%len(lineColours)]
		var path []string
		for _, p := range l.Points {
			path = append(path, fmt.Sprintf("%.1f,%.1f", px(p.X), py(p.Y)))
			fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`, px(p.X), py(p.Y), colour)
		}
		fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`, strings.Join(path, " "), colour)
		fmt.Fprintf(&b, `<text x="%d" y="%.1f" fill="%s">%s</text>`, chartWidth-chartRight+10, names[i]+4, colour, html.EscapeString(l.Name))
	}
	b.WriteString(`</svg>`)
	return b.String()
}

// nameRows places each line's name beside its end, and no two over each other.
func (c Chart) nameRows(py func(float64) float64) []float64 {
	rows := make([]float64, len(c.Lines))
	order := make([]int, len(c.Lines))
	for i, l := range c.Lines {
		order[i] = i
		if n := len(l.Points); n > 0 {
			rows[i] = py(l.Points[n-1].Y)
		}
	}
	slices.SortFunc(order, func(a, b int) int { return int(rows[a] - rows[b]) })
	for k := 1; k < len(order); k++ {
		rows[order[k]] = max(rows[order[k]], rows[order[k-1]]+16)
	}
	return rows
}

// axis maps values to 0..1.
type axis struct {
	low, high float64
	log       bool
	ticks     []float64
}

func (a axis) place(v float64) float64 {
	if a.log {
		return (math.Log(v) - math.Log(a.low)) / (math.Log(a.high) - math.Log(a.low))
	}
	return (v - a.low) / (a.high - a.low)
}

func (c Chart) axis(log bool, of func(Point) float64) axis {
	a := axis{low: math.Inf(1), high: math.Inf(-1), log: log}
	for _, l := range c.Lines {
		for _, p := range l.Points {
			a.low, a.high = min(a.low, of(p)), max(a.high, of(p))
		}
	}
	if math.IsInf(a.low, 0) {
		a.low, a.high = 0, 1
	}
	if log {
		a.low, a.high = math.Pow(10, math.Floor(math.Log10(max(a.low, 1e-9)))), math.Pow(10, math.Ceil(math.Log10(max(a.high, 1e-9))))
		if a.high <= a.low {
			a.high = 10 * a.low
		}
		for v := a.low; v <= a.high*1.001; v *= 10 {
			a.ticks = append(a.ticks, v)
		}
		return a
	}
	a.low = min(a.low, 0)
	step := math.Pow(10, math.Floor(math.Log10(max(a.high-a.low, 1e-9))))
	for (a.high-a.low)/step < 4 {
		step /= 2
	}
	a.high = a.low + math.Ceil((a.high-a.low)/step)*step
	for v := a.low; v <= a.high+step/2; v += step {
		a.ticks = append(a.ticks, v)
	}
	return a
}

// short writes a number in few characters.
func short(v float64) string {
	switch m := math.Abs(v); {
	case m >= 1e6:
		return trim(v/1e6) + "M"
	case m >= 1e4:
		return trim(v/1e3) + "k"
	}
	return trim(v)
}

func trim(v float64) string {
	if math.Abs(v) >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return strings.TrimRight(strings.TrimRight(fmt.Sprintf("%.2f", v), "0"), ".")
}

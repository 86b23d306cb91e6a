// Package spacetime draws what happened in a distributed system: a line for each process,
// time going down, messages as arrows from line to line (Lamport's diagrams).
package spacetime

import (
	"fmt"
	"html"
	"slices"
	"strings"
)

// Mark says how an event is drawn.
type Mark string

const (
	Plain Mark = ""      // a dot, and words
	Good  Mark = "good"  // something was promised
	Bad   Mark = "bad"   // something failed, or was lost
	Stop  Mark = "stop"  // the process stops here: its line is broken
	Start Mark = "start" // and goes on here
)

// Event is something that happened at a process.
type Event struct {
	Process int // index into Diagram.Processes
	Mark    Mark
	Text    string // beside the line; may be empty
}

// Message went from one event to another. Its label is at its middle.
type Message struct {
	From, To int // indexes into Diagram.Events; To -1: it never arrived
	Toward   int // process that it was meant for, if To is -1
	Text     string
}

// Diagram is a picture of events in the order in which they happened.
type Diagram struct {
	Processes []string
	Events    []Event
	Messages  []Message
}

// Add adds an event and returns its index.
func (d *Diagram) Add(process int, mark Mark, format string, args ...any) int {
	d.Events = append(d.Events, Event{process, mark, fmt.Sprintf(format, args...)})
	return len(d.Events) - 1
}

// Text tells the same, a line for each event that has something to say:
//
//	broker 1  stores offset 3
//	broker 1 → broker 2: offset 3
func (d *Diagram) Text() string {
	var b strings.Builder
	for i, e := range d.Events {
		for _, m := range d.Messages {
			if m.To == i && m.Text != "" {
				fmt.Fprintf(&b, "%s → %s: %s\n", d.Processes[d.Events[m.From].Process], d.Processes[e.Process], m.Text)
			}
			if m.From == i && m.To < 0 {
				fmt.Fprintf(&b, "%s → %s: %s, which never arrives\n", d.Processes[e.Process], d.Processes[m.Toward], m.Text)
			}
		}
		if e.Text != "" {
			fmt.Fprintf(&b, "%s  %s\n", d.Processes[e.Process], e.Text)
		}
	}
	return strings.TrimRight(b.String(), "\n")
}

const (
	laneWidth = 230
	laneLeft  = 40
	top       = 46
	rowStep   = 26
)

var colours = map[Mark]string{Plain: "#334", Good: "#0a7a3d", Bad: "#c22", Stop: "#c22", Start: "#334"}

// SVG draws the diagram.
func (d *Diagram) SVG() string {
	width := laneLeft + laneWidth*len(d.Processes)
	height := top + rowStep*len(d.Events) + 20
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`, width, height, width, height)
	fmt.Fprintf(&b, `<defs><marker id="st-arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="#57a"/></marker></defs>`)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" rx="6" fill="#fff"/>`, width, height)
	for p, name := range d.Processes {
		fmt.Fprintf(&b, `<text x="%d" y="22" text-anchor="middle" font-weight="bold" fill="#111">%s</text>`, laneX(p), html.EscapeString(name))
		d.lane(&b, p, height-10)
	}
	for _, m := range d.Messages {
		d.arrow(&b, m)
	}
	for i, e := range d.Events {
		d.dot(&b, i, e)
	}
	b.WriteString(`</svg>`)
	return b.String()
}

func laneX(process int) int { return laneLeft + laneWidth*process + 20 }
func rowY(event int) int    { return top + rowStep*event }

// lane draws a process's line: whole while it runs, dashed while it does not.
func (d *Diagram) lane(b *strings.Builder, process, bottom int) {
	x, from, dashed := laneX(process), 32, false
	line := func(to int) {
		style := `stroke="#99a" stroke-width="2"`
		if dashed {
			style = `stroke="#dbb" stroke-width="2" stroke-dasharray="3 5"`
		}
		fmt.Fprintf(b, `<line x1="%d" y1="%d" x2="%d" y2="%d" %s/>`, x, from, x, to, style)
		from = to
	}
	first := slices.IndexFunc(d.Events, func(e Event) bool { return e.Process == process && (e.Mark == Stop || e.Mark == Start) })
	dashed = first >= 0 && d.Events[first].Mark == Start
	for i, e := range d.Events {
		if e.Process == process && (e.Mark == Stop || e.Mark == Start) {
			line(rowY(i))
			dashed = e.Mark == Stop
		}
	}
	line(bottom)
}

func (d *Diagram) arrow(b *strings.Builder, m Message) {
	x1, y1 := laneX(d.Events[m.From].Process), rowY(m.From)
	x2, y2 := laneX(m.Toward), y1+rowStep
	end := `marker-end="url(#st-arrow)"`
	if m.To >= 0 {
		x2, y2 = laneX(d.Events[m.To].Process), rowY(m.To)
	} else {
		x2, end = x1+(x2-x1)*2/3, `stroke-dasharray="4 3"`
	}
	if x2 > x1 {
		x1, x2 = x1+5, x2-5
	} else {
		x1, x2 = x1-5, x2+5
	}
	fmt.Fprintf(b, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="#57a" stroke-width="1.3" %s/>`, x1, y1, x2, y2, end)
	if m.To < 0 {
		fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle" fill="#c22" font-size="15">✕</text>`, x2, y2+5)
	}
	if m.Text != "" {
		// In the first gap between lines, where no other line's words can be in the way.
		run := min(abs(x2-x1), laneWidth) * 6 / 10
		mx, my := x1+run*sign(x2-x1), y1+(y2-y1)*run/max(abs(x2-x1), 1)-4
		label(b, mx, my, "middle", "#357", 11, m.Text)
	}
}

func abs(n int) int { return max(n, -n) }

func sign(n int) int {
	if n < 0 {
		return -1
	}
	return 1
}

func (d *Diagram) dot(b *strings.Builder, i int, e Event) {
	x, y, fill := laneX(e.Process), rowY(i), colours[e.Mark]
	if e.Mark == Stop {
		fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle" fill="%s" font-size="18">✕</text>`, x, y+6, fill)
	} else {
		fmt.Fprintf(b, `<circle cx="%d" cy="%d" r="4" fill="%s"/>`, x, y, fill)
	}
	if e.Text != "" {
		label(b, x+9, y+4, "start", fill, 12, e.Text)
	}
}

// label writes words with a white edge, so that lines behind them do not disturb.
func label(b *strings.Builder, x, y int, anchor, fill string, size int, text string) {
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="%s" fill="%s" font-size="%d" stroke="#fff" stroke-width="3" paint-order="stroke">%s</text>`, x, y, anchor, fill, size, html.EscapeString(text))
}

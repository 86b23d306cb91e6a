package lab

import (
	"fmt"
	"html"
	"path/filepath"
	"strings"

	"github.com/janpfeifer/gonb/gonbui/protocol"

	"logbook/engine/commitlog"
)

// ShowLog shows the segments of the log in a directory: their files, offsets, how full
// they are, where the durable mark stands, and what is damaged. It reads the files
// only, so the log may be open or broken.
func ShowLog(dir string) {
	in, err := commitlog.Inspect(nil, dir)
	must(err)
	show(protocol.MIMEImageSVG, logSVG(in), logText(in))
}

// LogSVG is what ShowLog shows in a notebook: a bar for each segment.
func LogSVG(dir string) string {
	in, err := commitlog.Inspect(nil, dir)
	must(err)
	return logSVG(in)
}

// logText writes a line for each segment:
//
//	00000000000000000000.log  offsets    0 –   46   2040 bytes  closed
func logText(in *commitlog.Inspection) string {
	var b strings.Builder
	fmt.Fprintf(&b, "format %d, log start offset %d, log end offset %d\n", in.Format.Version(), in.Start, in.End)
	width := 0
	for _, s := range in.Segments {
		width = max(width, len(offsets(s)))
	}
	for _, s := range in.Segments {
		fmt.Fprintf(&b, "%s  %-*s  %7d bytes  %s\n", filepath.Base(s.File), width, offsets(s), s.Used, strings.Join(remarks(in, s), ", "))
	}
	return strings.TrimRight(b.String(), "\n")
}

func offsets(s commitlog.SegmentInfo) string {
	if s.Frames == 0 {
		return fmt.Sprintf("no offsets yet, next %d", s.Next)
	}
	return fmt.Sprintf("offsets %d to %d", s.Base, s.Next-1)
}

func remarks(in *commitlog.Inspection, s commitlog.SegmentInfo) []string {
	out := []string{"active"}
	if s.Closed {
		out[0] = "closed"
	}
	if in.MarkOf == s.Base && !s.Closed {
		out = append(out, fmt.Sprintf("durable to byte %d", in.MarkAt))
	}
	if s.UnusedZeros > 0 {
		out = append(out, fmt.Sprintf("%d zeros preallocated", s.UnusedZeros))
	}
	if s.Damage != nil {
		out = append(out, fmt.Sprintf("damaged at byte %d", s.Used))
	}
	return out
}

const (
	rowHeight = 48
	barLeft   = 250
	barWidth  = 520
	picWidth  = barLeft + barWidth + 30
)

// logSVG draws a bar for each segment, as long as its bytes: used space filled, ticks at
// its first and last offset, a line at the mark, damage in red.
func logSVG(in *commitlog.Inspection) string {
	largest := int64(1)
	for _, s := range in.Segments {
		largest = max(largest, s.Used)
	}
	height := 40 + rowHeight*len(in.Segments)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="monospace" font-size="12">`, picWidth, height, picWidth, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" rx="6" fill="#fff"/>`, picWidth, height)
	text := func(x, y int, anchor, fill, s string) {
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="%s" fill="%s">%s</text>`, x, y, anchor, fill, html.EscapeString(s))
	}
	text(12, 22, "start", "#111", fmt.Sprintf("log start offset %d, log end offset %d (format %d)", in.Start, in.End, in.Format.Version()))
	for i, s := range in.Segments {
		y := 40 + i*rowHeight
		width := int(int64(barWidth) * s.Used / largest)
		fill := "#9ec5fe"
		if !s.Closed {
			fill = "#a3e3b1"
		}
		text(12, y+15, "start", "#111", filepath.Base(s.File))
		text(12, y+36, "start", "#666", strings.Join(remarks(in, s), ", "))
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="20" fill="%s" stroke="#456" stroke-width="0.5"/>`, barLeft, y+2, max(width, 1), fill)
		if s.Frames > 0 {
			text(barLeft+4, y+16, "start", "#111", fmt.Sprint(s.Base))
			if width > 90 {
				text(barLeft+width-4, y+16, "end", "#111", fmt.Sprint(s.Next-1))
			}
		}
		if !s.Closed && in.MarkOf == s.Base {
			x := barLeft + int(int64(barWidth)*in.MarkAt/largest)
			fmt.Fprintf(&b, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="#0a6" stroke-width="2"/>`, x, y-2, x, y+26)
		}
		if s.Damage != nil {
			fmt.Fprintf(&b, `<rect x="%d" y="%d" width="12" height="20" fill="#e33"/>`, barLeft+width, y+2)
		}
	}
	b.WriteString(`</svg>`)
	return b.String()
}

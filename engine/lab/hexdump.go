package lab

import (
	"fmt"
	"html"
	"strings"

	"github.com/janpfeifer/gonb/gonbui/protocol"

	"logbook/engine/record"
)

// ShowFrame shows the bytes of an encoded frame, each field named and decoded.
func ShowFrame(format record.Format, data []byte) {
	fields := format.Annotate(data)
	show(protocol.MIMETextHTML, HexdumpHTML(format, data), hexdumpText(data, fields))
}

const bytesPerLine = 16

// hexdumpText writes a line for each field, continued where it is long:
//
//	0000  00 00 00 19              record_length   25
func hexdumpText(data []byte, fields []record.Field) string {
	width := 0
	for _, f := range fields {
		width = max(width, len(f.Name))
	}
	var b strings.Builder
	for _, f := range fields {
		for at := f.Start; at < f.End || at == f.Start; at += bytesPerLine {
			line := fmt.Sprintf("%04x  %-47s", at, hexBytes(data[at:min(at+bytesPerLine, f.End)]))
			if at == f.Start {
				line += fmt.Sprintf("  %-*s  %s", width, f.Name, f.Value)
				if f.Note != "" {
					line += "  ← " + f.Note
				}
			}
			b.WriteString(strings.TrimRight(line, " ") + "\n")
		}
	}
	return strings.TrimRight(b.String(), "\n")
}

func hexBytes(b []byte) string { return fmt.Sprintf("% x", b) }

// fieldColours are pale enough for black text on them, in light and dark themes alike.
var fieldColours = []string{"#cfe3ff", "#d6f5d6", "#ffe9b8", "#f3d3f5", "#d2f2f0", "#ffd9cc", "#e3dcff", "#eef0c0"}

// HexdumpHTML is what ShowFrame shows in a notebook: a table with a row for each field.
func HexdumpHTML(format record.Format, data []byte) string {
	fields := format.Annotate(data)
	var b strings.Builder
	b.WriteString(`<table style="border-collapse:collapse;font-family:monospace;font-size:13px;color:#111;background:#fff">`)
	cell := func(style, text string) {
		fmt.Fprintf(&b, `<td style="text-align:left;padding:2px 10px;%s">%s</td>`, style, text)
	}
	for i, f := range fields {
		style := "background:" + fieldColours[i%len(fieldColours)]
		if f.Note != "" {
			style = "background:#ff8f8f;font-weight:bold"
		}
		b.WriteString("<tr>")
		cell("color:#666;background:#fff;vertical-align:top", fmt.Sprintf("%04x", f.Start))
		var lines []string
		for at := f.Start; at < f.End; at += bytesPerLine {
			lines = append(lines, hexBytes(data[at:min(at+bytesPerLine, f.End)]))
		}
		cell("white-space:pre;"+style, strings.Join(lines, "<br>"))
		cell(style, html.EscapeString(f.Name))
		value := html.EscapeString(f.Value)
		if f.Note != "" {
			value += " ← " + html.EscapeString(f.Note)
		}
		cell("max-width:36em;overflow-wrap:anywhere;"+style, value)
		b.WriteString("</tr>")
	}
	b.WriteString("</table>")
	return b.String()
}

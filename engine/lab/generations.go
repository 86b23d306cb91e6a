package lab

import (
	"fmt"
	"html"
	"maps"
	"slices"
	"strings"

	"github.com/janpfeifer/gonb/gonbui/protocol"

	"logbook/engine/group"
)

// Generation is a moment in a consumer group's life.
type Generation struct {
	Number int32
	What   string // what led to it
	Owners map[string][]group.Partition
}

// ShowGenerations shows who owned which partitions in each generation: a row for each
// member, a column for each generation.
func ShowGenerations(history []Generation) {
	show(protocol.MIMEImageSVG, GenerationsSVG(history), generationsText(history))
}

func generationsText(history []Generation) string {
	var b strings.Builder
	for _, g := range history {
		fmt.Fprintf(&b, "generation %d: %s\n", g.Number, g.What)
		for _, m := range slices.Sorted(maps.Keys(g.Owners)) {
			fmt.Fprintf(&b, "  %-8s %s\n", m, strings.Trim(fmt.Sprint(g.Owners[m]), "[]"))
		}
	}
	return strings.TrimRight(b.String(), "\n")
}

const (
	genWidth  = 150
	genRow    = 40
	genLeft   = 80
	genTop    = 56
	genSquare = 26
)

// GenerationsSVG is what ShowGenerations shows in a notebook.
func GenerationsSVG(history []Generation) string {
	var members []string
	colours := map[group.Partition]string{}
	for _, g := range history {
		for m, list := range g.Owners {
			if !slices.Contains(members, m) {
				members = append(members, m)
			}
			for _, p := range list {
				colours[p] = fieldColours[p.ID%len(fieldColours)]
			}
		}
	}
	slices.Sort(members)
	width, height := genLeft+genWidth*len(history)+10, genTop+genRow*len(members)+10
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`, width, height, width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" rx="6" fill="#fff"/>`, width, height)
	for row, m := range members {
		fmt.Fprintf(&b, `<text x="12" y="%d" fill="#111">%s</text>`, genTop+row*genRow+18, html.EscapeString(m))
	}
	for col, g := range history {
		x := genLeft + col*genWidth
		fmt.Fprintf(&b, `<text x="%d" y="20" fill="#111">generation %d</text><text x="%d" y="38" fill="#666" font-size="11">%s</text>`, x, g.Number, x, html.EscapeString(g.What))
		for row, m := range members {
			y := genTop + row*genRow
			list, member := g.Owners[m]
			if member {
				fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" rx="4" fill="#f6f6f6" stroke="#ccc"/>`, x, y-4, genWidth-14, genRow-6)
			}
			for i, p := range list {
				px := x + 5 + i*(genSquare+5)
				fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" rx="3" fill="%s" stroke="#456"/><text x="%d" y="%d" text-anchor="middle" fill="#111">%d</text>`,
					px, y, genSquare, genSquare, colours[p], px+genSquare/2, y+18, p.ID)
			}
		}
	}
	b.WriteString(`</svg>`)
	return b.String()
}

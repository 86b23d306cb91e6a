package lab

import (
	"fmt"
	"html"
	"math"
	"strings"
	"sync"

	"github.com/janpfeifer/gonb/gonbui/protocol"

	"logbook/engine/cluster"
	"logbook/engine/node"
	"logbook/engine/replica"
	"logbook/engine/spacetime"
)

// Recorder watches a cluster and draws what it saw as a space-time diagram. Give its
// Observe to cluster.Options, with Sequential, so that the order is the same every time.
type Recorder struct {
	mu      sync.Mutex
	brokers int
	diagram spacetime.Diagram
	sent    map[string]int // messages under way: the event that each left from
}

// Record returns a recorder for brokers 1 to n.
func Record(n int) *Recorder {
	r := &Recorder{brokers: n}
	r.Clear()
	return r
}

// Clear forgets what was recorded.
func (r *Recorder) Clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.diagram = spacetime.Diagram{}
	for id := 1; id <= r.brokers; id++ {
		r.diagram.Processes = append(r.diagram.Processes, fmt.Sprint("broker ", id))
	}
	r.sent = map[string]int{}
}

// Show shows the diagram so far.
func (r *Recorder) Show() {
	r.mu.Lock()
	defer r.mu.Unlock()
	show(protocol.MIMEImageSVG, r.diagram.SVG(), r.diagram.Text())
}

// Observe records an event. Of the messages it draws those that move records, and the
// acknowledgements that follow; not the patient waiting in between.
func (r *Recorder) Observe(e node.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d, at := &r.diagram, int(e.Broker)-1
	switch e.Kind {
	case node.Up:
		d.Add(at, spacetime.Start, "starts")
	case node.Down:
		d.Add(at, spacetime.Stop, "stops")
	case node.Leads:
		d.Add(at, spacetime.Plain, "leads, epoch %d, from offset %d", e.LeaderEpoch, e.LogEndOffset)
	case node.Stored:
		d.Add(at, spacetime.Plain, "holds offsets below %d", e.LogEndOffset)
	case node.StoreFailed:
		d.Add(at, spacetime.Bad, "cannot store: ends at %d", e.LogEndOffset)
	case node.Cut:
		d.Add(at, spacetime.Bad, "cuts its log to %d", e.LogEndOffset)
	case node.Command:
		d.Add(at, spacetime.Plain, "is told to catch up")
	case node.Outcome:
		if e.Err == nil {
			d.Add(at, spacetime.Good, "acknowledges offset %d", e.Offset)
		} else {
			d.Add(at, spacetime.Bad, "cannot acknowledge offset %d", e.Offset)
		}
	case node.Sent, node.Received:
		r.message(e)
	}
}

func (r *Recorder) message(e node.Event) {
	m := e.Message
	var text string
	switch {
	case m.Kind == replica.Frames && len(m.Frames) > 0 && m.NextOffset == m.Offset+1:
		text = fmt.Sprint("offset ", m.Offset)
	case m.Kind == replica.Frames && len(m.Frames) > 0:
		text = fmt.Sprintf("offsets %d to %d", m.Offset, m.NextOffset-1)
	case m.Kind == replica.Fetch && m.Failed != "":
		text = "cannot store"
	case m.Kind == replica.Fetch && m.LastEpoch >= 0:
		text = fmt.Sprintf("I end at %d", m.Offset)
	case m.Kind == replica.Diverging:
		text = fmt.Sprintf("epoch %d ends at %d", m.LastEpoch, m.EpochEnd)
	case m.Kind == replica.AskDigests:
		text = fmt.Sprintf("compare from %d", m.Offset)
	case m.Kind == replica.Digests:
		text = fmt.Sprintf("sums of %d frames", len(m.Digests))
	case m.Kind == replica.Refused && m.Reason != replica.NotLeading:
		text = "refused: " + string(m.Reason)
	default:
		return
	}
	key := fmt.Sprint(m.Kind, m.From, m.To, m.Seq)
	if e.Kind == node.Sent {
		r.sent[key] = r.diagram.Add(int(m.From)-1, spacetime.Plain, "")
		return
	}
	if from, ok := r.sent[key]; ok {
		to := r.diagram.Add(int(m.To)-1, spacetime.Plain, "")
		r.diagram.Messages = append(r.diagram.Messages, spacetime.Message{From: from, To: to, Text: text})
	}
}

// ShowReplicas shows what each replica of a partition holds: a row for each broker, a box
// for each record, the high watermark as a line.
func ShowReplicas(c *cluster.Cluster, p cluster.Partition) {
	rows, hw := replicaRows(c, p)
	ShowReplicaRows(p, rows, hw)
}

// ShowReplicaRows is ShowReplicas for who has the rows.
func ShowReplicaRows(p cluster.Partition, rows []ReplicaRow, highWatermark int64) {
	show(protocol.MIMEImageSVG, replicasSVG(p, rows, highWatermark), replicasText(rows, highWatermark))
}

// ReplicaRow is what a replica holds: a value and a leader epoch for each offset.
type ReplicaRow struct {
	cluster.ReplicaStatus
	Values []string
	Epochs []int32
}

func replicaRows(c *cluster.Cluster, p cluster.Partition) (rows []ReplicaRow, hw int64) {
	s, err := c.Status(p)
	must(err)
	for _, r := range s.Replicas {
		row := ReplicaRow{ReplicaStatus: r}
		if n, err := c.Node(r.Broker); err == nil && r.Known {
			for rec, err := range n.Own(p) {
				must(err)
				row.Values = append(row.Values, string(rec.Value))
			}
			digests, err := n.FrameDigests(p, 0, math.MaxInt32)
			must(err)
			for _, d := range digests {
				for range d.NextOffset - d.BaseOffset {
					row.Epochs = append(row.Epochs, d.LeaderEpoch)
				}
			}
		}
		rows = append(rows, row)
	}
	return rows, s.HighWatermark
}

func (r ReplicaRow) role() string {
	role := "follower"
	if r.Leader {
		role = "leader"
	}
	switch {
	case !r.Known:
		role += ", unknown"
	case !r.InSync:
		role += ", not in sync"
	}
	switch {
	case r.HasLag && r.Lag > 0:
		role += fmt.Sprintf(", lag %d", r.Lag)
	case r.HasLag && r.Lag < 0:
		role += fmt.Sprintf(", ahead by %d", -r.Lag)
	}
	return role
}

func replicasText(rows []ReplicaRow, hw int64) string {
	var b strings.Builder
	width := 0
	for _, r := range rows {
		width = max(width, len(r.role()))
	}
	for _, r := range rows {
		line := fmt.Sprintf("broker %d  %-*s", r.Broker, width, r.role())
		for i, v := range r.Values {
			line += fmt.Sprintf("  %d:%s", i, v)
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	if hw < 0 {
		return b.String() + "high watermark unknown"
	}
	return b.String() + fmt.Sprint("high watermark ", hw)
}

const (
	boxLeft  = 230
	boxWidth = 84
	boxRow   = 46
)

func replicasSVG(p cluster.Partition, rows []ReplicaRow, hw int64) string {
	longest := 1
	for _, r := range rows {
		longest = max(longest, len(r.Values))
	}
	width, height := boxLeft+boxWidth*longest+60, 44+boxRow*len(rows)+24
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`, width, height, width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" rx="6" fill="#fff"/><text x="12" y="22" fill="#111" font-weight="bold">%s</text>`, width, height, html.EscapeString(p.String()))
	for i := range longest {
		fmt.Fprintf(&b, `<text x="%d" y="34" text-anchor="middle" fill="#888" font-size="11">%d</text>`, boxLeft+i*boxWidth+boxWidth/2, i)
	}
	for row, r := range rows {
		y := 44 + row*boxRow
		fill := "#111"
		if !r.Known {
			fill = "#c22"
		}
		fmt.Fprintf(&b, `<text x="12" y="%d" fill="%s">broker %d</text><text x="72" y="%d" fill="#666" font-size="11">%s</text>`, y+20, fill, r.Broker, y+20, html.EscapeString(r.role()))
		for i, v := range r.Values {
			colour := fieldColours[int(r.Epochs[i])%len(fieldColours)]
			fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="30" rx="3" fill="%s" stroke="#456"/><text x="%d" y="%d" text-anchor="middle" fill="#111" font-size="11">%s</text>`,
				boxLeft+i*boxWidth+2, y, boxWidth-4, colour, boxLeft+i*boxWidth+boxWidth/2, y+19, html.EscapeString(short(v)))
		}
	}
	if hw >= 0 {
		x := boxLeft + int(hw)*boxWidth
		fmt.Fprintf(&b, `<line x1="%d" y1="38" x2="%d" y2="%d" stroke="#0a7a3d" stroke-width="2"/><text x="%d" y="%d" text-anchor="middle" fill="#0a7a3d" font-size="11">high watermark %d</text>`, x, x, height-22, x, height-8, hw)
	}
	b.WriteString(`</svg>`)
	return b.String()
}

func short(v string) string {
	if r := []rune(v); len(r) > 13 {
		return string(r[:12]) + "…"
	}
	return v
}

// ShowDiagram shows a space-time diagram.
func ShowDiagram(d *spacetime.Diagram) {
	show(protocol.MIMEImageSVG, d.SVG(), d.Text())
}

package sim

import (
	"fmt"

	"logbook/engine/replica"
	"logbook/engine/service"
	"logbook/engine/spacetime"
	"logbook/engine/topic"
)

// drawing draws a run as a space-time diagram. Only a short run makes a picture that can be
// taken in, so it draws what matters: who leads, which clients' records travel and are acknowledged,
// what is cut, crashes, and what went wrong.
type drawing struct {
	d     spacetime.Diagram
	keys  int
	sents map[int]int
	quiet bool // nothing more is drawn: the faults are over, and all that follows is the same
}

func newDrawing(w *world) *drawing {
	d := &drawing{sents: map[int]int{}}
	for id := 1; id <= w.cfg.Brokers; id++ {
		d.d.Processes = append(d.d.Processes, fmt.Sprint("broker ", id))
	}
	return d
}

// add draws an event, unless there is nothing more to see.
func (d *drawing) add(id int, mark spacetime.Mark, format string, args ...any) int {
	if d.quiet {
		return -1
	}
	return d.d.Add(id-1, mark, format, args...)
}

func (d *drawing) started(id int) { d.add(id, spacetime.Start, "starts") }
func (d *drawing) stopped(id int) { d.add(id, spacetime.Stop, "crashes") }
func (d *drawing) step(s Step)    { d.add(max(s.A, 1), spacetime.Bad, "%s", s.what()) }
func (d *drawing) leads(id int, p topic.Partition, epoch int32, end int64) {
	d.add(id, spacetime.Plain, "leads %s, epoch %d, from %d", p, epoch, end)
}
func (d *drawing) cutTo(id int, p topic.Partition, to int64) {
	d.add(id, spacetime.Bad, "cuts %s to %d", p, to)
}
func (d *drawing) acknowledged(id int, value string, p topic.Partition, offset int64) {
	d.add(id, spacetime.Good, "%s@%d: %s, acknowledged", p, offset, value)
}

func (d *drawing) violation(text string) {
	d.quiet = false
	if len(text) > 90 {
		text = text[:88] + "…"
	}
	d.add(1, spacetime.Bad, "%s", text)
	d.quiet = true
}

// sent draws the departure of a message that carries clients' records.
func (d *drawing) sent(pm service.PeerMessage) int {
	r, ok := pm.(service.ReplicaMessage)
	if !ok || d.quiet || r.Message.Kind != replica.Frames || len(r.Message.Frames) == 0 || r.Partition.Topic == service.GroupsTopic {
		return -1
	}
	d.keys++
	d.sents[d.keys] = d.add(int(r.Message.From), spacetime.Plain, "")
	return d.keys
}

func (d *drawing) received(key int, pm service.PeerMessage) {
	from, ok := d.sents[key]
	if !ok || d.quiet {
		return
	}
	delete(d.sents, key)
	r := pm.(service.ReplicaMessage)
	m := r.Message
	text := fmt.Sprintf("%s@%d", r.Partition, m.Offset)
	if m.NextOffset > m.Offset+1 {
		text = fmt.Sprintf("%s@%d to %d", r.Partition, m.Offset, m.NextOffset-1)
	}
	to := d.add(int(m.To), spacetime.Plain, "")
	d.d.Messages = append(d.d.Messages, spacetime.Message{From: from, To: to, Text: text})
}

func (d *drawing) svg() string { return d.d.SVG() }

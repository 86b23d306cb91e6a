package sim

import (
	"fmt"

	"logbook/engine/replica"
	"logbook/engine/spacetime"
)

// drawing draws a run as a space-time diagram. Only a short run makes a picture that can be
// taken in, so it draws what matters: who leads, which records travel and are acknowledged,
// what is cut, crashes, and what went wrong.
type drawing struct {
	d     spacetime.Diagram
	keys  int
	sents map[int]int
}

func newDrawing(w *world) *drawing {
	d := &drawing{sents: map[int]int{}}
	for id := 1; id <= w.cfg.Brokers; id++ {
		d.d.Processes = append(d.d.Processes, fmt.Sprint("broker ", id))
	}
	return d
}

func (d *drawing) started(id int) { d.d.Add(id-1, spacetime.Start, "starts") }
func (d *drawing) stopped(id int) { d.d.Add(id-1, spacetime.Stop, "crashes") }
func (d *drawing) leads(id int, epoch int32, end int64) {
	d.d.Add(id-1, spacetime.Plain, "leads, epoch %d, from %d", epoch, end)
}
func (d *drawing) cutTo(id int, to int64) { d.d.Add(id-1, spacetime.Bad, "cuts its log to %d", to) }
func (d *drawing) acknowledged(id int, value string, offset int64) {
	d.d.Add(id-1, spacetime.Good, "%d: %s, acknowledged", offset, value)
}
func (d *drawing) violation(text string) { d.d.Add(0, spacetime.Bad, "%s", text) }

func (d *drawing) sent(m replica.Message) int {
	if m.Kind != replica.Frames || len(m.Frames) == 0 {
		return -1
	}
	d.keys++
	d.sents[d.keys] = d.d.Add(int(m.From)-1, spacetime.Plain, "")
	return d.keys
}

func (d *drawing) received(key int, m replica.Message) {
	from, ok := d.sents[key]
	if !ok {
		return
	}
	delete(d.sents, key)
	text := fmt.Sprint("offset ", m.Offset)
	if m.Next > m.Offset+1 {
		text = fmt.Sprintf("offsets %d to %d", m.Offset, m.Next-1)
	}
	to := d.d.Add(int(m.To)-1, spacetime.Plain, "")
	d.d.Messages = append(d.d.Messages, spacetime.Message{From: from, To: to, Text: text})
}

func (d *drawing) svg() string { return d.d.SVG() }

package sim

import (
	"fmt"
	"slices"

	"logbook/engine/record"
	"logbook/engine/replica"
	"logbook/engine/spacetime"
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
func (d *drawing) leads(id int, epoch int32, end int64) {
	d.add(id, spacetime.Plain, "leads, epoch %d, from %d", epoch, end)
}
func (d *drawing) cutTo(id int, to int64) { d.add(id, spacetime.Bad, "cuts its log to %d", to) }
func (d *drawing) acknowledged(id int, value string, offset int64) {
	d.add(id, spacetime.Good, "%d: %s, acknowledged", offset, value)
}

func (d *drawing) violation(text string) {
	d.quiet = false
	if len(text) > 90 {
		text = text[:88] + "…"
	}
	d.add(1, spacetime.Bad, "%s", text)
	d.quiet = true
}

func (d *drawing) sent(m replica.Message) int {
	if m.Kind != replica.Frames || len(m.Frames) == 0 {
		return -1
	}
	if d.quiet || !carriesClients(m.Frames) {
		return -1
	}
	d.keys++
	d.sents[d.keys] = d.add(int(m.From), spacetime.Plain, "")
	return d.keys
}

// carriesClients says whether there is a client's record among frames, or only the group's:
// it stores something all the time, and the picture would show little else.
func carriesClients(data []byte) bool {
	frames, err := record.ParseAll(record.V2, data)
	if err != nil {
		return true
	}
	for _, f := range frames {
		records, err := f.Records()
		if err != nil || slices.ContainsFunc(records, func(r record.Record) bool { return r.Key == nil }) {
			return true
		}
	}
	return false
}

func (d *drawing) received(key int, m replica.Message) {
	from, ok := d.sents[key]
	if !ok || d.quiet {
		return
	}
	delete(d.sents, key)
	text := fmt.Sprint("offset ", m.Offset)
	if m.Next > m.Offset+1 {
		text = fmt.Sprintf("offsets %d to %d", m.Offset, m.Next-1)
	}
	to := d.add(int(m.To), spacetime.Plain, "")
	d.d.Messages = append(d.d.Messages, spacetime.Message{From: from, To: to, Text: text})
}

func (d *drawing) svg() string { return d.d.SVG() }

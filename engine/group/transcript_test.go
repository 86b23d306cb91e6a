package group_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"logbook/engine/group"
	"logbook/engine/transcript"
)

// Each file in testdata is the transcript of a group's life: a command a line, what it
// leads to indented under it.
//
//	counts flights=4                      the topics that exist
//	at 5s                                 time passes
//	new a topics=flights [instance=i assignor=range session=10s rebalance=5s]
//	join a [topics=… owned=flights/0,…]   join again, with what was asked last
//	sync a [gen=3]                        in the generation that a was told last, or another
//	heartbeat a, leave a, commit a flights/0=12
//	restart                               the coordinator, from its snapshot
func TestTranscripts(t *testing.T) { transcript.Test(t, "testdata/*.txt", play) }

type player struct {
	t       *testing.T
	now     time.Time
	g       *group.Group
	counts  map[string]int
	saved   []byte
	asked   map[uint64]string        // what a request was, by its id
	last    map[string]group.Request // each member's last join
	gen     map[string]int32         // the generation that each was told last
	next    uint64
	written strings.Builder
}

func play(t *testing.T, text string) string {
	p := &player{
		t: t, now: time.Unix(0, 0), counts: map[string]int{}, g: group.New("g", nil),
		asked: map[uint64]string{}, last: map[string]group.Request{}, gen: map[string]int32{},
	}
	return transcript.Play(text, &p.written, p.command)
}

func (p *player) command(words []string) {
	switch words[0] {
	case "counts":
		p.counts = map[string]int{}
		for _, w := range words[1:] {
			topic, n, _ := strings.Cut(w, "=")
			p.counts[topic], _ = strconv.Atoi(n)
		}
		p.show(p.g.SetCounts(p.now, p.counts))
	case "at":
		d, err := time.ParseDuration(words[1])
		require.NoError(p.t, err)
		// The driver ticks whenever something is due on the way.
		for target := time.Unix(0, 0).Add(d); ; {
			next := p.g.Next()
			if next.IsZero() || next.After(target) {
				p.now = target
				return
			}
			p.now = next
			p.show(p.g.Tick(p.now))
		}
	case "restart":
		g, err := group.Restore(p.saved, p.counts, p.now)
		require.NoError(p.t, err)
		p.g = g
		p.state()
	default:
		p.show(p.g.Step(p.now, p.request(words)))
	}
}

func (p *player) request(words []string) group.Request {
	p.next++
	name := words[1]
	r := group.Request{Member: name, Generation: p.gen[name], Instance: p.last[name].Instance}
	kind := words[0]
	if kind == "new" || kind == "join" {
		r = p.last[name]
		r.Owned = nil
		if r.Member = name; kind == "new" {
			r.Member, r.NewMember = "", name
		}
		kind = "join"
	}
	r.ID, r.Kind = p.next, group.Kind(kind)
	p.asked[r.ID] = kind + " " + name
	for _, w := range words[2:] {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "topics":
			r.Topics = strings.Split(value, ",")
		case "instance":
			r.Instance = value
		case "assignor":
			r.Assignor = value
		case "session":
			r.SessionTimeout, _ = time.ParseDuration(value)
		case "rebalance":
			r.RebalanceTimeout, _ = time.ParseDuration(value)
		case "gen":
			n, _ := strconv.Atoi(value)
			r.Generation = int32(n)
		case "owned":
			for s := range strings.SplitSeq(value, ",") {
				r.Owned = append(r.Owned, partition(s))
			}
		default:
			n, _ := strconv.Atoi(value)
			r.Offsets = map[group.Partition]int64{partition(key): int64(n)}
		}
	}
	if kind == "join" {
		p.last[name] = r
	}
	return r
}

func partition(s string) group.Partition {
	topic, id, _ := strings.Cut(s, "/")
	n, _ := strconv.Atoi(id)
	return group.Partition{Topic: topic, ID: n}
}

func (p *player) show(out group.Output) {
	for part, offset := range out.Commits {
		fmt.Fprintf(&p.written, "  store %s=%d\n", part, offset)
	}
	for _, r := range out.Replies {
		what := p.asked[r.ID]
		switch {
		case r.Err != nil:
			fmt.Fprintf(&p.written, "  %s: %s\n", what, strings.TrimPrefix(r.Err.Error(), "group: "))
			continue
		case strings.HasPrefix(what, "sync"):
			fmt.Fprintf(&p.written, "  %s: %v\n", what, r.Partitions)
		case strings.HasPrefix(what, "join"):
			p.gen[r.Member] = r.Generation
			fmt.Fprintf(&p.written, "  %s: generation %d\n", what, r.Generation)
		default:
			fmt.Fprintf(&p.written, "  %s: ok\n", what)
		}
	}
	if out.Save {
		p.saved = p.g.Snapshot()
	}
	p.state()
}

func (p *player) state() {
	fmt.Fprintf(&p.written, "  %v %s, generation %d", p.now.Sub(time.Unix(0, 0)), p.g.State(), p.g.Generation())
	assigned := p.g.Assignment()
	for _, id := range slices.Sorted(maps.Keys(assigned)) {
		fmt.Fprintf(&p.written, "; %s %v", id, assigned[id])
	}
	p.written.WriteString("\n")
}

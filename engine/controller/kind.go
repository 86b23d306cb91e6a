package controller

import (
	"fmt"
	"strings"
	"time"

	"logbook/engine/metadata"
	"logbook/engine/replica"
)

// Kind is a kind of controller.
type Kind struct {
	Name      string // in settings
	ByCommand bool   // failover is a command; nobody is promoted without one
	Agrees    bool   // no two brokers act on decisions that contradict each other

	open func(Config, *metadata.Image) (Machine, error)
}

// Kinds are the controllers that there are.
var Kinds = []Kind{
	{Name: "manual", ByCommand: true, Agrees: true, open: openManual},
	{Name: "first-alive", open: openFirstAlive},
}

// KindByName returns a kind of controller. Without a name it is the usual one for so many
// brokers: manual for one, which has nobody to fail over to, and first-alive for more.
//
// Errors: *KindError.
func KindByName(name string, brokers int) (Kind, error) {
	if name == "" {
		name = "first-alive"
		if brokers == 1 {
			name = "manual"
		}
	}
	for _, k := range Kinds {
		if k.Name == name {
			return k, nil
		}
	}
	return Kind{}, &KindError{Name: name}
}

// KindNames says which kinds there are, for people.
func KindNames() string {
	var names []string
	for _, k := range Kinds {
		names = append(names, k.Name)
	}
	return strings.Join(names, " or ")
}

// KindError: there is no such controller.
type KindError struct{ Name string }

func (e *KindError) Error() string {
	return fmt.Sprintf("controller: there is no controller %q; it is %s", e.Name, KindNames())
}

// Config configures a controller of any kind.
type Config struct {
	ID      replica.BrokerID   // this broker's
	Brokers []replica.BrokerID // all of them, in order

	HealthEvery    time.Duration // between heartbeats
	FailAfter      int           // unanswered heartbeats that make a broker dead; 0 is 3
	RequestTimeout time.Duration // for another broker's controller to answer
	ProbeTimeout   time.Duration // for a replica to report, before it counts as gone

	Choose       Choice // picks leaders where failover is a command; nil is Longest
	FirstVersion int64  // where versions of decisions are counted from: a wall clock will do
	// Standing says how far this broker's log of a partition has come; ok is false where it
	// has none that can be used.
	Standing func(Partition) (s Standing, ok bool)
}

// Open returns one broker's controller. image is what was stored.
//
// Errors: what is wrong with the configuration.
func (k Kind) Open(cfg Config, image *metadata.Image) (Machine, error) { return k.open(cfg, image) }

func openManual(cfg Config, image *metadata.Image) (Machine, error) {
	return NewManual(ManualConfig{
		ID: cfg.ID, At: cfg.Brokers[0], Brokers: cfg.Brokers, Choose: cfg.Choose, HealthEvery: cfg.HealthEvery, FailAfter: cfg.FailAfter,
		RequestTimeout: cfg.RequestTimeout, ProbeTimeout: cfg.ProbeTimeout, FirstVersion: cfg.FirstVersion,
	}, image), nil
}

// newsTimeout is the longest that whoever makes a topic waits for the others to hear of it.
const newsTimeout = time.Second

func openFirstAlive(cfg Config, image *metadata.Image) (Machine, error) {
	return NewFirstAlive(FirstAliveConfig{
		ID: cfg.ID, Brokers: cfg.Brokers, HealthEvery: cfg.HealthEvery, FailAfter: cfg.FailAfter, RequestTimeout: newsTimeout, Standing: cfg.Standing,
	}, image)
}

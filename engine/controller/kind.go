package controller

import (
	"fmt"
	"io"
	"strings"
	"time"

	"logbook/engine/metadata"
	"logbook/engine/record"
	"logbook/engine/replica"
)

// Kind is a kind of controller.
type Kind struct {
	Name      string // in settings
	ByCommand bool   // failover is a command; nobody is promoted without one
	Agrees    bool   // no two brokers act on decisions that contradict each other
	Mends     bool   // a damaged replica is copied anew without a person
	Journal   bool   // it keeps a journal of its own; see metadata.OpenJournal
	Roles     bool   // brokers may decide only, or store only

	// Open returns one broker's controller.
	//
	// Errors: what is wrong with the configuration, or with what was stored.
	Open func(Config, Stored) (Machine, error)
}

// Stored is what a controller finds on its disk: an image, or its journal where it keeps one.
type Stored struct {
	Image   *metadata.Image
	Journal []record.Record
}

var kinds = []Kind{
	{Name: "manual", ByCommand: true, Agrees: true, Open: openManual},
	{Name: "first-alive", Open: openFirstAlive},
}

// Kinds are the controllers that there are in this program.
func Kinds() []Kind { return kinds }

// Register adds a kind of controller. It is for the init function of its package, as with
// database/sql: package quorum needs libraries that most programs do without.
func Register(k Kind) { kinds = append(kinds, k) }

// KindByName returns a kind of controller. Without a name it is the usual one for so many
// brokers: manual for one, which has nobody to fail over to, and quorum for more.
//
// Errors: *KindError.
func KindByName(name string, brokers int) (Kind, error) {
	if name == "" {
		name = "quorum"
		if brokers == 1 {
			name = "manual"
		}
	}
	for _, k := range kinds {
		if k.Name == name {
			return k, nil
		}
	}
	return Kind{}, &KindError{Name: name}
}

// KindNames says which kinds there are, for people.
func KindNames() string {
	var names []string
	for _, k := range kinds {
		names = append(names, k.Name)
	}
	return strings.Join(names, " or ")
}

// KindError: there is no such controller.
type KindError struct{ Name string }

func (e *KindError) Error() string {
	if e.Name == "quorum" {
		return "controller: this program has no quorum controller: import logbook/engine/controller/quorum, or choose " + KindNames()
	}
	return fmt.Sprintf("controller: there is no controller %q; it is %s", e.Name, KindNames())
}

// Config configures a controller of any kind.
type Config struct {
	ID      replica.BrokerID   // this broker's
	Brokers []replica.BrokerID // all of them, in order
	Role    metadata.Role      // this broker's, where its kind lets brokers differ
	Rack    string             // where it is, for those who look for what is near

	HealthEvery    time.Duration // between heartbeats
	FailAfter      int           // unanswered heartbeats that make a broker dead; 0 is 3
	RequestTimeout time.Duration // for another broker's controller to answer
	ProbeTimeout   time.Duration // for a replica to report, before it counts as gone

	Choose       Choice // picks leaders where failover is a command; nil is Longest
	FirstVersion int64  // where versions of decisions are counted from: a wall clock will do
	// Standing says how far this broker's log of a partition has come; ok is false where it
	// has none that can be used.
	// It may be called only after Start.
	Standing func(Partition) (s Standing, ok bool)

	// Usable reports, quickly, whether Standing would say ok; nil asks Standing.
	Usable func(Partition) bool

	// MinInSync is how many replicas should be in sync where a topic does not say; 0 is 1. With
	// fewer the high watermark stays, and those who left may lead (quorum).
	MinInSync int

	Random io.Reader // ids and the times of elections are drawn from it
	// SnapshotAfter is how many entries a journal holds before it begins anew; 0 is 1000.
	SnapshotAfter int
}

func openManual(cfg Config, stored Stored) (Machine, error) {
	return NewManual(ManualConfig{
		ID: cfg.ID, At: cfg.Brokers[0], Brokers: cfg.Brokers, Choose: cfg.Choose, HealthEvery: cfg.HealthEvery, FailAfter: cfg.FailAfter,
		RequestTimeout: cfg.RequestTimeout, ProbeTimeout: cfg.ProbeTimeout, FirstVersion: cfg.FirstVersion,
	}, stored.Image), nil
}

// newsTimeout is the longest that whoever makes a topic waits for the others to hear of it.
const newsTimeout = time.Second

func openFirstAlive(cfg Config, stored Stored) (Machine, error) {
	return NewFirstAlive(FirstAliveConfig{
		ID: cfg.ID, Brokers: cfg.Brokers, HealthEvery: cfg.HealthEvery, FailAfter: cfg.FailAfter, RequestTimeout: newsTimeout, Standing: cfg.Standing,
	}, stored.Image)
}

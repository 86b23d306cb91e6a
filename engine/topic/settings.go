package topic

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Settings are what a topic says of itself, with Kafka's names, values and meanings. A topic
// stores only what was set; what was not has the broker's default.
type Settings map[string]string

// Setting describes one that there is.
type Setting struct {
	Name    string
	Kind    string // "long", "int", "boolean", "string" or "list", as Kafka's tools show it
	Default string
	Want    string // what it must be, for people
	Doc     string

	check func(string) bool
}

func whole(kind, name, otherwise string, least int64, doc string) Setting {
	most := int64(math.MaxInt64)
	if kind == "int" {
		most = math.MaxInt32
	}
	return Setting{Name: name, Kind: kind, Default: otherwise, Doc: doc, Want: fmt.Sprintf("a number from %d on", least), check: func(v string) bool {
		n, err := strconv.ParseInt(v, 10, 64)
		return err == nil && n >= least && n <= most
	}}
}

func oneOf(kind, name, otherwise, doc string, values ...string) Setting {
	return Setting{Name: name, Kind: kind, Default: otherwise, Doc: doc, Want: strings.Join(values, " or "), check: func(v string) bool { return slices.Contains(values, v) }}
}

// allSettings are in the order of their names.
var allSettings = []Setting{
	oneOf("list", "cleanup.policy", "delete", "delete old segments, keep the last record of each key, or both", "delete", "compact", "compact,delete", "delete,compact"),
	oneOf("string", "compression.type", "producer", "batches are stored as their producer sent them", "producer"),
	whole("long", "delete.retention.ms", "86400000", 0, "how long compaction keeps a tombstone"),
	whole("int", "max.message.bytes", "1048588", 0, "the largest batch that is taken"),
	oneOf("string", "message.timestamp.type", "CreateTime", "whose clock a record's timestamp is from", "CreateTime", "LogAppendTime"),
	whole("long", "min.compaction.lag.ms", "0", 0, "how long a record is safe from compaction"),
	whole("int", "min.insync.replicas", "", 1, "replicas that must be in sync for a write that all acknowledge"),
	whole("long", "retention.bytes", "-1", -1, "bytes of a partition that are kept; -1: all"),
	whole("long", "retention.ms", "-1", -1, "how long records are kept; -1: for ever"),
	whole("int", "segment.bytes", "67108864", 1024, "size at which a segment is closed"),
	whole("long", "segment.ms", "604800000", 1, "age at which a segment is closed"),
	oneOf("boolean", "unclean.leader.election.enable", "false", "whether a replica that is not in sync may lead where no other is left, with the quorum controller: records may be lost", "false", "true"),
}

// AllSettings lists the settings that there are, by name. It must not be changed.
func AllSettings() []Setting { return allSettings }

// SettingByName returns a setting.
//
// Error: *SettingError.
func SettingByName(name string) (Setting, error) {
	i, found := slices.BinarySearchFunc(allSettings, name, func(s Setting, name string) int { return strings.Compare(s.Name, name) })
	if !found {
		return Setting{}, &SettingError{Name: name}
	}
	return allSettings[i], nil
}

// SettingError: a topic's setting does not exist, or cannot have that value.
type SettingError struct {
	Name, Value string
	Want        string // empty: there is no such setting
}

func (e *SettingError) Error() string {
	if e.Want == "" {
		return fmt.Sprintf("topic: there is no setting %q", e.Name)
	}
	return fmt.Sprintf("topic: the setting %s is %q, it must be %s", e.Name, e.Value, e.Want)
}

// Check says what is wrong with settings: the first by name.
//
// Error: *SettingError.
func (s Settings) Check() error {
	for _, name := range slices.Sorted(maps.Keys(s)) {
		d, err := SettingByName(name)
		if err != nil {
			return err
		}
		if !d.check(s[name]) {
			return &SettingError{Name: name, Value: s[name], Want: d.Want}
		}
	}
	return nil
}

// With returns settings with changes; a nil value takes a setting back to its default.
func (s Settings) With(changes map[string]*string) Settings {
	out := maps.Clone(s)
	if out == nil {
		out = Settings{}
	}
	for name, v := range changes {
		if v == nil {
			delete(out, name)
		} else {
			out[name] = *v
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// Number returns a setting that is a number, if it was set.
func (s Settings) Number(name string) (n int64, ok bool) {
	v, ok := s[name]
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(v, 10, 64)
	return n, err == nil
}

// Duration returns a setting in milliseconds, if it was set. Those that do not fit a
// Duration are the longest that does.
func (s Settings) Duration(name string) (time.Duration, bool) {
	n, ok := s.Number(name)
	if n > math.MaxInt64/int64(time.Millisecond) {
		return math.MaxInt64, ok
	}
	return time.Duration(n) * time.Millisecond, ok
}

// Unclean reports whether a replica that is not in sync may lead where no other is left.
func (s Settings) Unclean() bool { return s["unclean.leader.election.enable"] == "true" }

// Compacts and Deletes are what cleanup.policy says.
func (s Settings) Compacts() bool { return strings.Contains(s["cleanup.policy"], "compact") }

// Deletes reports whether retention applies.
func (s Settings) Deletes() bool { return s["cleanup.policy"] != "compact" }

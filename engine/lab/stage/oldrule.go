package stage

import (
	"time"

	"logbook/engine/replica"
	"logbook/engine/service"
)

// TruncateToHighWatermark is the rule that Kafka's followers had before leader epochs (KIP-101):
// who begins to follow cuts its log to the last high watermark that it has heard of, since more
// than that it cannot be sure of.
func TruncateToHighWatermark() service.Design {
	return service.Design{Machine: func(cfg replica.Config, log replica.Log, highWatermark int64) replica.Machine {
		return &oldRule{Machine: replica.New(cfg, log, highWatermark), cfg: cfg, log: log, first: true}
	}}
}

// oldRule is a replica that cuts before it follows for the first time.
type oldRule struct {
	replica.Machine
	cfg     replica.Config
	log     replica.Log
	first   bool
	waiting *replica.Assignment // until the log is cut
}

// Assign implements replica.Machine.
func (o *oldRule) Assign(now time.Time, a replica.Assignment) []replica.Effect {
	if !o.first || a.Leader == replica.None || a.Leader == o.cfg.ID || o.HighWatermark() >= o.log.LogEndOffset {
		o.first = false
		return o.Machine.Assign(now, a)
	}
	o.first, o.waiting = false, &a
	return []replica.Effect{replica.Truncate{To: o.HighWatermark()}}
}

// Logged implements replica.Machine.
func (o *oldRule) Logged(now time.Time, log replica.Log, err error) []replica.Effect {
	if o.waiting == nil {
		return o.Machine.Logged(now, log, err)
	}
	a := *o.waiting
	o.waiting = nil
	o.Machine = replica.New(o.cfg, log, o.HighWatermark())
	return o.Machine.Assign(now, a)
}

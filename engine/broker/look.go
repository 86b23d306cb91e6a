package broker

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"logbook/engine/wire"
)

// Health is the answer to GET /api/health.
type Health struct {
	Status  string `json:"status" doc:"ok"`
	Service string `json:"service" doc:"LOGBOOK_APP_NAME"`
}

// Health answers GET /api/health: the process is there, and answers.
func (s Settings) Health() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(Health{Status: "ok", Service: s.AppName}) // who went away need not be told
	})
}

// Controller says who decides about leaders: manual or first-alive.
func (b *Broker) Controller() string { return b.cfg.Controller }

// GroupNames lists the groups of all brokers that answer.
func (b *Broker) GroupNames(ctx context.Context) []string {
	names := b.groups.names()
	for _, l := range b.links {
		var r wire.ListGroupsReply
		ctx, cancel := context.WithTimeout(ctx, proberTimeout)
		if err := l.call(ctx, "list_groups", wire.Empty{}, &r); err == nil {
			names = append(names, r.Groups...)
		}
		cancel()
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Group describes a group, asking its coordinator.
func (b *Broker) Group(ctx context.Context, name string) (wire.DescribeGroupReply, error) {
	out, err := b.groups.describe(ctx, name)
	we, ok := errors.AsType[*wire.Error](err)
	if !ok || we.Code != wire.NotCoordinator || b.links[we.Leader] == nil {
		return out, err
	}
	err = b.links[we.Leader].call(ctx, "describe_group", wire.DescribeGroup{Group: name}, &out)
	return out, err
}

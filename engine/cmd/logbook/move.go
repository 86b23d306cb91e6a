package main

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"logbook/engine/client"
	"logbook/engine/metadata"
	"logbook/engine/wire"
)

// moveCommand moves a partition.
func moveCommand(o *globalFlags) *cobra.Command {
	var to []int
	var cancel bool
	cmd := partitionCommand("move", "Move a partition to other brokers",
		"Move has other brokers copy a partition, and lets those go that are not named when all that are have caught up.\nThe first one named is the preferred leader. Records are written and read meanwhile. logbook cluster status shows\nhow far it is. It is for clusters with the quorum controller.",
		func(cmd *cobra.Command, topic string, p int) error {
			if cancel == (len(to) > 0) {
				return usageError{fmt.Errorf("say where to, with --to, or take a move back, with --cancel")}
			}
			var ids []wire.BrokerID
			for _, id := range to {
				ids = append(ids, wire.BrokerID(id))
			}
			return o.with(func(c *client.Client) error { return c.Reassign(cmd.Context(), topic, p, ids...) })
		})
	cmd.Example = "  logbook topic move flights 0 --to 2,3,4\n  logbook topic move flights 0 --cancel"
	cmd.Flags().IntSliceVar(&to, "to", nil, "the brokers, with commas, the preferred leader first")
	cmd.Flags().BoolVar(&cancel, "cancel", false, "take back a move that is under way")
	return cmd
}

// drainCommand moves everything off a broker.
func drainCommand(o *globalFlags) *cobra.Command {
	return &cobra.Command{
		Use: "drain BROKER", Short: "Move all partitions from a broker to the others", Args: args(cobra.ExactArgs(1)),
		Long: `Drain begins to move each partition that a broker has a replica of to the living broker that has the fewest, and
lists where. logbook cluster status shows how far it is. A broker without partitions can be stopped, and
nobody misses it. It is for clusters with the quorum controller.`,
		RunE: onBroker(o, func(cmd *cobra.Command, c *client.Client, id wire.BrokerID) error { return drain(cmd, o, c, id) }),
	}
}

func drain(cmd *cobra.Command, o *globalFlags, c *client.Client, from wire.BrokerID) error {
	r, err := c.Cluster(cmd.Context())
	if err != nil {
		return err
	}
	m, err := c.Metadata(cmd.Context())
	if err != nil {
		return err
	}
	load := map[wire.BrokerID]int{}
	for _, b := range r.Brokers {
		if b.ID != from && b.Alive && !b.Fenced && b.Role != string(metadata.DecidesOnly) {
			load[b.ID] = b.Replicas
		}
	}
	moves := []wire.Move{}
	for _, t := range m.Topics {
		for i, p := range t.Partitions {
			at := slices.Index(p.Replicas, from)
			if at < 0 {
				continue
			}
			best := wire.BrokerID(0)
			for _, id := range slices.Sorted(maps.Keys(load)) {
				if !slices.Contains(p.Replicas, id) && (best == 0 || load[id] < load[best]) {
					best = id
				}
			}
			if best == 0 {
				return fmt.Errorf("there is no living broker that %s/%d could move to from broker %d: each has a replica of it already; add a broker", t.Name, i, from)
			}
			to := slices.Clone(p.Replicas)
			to[at] = best
			if err := c.Reassign(cmd.Context(), t.Name, i, to...); err != nil {
				return err
			}
			load[best]++
			moves = append(moves, wire.Move{Topic: t.Name, Partition: i, From: p.Replicas, To: to})
		}
	}
	return o.print(cmd.OutOrStdout(), moves, func(w io.Writer) {
		for _, mv := range moves {
			fmt.Fprintf(w, "%s/%d moves from %s to %s\n", mv.Topic, mv.Partition, ids(mv.From), ids(mv.To))
		}
		if len(moves) == 0 {
			fmt.Fprintf(w, "broker %d has no replicas\n", from)
		}
	})
}

package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"logbook/engine/client"
	"logbook/engine/wire"
)

func clusterStatusCommand(o *globalFlags) *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show who decides, who is there, and what is not well", Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.with(func(c *client.Client) error {
				r, err := c.Cluster(cmd.Context())
				if err != nil {
					return err
				}
				return o.print(cmd.OutOrStdout(), r, func(w io.Writer) { printCluster(w, r) })
			})
		},
	}
}

func printCluster(w io.Writer, r wire.ClusterReply) {
	fmt.Fprintf(w, "controller %s", r.Controller)
	switch {
	case r.ControllerID != 0:
		fmt.Fprintf(w, ", broker %d decides", r.ControllerID)
	case r.Controller == "quorum":
		fmt.Fprint(w, ", none is active")
	}
	if r.Cluster != "" {
		fmt.Fprintf(w, "; cluster %s, term %d, decision %d", r.Cluster, r.Term, r.Committed)
	}
	fmt.Fprintln(w)
	fmt.Fprintln(w, "BROKER\tADDRESS\tROLE\tSTATE\tVOTE\tDECISIONS LACKED\tLEADS\tREPLICAS")
	for _, b := range r.Brokers {
		state, lag := "alive", "unknown"
		switch {
		case b.Fenced:
			state = "fenced"
		case !b.Alive:
			state = "does not answer"
		}
		if b.Lag >= 0 {
			lag = fmt.Sprint(b.Lag)
		}
		vote := "no"
		switch {
		case b.Voter:
			vote = "yes"
		case !b.Learner:
			lag = "-"
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%d\t%d\n", b.ID, b.Address, b.Role, state, vote, lag, b.Leads, b.Replicas)
	}
	for _, mv := range r.Moving {
		fmt.Fprintf(w, "%s/%d moves from %s to %s; who has all of it: %s\n", mv.Topic, mv.Partition, ids(mv.From), ids(mv.To), ids(mv.Done))
	}
	if r.Unclean > 0 {
		fmt.Fprintf(w, "leaders that had not been in sync, since broker %d started: %d\n", r.Broker, r.Unclean)
	}
	for _, x := range []struct {
		what string
		list []wire.TopicPartition
	}{{"nobody leads", r.Leaderless}, {"no writes for quorum and all", r.UnderMinISR}, {"a replica is not in sync", r.UnderReplicated}} {
		if len(x.list) > 0 {
			fmt.Fprintf(w, "%s: %s\n", x.what, partitionList(x.list))
		}
	}
}

// partitionList names partitions, the first few of many.
func partitionList(ps []wire.TopicPartition) string {
	const most = 20
	var names []string
	for _, p := range ps[:min(most, len(ps))] {
		names = append(names, fmt.Sprintf("%s/%d", p.Topic, p.Partition))
	}
	if len(ps) > most {
		names = append(names, fmt.Sprintf("and %d more", len(ps)-most))
	}
	return strings.Join(names, " ")
}

package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"logbook/engine/client"
	"logbook/engine/wire"
)

// onBroker runs a command whose first argument is a broker's id.
func onBroker(o *globalFlags, run func(*cobra.Command, *client.Client, wire.BrokerID) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		id, err := strconv.ParseInt(args[0], 10, 32)
		if err != nil || id < 1 {
			return usageError{fmt.Errorf("%q is no broker's id: these are numbers from 1 on", args[0])}
		}
		return o.with(func(c *client.Client) error { return run(cmd, c, wire.BrokerID(id)) })
	}
}

// changeMember is a command that changes what a broker is to its cluster.
func changeMember(o *globalFlags, change string) func(*cobra.Command, []string) error {
	return onBroker(o, func(cmd *cobra.Command, c *client.Client, id wire.BrokerID) error {
		return c.ChangeMember(cmd.Context(), id, change, "")
	})
}

func addCommand(o *globalFlags) *cobra.Command {
	return &cobra.Command{
		Use: "add BROKER=HOST:PORT", Short: "Let a further broker join the cluster", Args: args(cobra.ExactArgs(1)),
		Long: `Add tells the brokers of a cluster where to find a further one, while they run. Start it afterwards, with an
empty data directory and with all of them in LOGBOOK_PEERS, itself too. It joins, and partitions can be put on it
(logbook topic move); unless its LOGBOOK_ROLES says otherwise it has a vote. It is for clusters with the quorum controller.`,
		Example: "  logbook cluster add 4=10.0.0.4:9400",
		RunE: func(cmd *cobra.Command, args []string) error {
			id, address, ok := strings.Cut(args[0], "=")
			if !ok {
				return usageError{fmt.Errorf("%q is not a broker and its address, like 4=10.0.0.4:9400", args[0])}
			}
			return onBroker(o, func(cmd *cobra.Command, c *client.Client, id wire.BrokerID) error {
				return c.ChangeMember(cmd.Context(), id, "add", address)
			})(cmd, []string{id})
		},
	}
}

func removeCommand(o *globalFlags) *cobra.Command {
	return &cobra.Command{
		Use: "remove BROKER", Short: "Remove a broker from the cluster", Args: args(cobra.ExactArgs(1)),
		Long: `Remove lets a broker go that has no replicas any more (see logbook cluster drain): it has no vote then, and nothing
is put on it. Stop it afterwards. It can join again as a new broker, with an empty data directory. Take it out
of LOGBOOK_PEERS when the other brokers are next started. It is for clusters with the quorum controller.`,
		Example: "  logbook cluster drain 3\n  logbook cluster status\n  logbook cluster remove 3",
		RunE:    changeMember(o, "remove"),
	}
}

func voteCommand(o *globalFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "vote", Short: "Give brokers a vote, or take it",
		Long: `Brokers that have a vote decide together; those without follow what is decided. More votes survive more failures,
and make each decision wait for more disks: three or five are usual. It is for clusters with the quorum controller.`,
	}
	cmd.AddCommand(
		&cobra.Command{Use: "give BROKER", Short: "Give a broker a vote", Args: args(cobra.ExactArgs(1)), RunE: changeMember(o, "give_vote")},
		&cobra.Command{Use: "take BROKER", Short: "Take a broker's vote", Args: args(cobra.ExactArgs(1)), RunE: changeMember(o, "take_vote")},
	)
	return cmd
}

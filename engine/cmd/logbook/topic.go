package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"logbook/engine/client"
	"logbook/engine/wire"
)

func topicCommand(o *globalFlags) *cobra.Command {
	cmd := &cobra.Command{Use: "topic", Short: "Make, list and describe topics"}
	var t wire.CreateTopic
	var set []string
	create := &cobra.Command{
		Use: "create NAME", Short: "Make a topic", Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, a []string) error {
			t.Name = a[0]
			changes, err := settingArgs(set, nil)
			if err != nil {
				return err
			}
			for name, v := range changes {
				if t.Settings == nil {
					t.Settings = map[string]string{}
				}
				t.Settings[name] = *v
			}
			return o.with(func(c *client.Client) error {
				made, err := c.CreateTopic(cmd.Context(), t)
				if err != nil {
					return err
				}
				return o.print(cmd.OutOrStdout(), made, func(w io.Writer) {
					fmt.Fprintf(w, "made %s: %s, %s of each\n", made.Name, count(int64(len(made.Partitions)), "partition"), count(int64(made.Replication), "replica"))
				})
			})
		},
	}
	create.Flags().IntVarP(&t.Partitions, "partitions", "p", 1, "how many; there can be more later, and never fewer")
	create.Flags().IntVarP(&t.Replication, "replication", "r", 0, "replicas of each; 0: one for each broker, at most 3")
	create.Flags().StringVar(&t.Partitioner, "partitioner", "murmur2", "the rule that keys follow: murmur2, sha256 or fnv1a")
	create.Flags().StringVar(&t.Partitioner, "router", "murmur2", "")
	_ = create.Flags().MarkHidden("router") // what it was called
	create.Flags().StringArrayVar(&set, "set", nil, "a setting: name=value, such as retention.ms=3600000")
	list := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the topics", Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.with(func(c *client.Client) error {
				m, err := c.Metadata(cmd.Context())
				if err != nil {
					return err
				}
				return o.print(cmd.OutOrStdout(), m.Topics, func(w io.Writer) {
					fmt.Fprintln(w, "TOPIC\tPARTITIONS\tREPLICAS\tPARTITIONER")
					for _, t := range m.Topics {
						if !t.Internal {
							fmt.Fprintf(w, "%s\t%d\t%d\t%s\n", t.Name, len(t.Partitions), t.Replication, t.Partitioner)
						}
					}
				})
			})
		},
	}
	describe := &cobra.Command{
		Use: "describe NAME", Short: "Show a topic's partitions, leaders and replicas", Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, a []string) error {
			return o.with(func(c *client.Client) error {
				m, err := c.Metadata(cmd.Context(), a[0])
				if err != nil {
					return err
				}
				return o.print(cmd.OutOrStdout(), m.Topics[0], func(w io.Writer) {
					fmt.Fprintln(w, "PARTITION\tLEADER\tEPOCH\tREPLICAS\tIN SYNC")
					for i, p := range m.Topics[0].Partitions {
						fmt.Fprintf(w, "%s/%d\t%s\t%d\t%s\t%s\n", a[0], i, who(p.Leader), p.LeaderEpoch, ids(p.Replicas), ids(p.ISR))
					}
					for _, name := range slices.Sorted(maps.Keys(m.Topics[0].Settings)) {
						fmt.Fprintf(w, "%s=%s\n", name, m.Topics[0].Settings[name])
					}
				})
			})
		},
	}
	cmd.AddCommand(create, list, describe, alterTopicCommand(o), addPartitionsCommand(o), deleteTopicCommand(o), moveCommand(o))
	return parent(cmd)
}

// settingArgs reads settings from flags: name=value, and names to take back.
func settingArgs(set, unset []string) (map[string]*string, error) {
	out := map[string]*string{}
	for _, s := range set {
		name, value, ok := strings.Cut(s, "=")
		if !ok || name == "" {
			return nil, usageError{fmt.Errorf("--set %q must be name=value", s)}
		}
		out[name] = &value
	}
	for _, name := range unset {
		out[name] = nil
	}
	return out, nil
}

func alterTopicCommand(o *globalFlags) *cobra.Command {
	var partitions int
	var set, unset []string
	cmd := &cobra.Command{
		Use: "alter NAME", Short: "Give a topic more partitions, or change its settings", Args: args(cobra.ExactArgs(1)),
		Long: "Alter changes a topic while it is used. More partitions move keys: records of one key written before and after\nmay be in different ones.",
		RunE: func(cmd *cobra.Command, a []string) error {
			changes, err := settingArgs(set, unset)
			if err != nil {
				return err
			}
			if partitions == 0 && len(changes) == 0 {
				return usageError{errors.New("say what to change: --partitions, --set or --unset")}
			}
			return o.with(func(c *client.Client) error {
				if err := c.AlterTopic(cmd.Context(), wire.AlterTopic{Name: a[0], Partitions: partitions, Settings: changes}); err != nil {
					return err
				}
				return o.print(cmd.OutOrStdout(), map[string]any{"topic": a[0]}, func(w io.Writer) { fmt.Fprintf(w, "changed %s\n", a[0]) })
			})
		},
	}
	cmd.Flags().IntVarP(&partitions, "partitions", "p", 0, "how many there are to be")
	cmd.Flags().StringArrayVar(&set, "set", nil, "a setting: name=value")
	cmd.Flags().StringArrayVar(&unset, "unset", nil, "a setting that goes back to its default")
	return cmd
}

func addPartitionsCommand(o *globalFlags) *cobra.Command {
	return &cobra.Command{
		Use: "add-partitions NAME COUNT", Short: "Give a topic so many more partitions", Args: args(cobra.ExactArgs(2)),
		Long: "More partitions move keys: records of one key written before and after may be in different ones.",
		RunE: func(cmd *cobra.Command, a []string) error {
			more, err := strconv.Atoi(a[1])
			if err != nil || more < 1 {
				return usageError{fmt.Errorf("%q is no number of partitions to add", a[1])}
			}
			return o.with(func(c *client.Client) error {
				t, err := c.Topic(cmd.Context(), a[0])
				if err != nil {
					return err
				}
				total := len(t.Partitions) + more
				if err := c.AlterTopic(cmd.Context(), wire.AlterTopic{Name: a[0], Partitions: total}); err != nil {
					return err
				}
				return o.print(cmd.OutOrStdout(), map[string]any{"topic": a[0], "partitions": total}, func(w io.Writer) { fmt.Fprintf(w, "%s has %s\n", a[0], count(int64(total), "partition")) })
			})
		},
	}
}

func deleteTopicCommand(o *globalFlags) *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME", Aliases: []string{"rm"}, Short: "Delete a topic, with all its records", Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, a []string) error {
			return o.with(func(c *client.Client) error {
				if err := c.DeleteTopic(cmd.Context(), a[0]); err != nil {
					return err
				}
				return o.print(cmd.OutOrStdout(), map[string]any{"topic": a[0]}, func(w io.Writer) { fmt.Fprintf(w, "deleted %s\n", a[0]) })
			})
		},
	}
}

// parent makes a command that only has others below it refuse what it does not know.
func parent(cmd *cobra.Command) *cobra.Command {
	cmd.Args = func(cmd *cobra.Command, a []string) error {
		if len(a) > 0 {
			return usageError{fmt.Errorf("there is no %s %s", cmd.CommandPath(), a[0])}
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	return cmd
}

func who(id wire.BrokerID) string {
	if id == 0 {
		return "nobody"
	}
	return fmt.Sprint(id)
}

func ids(list []wire.BrokerID) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(list), " ", ","), "[]")
}

// partitionCommand makes a command that does something with a partition.
func partitionCommand(use, short, long string, run func(cmd *cobra.Command, topic string, partition int) error) *cobra.Command {
	return &cobra.Command{
		Use: use + " TOPIC PARTITION", Short: short, Long: long, Args: args(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, a []string) error {
			p, err := partitionArg(a[1])
			if err != nil {
				return err
			}
			return run(cmd, a[0], p)
		},
	}
}

func statusCommand(o *globalFlags) *cobra.Command {
	return partitionCommand("status", "Show a partition, replica by replica", "", func(cmd *cobra.Command, topic string, p int) error {
		return o.with(func(c *client.Client) error {
			s, err := c.Status(cmd.Context(), topic, p)
			if err != nil {
				return err
			}
			return o.print(cmd.OutOrStdout(), s, func(w io.Writer) {
				fmt.Fprintf(w, "%s/%d: leader %s, epoch %d, high watermark %d\n", topic, p, who(s.Leader), s.LeaderEpoch, s.HighWatermark)
				fmt.Fprintln(w, "BROKER\tROLE\tIN SYNC\tLOG END\tLAG\tPROBLEM")
				for _, r := range s.Replicas {
					end, lag := "unknown", "unknown"
					if r.Known {
						end = fmt.Sprint(r.LogEndOffset)
					}
					if r.HasLag {
						lag = fmt.Sprint(r.Lag)
					}
					fmt.Fprintf(w, "%d\t%s\t%v\t%s\t%s\t%s\n", r.Broker, r.Role, r.InSync, end, lag, r.Problem)
				}
			})
		})
	})
}

func failoverCommand(o *globalFlags) *cobra.Command {
	return partitionCommand("failover", "Give a partition whose leader is gone a new one",
		"Failover is for clusters with the manual controller. It is refused while the leader is there, and where nobody\ncan take its place without losing acknowledged records. With the quorum controller it says why nobody leads.",
		func(cmd *cobra.Command, topic string, p int) error {
			return o.with(func(c *client.Client) error {
				f, err := c.Failover(cmd.Context(), topic, p)
				if err != nil {
					return err
				}
				return o.print(cmd.OutOrStdout(), f, func(w io.Writer) {
					fmt.Fprintf(w, "broker %d leads %s/%d instead of %d, in epoch %d, from offset %d; in sync: %s\n", f.New, topic, p, f.Old, f.LeaderEpoch, f.LogEndOffset, ids(f.ISR))
				})
			})
		})
}

func recoverCommand(o *globalFlags) *cobra.Command {
	var id int32
	var check bool
	cmd := partitionCommand("recover", "Make a replica what its leader's is, and in sync again",
		"Recover compares the replica with its leader's log, cuts it where they part, copies what is missing and compares\nthat. What it cuts was never acknowledged by all in-sync replicas. With --catch-up nothing is cut: where the two\npart, it says so.",
		func(cmd *cobra.Command, topic string, p int) error {
			if id <= 0 {
				return usageError{fmt.Errorf("say which broker's replica, with --replica")}
			}
			return o.with(func(c *client.Client) error {
				run := c.Recover
				if check {
					run = c.CatchUp
				}
				if err := run(cmd.Context(), wire.BrokerID(id), topic, p); err != nil {
					return err
				}
				return o.print(cmd.OutOrStdout(), map[string]any{"broker": id, "topic": topic, "partition": p}, func(w io.Writer) {
					fmt.Fprintf(w, "broker %d holds what the leader of %s/%d holds\n", id, topic, p)
				})
			})
		})
	cmd.Flags().Int32Var(&id, "replica", 0, "the broker whose replica it is")
	cmd.Flags().BoolVar(&check, "catch-up", false, "copy what is missing, cut nothing")
	return cmd
}

func groupCommand(o *globalFlags) *cobra.Command {
	cmd := &cobra.Command{Use: "group", Short: "List, describe and reset consumer groups"}
	list := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the groups", Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.with(func(c *client.Client) error {
				names, err := c.Groups(cmd.Context())
				if err != nil {
					return err
				}
				return o.print(cmd.OutOrStdout(), names, func(w io.Writer) {
					for _, n := range names {
						fmt.Fprintln(w, n)
					}
				})
			})
		},
	}
	describe := &cobra.Command{
		Use: "describe NAME", Short: "Show a group's members, offsets and lag", Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, a []string) error {
			return o.with(func(c *client.Client) error {
				g, err := c.Group(cmd.Context(), a[0])
				if err != nil {
					return err
				}
				if unknown(g) {
					return &unknownGroup{a[0]}
				}
				return o.print(cmd.OutOrStdout(), g, func(w io.Writer) { describeGroup(w, g) })
			})
		},
	}
	remove := &cobra.Command{
		Use: "delete NAME", Aliases: []string{"rm"}, Short: "Delete a group that has no members, with its committed offsets", Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, a []string) error {
			return o.with(func(c *client.Client) error {
				g, err := c.Group(cmd.Context(), a[0])
				if err == nil && unknown(g) {
					err = &unknownGroup{a[0]}
				}
				if err == nil {
					err = c.DeleteGroup(cmd.Context(), a[0])
				}
				if err != nil {
					return err
				}
				return o.print(cmd.OutOrStdout(), map[string]any{"group": a[0]}, func(w io.Writer) { fmt.Fprintf(w, "deleted %s\n", a[0]) })
			})
		},
	}
	cmd.AddCommand(list, describe, resetCommand(o), remove)
	return parent(cmd)
}

// unknown: the broker describes a group that is not there as an empty one.
func unknown(g wire.DescribeGroupReply) bool {
	return g.State == "Empty" && g.Generation == 0 && len(g.Offsets) == 0
}

// unknownGroup: nobody has joined a group of that name, or committed to it.
type unknownGroup struct{ name string }

func (e *unknownGroup) Error() string {
	return fmt.Sprintf("there is no group %q", e.name)
}

func describeGroup(w io.Writer, g wire.DescribeGroupReply) {
	fmt.Fprintf(w, "%s: %s, generation %d, %s\n", g.Group, g.State, g.Generation, count(int64(len(g.Members)), "member"))
	owner := map[wire.TopicPartition]string{}
	for _, m := range g.Members {
		for _, p := range m.Partitions {
			owner[p] = m.Member
		}
	}
	fmt.Fprintln(w, "PARTITION\tCOMMITTED\tEND\tLAG\tMEMBER")
	known := func(n int64) string {
		if n < 0 {
			return "unknown"
		}
		return fmt.Sprint(n)
	}
	for _, x := range g.Offsets {
		p := wire.TopicPartition{Topic: x.Topic, Partition: x.Partition}
		fmt.Fprintf(w, "%s/%d\t%d\t%s\t%s\t%s\n", x.Topic, x.Partition, x.Offset, known(x.HighWatermark), known(x.Lag), owner[p])
		delete(owner, p)
	}
	for _, m := range g.Members {
		for _, p := range m.Partitions {
			if owner[p] != "" {
				fmt.Fprintf(w, "%s/%d\tnothing\t\t\t%s\n", p.Topic, p.Partition, m.Member)
			}
		}
	}
}

func resetCommand(o *globalFlags) *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use: "reset NAME TOPIC", Short: "Set where a group goes on", Args: args(cobra.ExactArgs(2)),
		Long: "Reset sets the committed offsets of a group in all partitions of a topic. The group must have no members.",
		RunE: func(cmd *cobra.Command, a []string) error {
			at, err := parseFrom(to)
			if err != nil {
				return err
			}
			return o.with(func(c *client.Client) error {
				t, err := c.Topic(cmd.Context(), a[1])
				if err != nil {
					return err
				}
				var offsets []wire.CommitOffset
				for p := range t.Partitions {
					offset, err := at.find(cmd.Context(), c, a[1], p)
					if err != nil {
						return err
					}
					offsets = append(offsets, wire.CommitOffset{Topic: a[1], Partition: p, Offset: offset})
				}
				if err := c.ResetOffsets(cmd.Context(), a[0], offsets...); err != nil {
					return err
				}
				return o.print(cmd.OutOrStdout(), offsets, func(w io.Writer) {
					for _, x := range offsets {
						fmt.Fprintf(w, "%s/%d\t%d\n", x.Topic, x.Partition, x.Offset)
					}
				})
			})
		},
	}
	cmd.Flags().StringVar(&to, "to", "earliest", "earliest, latest, an offset, or a time (2001-01-31T12:00:00Z)")
	return cmd
}

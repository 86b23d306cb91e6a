package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"logbook/engine/foreign"
	"logbook/engine/mirror"
	"logbook/engine/opener"
)

func copyCommand(o *globalFlags) *cobra.Command {
	var opt mirror.Options
	var verify bool
	cmd := &cobra.Command{
		Use: "copy FROM TO", Short: "Copy topics and committed offsets from one log to another", Args: args(cobra.ExactArgs(2)),
		Long: `Copy copies topics, their records with keys, headers and times, and what groups have
committed, from one log to another. Each is a directory, logbook://HOST:PORT or
kafka://HOST:PORT,…; passwords, TLS and SASL are part of the address. (FROM may also be another
program's directory: see logbook import.)

  logbook://:TOKEN@host:9400?tls=true&ca=FILE
  kafka://USER:PASSWORD@a:9092,b:9092?tls=true&sasl=scram-sha-512

Topics that the target lacks are made there; topic settings are not carried over. Offsets
begin at 0 in the target, and committed ones are translated. A copy that was ended is run
again and goes on: what is there is counted, and not copied twice. Nothing else may write to
the target's topics meanwhile, and what comes to the source after the beginning is not copied:
stop its producers, and run copy again. A broker's own directory is not such a log: name the
broker.`,
		Example: `  logbook copy data logbook://127.0.0.1:9400
  logbook copy logbook://127.0.0.1:9400 kafka://broker:9092 --topic flights --verify`,
		RunE: func(cmd *cobra.Command, a []string) error {
			from, err := opener.Open(a[0])
			if err != nil {
				return err
			}
			defer from.Close()
			return copyLog(cmd, o, from, a[1], opt, verify)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&opt.Topics, "topic", nil, "what to copy; may be given more than once (default all)")
	f.StringSliceVar(&opt.Groups, "group", nil, "whose offsets to carry over (default all)")
	f.IntVar(&opt.Replication, "replication", 0, "replicas of topics that are made; 0: the target's default")
	f.BoolVar(&verify, "verify", false, "read both through afterwards, and compare counts and hashes")
	return cmd
}

// copyLog copies a log to an address, and prints the report.
func copyLog(cmd *cobra.Command, o *globalFlags, from *opener.Log, target string, opt mirror.Options, verify bool) error {
	to, err := opener.Open(target)
	if err != nil {
		return err
	}
	defer to.Close()
	bar := progress(cmd.ErrOrStderr(), -1, "copying")
	opt.Copied = func(_ string, records int) { _ = bar.Add(records) }
	report, err := mirror.Copy(cmd.Context(), from.Client, to.Client, opt)
	_ = bar.Finish()
	if err != nil {
		return err
	}
	if verify {
		if err := verifyCopy(cmd, from, to, report); err != nil {
			return err
		}
	}
	for _, t := range from.Tails() {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s ends in %d bytes of a record that was never finished, from position %d; they were not copied\n", t.Partition, t.File, t.Bytes, t.Position)
	}
	return o.print(cmd.OutOrStdout(), report, func(w io.Writer) { printReport(w, report, verify) })
}

func importCommand(o *globalFlags) *cobra.Command {
	var opt mirror.Options
	var offsets string
	var verify bool
	cmd := &cobra.Command{
		Use: "import pystream|kafka-lite DIR TO", Short: "Copy what PyStream or kafka-lite wrote", Args: args(cobra.ExactArgs(3)),
		Long: `Import reads a directory that another program laid out, without changing it, and copies its
records to TO: a directory, logbook://HOST:PORT or kafka://HOST:PORT,… (see logbook copy). Keys,
values, order, partitions and times (in ms) stay; a topic keeps the rule by which keys find
their partitions, where TO can have another than Kafka's. Damage ends it before anything is
copied.

pystream: a directory of topics (topic.meta, partition-000000/log.bin), or of a cluster, of
which the longest replicas are read. Committed offsets lie in a directory of their own, which
--offsets names; each consumer becomes a group.

kafka-lite: a directory of topics (events/0/00000000000000000000.log).`,
		Example: `  logbook import pystream data my-data --offsets offsets
  logbook import kafka-lite data logbook://127.0.0.1:9400 --verify`,
		RunE: func(cmd *cobra.Command, a []string) error {
			kind := foreign.Kind(a[0])
			if kind != foreign.PyStream && kind != foreign.KafkaLite {
				return usageError{fmt.Errorf("%q is not pystream or kafka-lite", a[0])}
			}
			from, err := opener.OpenForeign(kind, a[1], foreign.Options{Offsets: offsets})
			if err != nil {
				return err
			}
			defer from.Close()
			return copyLog(cmd, o, from, a[2], opt, verify)
		},
	}
	f := cmd.Flags()
	f.StringVar(&offsets, "offsets", "", "PyStream's directory of committed offsets")
	f.StringSliceVar(&opt.Topics, "topic", nil, "what to copy; may be given more than once (default all)")
	f.IntVar(&opt.Replication, "replication", 0, "replicas of topics that are made; 0: the target's default")
	f.BoolVar(&verify, "verify", false, "read both through afterwards, and compare counts and hashes")
	return cmd
}

// verifyCopy compares what was copied with what is there.
func verifyCopy(cmd *cobra.Command, from, to *opener.Log, report mirror.Report) error {
	var names []string
	for _, p := range report.Partitions {
		names = append(names, p.Topic)
	}
	if names = slices.Compact(names); len(names) == 0 {
		return nil
	}
	a, err := mirror.Digests(cmd.Context(), from.Client, names...)
	if err != nil {
		return err
	}
	b, err := mirror.Digests(cmd.Context(), to.Client, names...)
	if err != nil {
		return err
	}
	for i := range a {
		if a[i] != b[i] {
			return fmt.Errorf("%s/%d differs: %d records here, %d there; if the source was written to meanwhile, run copy again", a[i].Topic, a[i].Partition, a[i].Records, b[i].Records)
		}
	}
	return nil
}

func printReport(w io.Writer, r mirror.Report, verified bool) {
	fmt.Fprintf(w, "TOPIC\tPARTITION\tRECORDS\tWERE THERE\n")
	for _, p := range r.Partitions {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\n", p.Topic, p.Partition, p.Records, p.Before)
	}
	if len(r.Offsets) > 0 {
		fmt.Fprintf(w, "\nGROUP\tPARTITION\tCOMMITTED\tTRANSLATED\n")
		for _, o := range r.Offsets {
			fmt.Fprintf(w, "%s\t%s\t%d\t%d\n", o.Group, o.Partition, o.From, o.To)
		}
	}
	if verified {
		fmt.Fprintf(w, "\nverified: the same records in the same order\n")
	}
}

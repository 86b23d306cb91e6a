package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

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
kafka://HOST:PORT,…; passwords, TLS and SASL are part of the address:

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
				return usageError{err}
			}
			defer from.Close()
			to, err := opener.Open(a[1])
			if err != nil {
				return usageError{err}
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
			return o.print(cmd.OutOrStdout(), report, func(w io.Writer) { printReport(w, report, verify) })
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&opt.Topics, "topic", nil, "what to copy; may be given more than once (default all)")
	f.StringSliceVar(&opt.Groups, "group", nil, "whose offsets to carry over (default all)")
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

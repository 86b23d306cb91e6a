package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"logbook/engine/controller"
	"logbook/engine/sim"
)

// simulating is the sim command's state.
type simulating struct {
	o       *globalFlags
	cfg     sim.Config
	faults  string
	seeds   int
	first   uint64
	file    string
	picture string
}

func simCommand(o *globalFlags) *cobra.Command {
	s := simulating{o: o}
	cmd := &cobra.Command{
		Use: "sim", Short: "Simulate clusters under faults, and check what they promise", Args: args(cobra.NoArgs),
		Long: `Sim runs whole clusters over virtual time, each from a seed: the very code of the broker,
on disks that crash and a network that loses, repeats, reorders and cuts. It checks that no
acknowledged record is lost, that reads are consistent and true, that replicas agree, and
that writes go on when all is well again.`,
		Example: `  logbook sim --seeds 1000
  logbook sim --controller first-alive --acks leader --faults cut --seeds 100
  logbook sim shrink --controller first-alive --acks leader --faults cut --first 1 --out lost.json --picture lost.svg
  logbook sim replay lost.json`,
		RunE: func(cmd *cobra.Command, _ []string) error { return s.run(cmd.OutOrStdout(), cmd.ErrOrStderr()) },
	}
	f := cmd.PersistentFlags()
	f.StringVar(&s.cfg.Controller, "controller", "manual", controller.KindNames())
	f.StringVar(&s.cfg.Acks, "acks", "quorum", "leader, all or quorum")
	f.IntVar(&s.cfg.Brokers, "brokers", 3, "how many brokers")
	f.IntVar(&s.cfg.Deciding, "deciding", 0, "how many of them only decide; the others only store then")
	f.IntVar(&s.cfg.MinInSync, "min-in-sync", 2, "replicas that quorum demands")
	f.StringVar(&s.faults, "faults", names(sim.AllFaults), "which kinds, with commas: "+names(kinds))
	f.IntVar(&s.seeds, "seeds", 100, "how many")
	f.Uint64Var(&s.first, "first", 1, "the first seed")
	shrink := &cobra.Command{
		Use: "shrink", Short: "Cut a seed with a violation down to what matters", Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return s.shrink(cmd.OutOrStdout(), cmd.ErrOrStderr()) },
	}
	shrink.Flags().StringVar(&s.file, "out", "", "write the schedule here, to replay it")
	shrink.Flags().StringVar(&s.picture, "picture", "", "write a space-time diagram here (SVG)")
	replay := &cobra.Command{
		Use: "replay FILE", Short: "Run a saved schedule again", Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, a []string) error { return s.replay(cmd.OutOrStdout(), a[0]) },
	}
	replay.Flags().StringVar(&s.picture, "picture", "", "write a space-time diagram here (SVG)")
	table := &cobra.Command{
		Use: "table", Short: "Write the guarantee table", Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return s.table(cmd.OutOrStdout(), cmd.ErrOrStderr()) },
	}
	cmd.AddCommand(shrink, replay, table)
	return cmd
}

// kinds are the faults that can be asked for.
var kinds = append(slices.Clone(sim.EveryFault), sim.Move, sim.Vote)

func names(faults []sim.Fault) string {
	var out []string
	for _, f := range faults {
		out = append(out, string(f))
	}
	return strings.Join(out, ",")
}

// config is the simulation that the flags ask for, with the first seed.
func (s *simulating) config() (sim.Config, error) {
	c := s.cfg
	c.Seed = s.first
	for name := range strings.SplitSeq(s.faults, ",") {
		f := sim.Fault(strings.TrimSpace(name))
		if !slices.Contains(kinds, f) {
			return c, usageError{fmt.Errorf("there is no fault %q; there are %s", name, names(kinds))}
		}
		c.Faults = append(c.Faults, f)
	}
	return c, nil
}

func (s *simulating) run(out, errOut io.Writer) error {
	c, err := s.config()
	if err != nil {
		return err
	}
	bar := progress(errOut, int64(s.seeds), "simulating")
	began := time.Now()
	bad, err := sim.Seeds(func(seed uint64) sim.Config { c := c; c.Seed = seed; return c }, s.first, s.seeds, func() { _ = bar.Add(1) })
	_ = bar.Finish()
	if err != nil {
		return usageError{err}
	}
	took := time.Since(began)
	type found struct {
		Seed       uint64   `json:"seed"`
		Violations []string `json:"violations"`
	}
	report := struct {
		Seeds     int     `json:"seeds"`
		Violated  int     `json:"violated"`
		PerMinute float64 `json:"seeds_per_minute"`
		Found     []found `json:"found"`
	}{s.seeds, len(bad), float64(s.seeds) / took.Minutes(), []found{}}
	for _, r := range bad {
		report.Found = append(report.Found, found{r.Schedule.Config.Seed, r.Violations})
	}
	if err := s.o.print(out, report, func(w io.Writer) {
		for i, f := range report.Found {
			if i < 10 {
				fmt.Fprintf(w, "seed %d: %s\n", f.Seed, strings.Join(f.Violations, "; "))
			}
		}
		fmt.Fprintf(w, "%s, %d with violations, %.0f seeds a minute\n", count(int64(report.Seeds), "seed"), report.Violated, report.PerMinute)
	}); err != nil {
		return err
	}
	if len(bad) > 0 {
		return fmt.Errorf("%s of %d had violations; logbook sim shrink with the same flags and --first %d cuts one down", count(int64(len(bad)), "seed"), s.seeds, bad[0].Schedule.Config.Seed)
	}
	return nil
}

func (s *simulating) shrink(out, errOut io.Writer) error {
	c, err := s.config()
	if err != nil {
		return err
	}
	bar := progress(errOut, -1, "shrinking")
	r, err := sim.Shrink(sim.Plan(c))
	_ = bar.Finish()
	if err != nil {
		return err
	}
	if s.file != "" {
		if err := os.WriteFile(s.file, r.Schedule.Encode(), 0o644); err != nil {
			return err
		}
	}
	return s.show(out, r)
}

func (s *simulating) replay(out io.Writer, file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	schedule, err := sim.DecodeSchedule(data)
	if err != nil {
		return err
	}
	r, err := sim.Run(schedule)
	if err != nil {
		return err
	}
	return s.show(out, r)
}

// show shows a run: its steps, what happened, what was violated.
func (s *simulating) show(out io.Writer, r sim.Result) error {
	if s.picture != "" {
		if err := os.WriteFile(s.picture, []byte(r.Diagram), 0o644); err != nil {
			return err
		}
	}
	return s.o.print(out, map[string]any{"schedule": r.Schedule, "violations": r.Violations, "trace_hash": fmt.Sprintf("%016x", r.Hash)}, func(w io.Writer) {
		for _, step := range r.Schedule.Steps {
			fmt.Fprintln(w, step)
		}
		fmt.Fprintf(w, "\n%s\n", r.Trace)
		for _, v := range r.Violations {
			fmt.Fprintln(w, "violated:", v)
		}
		fmt.Fprintf(w, "trace %016x\n", r.Hash)
	})
}

func (s *simulating) table(out, errOut io.Writer) error {
	bar := progress(errOut, int64(s.seeds*len(sim.Promises())), "simulating")
	cells, err := sim.Table(s.first, s.seeds, 10*s.seeds, func() { _ = bar.Add(1) })
	_ = bar.Finish()
	if err != nil {
		return err
	}
	broken := 0
	for _, c := range cells {
		if c.Promised && c.Violated > 0 {
			broken++
		}
	}
	if err := s.o.print(out, cells, func(w io.Writer) { fmt.Fprint(w, sim.Markdown(cells)) }); err != nil {
		return err
	}
	if broken > 0 {
		return fmt.Errorf("%s broken", count(int64(broken), "promise"))
	}
	return nil
}

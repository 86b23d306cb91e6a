package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"logbook/engine/commitlog"
	"logbook/engine/metadata"
	"logbook/engine/record"
)

func repairCommand(o *globalFlags) *cobra.Command {
	var apply, all bool
	var format int
	cmd := &cobra.Command{
		Use: "repair DIR", Short: "See what is damaged in logs on disk, and repair it", Args: args(cobra.ExactArgs(1)),
		Long: `Repair reads the logs below DIR (a partition's directory, a broker's, or a whole data
directory) and says what is damaged or missing, and what it would do. With --apply it does it;
the broker must not be running then.

Every intact record is kept, at its offset. What is damaged cannot be mended: its offsets
become a gap that readers pass over. Files that change are kept beside the new ones, with
.damaged after their names. Where another broker has a replica that is in sync, do not repair:
move the partition's directory away and run logbook recover, which copies it whole.

Exit code 1: something is damaged, and was not repaired.`,
		Example: `  logbook repair data/broker-1
  logbook repair data/broker-1/topics/flights/partition-000000 --apply`,
		RunE: func(cmd *cobra.Command, a []string) error {
			var f record.Format
			if format >= 0 {
				var err error
				if f, err = record.ByVersion(record.Version(format)); err != nil || format > 255 {
					return usageError{fmt.Errorf("--format %d: the formats are 0, 1 and 2", format)}
				}
			}
			dirs, err := logDirs(a[0])
			if err != nil {
				return err
			}
			left := 0
			for _, dir := range dirs {
				r, err := commitlog.PlanRepair(nil, dir, f)
				if err != nil {
					left++
					if err := o.print(cmd.OutOrStdout(), repairJSON{Dir: dir, Error: err.Error()}, func(w io.Writer) { fmt.Fprintf(w, "%s: %v\n", dir, err) }); err != nil {
						return err
					}
					continue
				}
				if len(r.Found) == 0 && !all {
					continue
				}
				applied := false
				if apply && len(r.Found) > 0 {
					if err := applyRepair(r); err != nil {
						return err
					}
					applied = true
				} else if len(r.Found) > 0 {
					left++
				}
				if err := o.print(cmd.OutOrStdout(), newRepairJSON(r, applied), func(w io.Writer) { describeRepair(w, r, applied) }); err != nil {
					return err
				}
			}
			if left > 0 {
				return fmt.Errorf("%d of %s damaged; nothing of them was changed", left, count(int64(len(dirs)), "log"))
			}
			if !o.json && !apply {
				fmt.Fprintf(cmd.OutOrStdout(), "%s read, none damaged\n", count(int64(len(dirs)), "log"))
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&apply, "apply", false, "do it; without it nothing is changed")
	cmd.Flags().BoolVar(&all, "all", false, "also list the logs that are in order")
	cmd.Flags().IntVar(&format, "format", -1, "the format of a log whose log.meta is gone: 0, 1 or 2")
	return cmd
}

// logDirs returns the directories below dir that are logs, or what is left of one.
func logDirs(dir string) ([]string, error) {
	var dirs []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		entries, err := os.ReadDir(path)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if name := e.Name(); name == "log.meta" || name == "checkpoint" || name == "mark" || strings.HasSuffix(name, ".log") && len(name) == 24 {
				dirs = append(dirs, path)
				return fs.SkipDir
			}
		}
		return nil
	})
	if err == nil && len(dirs) == 0 {
		err = fmt.Errorf("%s holds no log; name a partition's directory, a broker's, or the data directory", dir)
	}
	return dirs, err
}

// applyRepair repairs a log, unless that would make up decisions: a gap in the metadata log
// can name other leaders than were decided.
func applyRepair(r *commitlog.Repair) error {
	if len(r.Lost) > 0 && filepath.Base(r.Dir) == metadata.LogName {
		return fmt.Errorf("%s: decisions at offsets %d to %d cannot be read, and a broker must not go on without them: remove the directory on a broker that follows others, which fetches them again; else restore it from a backup", r.Dir, r.Lost[0].From, r.Lost[0].To-1)
	}
	return r.Apply()
}

func describeRepair(w io.Writer, r *commitlog.Repair, applied bool) {
	fmt.Fprintf(w, "%s: format %d, offsets %d to %d\n", r.Dir, r.Format.Version(), r.Start, r.End-1)
	if len(r.Found) == 0 {
		fmt.Fprintln(w, "  in order")
	}
	for _, f := range r.Found {
		fmt.Fprintf(w, "  found: %s\n", f)
	}
	verb := "would"
	if applied {
		verb = "did"
	}
	for _, d := range r.Do {
		fmt.Fprintf(w, "  %s: %s\n", verb, d)
	}
	for _, l := range r.Lost {
		if l.From < l.To {
			fmt.Fprintf(w, "  lost: offsets %d to %d\n", l.From, l.To-1)
		}
	}
}

// repairJSON is a log's repair for programs.
type repairJSON struct {
	Dir     string                  `json:"dir"`
	Start   int64                   `json:"log_start"`
	End     int64                   `json:"log_end"`
	Found   []string                `json:"found"`
	Do      []string                `json:"do"`
	Lost    []commitlog.OffsetRange `json:"lost"`
	Applied bool                    `json:"applied"`
	Error   string                  `json:"error,omitempty"`
}

func newRepairJSON(r *commitlog.Repair, applied bool) repairJSON {
	return repairJSON{Dir: r.Dir, Start: r.Start, End: r.End, Found: r.Found, Do: r.Do, Lost: r.Lost, Applied: applied}
}

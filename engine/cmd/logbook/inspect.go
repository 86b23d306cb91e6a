package main

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"logbook/engine/commitlog"
)

func inspectCommand(o *globalFlags) *cobra.Command {
	var frames bool
	var fromOffset int64
	var most int
	cmd := &cobra.Command{
		Use: "inspect DIR", Short: "Look into a partition's log on disk", Args: args(cobra.ExactArgs(1)),
		Long: `Inspect reads a log's files (DIR is a partition-NNNNNN directory) without locking or changing
anything: it may be open, or damaged. With --frames it shows every field of the frames.`,
		RunE: func(cmd *cobra.Command, a []string) error {
			in, err := commitlog.Inspect(nil, a[0])
			if err != nil {
				return err
			}
			cut, err := commitlog.Asides(nil, a[0], in.Format)
			if err != nil {
				return err
			}
			cut = slices.DeleteFunc(cut, func(a commitlog.Aside) bool { return len(a.Frames) == 0 })
			if frames {
				return inspectFrames(o, cmd.OutOrStdout(), in, fromOffset, most)
			}
			return o.print(cmd.OutOrStdout(), describeLog(in), func(w io.Writer) {
				fmt.Fprintf(w, "format %d, offsets %d to %d, closed cleanly: %v, durable to byte %d of %s\n", in.Format.Version(), in.Start, in.End-1, in.Clean, in.MarkAt, commitlog.SegmentName(in.MarkOf))
				fmt.Fprintln(w, "SEGMENT\tOFFSETS\tBATCHES\tRECORDS\tBYTES\tSTATE")
				for _, s := range in.Segments {
					fmt.Fprintf(w, "%s\t%d to %d\t%d\t%d\t%d\t%s\n", filepath.Base(s.File), s.Base, s.Next-1, s.Frames, s.Records, s.Used, state(s))
				}
				for _, a := range cut {
					fmt.Fprintf(w, "%s was cut because the leader did not have it: %s from offset %d on\n", filepath.Base(a.File), count(int64(a.Records), "record"), a.Frames[0].BaseOffset)
				}
			})
		},
	}
	cmd.Flags().BoolVar(&frames, "frames", false, "show every field of every frame")
	cmd.Flags().Int64Var(&fromOffset, "from", 0, "with --frames: from this offset on")
	cmd.Flags().IntVarP(&most, "count", "c", 10, "with --frames: at most so many, and of each batch at most so many records")
	return cmd
}

func state(s commitlog.SegmentInfo) string {
	switch {
	case s.Damage != nil:
		return "damaged: " + s.Damage.Error()
	case s.Closed:
		return "closed"
	}
	return "active"
}

// segmentJSON is a segment for programs.
type segmentJSON struct {
	File    string `json:"file"`
	Base    int64  `json:"base_offset"`
	Next    int64  `json:"next_offset"`
	Frames  int    `json:"frames"`
	Records int    `json:"records"`
	Bytes   int64  `json:"bytes"`
	State   string `json:"state"`
}

func describeLog(in *commitlog.Inspection) any {
	var segments []segmentJSON
	for _, s := range in.Segments {
		segments = append(segments, segmentJSON{s.File, s.Base, s.Next, s.Frames, s.Records, s.Used, state(s)})
	}
	return map[string]any{"dir": in.Dir, "format": in.Format.Version(), "log_start": in.Start, "log_end": in.End, "clean": in.Clean, "segments": segments}
}

func inspectFrames(o *globalFlags, w io.Writer, in *commitlog.Inspection, from int64, most int) error {
	shown := 0
	for _, s := range in.Segments {
		err := commitlog.InspectFrames(nil, s, in.Format, func(x commitlog.FrameAt) bool {
			at, f := x.Position, x.Frame
			if f.LastOffset < from {
				return true
			}
			if shown++; shown > most {
				return false
			}
			fields := in.Format.Annotate(f.Bytes)
			if o.json {
				_ = json.NewEncoder(w).Encode(map[string]any{"file": s.File, "position": at, "base_offset": f.BaseOffset, "last_offset": f.LastOffset, "fields": fields})
				return true
			}
			fmt.Fprintf(w, "%s at byte %d: offsets %d to %d, %s\n", filepath.Base(s.File), at, f.BaseOffset, f.LastOffset, count(int64(f.Count), "record"))
			for _, x := range fields {
				var i int
				if n, _ := fmt.Sscanf(x.Name, "record %d ", &i); n == 1 && i >= most {
					fmt.Fprintf(w, "  … and %s\n", count(int64(f.Count-most), "further record"))
					break
				}
				fmt.Fprintf(w, "  %6d  %-18s %s %s\n", at+int64(x.Start), x.Name, x.Value, x.Note)
			}
			return true
		})
		if err != nil {
			return err
		}
	}
	return nil
}

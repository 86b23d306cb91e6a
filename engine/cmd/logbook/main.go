// Logbook is the command: see logbook --help.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	_ "logbook/engine/record/compression" // batches in snappy, lz4 and zstd can be read
	"logbook/engine/wire"
)

// Exit codes, as --help lists them.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitUnreachable = 3
	exitUnknown     = 4
	exitPromise     = 5
)

func main() {
	// A broker outlives whoever reads its log, and a pipe that ends is an error like any other.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := loadProfile(profileOf(os.Args[1:]))
	if err == nil {
		err = command().ExecuteContext(ctx)
	}
	interrupted := ctx.Err() != nil
	stop()
	if err == nil || interrupted && errors.Is(err, context.Canceled) {
		return
	}
	if errors.Is(err, syscall.EPIPE) { // as from head: who reads has had enough
		os.Exit(exitFailed)
	}
	code, remedy := judge(err)
	fmt.Fprintln(os.Stderr, "logbook:", strings.TrimPrefix(err.Error(), "logbook: "))
	if remedy != "" {
		fmt.Fprintln(os.Stderr, "  "+remedy)
	}
	os.Exit(code)
}

// usageError: the command line makes no sense.
type usageError struct{ error }

// judge gives an error's exit code, and what to do about it if that is not in the error.
func judge(err error) (code int, remedy string) {
	if _, ok := errors.AsType[usageError](err); ok {
		return exitUsage, "run it with --help"
	}
	if _, ok := errors.AsType[*unknownGroup](err); ok {
		return exitUnknown, "logbook group list shows what there is"
	}
	if we, ok := errors.AsType[*wire.Error](err); ok {
		switch we.Code {
		case wire.UnknownTopic, wire.UnknownPartition:
			return exitUnknown, "logbook topic list shows what there is; logbook topic create NAME makes a topic"
		case wire.Replication, wire.NotEnough:
			return exitPromise, "logbook status TOPIC PARTITION shows who lacks it"
		case wire.Unauthorized:
			return exitFailed, "give the brokers' token with --token or LOGBOOK_TOKEN"
		}
		return exitFailed, ""
	}
	if _, ok := errors.AsType[*net.OpError](err); ok || errors.Is(err, wire.ErrConnClosed) {
		return exitUnreachable, "is a broker there? start one with: logbook serve; or name it with --broker host:port"
	}
	return exitFailed, ""
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use:   "logbook",
		Short: "A Kafka-style event log",
		Long: `Logbook is a Kafka-style event log: brokers, and what one needs to use and look at them.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 no broker answers, 4 no such topic,
partition or group, 5 stored on the leader but not acknowledged by the replicas. What was
asked for goes to standard output, everything else to standard error. A command whose
reader has had enough (as head has) ends with 1 and says nothing.`,
		Example: `  logbook cluster                                 # three brokers, for trying things
  logbook topic create flights --partitions 3
  echo "DTW:delayed" | logbook produce flights --key-separator :
  logbook consume flights --group dashboards`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.Version = version()
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	parent(root)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	var o globalFlags
	o.flags(root)
	root.AddCommand(
		serveCommand(), clusterCommand(&o), topicCommand(&o), produceCommand(&o), consumeCommand(&o), groupCommand(&o), userCommand(&o),
		statusCommand(&o), failoverCommand(&o), recoverCommand(&o), inspectCommand(&o), repairCommand(&o), benchCommand(&o), copyCommand(&o), importCommand(&o), healthCommand(), simCommand(&o),
	)
	return root
}

// version says which build this is.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			v += " " + s.Value[:12]
		}
	}
	return v + " " + info.GoVersion
}

// args makes wrong arguments a usage error.
func args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, a []string) error {
		if err := check(cmd, a); err != nil {
			return usageError{fmt.Errorf("%w; usage: %s", err, cmd.UseLine())}
		}
		return nil
	}
}

// Logbook is the command: see logbook --help.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"logbook/engine/broker"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "logbook:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use:           "logbook",
		Short:         "A Kafka-style event log",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(serveCommand())
	return root
}

func serveCommand() *cobra.Command {
	long := "Serve runs a broker until it is interrupted. It is configured by environment variables:\n"
	for _, v := range broker.Variables() {
		long += fmt.Sprintf("\n  %-20s %s", v[0], v[1])
	}
	return &cobra.Command{
		Use:   "serve",
		Short: "Run a broker",
		Long:  long,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := broker.LoadSettings(os.LookupEnv)
			if err != nil {
				return err
			}
			ln, err := broker.Listen(cmd.Context(), s)
			if err != nil {
				return fmt.Errorf("cannot listen on %s (set LOGBOOK_HOST and LOGBOOK_PORT): %w", s.Address(), err)
			}
			return broker.Serve(cmd.Context(), ln, s, s.NewLogger(cmd.ErrOrStderr()))
		},
	}
}

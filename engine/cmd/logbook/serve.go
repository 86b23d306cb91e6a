package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"logbook/engine/controller"
	"logbook/engine/metadata"
	"logbook/engine/server"
	"logbook/engine/web"
)

// flagName is the flag for a variable: LOGBOOK_BROKER_ID is --broker-id.
func flagName(variable string) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(variable, "LOGBOOK_")), "_", "-")
}

func serveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a broker, alone or as one of a cluster",
		Long: `Serve runs a broker until it is interrupted. Each flag has a variable: --broker-id is
LOGBOOK_BROKER_ID; the flag counts where both are given.`,
		Example: `  logbook serve
  logbook serve --broker-id 2 --data data-2 --port 8002 --broker-port 9402 \
    --peers 1=127.0.0.1:9401,2=127.0.0.1:9402,3=127.0.0.1:9403`,
		Args: args(cobra.NoArgs),
	}
	for _, v := range server.Variables() {
		if slices.Contains([]string{"token", "tls-ca", "tls-cert", "tls-key"}, flagName(v.Name)) {
			continue // every command has them
		}
		cmd.Flags().String(flagName(v.Name), v.Default, fmt.Sprintf("%s (%s)", v.Want, v.Name))
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := settings(cmd.Flags())
		if err != nil {
			return usageError{err}
		}
		if os.Getenv("GOGC") == "" {
			debug.SetGCPercent(gcPercent)
		}
		if os.Getenv("GOMEMLIMIT") == "" {
			debug.SetMemoryLimit(memoryLimit)
		}
		return web.Run(cmd.Context(), s, s.NewLogger(cmd.ErrOrStderr()))
	}
	return cmd
}

// gcPercent is how much a broker's heap grows before it is collected, unless GOGC says
// something else. What lives long is a few megabytes, and what comes and goes are requests:
// with Go's 100, two large ones are a collection.
const gcPercent = 400

// memoryLimit is from which size of the heap on it is collected more often after all: three
// times what requests and replies under way may take together.
const memoryLimit = 768 << 20

// settings reads flags, and where they say nothing, the environment.
func settings(flags *pflag.FlagSet) (server.Settings, error) {
	return server.LoadSettings(func(variable string) (string, bool) {
		if f := flags.Lookup(flagName(variable)); f != nil && f.Changed {
			return f.Value.String(), true
		}
		return os.LookupEnv(variable)
	})
}

func clusterCommand(o *globalFlags) *cobra.Command {
	var dir, ctl, acks string
	var n, deciding, first, kafka int
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Run three brokers on this machine, for trying things",
		Long: `Cluster runs brokers, each a process of its own, until it is interrupted. Kill one to see
what the others do; it is started again when you press Enter, or with its number.`,
		Example: `  logbook cluster
  logbook cluster --data ./trial --controller manual
  logbook cluster status`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if n < 1 || n > 9 {
				return usageError{fmt.Errorf("--brokers is %d, it must be from 1 to 9", n)}
			}
			if deciding < 0 || deciding > 9 {
				return usageError{fmt.Errorf("--controllers is %d, it must be from 0 to 9", deciding)}
			}
			if dir == "" {
				tmp, err := os.MkdirTemp("", "logbook-cluster-")
				if err != nil {
					return err
				}
				defer os.RemoveAll(tmp)
				dir = tmp
			}
			if first == 0 && !cmd.Flags().Changed("kafka-first-port") {
				kafka = 0 // free ports are asked for
			}
			if deciding > 0 && ctl == "" {
				ctl = "quorum" // for one broker too
			}
			t := &trial{dir: dir, controller: ctl, acks: acks, storing: n, deciding: deciding, out: cmd.OutOrStdout(), running: map[int]*exec.Cmd{}}
			if err := t.addresses(n+deciding, first, kafka); err != nil {
				return err
			}
			return t.run(cmd.Context(), cmd.InOrStdin())
		},
	}
	cmd.AddCommand(clusterStatusCommand(o), addCommand(o), drainCommand(o), removeCommand(o), voteCommand(o))
	f := cmd.Flags()
	f.StringVar(&dir, "data", "", "directory; empty: a temporary one, removed at the end")
	f.StringVar(&ctl, "controller", "", controller.KindNames()+"; empty: quorum, or manual for one broker")
	f.StringVar(&acks, "acks", "quorum", "leader, all or quorum")
	f.IntVar(&n, "brokers", 3, "how many")
	f.IntVar(&deciding, "controllers", 0, "brokers more that only decide; the others only store then. 0: each does both")
	f.IntVar(&kafka, "kafka-first-port", 9092, "port of the first broker for Kafka's clients; 0: free ones")
	f.IntVar(&first, "first-port", 9400, "port of the first broker; HTTP is 1000 above; 0: free ones")
	return cmd
}

// trial is a cluster of processes.
type trial struct {
	dir, controller, acks string
	storing, deciding     int // the first brokers, and those after them; all do both where there are none of these
	out                   io.Writer
	ports, web, kafka     []int

	mu      sync.Mutex
	running map[int]*exec.Cmd
	ended   sync.WaitGroup
}

// addresses chooses ports: the ones from a first on, or free ones where that is 0.
func (t *trial) addresses(n, first, kafka int) error {
	for i := range n {
		for _, x := range []struct {
			list  *[]int
			first int
		}{{&t.ports, first}, {&t.web, first + 1000}, {&t.kafka, kafka}} {
			port := x.first + i
			if x.first == 0 || x.first == 1000 {
				ln, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					return err
				}
				port = ln.Addr().(*net.TCPAddr).Port
				ln.Close()
			}
			*x.list = append(*x.list, port)
		}
	}
	return nil
}

// list names ports of this machine, as clients want them.
func list(ports []int) string {
	var out []string
	for _, p := range ports {
		out = append(out, fmt.Sprintf("127.0.0.1:%d", p))
	}
	return strings.Join(out, ",")
}

func (t *trial) run(ctx context.Context, in io.Reader) error {
	for i := range t.ports {
		if err := t.start(ctx, i+1); err != nil {
			return err
		}
	}
	fmt.Fprintf(t.out, "\nLook:  http://127.0.0.1:%d/\nUse:   export LOGBOOK_BROKERS=%s\n       logbook topic create flights --partitions 3\nKafka: bootstrap.servers=%s\nBreak: kill -9 one of them; Enter starts it again.  End: Ctrl-C.\n\n", t.web[0], list(t.ports), list(t.kafka[:t.storing]))
	lines := make(chan struct{})
	go func() {
		for scan := bufio.NewScanner(in); scan.Scan(); {
			lines <- struct{}{}
		}
	}()
	for {
		select {
		case <-ctx.Done():
			t.ended.Wait()
			return nil
		case <-lines:
			for i := range t.ports {
				t.mu.Lock()
				gone := t.running[i+1] == nil
				t.mu.Unlock()
				if gone {
					if err := t.start(ctx, i+1); err != nil {
						fmt.Fprintln(t.out, err)
					}
				}
			}
		}
	}
}

// start starts a broker's process. When ctx ends it is interrupted, and has time to end.
func (t *trial) start(ctx context.Context, id int) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	var peers []string
	for i, port := range t.ports {
		peers = append(peers, fmt.Sprintf("%d=127.0.0.1:%d", i+1, port))
	}
	cmd := exec.CommandContext(ctx, exe, "serve", "--broker-id", fmt.Sprint(id), "--broker-port", fmt.Sprint(t.ports[id-1]), "--port", fmt.Sprint(t.web[id-1]), "--kafka-port", fmt.Sprint(t.kafka[id-1]),
		"--data", filepath.Join(t.dir, fmt.Sprint("broker-", id)), "--peers", strings.Join(peers, ","), "--acks", t.acks, "--log-format", "json")
	if t.controller != "" {
		cmd.Args = append(cmd.Args, "--controller", t.controller)
	}
	if t.deciding > 0 {
		role := metadata.StoresOnly
		if id > t.storing {
			role = metadata.DecidesOnly
		}
		cmd.Args = append(cmd.Args, "--roles", role.String())
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 15 * time.Second
	endWithParent(cmd)
	logs, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	t.mu.Lock()
	t.running[id] = cmd
	t.mu.Unlock()
	fmt.Fprintf(t.out, "broker %d: %s, process %d, http://127.0.0.1:%d/\n", id, fmt.Sprintf("127.0.0.1:%d", t.ports[id-1]), cmd.Process.Pid, t.web[id-1])
	t.ended.Go(func() {
		t.show(id, logs)
		err := cmd.Wait()
		t.mu.Lock()
		delete(t.running, id)
		t.mu.Unlock()
		if ctx.Err() == nil {
			fmt.Fprintf(t.out, "broker %d: ended (%v); Enter starts it again\n", id, errors.Join(err))
		}
	})
	return nil
}

// show passes on what a broker has to say that matters to somebody who tries things.
func (t *trial) show(id int, logs io.Reader) {
	for scan := bufio.NewScanner(logs); scan.Scan(); {
		var line struct {
			Level string `json:"level"`
			Msg   string `json:"msg"`
			Error any    `json:"error"`
		}
		if json.Unmarshal(scan.Bytes(), &line) != nil {
			fmt.Fprintf(t.out, "broker %d: %s\n", id, scan.Text()) // it failed before it could log
			continue
		}
		if line.Level == "WARN" || line.Level == "ERROR" {
			if line.Error != nil {
				line.Msg += fmt.Sprint(": ", line.Error)
			}
			fmt.Fprintf(t.out, "broker %d: %s\n", id, line.Msg)
		}
	}
}

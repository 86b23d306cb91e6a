package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"logbook/engine/client"
)

// brokers is how many there are.
const brokers = 3

// town is the brokers, as processes.
type town struct {
	binary string
	o      options
	ports  [brokers][3]int // of the protocol, of Kafka's, of HTTP
	procs  [brokers]*exec.Cmd
	logs   *os.File
}

func newTown(binary string, o options) (*town, error) {
	t := &town{binary: binary, o: o}
	for i := range t.ports {
		for k := range t.ports[i] {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return nil, err
			}
			defer ln.Close()
			t.ports[i][k] = ln.Addr().(*net.TCPAddr).Port
		}
	}
	var err error
	if t.logs, err = os.Create(filepath.Join(o.dir, "brokers.log")); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *town) addresses(kind int) []string {
	var out []string
	for i := range t.ports {
		out = append(out, fmt.Sprintf("127.0.0.1:%d", t.ports[i][kind]))
	}
	return out
}

// start starts those that do not run.
func (t *town) start() error {
	var peers []string
	for i, a := range t.addresses(0) {
		peers = append(peers, fmt.Sprintf("%d=%s", i+1, a))
	}
	for i := range t.procs {
		if t.procs[i] != nil {
			continue
		}
		cmd := exec.Command(t.binary, "serve", "--broker-id", fmt.Sprint(i+1), "--data", filepath.Join(t.o.dir, fmt.Sprint("broker-", i+1)), "--peers", strings.Join(peers, ","),
			"--broker-port", fmt.Sprint(t.ports[i][0]), "--kafka-port", fmt.Sprint(t.ports[i][1]), "--port", fmt.Sprint(t.ports[i][2]), "--controller", t.o.controller, "--partitions", fmt.Sprint(partitions))
		cmd.Stderr = t.logs
		if err := cmd.Start(); err != nil {
			return err
		}
		t.procs[i] = cmd
	}
	return nil
}

// signal ends a broker, and waits for it.
func (t *town) signal(i int, s syscall.Signal) {
	if t.procs[i] == nil {
		return
	}
	_ = t.procs[i].Process.Signal(s)
	_ = t.procs[i].Wait()
	t.procs[i] = nil
}

// disturb does something to the brokers, and says what. Those that it ended come back after
// a while.
func (t *town) disturb(rng *rand.Rand) string {
	i := rng.IntN(brokers)
	away := time.Duration(500+rng.IntN(3000)) * time.Millisecond
	var what string
	switch rng.IntN(8) {
	case 0, 1, 2:
		what = fmt.Sprintf("kill -9 of broker %d", i+1)
		t.signal(i, syscall.SIGKILL)
	case 3, 4:
		what = fmt.Sprintf("broker %d stopped in good order", i+1)
		t.signal(i, syscall.SIGTERM)
	case 5, 6:
		what = fmt.Sprintf("broker %d paused", i+1)
		_ = pause(t.procs[i].Process)
		away += 4 * time.Second
		time.Sleep(away)
		_ = resume(t.procs[i].Process)
		return fmt.Sprintf("%s for %s", what, away)
	default:
		what = "kill -9 of all brokers"
		for k := range t.procs {
			t.signal(k, syscall.SIGKILL)
		}
	}
	time.Sleep(away)
	if err := t.start(); err != nil {
		what += ": " + err.Error()
	}
	return fmt.Sprintf("%s for %s", what, away)
}

// failover does what a person does where leaders change by command.
func (t *town) failover(ctx context.Context) {
	c, err := client.New(client.Options{Brokers: t.addresses(0), Patience: 2 * time.Second})
	if err != nil {
		return
	}
	defer c.Close()
	for p := range partitions {
		_, _ = c.Failover(ctx, topicName, p) // it is refused where the leader is there
	}
}

// calm lets everything be well.
func (t *town) calm() {
	for _, p := range t.procs {
		if p != nil {
			_ = resume(p.Process)
		}
	}
	_ = t.start()
	time.Sleep(5 * time.Second)
	if t.o.controller == "manual" {
		t.failover(context.Background())
	}
}

func (t *town) end() {
	for i := range t.procs {
		t.signal(i, syscall.SIGKILL)
	}
	t.logs.Close()
}

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

// town is the brokers, as processes.
type town struct {
	binary string
	o      options
	ports  [][3]int // of the protocol, of Kafka's, of HTTP
	procs  []*exec.Cmd
	wires  *wires // between them
	logs   *os.File
}

func newTown(binary string, o options) (*town, error) {
	t := &town{binary: binary, o: o, ports: make([][3]int, o.brokers), procs: make([]*exec.Cmd, o.brokers)}
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
	if t.wires, err = newWires(t.addresses(0)); err != nil {
		return nil, err
	}
	if t.logs, err = os.Create(filepath.Join(o.dir, "brokers.log")); err != nil {
		return nil, err
	}
	return t, nil
}

// stores reports whether a broker stores records.
func (t *town) stores(i int) bool { return i < len(t.ports)-t.o.deciding }

// addresses are those of one kind; of Kafka's, of the brokers that store records.
func (t *town) addresses(kind int) []string {
	var out []string
	for i := range t.ports {
		if kind == 1 && !t.stores(i) {
			continue
		}
		out = append(out, fmt.Sprintf("127.0.0.1:%d", t.ports[i][kind]))
	}
	return out
}

// start starts those that do not run.
func (t *town) start() error {
	for i := range t.procs {
		if t.procs[i] != nil {
			continue
		}
		peers := []string{fmt.Sprintf("%d=127.0.0.1:%d", i+1, t.ports[i][0])}
		for k := range t.ports {
			if k != i {
				peers = append(peers, fmt.Sprintf("%d=%s", k+1, t.wires.address(i, k)))
			}
		}
		cmd := exec.Command(t.binary, "serve", "--broker-id", fmt.Sprint(i+1), "--data", filepath.Join(t.o.dir, fmt.Sprint("broker-", i+1)), "--peers", strings.Join(peers, ","),
			"--broker-port", fmt.Sprint(t.ports[i][0]), "--kafka-port", fmt.Sprint(t.ports[i][1]), "--port", fmt.Sprint(t.ports[i][2]), "--controller", t.o.controller, "--partitions", fmt.Sprint(partitions))
		if t.o.deciding > 0 {
			role := "broker"
			if !t.stores(i) {
				role = "controller"
			}
			cmd.Args = append(cmd.Args, "--roles", role)
		}
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
	i := rng.IntN(len(t.procs))
	away := time.Duration(500+rng.IntN(3000)) * time.Millisecond
	var what string
	switch kind(rng, t.o.what) {
	case "kill":
		what = fmt.Sprintf("kill -9 of broker %d", i+1)
		t.signal(i, syscall.SIGKILL)
	case "stop":
		what = fmt.Sprintf("broker %d stopped in good order", i+1)
		t.signal(i, syscall.SIGTERM)
	case "pause":
		what = fmt.Sprintf("broker %d paused", i+1)
		_ = pause(t.procs[i].Process)
		away += 4 * time.Second
		time.Sleep(away)
		_ = resume(t.procs[i].Process)
		return fmt.Sprintf("%s for %s", what, away)
	case "cut":
		if len(t.procs) == 1 {
			return "nothing: there is nobody to cut it off from"
		}
		what = t.cut(rng, i)
		away += 3 * time.Second
		time.Sleep(away)
		t.wires.heal()
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

// kinds are what may be done to brokers.
var kinds = []string{"kill", "stop", "pause", "cut", "kill-all"}

// kind draws one of some kinds, the usual more often than the rare.
func kind(rng *rand.Rand, of []string) string {
	often := map[string]int{"kill": 3, "stop": 2, "pause": 2, "cut": 3, "kill-all": 1}
	var all []string
	for _, k := range of {
		for range often[k] {
			all = append(all, k)
		}
	}
	return all[rng.IntN(len(all))]
}

// cut cuts the network between brokers, somehow, and says how.
func (t *town) cut(rng *rand.Rand, i int) string {
	all := rng.Perm(len(t.procs))
	switch rng.IntN(4) {
	case 0:
		t.wires.cut(func(from, to int) bool { return to == i })
		return fmt.Sprintf("broker %d hears nobody", i+1)
	case 1:
		t.wires.cut(func(from, to int) bool { return from == i })
		return fmt.Sprintf("nobody hears broker %d", i+1)
	case 2:
		t.wires.cut(func(from, to int) bool { return from == i || to == i })
		return fmt.Sprintf("broker %d is cut off", i+1)
	}
	side := map[int]bool{}
	var names []int
	for _, k := range all[:len(all)/2] {
		side[k] = true
		names = append(names, k+1)
	}
	t.wires.cut(func(from, to int) bool { return side[from] != side[to] })
	return fmt.Sprintf("brokers %v are cut off from the others", names)
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
	t.wires.heal()
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
	t.wires.close()
	t.logs.Close()
}

package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A broker in a process of its own outlives the cells of a lesson: the first starts it,
// the last stops it. Where it is, is kept in a file beside the lesson's scratch directory.

// brokerProcess is that file's content.
type brokerProcess struct {
	PID     int    `json:"pid"`
	Address string `json:"address"`
	Kafka   string `json:"kafka"` // for Kafka's clients
	Data    string `json:"data"`  // its directory: what tells it from any other process
}

// lifetime is the longest that a broker stays whose lesson was left in the middle.
const lifetime = "1h"

func brokerFile(lesson string) string { return path(lesson) + ".broker" }

func readBroker(lesson string) (p brokerProcess, ok bool) {
	data, err := os.ReadFile(brokerFile(lesson))
	if errors.Is(err, os.ErrNotExist) {
		return p, false
	}
	must(err)
	if json.Unmarshal(data, &p) != nil || p.PID <= 0 {
		return brokerProcess{}, false // a cell was interrupted while it was written: there is no broker
	}
	return p, true
}

// StartBroker builds the logbook command and starts a broker on the lesson's scratch
// directory, emptied. One that an earlier run of the lesson left is stopped first. It
// returns the broker's address. Flags are those of logbook serve.
func StartBroker(lesson string, flags ...string) string {
	StopBroker(lesson)
	Fresh(lesson)
	return startBroker(lesson, freeAddress(), freeAddress(), flags...)
}

// freeAddress finds a port that nobody listens at.
func freeAddress() string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	defer ln.Close()
	return ln.Addr().String()
}

// RestartBroker starts a broker again that was killed, with its data, where it was.
func RestartBroker(lesson string) string {
	p, ok := readBroker(lesson)
	if !ok {
		panic("lab: there was no broker to start again; run the lesson from the top")
	}
	return startBroker(lesson, p.Address, p.Kafka)
}

func startBroker(lesson, address, kafka string, flags ...string) string {
	binary := filepath.Join(projectRoot(), ".build", "lab", "logbook")
	must(os.MkdirAll(filepath.Dir(binary), 0o755))
	fresh := fmt.Sprintf("%s.%d", binary, os.Getpid())
	build := exec.Command("go", "build", "-o", fresh, "./engine/cmd/logbook")
	build.Dir = projectRoot()
	if out, err := build.CombinedOutput(); err != nil {
		panic(fmt.Sprintf("lab: building the logbook command: %v\n%s", err, out))
	}
	must(os.Rename(fresh, binary)) // another lesson may be running the old one
	_, port, err := net.SplitHostPort(address)
	must(err)
	_, kafkaPort, err := net.SplitHostPort(kafka)
	must(err)
	dataDir := filepath.Join(Dir(lesson), "data")
	logs, err := os.Create(filepath.Join(Dir(lesson), "broker.log"))
	must(err)
	defer logs.Close()
	cmd := exec.Command(binary, "serve", "--broker-port", port, "--kafka-port", kafkaPort, "--port", "0", "--data", dataDir, "--lifetime", lifetime)
	cmd.Args = append(cmd.Args, flags...)
	cmd.Stdout, cmd.Stderr = logs, logs
	outlive(cmd)
	must(cmd.Start())
	data, err := json.Marshal(brokerProcess{cmd.Process.Pid, address, kafka, dataDir})
	must(err)
	// In one step: an interrupted cell leaves the old file or the new one.
	half := fmt.Sprintf("%s.%d", brokerFile(lesson), os.Getpid())
	must(os.WriteFile(half, data, 0o600))
	must(os.Rename(half, brokerFile(lesson)))
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for range 1000 {
		if c, err := net.Dial("tcp", address); err == nil {
			c.Close()
			return address
		}
		select {
		case err := <-ended:
			said, _ := os.ReadFile(logs.Name())
			panic(fmt.Sprintf("lab: the broker ended at once: %v\n%s", err, said))
		case <-time.After(10 * time.Millisecond):
		}
	}
	panic("lab: the broker does not listen; see " + logs.Name())
}

// Broker returns the address of the lesson's broker.
func Broker(lesson string) string {
	p, ok := readBroker(lesson)
	if !ok {
		panic("lab: there is no broker; run the lesson from the top")
	}
	return p.Address
}

// KafkaBroker returns the address of the lesson's broker for Kafka's clients.
func KafkaBroker(lesson string) string {
	p, ok := readBroker(lesson)
	if !ok {
		panic("lab: there is no broker; run the lesson from the top")
	}
	return p.Kafka
}

// KillBroker kills the lesson's broker as nothing else would: it gets to say nothing.
func KillBroker(lesson string) {
	p, ok := readBroker(lesson)
	if !ok {
		panic("lab: there is no broker to kill; run the lesson from the top")
	}
	end(p, syscall.SIGKILL)
}

// StopBroker lets the lesson's broker, if there is one, answer what it accepted and end.
func StopBroker(lesson string) {
	p, ok := readBroker(lesson)
	if !ok {
		return
	}
	end(p, syscall.SIGTERM)
	must(os.Remove(brokerFile(lesson)))
}

// end signals a process, if it is the broker that was started, and waits until it has ended.
func end(p brokerProcess, signal syscall.Signal) {
	if !p.runs() {
		return // its number may be another's by now
	}
	if err := kill(p.PID, signal); errors.Is(err, os.ErrProcessDone) {
		return
	} else {
		must(err)
	}
	for range 2000 {
		if !p.runs() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	panic(fmt.Sprintf("lab: the broker (process %d) does not end", p.PID))
}

// runs reports whether the process of that number is the broker: its arguments name the
// directory.
func (p brokerProcess) runs() bool {
	out, err := exec.Command("ps", "-o", "stat=,args=", "-p", strconv.Itoa(p.PID)).Output()
	line := strings.TrimSpace(string(out))
	return err == nil && p.Data != "" && strings.Contains(line, p.Data) && !strings.HasPrefix(line, "Z")
}

// Python runs a script with the Python client at hand, and prints what it prints.
func Python(script string) {
	python, err := exec.LookPath("python3")
	if err != nil {
		panic("lab: there is no python3; install Python 3.9 or later")
	}
	cmd := exec.Command(python, "-c", script)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+filepath.Join(projectRoot(), "engine", "sdk", "python", "src"), "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	fmt.Print(string(out))
	must(err)
}

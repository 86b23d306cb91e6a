package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// These tests build the command, with the race detector, and use it as people do: from a
// shell, in processes of its own, which are killed.

var logbookBinary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "logbook-test-")
	if err != nil {
		panic(err)
	}
	logbookBinary = filepath.Join(dir, "logbook")
	if out, err := exec.Command("go", "build", "-race", "-o", logbookBinary, ".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the command: %v\n%s", err, out)
		os.Exit(1)
	}
	// The race detector has each process wait for a second before it ends.
	os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// town is a cluster of processes, as "logbook cluster" runs it.
type town struct {
	t       *testing.T
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	mu      sync.Mutex
	output  bytes.Buffer
	process map[int]int    // broker -> pid
	address map[int]string // broker -> host:port
	page    map[int]string
	done    chan struct{}
}

var startLine = regexp.MustCompile(`^broker (\d): (\S+), process (\d+), (http://\S+/)$`)

func newTown(t *testing.T, flags ...string) *town {
	t.Helper()
	w := &town{t: t, process: map[int]int{}, address: map[int]string{}, page: map[int]string{}, done: make(chan struct{})}
	w.cmd = exec.Command(logbookBinary, append([]string{"cluster", "--first-port", "0"}, flags...)...)
	var err error
	w.stdin, err = w.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := w.cmd.StdoutPipe()
	require.NoError(t, err)
	w.cmd.Stderr = os.Stderr
	require.NoError(t, w.cmd.Start())
	go func() {
		defer close(w.done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			w.read(lines.Text())
		}
	}()
	t.Cleanup(w.stop)
	w.eventually("three brokers are up", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.process) == 3
	})
	return w
}

func (w *town) read(line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.output.WriteString(line + "\n")
	if m := startLine.FindStringSubmatch(line); m != nil {
		id, _ := strconv.Atoi(m[1])
		pid, _ := strconv.Atoi(m[3])
		w.process[id], w.address[id], w.page[id] = pid, m[2], m[4]
	}
}

func (w *town) stop() {
	if w.cmd.ProcessState != nil {
		return
	}
	_ = w.cmd.Process.Signal(os.Interrupt)
	<-w.done
	_ = w.cmd.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	assert.NotContains(w.t, w.output.String(), "DATA RACE")
	if w.t.Failed() {
		w.t.Log(w.output.String())
	}
}

// kill kills a broker as nothing else would: it does not get to say a word.
func (w *town) kill(id int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	require.NoError(w.t, syscall.Kill(w.process[id], syscall.SIGKILL))
	delete(w.process, id)
}

// restart starts those that are gone, as Enter does.
func (w *town) restart() {
	w.eventually("the end is noticed and everybody is back", func() bool {
		_, err := io.WriteString(w.stdin, "\n")
		require.NoError(w.t, err)
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.process) == 3
	})
}

func (w *town) brokers() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.address[1] + "," + w.address[2] + "," + w.address[3]
}

func (w *town) eventually(what string, condition func() bool) {
	w.t.Helper()
	require.Eventually(w.t, condition, 60*time.Second, 20*time.Millisecond, what)
}

// run runs a command and returns what it prints, and its exit code.
func (w *town) run(in string, args ...string) (out, errOut string, code int) {
	return run(w.t, in, append(args, "--broker", w.brokers())...)
}

func run(t *testing.T, in string, args ...string) (out, errOut string, code int) {
	t.Helper()
	cmd := exec.Command(logbookBinary, args...)
	var o, e bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(in), &o, &e
	err := cmd.Run()
	if err != nil && cmd.ProcessState == nil {
		require.NoError(t, err)
	}
	assert.NotContains(t, e.String(), "DATA RACE")
	return o.String(), e.String(), cmd.ProcessState.ExitCode()
}

func (w *town) must(in string, args ...string) string {
	w.t.Helper()
	out, errOut, code := w.run(in, args...)
	require.Zero(w.t, code, "logbook %s: %s", strings.Join(args, " "), errOut)
	return out
}

// says reports whether a command succeeds and prints want. It is what a wait asks again and again:
// a command may fail before there is what it asks for.
func (w *town) says(want string, args ...string) bool {
	out, _, code := w.run("", args...)
	return code == 0 && strings.Contains(out, want)
}

// python runs a script with the Python client, which finds the brokers in brokers.
func (w *town) python(script string) string {
	w.t.Helper()
	cmd := exec.Command("python3", "-c", fmt.Sprintf("brokers = %q.split(',')\n%s", w.brokers(), script))
	cmd.Env = append(os.Environ(), "PYTHONPATH=../../sdk/python/src", "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	require.NoError(w.t, err, string(out))
	return string(out)
}

func lines(n int, prefix string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%d:%s %d\n", i, prefix, i)
	}
	return b.String()
}

// leader returns who leads a partition.
func (w *town) leader(topic, partition string) int {
	out, _, code := w.run("", "status", topic, partition)
	if code != 0 {
		return 0
	}
	m := regexp.MustCompile(`leader (\d)`).FindStringSubmatch(out)
	if m == nil {
		return 0
	}
	id, _ := strconv.Atoi(m[1])
	return id
}

// A newcomer's session: a cluster, some flights, a group of two, a dead leader, and on.
func TestNewcomersSession(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := newTown(t, "--data", dir)
	w.eventually("a topic can be made", func() bool {
		_, _, code := w.run("", "topic", "create", "flights", "--partitions", "3")
		return code == 0
	})
	w.must(lines(300, "before"), "produce", "flights", "--key-separator", ":")
	assert.Equal(t, 300, strings.Count(w.must("", "consume", "flights"), "before"))

	// A group of two shares the partitions.
	member := func() (*exec.Cmd, *bytes.Buffer, *sync.Mutex) {
		var mu sync.Mutex
		var out bytes.Buffer
		cmd := exec.Command(logbookBinary, "consume", "flights", "--group", "dashboards", "--broker", w.brokers(), "--timeout", "60s")
		pipe, err := cmd.StdoutPipe()
		require.NoError(t, err)
		cmd.Stderr = os.Stderr
		require.NoError(t, cmd.Start())
		go func() {
			for s := bufio.NewScanner(pipe); s.Scan(); {
				mu.Lock()
				out.WriteString(s.Text() + "\n")
				mu.Unlock()
			}
		}()
		return cmd, &out, &mu
	}
	a, aOut, aMu := member()
	b, bOut, bMu := member()
	seen := func() string {
		aMu.Lock()
		bMu.Lock()
		defer aMu.Unlock()
		defer bMu.Unlock()
		return aOut.String() + bOut.String()
	}
	w.eventually("both are members", func() bool {
		return w.says("2 members", "group", "describe", "dashboards")
	})
	w.eventually("they have read all", func() bool { return strings.Count(seen(), "before") >= 300 })

	// The leader of a partition is killed. Writes and reads go on without it.
	old := w.leader("flights", "0")
	w.kill(old)
	w.must(lines(100, "during"), "produce", "flights", "--key-separator", ":", "--timeout", "60s")
	w.eventually("somebody else leads", func() bool { l := w.leader("flights", "0"); return l != 0 && l != old })
	w.eventually("the members have read on", func() bool {
		s := seen()
		for i := range 100 {
			if !strings.Contains(s, fmt.Sprintf("during %d\n", i)) {
				return false
			}
		}
		return true
	})

	// The Python client reads and writes all the while, by way of any broker that is left.
	assert.Equal(t, "400 True\n", w.python(`
from logbook_client import Client, Producer
with Client(brokers) as c:
    n = 0
    for p in range(3):
        offset = 0
        while True:
            records, offset, end = c.fetch("flights", p, offset)
            n += len(records)
            if offset >= end:
                break
with Producer(brokers, acks="quorum") as p:
    print(n, p.send("flights", b"from Python", key=b"DTW").offset > 0)
`))

	// It comes back, as a follower, and catches up.
	w.restart()
	w.eventually("it is in step again", func() bool {
		out, _, code := w.run("", "status", "flights", "0")
		return code == 0 && regexp.MustCompile(fmt.Sprintf(`(?m)^%d +follower +true +\d+ +0`, old)).MatchString(out)
	})

	// A member is silenced: the other one gets everything.
	require.NoError(t, b.Process.Signal(syscall.SIGSTOP))
	w.eventually("its session ends", func() bool {
		return w.says("1 member\n", "group", "describe", "dashboards")
	})
	require.NoError(t, b.Process.Kill())
	_ = b.Wait()
	require.NoError(t, a.Process.Signal(os.Interrupt))
	_ = a.Wait()

	// Everybody is killed at once, and started again: nothing that was acknowledged is gone.
	for id := 1; id <= 3; id++ {
		w.kill(id)
	}
	w.restart()
	out := w.must("", "consume", "flights", "--timeout", "60s")
	assert.Equal(t, 300, strings.Count(out, "before"))
	assert.Equal(t, 100, strings.Count(out, "during"))
	// And the group goes on where it was.
	group := w.must("", "group", "describe", "dashboards", "--timeout", "60s")
	assert.Contains(t, group, "flights/0")
	res, err := http.Get(w.page[1] + "api/v1/overview")
	require.NoError(t, err)
	body, err := io.ReadAll(res.Body)
	res.Body.Close()
	require.NoError(t, err)
	assert.Contains(t, string(body), `"dashboards"`)
}

func TestManualClusterByCommand(t *testing.T) {
	t.Parallel()
	w := newTown(t, "--controller", "manual")
	w.eventually("a topic can be made", func() bool {
		_, _, code := w.run("", "topic", "create", "flights", "--partitions", "3")
		return code == 0
	})
	w.must(lines(50, "before"), "produce", "flights", "--key-separator", ":")
	require.Equal(t, 2, w.leader("flights", "1"))
	_, errOut, code := w.run("", "failover", "flights", "1")
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, errOut, "still leads")
	w.kill(2)
	w.eventually("failover goes through", func() bool { _, _, code := w.run("", "failover", "flights", "1"); return code == 0 })
	w.must("9:after\n", "produce", "flights", "--partition", "1", "--key-separator", ":", "--timeout", "60s")
	w.restart()
	w.must("", "recover", "flights", "1", "--replica", "2", "--timeout", "60s")
	status := w.must("", "status", "flights", "1")
	assert.NotContains(t, status, "leader 2")
	assert.Regexp(t, `(?m)^2 +follower +true`, status)
}

func TestCommandLine(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	w.eventually("a topic can be made", func() bool {
		_, _, code := w.run("", "topic", "create", "t", "-p", "2")
		return code == 0
	})
	w.must(`{"key":"a","value":"one","headers":{"h":"x"}}`+"\n"+`{"key":null,"value":null}`+"\n", "produce", "t", "--format", "json", "--partition", "0")
	assert.Equal(t, "t 0 0 a one 3 h=x\nt 0 1   -1 \n", w.must("", "consume", "t", "--format", `%t %p %o %k %s %S %h\n`))
	assert.Contains(t, w.must("", "consume", "t", "--json"), `"key":"a","value":"one","headers":[{"name":"h","value":"x"}]`)
	assert.Equal(t, "one\n", w.must("", "consume", "t", "-c", "1"))
	assert.Equal(t, "\n", w.must("", "consume", "t", "-p", "0", "--from", "1"))
	assert.Empty(t, w.must("", "consume", "t", "--from", "latest"))
	assert.Contains(t, w.must("", "topic", "list", "--json"), `"name":"t"`)
	assert.Contains(t, w.must("", "bench", "t", "--for", "200ms"), "produce")
	w.must("", "group", "reset", "g", "t", "--to", "1")
	home := filepath.Join(t.TempDir(), "home")
	first, _, _ := strings.Cut(w.brokers(), ",")
	copied := w.must("", "copy", "logbook://"+first, home, "--topic", "t", "--group", "g", "--verify")
	assert.Contains(t, copied, "verified: the same records")
	assert.Regexp(t, `(?m)^g +t/0 +1 +1$`, copied)
	assert.Contains(t, w.must("", "group", "describe", "g"), "t/0")
	assert.Contains(t, w.must("", "completion", "bash"), "logbook")

	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"consume", "nothing"}, exitUnknown, "logbook topic create"},
		{[]string{"consume", "t", "-p", "9"}, exitUnknown, "partitions 0 to 1"},
		{[]string{"consume"}, exitUsage, "--help"},
		{[]string{"consume", "t", "--from", "yesterday"}, exitUsage, "2001-01-31"},
		{[]string{"consume", "t", "--nonsense"}, exitUsage, "nonsense"},
		{[]string{"topic", "create", "../up"}, exitFailed, "use letters"},
		{[]string{"topic", "create", "__mine"}, exitFailed, "broker's own"},
		{[]string{"failover", "t", "x"}, exitUsage, "must be a number"},
		{[]string{"recover", "t", "0"}, exitUsage, "--replica"},
		{[]string{"inspect", "/nowhere"}, exitFailed, "not a log"},
	} {
		_, errOut, code := w.run("", c.args...)
		assert.Equal(t, c.code, code, "%v: %s", c.args, errOut)
		assert.Contains(t, errOut, c.want, "%v", c.args)
	}
	_, errOut, code := run(t, "", "topic", "list", "--broker", "127.0.0.1:1", "--timeout", "100ms")
	assert.Equal(t, exitUnreachable, code)
	assert.Contains(t, errOut, "logbook serve")
	_, errOut, code = run(t, "", "serve", "--port", "x", "--broker-id", "0")
	assert.Equal(t, exitUsage, code)
	assert.Contains(t, errOut, "LOGBOOK_PORT")
	assert.Contains(t, errOut, "LOGBOOK_BROKER_ID")
}

func TestServeShutsDownCleanly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for range 2 {
		cmd := exec.Command(logbookBinary, "serve", "--data", dir, "--port", "0", "--broker-port", "0", "--log-format", "json")
		logs, err := cmd.StderrPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		scan := bufio.NewScanner(logs)
		for scan.Scan() && !strings.Contains(scan.Text(), "broker is serving") {
		}
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		rest, _ := io.ReadAll(logs)
		require.NoError(t, cmd.Wait(), string(rest))
		assert.NotContains(t, string(rest), "DATA RACE")
	}
}

// The Python client has its own tests; they run against this binary.
func TestPythonClient(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	cmd := exec.Command(python, "-m", "unittest", "discover", "-s", "../../sdk/python/tests")
	cmd.Env = append(os.Environ(), "LOGBOOK_BINARY="+logbookBinary, "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	assert.NotContains(t, string(out), "skipped")
}

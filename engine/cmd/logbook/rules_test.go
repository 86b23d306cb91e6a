package main

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"logbook/engine/server"
)

// alone is one broker, as "logbook serve" runs it.
type alone struct {
	t                               *testing.T
	address, external, kafkaOutside string
}

// serve starts a broker with free ports, and what else flags say.
func serve(t *testing.T, flags ...string) *alone {
	t.Helper()
	cmd := exec.Command(logbookBinary, append([]string{"serve", "--data", t.TempDir(), "--port", "0", "--broker-port", "0", "--kafka-port", "0", "--log-format", "json"}, flags...)...)
	logs, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	a := &alone{t: t}
	lines := bufio.NewScanner(logs)
	for a.address == "" && lines.Scan() {
		var said struct{ Msg, Address, Clients string }
		require.NoError(t, json.Unmarshal(lines.Bytes(), &said))
		switch {
		case said.Msg == "broker is serving":
			a.address = said.Address
		case said.Clients == "logbook, external":
			a.external = said.Address
		case said.Clients == "kafka, external":
			a.kafkaOutside = said.Address
		}
	}
	rest := make(chan string, 1)
	go func() {
		data, _ := io.ReadAll(logs)
		rest <- string(data)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		assert.NotContains(t, <-rest, "DATA RACE")
		_ = cmd.Wait()
	})
	require.NotEmpty(t, a.address)
	return a
}

func (a *alone) must(in string, args ...string) string {
	a.t.Helper()
	out, errOut, code := run(a.t, in, append(args, "--broker", a.address)...)
	require.Zero(a.t, code, "logbook %s: %s", strings.Join(args, " "), errOut)
	return out
}

// The table of exit codes, and of what goes where, for every command that asks brokers.
func TestRulesOfEveryCommand(t *testing.T) {
	t.Parallel()
	a := serve(t)
	a.must("", "topic", "create", "t", "-p", "2")
	a.must("a:1\nb:2\n", "produce", "t", "-K", ":", "-p", "0")
	a.must("", "group", "reset", "g", "t", "--to", "0")
	const gone = "127.0.0.1:1"
	for _, c := range []struct {
		args []string
		code int // with a broker
	}{
		{[]string{"topic", "list"}, 0},
		{[]string{"topic", "describe", "t"}, 0},
		{[]string{"topic", "describe", "nothing"}, exitUnknown},
		{[]string{"topic", "create", "t"}, exitFailed},
		{[]string{"topic", "create", "x", "-p", "0"}, exitFailed},
		{[]string{"topic", "create", "x", "-p", "1000000000"}, exitFailed},
		{[]string{"topic", "create", "x", "--config", "no.such=1"}, exitUsage},
		{[]string{"topic", "alter", "nothing", "--partitions", "3"}, exitUnknown},
		{[]string{"topic", "alter", "t", "--partitions", "1"}, exitFailed},
		{[]string{"topic", "delete", "nothing"}, exitUnknown},
		{[]string{"topic", "move", "t", "0", "--to", "9"}, exitFailed},
		{[]string{"consume", "t"}, 0},
		{[]string{"consume", "t", "nothing"}, exitUnknown},
		{[]string{"consume", "__groups"}, exitFailed},
		{[]string{"produce", "t"}, 0},
		{[]string{"group", "list"}, 0},
		{[]string{"group", "describe", "g"}, 0},
		{[]string{"group", "describe", "nothing"}, exitUnknown},
		{[]string{"group", "reset", "nothing", "t", "--to", "0"}, 0},
		{[]string{"group", "reset", "g", "nothing"}, exitUnknown},
		{[]string{"group", "delete", "none"}, exitUnknown},
		{[]string{"status", "t", "0"}, 0},
		{[]string{"status", "t", "7"}, exitUnknown},
		{[]string{"status", "nothing", "0"}, exitUnknown},
		{[]string{"failover", "t", "0"}, exitFailed},
		{[]string{"recover", "t", "0", "--replica", "9"}, exitFailed},
		{[]string{"cluster", "status"}, 0},
		{[]string{"bench", "t", "--for", "50ms", "--warm-up", "0s"}, 0},
		{[]string{"copy", "logbook://" + a.address, "sqlite://x"}, exitFailed},
		{[]string{"import", "sqlite", "x", "y"}, exitUsage},
		{[]string{"import", "pystream", "/nowhere", "y"}, exitFailed},
	} {
		out, errOut, code := run(t, "", append(c.args, "--broker", a.address)...)
		assert.Equal(t, c.code, code, "%v: %s%s", c.args, out, errOut)
		if code != 0 {
			assert.Empty(t, out, "%v: an error is not what was asked for", c.args)
			assert.True(t, strings.HasPrefix(errOut, "logbook: ") || strings.Contains(errOut, "\nlogbook: "), "%v: %q", c.args, errOut)
			assert.NotContains(t, errOut, "internal", "%v", c.args)
		}
		if code == exitUsage || c.args[0] == "copy" || c.args[0] == "import" {
			continue // no broker is asked
		}
		out, errOut, code = run(t, "", append(c.args, "--broker", gone, "--timeout", "50ms")...)
		assert.Equal(t, exitUnreachable, code, "%v: %s", c.args, errOut)
		assert.Empty(t, out, "%v", c.args)
		assert.Contains(t, errOut, "logbook serve", "%v", c.args)
	}
}

// Whoever reads what a command prints may stop: the command ends, and says nothing.
func TestReadersMayStop(t *testing.T) {
	t.Parallel()
	a := serve(t)
	a.must("", "topic", "create", "t")
	a.must(lines(20_000, "a line to print"), "produce", "t")
	for _, args := range [][]string{{"consume", "t"}, {"consume", "t", "--json"}, {"consume", "t", "--group", "g"}, {"topic", "list"}, {"serve", "--help"}} {
		cmd := exec.Command(logbookBinary, append(args, "--broker", a.address)...)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		var said strings.Builder
		cmd.Stderr = &said
		require.NoError(t, cmd.Start())
		_, err = io.ReadFull(out, make([]byte, 1))
		require.NoError(t, err)
		require.NoError(t, out.Close())
		_ = cmd.Wait() // a short answer was written before the reader stopped
		assert.Contains(t, []int{0, exitFailed}, cmd.ProcessState.ExitCode(), "%v", args)
		assert.Empty(t, said.String(), "%v", args)
	}
}

func TestEncodingsAndSeveralTopics(t *testing.T) {
	t.Parallel()
	a := serve(t)
	a.must("", "topic", "create", "one")
	a.must("", "topic", "create", "two")
	a.must("00ff:0a0d\n", "produce", "one", "-K", ":", "--encoding", "hex")
	a.must("/w==\n", "produce", "two", "--encoding", "base64")
	assert.Equal(t, "one has 3 partitions\n", a.must("", "topic", "add-partitions", "one", "2"))
	assert.Contains(t, a.must("", "topic", "ls"), "one ")
	assert.Equal(t, "0a0d\n", a.must("", "consume", "one", "-o", "-1", "--encoding", "hex"))
	assert.Equal(t, "00ff 0a0d\n", a.must("", "consume", "one", "--encoding", "hex", "--format", `%k %s\n`))
	assert.Equal(t, "\xff\n", a.must("", "consume", "two"))
	both := a.must("", "consume", "one", "two", "--encoding", "base64", "--format", `%t %s\n`)
	assert.ElementsMatch(t, []string{"one Cg0=", "two /w=="}, strings.Split(strings.TrimSpace(both), "\n"))
	group := a.must("", "consume", "one", "two", "--group", "g", "-c", "2", "--encoding", "hex")
	assert.ElementsMatch(t, []string{"0a0d", "ff"}, strings.Fields(group))
	_, errOut, code := run(t, "zz\n", "produce", "one", "--encoding", "hex", "--broker", a.address)
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, errOut, "line 1: the value is not hex")
	_, errOut, code = run(t, "", "consume", "one", "--encoding", "rot13", "--broker", a.address)
	assert.Equal(t, exitUsage, code)
	assert.Contains(t, errOut, "text, hex or base64")
}

func TestProfiles(t *testing.T) {
	t.Parallel()
	const secret = "a token of sixteen and more"
	a := serve(t, "--token", secret)
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "logbook"), 0o700))
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "logbook", name+".env"), []byte(text), 0o600))
	}
	write("here", "# the one on this machine\nLOGBOOK_BROKERS="+a.address+"\nLOGBOOK_TOKEN=\""+secret+"\"\n")
	write("wrong", "LOGBOOK_TOKEN="+secret+"\nPATH=/tmp\n")
	write("broken", "LOGBOOK_TOKEN\x00"+secret)
	try := func(args ...string) (string, int) {
		cmd := exec.Command(logbookBinary, args...)
		cmd.Env = append(os.Environ(), "XDG_CONFIG_HOME="+dir, "HOME="+dir)
		out, _ := cmd.CombinedOutput()
		return string(out), cmd.ProcessState.ExitCode()
	}
	if custom, err := os.UserConfigDir(); err == nil && custom != "" && os.PathSeparator == '/' {
		out, code := try("topic", "list", "--profile", "here")
		assert.Zero(t, code, out)
	}
	out, code := try("topic", "list", "--profile="+filepath.Join(dir, "logbook", "here.env"))
	assert.Zero(t, code, out)
	out, code = try("topic", "list", "--profile", filepath.Join(dir, "logbook", "here.env"), "--token", "another of sixteen characters")
	assert.Equal(t, exitFailed, code, "a flag counts before the profile: %s", out)
	for _, name := range []string{"wrong", "broken", "none"} {
		out, code = try("topic", "list", "--profile", filepath.Join(dir, "logbook", name+".env"))
		assert.Equal(t, exitUsage, code, "%s: %s", name, out)
		assert.NotContains(t, out, secret, name)
	}
}

// .env.example lists every variable with its default.
func TestExampleOfEnvironment(t *testing.T) {
	var b strings.Builder
	b.WriteString("# What a broker is configured with. Copy it to .env, change it, and run\n#     logbook serve --profile ./.env\n# What is commented out shows the default.\n")
	for _, v := range server.Variables() {
		b.WriteString("\n# " + v.Want + "\n#" + v.Name + "=" + v.Default + "\n")
	}
	const file = "../../../.env.example"
	if os.Getenv("LOGBOOK_UPDATE") != "" {
		require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o644))
	}
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, b.String(), string(data), "run: LOGBOOK_UPDATE=1 go test -run TestExampleOfEnvironment ./engine/cmd/logbook")
}

// Clients of the external listeners are told other addresses: these are for whoever is outside.
func TestExternalListeners(t *testing.T) {
	t.Parallel()
	a := serve(t, "--external-port", "0", "--external-advertise", "localhost:65001", "--kafka-external-port", "0", "--kafka-external-advertise", "localhost:65002")
	a.must("", "topic", "create", "t")
	addressAt := func(broker string) string {
		out, errOut, code := run(t, "", "cluster", "status", "--json", "--broker", broker)
		require.Zero(t, code, errOut)
		var c struct{ Brokers []struct{ Address string } }
		require.NoError(t, json.Unmarshal([]byte(out), &c))
		require.Len(t, c.Brokers, 1)
		return c.Brokers[0].Address
	}
	assert.Equal(t, a.address, addressAt(a.address))
	assert.Equal(t, "localhost:65001", addressAt(a.external))

	k, err := kgo.NewClient(kgo.SeedBrokers(a.kafkaOutside))
	require.NoError(t, err)
	defer k.Close()
	reply, err := k.SeedBrokers()[0].Request(t.Context(), kmsg.NewPtrMetadataRequest())
	require.NoError(t, err)
	brokers := reply.(*kmsg.MetadataResponse).Brokers
	require.Len(t, brokers, 1)
	assert.Equal(t, []any{"localhost", int32(65002)}, []any{brokers[0].Host, brokers[0].Port})

	// They may ask who comes, where the others do not.
	b := serve(t, "--external-port", "0", "--external-authenticate", "true")
	b.must("wonderland\n", "user", "set", "alice")
	_, errOut, code := run(t, "", "topic", "list", "--broker", b.external)
	assert.Equal(t, exitFailed, code, errOut)
	_, errOut, code = run(t, "", "topic", "list", "--broker", b.external, "--user", "alice", "--token", "wonderland")
	assert.Zero(t, code, errOut)
}

func TestUsersByCommand(t *testing.T) {
	t.Parallel()
	const token = "a token of sixteen and more"
	a := serve(t, "--token", token)
	as := func(who ...string) func(in string, args ...string) (string, string, int) {
		return func(in string, args ...string) (string, string, int) {
			return run(t, in, append(append(args, "--broker", a.address), who...)...)
		}
	}
	root, alice := as("--token", token), as("--user", "alice", "--token", "wonderland")
	_, errOut, code := alice("", "topic", "list")
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, errOut, "name or password are wrong")
	out, errOut, code := root("wonderland\n", "user", "set", "alice")
	require.Zero(t, code, errOut)
	assert.Equal(t, "alice has a password\n", out)
	_, _, code = root("builder\n", "user", "set", "bob", "--mechanism", "scram-sha-256")
	require.Zero(t, code)
	out, _, code = alice("", "user", "list")
	require.Zero(t, code)
	assert.Regexp(t, `(?m)^alice +SCRAM-SHA-256, SCRAM-SHA-512$`, out)
	assert.Regexp(t, `(?m)^bob +SCRAM-SHA-256$`, out)
	_, _, code = alice("", "topic", "create", "t")
	assert.Zero(t, code)
	_, _, code = as("--user", "alice", "--token", "builder")("", "topic", "list")
	assert.Equal(t, exitFailed, code)
	_, _, code = alice("", "user", "delete", "bob")
	assert.Zero(t, code)
	_, errOut, code = alice("", "user", "delete", "bob")
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, errOut, "no user")
	_, _, code = root("", "user", "set", "carol")
	assert.Equal(t, exitUsage, code)
	_, errOut, code = root("x\n", "user", "set", "carol", "--mechanism", "md5")
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, errOut, "SCRAM-SHA-512")
}

func TestImportByCommand(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	a := serve(t)
	dir := t.TempDir()
	out, err := exec.Command(python, "../../../testdata/seeds/lay_out.py", dir).CombinedOutput()
	require.NoError(t, err, string(out))
	target := "logbook://" + a.address
	said := a.must("", "import", "pystream", filepath.Join(dir, "pystream/data"), target, "--offsets", filepath.Join(dir, "pystream/offsets"), "--verify")
	assert.Contains(t, said, "verified: the same records")
	assert.Regexp(t, `(?m)^analytics-worker +events/1 +5 +5$`, said)
	_, errOut, code := run(t, "", "import", "kafka-lite", filepath.Join(dir, "kafka-lite"), target, "--verify")
	require.Zero(t, code, errOut)
	assert.Contains(t, errOut, "a record that was never finished")
	a.must("", "import", "pystream", filepath.Join(dir, "pystream/cluster-data"), target)

	// What came in is what the independent script listed, byte for byte.
	expected, err := os.ReadFile(filepath.Join(dir, "expected.tsv"))
	require.NoError(t, err)
	for topic, kind := range map[string]string{"events": "pystream", "clicks": "kafka-lite", "orders": "pystream-cluster"} {
		got := a.must("", "consume", topic, "--encoding", "hex", "--format", `%t\t%p\t%o\t%k\t%s\n`)
		var want []string
		for _, row := range strings.Split(strings.TrimSpace(string(expected)), "\n") {
			if f := strings.Split(row, "\t"); f[0] == kind {
				want = append(want, strings.Join([]string{f[1], f[2], f[3], strings.Trim(f[5], "-"), f[6]}, "\t"))
			}
		}
		assert.ElementsMatch(t, want, strings.Split(strings.TrimSuffix(got, "\n"), "\n"), topic)
	}
}

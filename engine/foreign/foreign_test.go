package foreign_test

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/failure"
	"logbook/engine/foreign"
	"logbook/engine/stream"
)

// layOut has the independent script lay directories out.
func layOut(t testing.TB) (dir string, expected map[string][]string) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	dir = t.TempDir()
	out, err := exec.Command(python, "../../testdata/seeds/lay_out.py", dir).CombinedOutput()
	require.NoError(t, err, string(out))
	f, err := os.Open(filepath.Join(dir, "expected.tsv"))
	require.NoError(t, err)
	defer f.Close()
	expected = map[string][]string{}
	for scan := bufio.NewScanner(f); scan.Scan(); {
		kind, row, _ := strings.Cut(scan.Text(), "\t")
		topic, rest, _ := strings.Cut(row, "\t")
		partition, record, _ := strings.Cut(rest, "\t")
		name := kind + " " + topic + "/" + partition
		expected[name] = append(expected[name], record)
	}
	return dir, expected
}

// rows reads a partition as the script lists it.
func rows(t *testing.T, d *foreign.Directory, p stream.Partition, maxBytes int) (out []string) {
	at, err := d.Offset(t.Context(), p, stream.Earliest, time.Time{})
	require.NoError(t, err)
	end, err := d.Offset(t.Context(), p, stream.Latest, time.Time{})
	require.NoError(t, err)
	for at < end {
		f, err := d.Fetch(t.Context(), stream.Fetch{Partition: p, Offset: at, MaxBytes: maxBytes})
		require.NoError(t, err)
		require.NotEmpty(t, f.Records)
		for _, r := range f.Records {
			key := "-"
			if r.Key != nil {
				key = hex.EncodeToString(r.Key)
			}
			out = append(out, fmt.Sprintf("%d\t%d\t%s\t%s", r.Offset, r.Timestamp.UnixNano(), key, hex.EncodeToString(r.Value)))
		}
		at = f.NextOffset
	}
	return out
}

// What an independent script laid out is read to the byte.
func TestEveryRecordIsRead(t *testing.T) {
	dir, expected := layOut(t)
	for _, c := range []struct {
		kind    foreign.Kind
		in, as  string
		options foreign.Options
		topic   stream.Topic
	}{
		{foreign.PyStream, "pystream/data", "pystream", foreign.Options{Offsets: filepath.Join(dir, "pystream/offsets")}, stream.Topic{Name: "events", Partitions: 3, Replication: 1, Partitioner: "sha256"}},
		{foreign.PyStream, "pystream/cluster-data", "pystream-cluster", foreign.Options{}, stream.Topic{Name: "orders", Partitions: 1, Replication: 1, Partitioner: "sha256"}},
		{foreign.KafkaLite, "kafka-lite", "kafka-lite", foreign.Options{}, stream.Topic{Name: "clicks", Partitions: 2, Replication: 1, Partitioner: "fnv1a"}},
	} {
		t.Run(c.as, func(t *testing.T) {
			d, err := foreign.Open(c.kind, filepath.Join(dir, c.in), c.options)
			require.NoError(t, err)
			defer d.Close()
			topics, err := d.Topics(t.Context())
			require.NoError(t, err)
			require.Equal(t, []stream.Topic{c.topic}, topics)
			for id := range c.topic.Partitions {
				p := stream.Partition{Topic: c.topic.Name, ID: id}
				want := expected[c.as+" "+p.String()]
				require.NotEmpty(t, want)
				for _, maxBytes := range []int{0, 1, 5000} {
					require.Equal(t, want, rows(t, d, p, maxBytes))
				}
			}
		})
	}
}

func TestOffsetsAndTails(t *testing.T) {
	dir, _ := layOut(t)
	d, err := foreign.Open(foreign.PyStream, filepath.Join(dir, "pystream/data"), foreign.Options{Offsets: filepath.Join(dir, "pystream/offsets")})
	require.NoError(t, err)
	defer d.Close()
	groups, err := d.Groups(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"analytics-worker", "billing"}, groups)
	g, err := d.DescribeGroup(t.Context(), "analytics-worker")
	require.NoError(t, err)
	require.Len(t, g.Offsets, 1)
	assert.Equal(t, []any{"events/1", int64(5), g.Offsets[0].HighWatermark - 5}, []any{g.Offsets[0].Partition.String(), g.Offsets[0].Offset, g.Offsets[0].Lag})
	assert.Empty(t, d.Tails())

	lite, err := foreign.Open(foreign.KafkaLite, filepath.Join(dir, "kafka-lite"), foreign.Options{})
	require.NoError(t, err)
	defer lite.Close()
	require.Len(t, lite.Tails(), 1)
	tail := lite.Tails()[0]
	assert.Equal(t, "clicks/1", tail.Partition.String())
	assert.EqualValues(t, 20+4+4+14-5, tail.Bytes)

	// A time finds its record, whichever segment it is in.
	p := stream.Partition{Topic: "clicks", ID: 0}
	all := rows(t, lite, p, 0)
	for i, row := range all {
		ns := strings.Split(row, "\t")[1]
		var n int64
		_, err := fmt.Sscan(ns, &n)
		require.NoError(t, err)
		at, err := lite.Offset(t.Context(), p, stream.AtTime, time.Unix(0, n))
		require.NoError(t, err)
		require.EqualValues(t, i, at)
	}
}

// Every cut and flip of a file is refused by name, or reported as a tail, or changes what
// only a checksum could have found.
func TestDamageIsRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		kind foreign.Kind
		in   string
		file string
		mend func(data []byte) []byte
		want string
	}{
		{"PyStream's last record is cut", foreign.PyStream, "pystream/data", "events/partition-000000/log.bin", func(b []byte) []byte { return b[:len(b)-1] }, "is damaged at position"},
		{"a length of 4 GiB", foreign.PyStream, "pystream/data", "events/partition-000000/log.bin", func(b []byte) []byte { copy(b, "\x7f\xff\xff\xf0"); return b }, "is damaged at position 0"},
		{"the lengths disagree", foreign.PyStream, "pystream/data", "events/partition-000001/log.bin", func(b []byte) []byte { b[23]++; return b }, "disagrees"},
		{"an offset is twice there", foreign.PyStream, "pystream/data", "events/partition-000001/log.bin", func(b []byte) []byte { return append(b, b...) }, "it has offset 0"},
		{"a partition too many", foreign.PyStream, "pystream/data", "events/topic.meta", func([]byte) []byte { return []byte(`{"version":1,"name":"events","partition_count":2}`) }, "says 2 partitions"},
		{"another name", foreign.PyStream, "pystream/data", "events/topic.meta", func([]byte) []byte { return []byte(`{"version":1,"name":"other","partition_count":3}`) }, `about topic "other"`},
		{"a name that climbs", foreign.PyStream, "pystream/data", "events/topic.meta", func([]byte) []byte { return []byte(`{"version":1,"name":"../x","partition_count":3}`) }, "topic.meta"},
		{"a version to come", foreign.PyStream, "pystream/data", "events/topic.meta", func([]byte) []byte { return []byte(`{"version":2,"name":"events","partition_count":3}`) }, "reads 1"},
		{"no JSON", foreign.PyStream, "pystream/data", "events/topic.meta", func([]byte) []byte { return []byte(`{`) }, "topic.meta"},
		{"replicas that differ", foreign.PyStream, "pystream/cluster-data", "broker-000002/topics/orders/partition-000000/log.bin", func(b []byte) []byte { b[30] ^= 1; return b }, "decide which of them is right"},
		{"a gap between segments", foreign.KafkaLite, "kafka-lite", "clicks/0/00000000000000000000.log", func(b []byte) []byte { return b[:0] }, "is damaged"},
		{"a damaged length that hides records", foreign.KafkaLite, "kafka-lite", "clicks/1/*", func(b []byte) []byte { b[16] = 0x7f; return b }, "stands at position"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, _ := layOut(t)
			files, err := filepath.Glob(filepath.Join(dir, c.in, c.file))
			require.NoError(t, err)
			require.NotEmpty(t, files)
			file := files[len(files)-1]
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(file, c.mend(data), 0o600))
			_, err = foreign.Open(c.kind, filepath.Join(dir, c.in), foreign.Options{})
			require.ErrorContains(t, err, c.want)
		})
	}
	_, err := foreign.Open(foreign.PyStream, t.TempDir(), foreign.Options{})
	require.ErrorContains(t, err, "no topic")
	_, err = foreign.Open("sqlite", t.TempDir(), foreign.Options{})
	require.ErrorContains(t, err, "pystream")
}

// A foreign directory is only read.
func TestNothingIsWritten(t *testing.T) {
	dir, _ := layOut(t)
	d, err := foreign.Open(foreign.KafkaLite, filepath.Join(dir, "kafka-lite"), foreign.Options{})
	require.NoError(t, err)
	defer d.Close()
	c := stream.New(d)
	_, err = c.Create(context.Background(), stream.Topic{Name: "x", Partitions: 1})
	var fe *failure.Error
	require.ErrorAs(t, err, &fe)
	assert.Contains(t, fe.Message, "only read")
}

// FuzzOpen reads directories whose files hold anything.
func FuzzOpen(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x14\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"), true)
	f.Add(make([]byte, 24), false)
	f.Fuzz(func(t *testing.T, data []byte, pystream bool) {
		dir := t.TempDir()
		kind, file := foreign.KafkaLite, "t/0/00000000000000000000.log"
		if pystream {
			kind, file = foreign.PyStream, "t/partition-000000/log.bin"
			require.NoError(t, os.MkdirAll(filepath.Join(dir, "t"), 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "t", "topic.meta"), []byte(`{"version":1,"name":"t","partition_count":1}`), 0o600))
		}
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), data, 0o600))
		d, err := foreign.Open(kind, dir, foreign.Options{})
		if err != nil {
			return
		}
		read := len(rows(t, d, stream.Partition{Topic: "t"}, 1))
		if pystream {
			require.LessOrEqual(t, read*24, len(data))
		}
		require.NoError(t, d.Close())
	})
}

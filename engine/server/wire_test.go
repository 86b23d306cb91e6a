package server_test

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/client"
	"logbook/engine/server"
	"logbook/engine/transcript"
	"logbook/engine/wire"
)

// one starts a single broker and returns its address.
func one(t *testing.T, mod func(*server.Config)) string {
	w := newNetwork(t, 1, mod)
	return w.Address(1)
}

func dial(t *testing.T, address string) net.Conn {
	c, err := net.Dial("tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// Each file in testdata/wire is a conversation, a frame a line: ">" goes to the broker,
// "<" comes back. A client's author can play it against theirs.
func TestGoldenConversations(t *testing.T) {
	transcript.Test(t, "../../testdata/wire/*.txt", func(t *testing.T, text string) string {
		address := one(t, func(c *server.Config) {
			c.Advertise = "broker-1:9400"
			c.Now = func() time.Time { return time.UnixMilli(1_000_000_000_000) }
		})
		return converse(t, dial(t, address), text)
	})
}

func converse(t *testing.T, c net.Conn, text string) string {
	var out strings.Builder
	require.NoError(t, c.SetDeadline(time.Now().Add(20*time.Second)))
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "< ") {
			continue // of the last run
		}
		out.WriteString(line)
		request, ok := strings.CutPrefix(strings.TrimSpace(line), "> ")
		if !ok {
			continue
		}
		_, err := c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(request))), request...))
		require.NoError(t, err)
		var length uint32
		require.NoError(t, binary.Read(c, binary.BigEndian, &length))
		reply := make([]byte, length)
		_, err = io.ReadFull(c, reply)
		require.NoError(t, err)
		fmt.Fprintf(&out, "< %s\n", reply)
	}
	return out.String()
}

// Whatever a stranger sends costs little, is answered if it can be, and leaves others served.
func TestHostileConnections(t *testing.T) {
	address := one(t, func(c *server.Config) {
		c.RequestTimeout = 300 * time.Millisecond
		c.IdleTimeout = 300 * time.Millisecond
	})
	good, err := client.New(client.Options{Brokers: []string{address}})
	require.NoError(t, err)
	defer good.Close()
	_, err = good.CreateTopic(t.Context(), wire.CreateTopic{Name: "flights", Partitions: 1})
	require.NoError(t, err)
	frame := func(body string) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
	}
	for name, c := range map[string]struct {
		send []byte
		want string // in the error frame; empty: the connection just ends
	}{
		"a huge length":        {[]byte{0x7f, 0xff, 0xff, 0xff}, "the limit is"},
		"a negative length":    {[]byte{0xff, 0xff, 0xff, 0xff}, "the limit is"},
		"HTTP":                 {[]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), "speak this protocol"},
		"garbage":              {frame("\x00\x01\x02 nonsense"), "not a JSON object"},
		"half a length":        {[]byte{0, 0}, ""},
		"half a frame":         {append([]byte{0, 0, 1, 0}, "{\"v\":1"...), ""},
		"nothing at all":       {nil, ""},
		"deeply nested":        {frame(`{"v":1,"id":1,"type":"metadata","payload":{"topics":` + strings.Repeat("[", 100_000) + `}}`), "cannot be read"},
		"an unknown request":   {frame(`{"v":1,"id":1,"type":"reboot","payload":{}}`), "no request"},
		"a peer's request":     {frame(`{"v":1,"id":1,"type":"ping","payload":{}}`), "no request"},
		"a replica's":          {frame(`{"v":1,"id":0,"type":"replica","payload":{"topic":"flights"}}`), "no request"},
		"a stranger's peer":    {frame(`{"v":1,"id":1,"type":"hello","payload":{"broker":2}}`), "not one of broker 1's peers"},
		"a name that climbs":   {frame(`{"v":1,"id":1,"type":"create_topic","payload":{"name":"../../etc","partitions":1}}`), "use letters"},
		"a group that climbs":  {frame(`{"v":1,"id":1,"type":"find_coordinator","payload":{"group":"../../etc"}}`), "use letters"},
		"a million partitions": {frame(`{"v":1,"id":1,"type":"create_topic","payload":{"name":"x","partitions":1000000}}`), "it must be from 1 to"},
		"a negative offset":    {frame(`{"v":1,"id":1,"type":"fetch","payload":{"topic":"flights","offset":-9223372036854775808}}`), "below the log start"},
		"a fraction":           {frame(`{"v":1,"id":1,"type":"fetch","payload":{"topic":"flights","offset":1.5}}`), "cannot be read"},
		"a negative partition": {frame(`{"v":1,"id":1,"type":"produce","payload":{"topic":"flights","partition":-7,"records":[{"value":"eA=="}]}}`), "has no partition"},
		"no base64":            {frame(`{"v":1,"id":1,"type":"produce","payload":{"topic":"flights","partition":0,"records":[{"value":"?"}]}}`), "cannot be read"},
		"the broker's own":     {frame(`{"v":1,"id":1,"type":"produce","payload":{"topic":"__groups","partition":0,"records":[{"value":"eA=="}]}}`), "broker's own"},
	} {
		t.Run(name, func(t *testing.T) {
			conn := dial(t, address)
			_, err := conn.Write(c.send)
			require.NoError(t, err)
			require.NoError(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
			answer := make([]byte, 4096)
			n, err := conn.Read(answer)
			if c.want == "" {
				require.ErrorIs(t, err, io.EOF, "the broker hangs up on who keeps it waiting")
				return
			}
			require.NoError(t, err)
			assert.Contains(t, string(answer[:n]), c.want)
		})
		_, err := good.Produce(t.Context(), "flights", 0, "", value("still served"))
		require.NoError(t, err, "after %s", name)
	}
}

// A thousand connections that say nothing and fifty that promise a lot and send little.
func TestMemoryUnderManyConnections(t *testing.T) {
	address := one(t, nil)
	good, err := client.New(client.Options{Brokers: []string{address}})
	require.NoError(t, err)
	defer good.Close()
	_, err = good.CreateTopic(t.Context(), wire.CreateTopic{Name: "flights", Partitions: 1})
	require.NoError(t, err)
	before := heap()
	for range 1000 {
		dial(t, address)
	}
	for range 50 {
		c := dial(t, address)
		_, err := c.Write([]byte{0, 0x50, 0, 0, '{'}) // five megabytes are to come
		require.NoError(t, err)
	}
	for range 20 {
		_, err = good.Produce(t.Context(), "flights", 0, "", value("served"))
		require.NoError(t, err)
	}
	grown := heap() - before
	fmt.Printf("memory: 1,000 idle and 50 hostile connections hold %.1f MiB, both ends and the race detector's share\n", float64(grown)/(1<<20))
	assert.Less(t, grown, int64(64<<20), "the promised 250 MiB are not taken")
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// Connections that say nothing make room for those that come, and who has something under
// way stays.
func TestTheIdleMakeRoom(t *testing.T) {
	n := newNetwork(t, 1, func(c *server.Config) { c.MaxConnections = 5 })
	address := n.Address(1)
	busy := dial(t, address)
	require.NoError(t, wire.Write(busy, 1, "hello", wire.Hello{}))
	_, err := wire.Read(busy, 1000)
	require.NoError(t, err)
	require.NoError(t, wire.Write(busy, 2, "create_topic", wire.CreateTopic{Name: "flights", Partitions: 1}))
	_, err = wire.Read(busy, 1000)
	require.NoError(t, err)
	require.NoError(t, wire.Write(busy, 3, "fetch", wire.Fetch{Topic: "flights", WaitMS: 60_000}))
	require.Eventually(t, func() bool { return n.Server(1).Counters().Requests["fetch"] == 1 }, 20*time.Second, time.Millisecond, "it is under way")
	for range 20 {
		dial(t, address)
	}
	c, err := client.New(client.Options{Brokers: []string{address}})
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Produce(t.Context(), "flights", 0, "", value("for those who wait"))
	require.NoError(t, err)
	require.NoError(t, busy.SetDeadline(time.Now().Add(20*time.Second)))
	e, err := wire.Read(busy, 1000)
	require.NoError(t, err, "it was sent away although its fetch was under way")
	assert.Equal(t, "fetch", e.Type)
}

// Replies that nobody reads take no more memory than there is for all, and those who do read
// are served all the same.
func TestMemoryOfRepliesNobodyReads(t *testing.T) {
	const memory = 8 << 20
	address := one(t, func(c *server.Config) { c.MaxMemory, c.MaxFrame, c.RequestTimeout = memory, 2<<20, time.Second })
	good, err := client.New(client.Options{Brokers: []string{address}})
	require.NoError(t, err)
	defer good.Close()
	_, err = good.CreateTopic(t.Context(), wire.CreateTopic{Name: "flights", Partitions: 1})
	require.NoError(t, err)
	for range 8 {
		_, err := good.Produce(t.Context(), "flights", 0, "", value(strings.Repeat("x", 900<<10)))
		require.NoError(t, err)
	}
	before := heap()
	for range 10 {
		c := dial(t, address)
		var all []byte
		for i := range 200 {
			all, err = wire.Append(all, uint64(i+1), "fetch", wire.Fetch{Topic: "flights", MaxBytes: 1 << 20, WaitMS: 100})
			require.NoError(t, err)
		}
		_, err = c.Write(all)
		require.NoError(t, err)
	}
	most := int64(0)
	for range 30 {
		_, err := good.Produce(t.Context(), "flights", 0, "", value("served"))
		require.NoError(t, err)
		most = max(most, heap()-before)
	}
	r, err := good.Fetch(t.Context(), "flights", 0, 0, 1<<20, 0)
	require.NoError(t, err)
	assert.NotEmpty(t, r.Records)
	fmt.Printf("memory: 2,000 fetches of a MiB that nobody reads hold at most %.1f MiB\n", float64(most)/(1<<20))
	assert.Less(t, most, int64(8*memory))
}

// A request that would grow beyond all memory when it is read is refused.
func TestARequestThatGrows(t *testing.T) {
	address := one(t, func(c *server.Config) { c.MaxMemory = 32 << 20 })
	c := dial(t, address)
	body := `{"v":1,"id":1,"type":"produce","payload":{"topic":"t","partition":0,"records":[{}` + strings.Repeat(",{}", 5<<20) + `]}}`
	go func() { _, _ = c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)) }()
	require.NoError(t, c.SetDeadline(time.Now().Add(20*time.Second)))
	e, err := wire.Read(c, 10_000)
	require.NoError(t, err)
	assert.Contains(t, string(e.Payload), "too_large")
}

// Requests that come in one piece are all answered, and appends keep their order.
func TestPipelinedRequests(t *testing.T) {
	address := one(t, nil)
	c := dial(t, address)
	require.NoError(t, c.SetDeadline(time.Now().Add(30*time.Second)))
	require.NoError(t, wire.Write(c, 1, "create_topic", wire.CreateTopic{Name: "t", Partitions: 1}))
	_, err := wire.Read(c, 10_000)
	require.NoError(t, err)
	const n = 500
	go func() {
		var all []byte
		for i := range n {
			all, _ = wire.Append(all, uint64(100+i), "produce", wire.Produce{Topic: "t", Records: []wire.Record{value(fmt.Sprint(i))}})
		}
		_, _ = c.Write(all)
	}()
	in := bufio.NewReader(c)
	for range n {
		e, err := wire.Read(in, 10_000)
		require.NoError(t, err)
		var r wire.ProduceReply
		require.Equal(t, "produce", e.Type, string(e.Payload))
		require.NoError(t, json.Unmarshal(e.Payload, &r))
		require.Equal(t, int64(e.ID)-100, r.Offset)
	}
}

// What was accepted is answered before the broker goes.
func TestGracefulShutdown(t *testing.T) {
	w := newNetwork(t, 1, nil)
	c := dial(t, w.Address(1))
	require.NoError(t, c.SetDeadline(time.Now().Add(30*time.Second)))
	require.NoError(t, wire.Write(c, 1, "create_topic", wire.CreateTopic{Name: "t", Partitions: 1}))
	_, err := wire.Read(c, 10_000)
	require.NoError(t, err)
	require.NoError(t, wire.Write(c, 2, "fetch", wire.Fetch{Topic: "t", WaitMS: 50_000}))
	require.NoError(t, wire.Write(c, 3, "metadata", wire.Metadata{}))
	e, err := wire.Read(c, 10_000)
	require.NoError(t, err)
	require.Equal(t, uint64(3), e.ID, "the fetch waits")
	w.stop(1)
	e, err = wire.Read(c, 10_000)
	require.NoError(t, err)
	assert.Equal(t, []any{uint64(2), "fetch"}, []any{e.ID, e.Type})
	_, err = wire.Read(c, 10_000)
	assert.ErrorIs(t, err, io.EOF)
}

func TestTokenAndTLS(t *testing.T) {
	cert, pool := certificate(t)
	w := newNetwork(t, 3, func(c *server.Config) {
		c.Token = "a token of some length"
		c.ServerTLS = &tls.Config{Certificates: []tls.Certificate{cert}}
		c.PeerTLS = &tls.Config{RootCAs: pool}
	})
	with := func(token string, cfg *tls.Config) error {
		c, err := client.New(client.Options{Brokers: []string{w.Address(1)}, Token: token, TLS: cfg, Patience: 300 * time.Millisecond})
		require.NoError(t, err)
		defer c.Close()
		_, err = c.Metadata(t.Context())
		return err
	}
	require.NoError(t, with("a token of some length", &tls.Config{RootCAs: pool}))
	assert.ErrorContains(t, with("another token of length", &tls.Config{RootCAs: pool}), "the token is not the broker's")
	assert.ErrorContains(t, with("a token of some length", nil), "wants TLS")
	assert.ErrorContains(t, with("a token of some length", &tls.Config{}), "certificate")
	// The brokers find one another all the same.
	c, err := client.New(client.Options{Brokers: []string{w.Address(1)}, Token: "a token of some length", TLS: &tls.Config{RootCAs: pool}})
	require.NoError(t, err)
	defer c.Close()
	w.eventually("a topic can be made", func() bool {
		_, err := c.CreateTopic(t.Context(), wire.CreateTopic{Name: "t", Partitions: 1, Replication: 3})
		return err == nil
	})
	_, err = c.Produce(t.Context(), "t", 0, "quorum", value("x"))
	require.NoError(t, err)

	// Without a token nothing is said, and nothing of size is read.
	conn, err := tls.Dial("tcp", w.Address(1), &tls.Config{RootCAs: pool})
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, wire.Write(conn, 1, "metadata", wire.Metadata{}))
	e, err := wire.Read(conn, 10_000)
	require.NoError(t, err)
	assert.Contains(t, string(e.Payload), "unauthorized")
}

func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "logbook test"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

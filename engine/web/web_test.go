package web_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"logbook/engine/client"
	"logbook/engine/server"
	"logbook/engine/server/servertest"
	"logbook/engine/web"
	"logbook/engine/wire"
)

func TestHealthOverHTTP(t *testing.T) {
	s := server.DefaultSettings()
	s.Port, s.LogFormat, s.AppName = 0, "json", "logbook-test"
	var logs bytes.Buffer
	logger := s.NewLogger(&logs)
	ctx, stop := context.WithCancel(t.Context())
	ln, err := net.Listen("tcp", s.Address())
	require.NoError(t, err)
	b, err := server.Open(server.Config{ID: 1, Data: t.TempDir()})
	require.NoError(t, err)
	defer b.Close()
	done := make(chan error, 1)
	go func() { done <- web.Serve(ctx, ln, b, s, logger) }()

	base := "http://" + ln.Addr().String()
	res, err := http.Get(base + "/api/health")
	require.NoError(t, err)
	body, err := io.ReadAll(res.Body)
	res.Body.Close()
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, res.StatusCode)
	assert.Equal(t, "application/json", res.Header.Get("Content-Type"))
	assert.JSONEq(t, `{"status":"ok","service":"logbook-test"}`, string(body))

	for path, want := range map[string]int{"/": 200, "/docs/": 200, "/openapi.json": 200, "/metrics": 200, "/nothing": 404, "/api/nothing": 404} {
		res, err := http.Get(base + path)
		require.NoError(t, err)
		res.Body.Close()
		assert.Equal(t, want, res.StatusCode, path)
	}
	res, err = http.Post(base+"/api/health", "text/plain", nil)
	require.NoError(t, err)
	res.Body.Close()
	assert.Equal(t, http.StatusMethodNotAllowed, res.StatusCode)

	stop()
	require.NoError(t, <-done)
	_, err = http.Get(base + "/api/health") //nolint:bodyclose // there is none
	require.Error(t, err, "after shutdown nobody answers")
	var line map[string]any
	require.NoError(t, json.Unmarshal(bytes.SplitN(logs.Bytes(), []byte("\n"), 2)[0], &line))
	assert.Equal(t, "logbook-test", line["service"])
	assert.Equal(t, "serving", line["msg"])
}

// The page and its interactive documentation work without the internet: nothing that they
// load lies elsewhere.
func TestPagesAreSelfContained(t *testing.T) {
	b, err := server.Open(server.Config{ID: 1, Data: t.TempDir()})
	require.NoError(t, err)
	defer b.Close()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	s := server.DefaultSettings()
	go func() { done <- web.Serve(ctx, ln, b, s, s.NewLogger(io.Discard)) }()
	base := "http://" + ln.Addr().String()
	for _, path := range []string{"/", "/docs/"} {
		body := fetchPage(t, base+path)
		for _, marker := range []string{`src="http`, `href="http`, `src="//`, `href="//`, "unpkg", "cdn."} {
			assert.NotContains(t, string(body), marker, path)
		}
	}
	var document struct {
		OpenAPI string                    `json:"openapi"`
		Paths   map[string]map[string]any `json:"paths"`
	}
	require.NoError(t, json.Unmarshal(fetchPage(t, base+"/openapi.json"), &document))
	assert.True(t, strings.HasPrefix(document.OpenAPI, "3."))
	for _, path := range []string{"/api/health", "/api/v1/topics", "/api/v1/groups/{name}", "/api/v1/overview"} {
		assert.Contains(t, document.Paths, path)
	}
	assert.True(t, bytes.Contains(fetchPage(t, base+"/metrics"), []byte("logbook_connections")))
	stop()
	require.NoError(t, <-done)
}

func fetchPage(t *testing.T, url string) []byte {
	res, err := (&http.Client{Timeout: 10 * time.Second}).Get(url)
	require.NoError(t, err)
	defer res.Body.Close()
	require.Equal(t, http.StatusOK, res.StatusCode, url)
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return body
}

// The page in a real browser, where there is one: its script has run and drawn what the
// broker knows.
func TestPageInABrowser(t *testing.T) {
	browser := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			browser = path
		}
	}
	if browser == "" {
		t.Skip("there is no Chromium or Chrome")
	}
	n, err := servertest.Start(t.TempDir(), 1, nil)
	require.NoError(t, err)
	defer n.Close()
	c, err := client.New(client.Options{Brokers: n.Addresses()})
	require.NoError(t, err)
	defer c.Close()
	_, err = c.CreateTopic(t.Context(), wire.CreateTopic{Name: "flights", Partitions: 2})
	require.NoError(t, err)
	_, err = c.Produce(t.Context(), "flights", 1, "", wire.Record{Value: []byte("x")})
	require.NoError(t, err)
	require.NoError(t, c.ResetOffsets(t.Context(), "dashboards", wire.CommitOffset{Topic: "flights", Partition: 1}))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	s := server.DefaultSettings()
	go func() { done <- web.Serve(ctx, ln, n.Server(1), s, s.NewLogger(io.Discard)) }()
	cmd := exec.Command(browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--user-data-dir="+t.TempDir(),
		"--virtual-time-budget=4000", "--dump-dom", "http://"+ln.Addr().String()+"/")
	dom, err := cmd.Output()
	require.NoError(t, err)
	for _, want := range []string{"flights/1", "broker 1", "dashboards", "lag 1", "leads"} {
		assert.Contains(t, string(dom), want)
	}
	stop()
	require.NoError(t, <-done)
}

// The API asks for the token where there is one, health does not, and neither answers to a
// name that is not the broker's.
func TestStrangersOverHTTP(t *testing.T) {
	s := server.DefaultSettings()
	s.Token = "sixteen characters"
	s.WebHosts = []string{"logbook.example"}
	b, err := server.Open(server.Config{ID: 1, Data: t.TempDir(), Token: s.Token})
	require.NoError(t, err)
	defer b.Close()
	h := web.Handler(b, s, slog.New(slog.DiscardHandler))
	ask := func(path, host, user, password string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, "http://"+host+path, nil)
		if password != "" {
			r.SetBasicAuth(user, password)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	for _, path := range []string{"/", "/app.js", "/metrics", "/api/v1/topics", "/openapi.json", "/docs/"} {
		require.Equal(t, http.StatusUnauthorized, ask(path, "localhost:8000", "", "").Code, path)
		require.Equal(t, http.StatusUnauthorized, ask(path, "localhost:8000", "x", "wrong").Code, path)
		require.Equal(t, http.StatusOK, ask(path, "localhost:8000", "x", s.Token).Code, path)
	}
	require.Equal(t, http.StatusOK, ask("/api/health", "127.0.0.1", "", "").Code)
	require.Equal(t, http.StatusOK, ask("/api/ready", "[::1]:80", "", "").Code)
	require.Equal(t, http.StatusMisdirectedRequest, ask("/", "evil.example", "x", s.Token).Code)
	require.Equal(t, http.StatusOK, ask("/", "logbook.example", "x", s.Token).Code)
	require.Contains(t, ask("/", "localhost", "x", s.Token).Header().Get("Content-Security-Policy"), "default-src 'self';")
}

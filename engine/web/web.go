// Package web is a broker's HTTP side: the page that shows a cluster live, health, an API
// with its document and interactive documentation, and metrics for Prometheus. Nothing
// that it serves needs the internet.
package web

import (
	"context"
	"embed"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/swaggest/swgui/v5emb"

	"logbook/engine/server"
	"logbook/engine/service"
	"logbook/engine/wire"
)

//go:embed page
var pageFiles embed.FS

// Handler returns the broker's HTTP side: the page at /, health, the API, its document
// and its interactive documentation, and metrics. Nothing it serves needs the internet.
func Handler(b *server.Server, s server.Settings, logger *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /api/health", b.Health(s))
	mux.Handle("GET /api/ready", b.Ready(s))
	cfg := huma.DefaultConfig("Logbook", "1")
	cfg.Info.Description = "What a broker knows: brokers, topics, partitions, groups. Reading only; records travel by the protocol of engine/wire."
	cfg.DocsPath = "" // its pages come from the internet
	cfg.CreateHooks = nil
	api := humago.New(mux, cfg)
	routes(api, b, s)
	docs := v5emb.New("Logbook", "/openapi.json", "/docs/")
	mux.Handle("GET /docs", http.RedirectHandler("/docs/", http.StatusMovedPermanently))
	mux.Handle("GET /docs/", docs)
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector{b}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	page, err := fs.Sub(pageFiles, "page")
	if err != nil {
		panic(err) // it is embedded
	}
	for _, path := range []string{"/{$}", "/style.css", "/app.js"} {
		mux.Handle("GET "+path, http.FileServerFS(page))
	}
	return logRequests(secure(guard(mux, s, b.Service().IsUser), s), logger)
}

// reply is an operation's answer.
type reply[T any] struct{ Body T }

// get adds an operation that reads.
func get[Q, T any](api huma.API, id, path, summary string, f func(context.Context, *Q) (T, error)) {
	op := huma.Operation{OperationID: id, Method: http.MethodGet, Path: path, Summary: summary}
	huma.Register(api, op, func(ctx context.Context, q *Q) (*reply[T], error) {
		out, err := f(ctx, q)
		if err != nil {
			return nil, err
		}
		return &reply[T]{Body: out}, nil
	})
}

type none struct{}

type partitionPath struct {
	Topic     string `path:"topic" maxLength:"249"`
	Partition int    `path:"partition" minimum:"0"`
}

type namePath struct {
	Name string `path:"name" maxLength:"249"`
}

func routes(api huma.API, b *server.Server, s server.Settings) {
	// Served by the handler above; here it is documented.
	api.OpenAPI().AddOperation(&huma.Operation{
		OperationID: "health", Method: http.MethodGet, Path: "/api/health", Summary: "Shows that the process answers",
		Responses: map[string]*huma.Response{"200": {Description: "It does", Content: map[string]*huma.MediaType{
			"application/json": {Schema: huma.SchemaFromType(api.OpenAPI().Components.Schemas, reflect.TypeFor[server.Health]())},
		}}},
	})
	get(api, "brokers", "/api/v1/brokers", "Lists the brokers, as this one sees them", func(context.Context, *none) ([]wire.Broker, error) { return b.Brokers(), nil })
	get(api, "cluster", "/api/v1/cluster", "Describes the cluster at a glance: who decides, who is there, and what is not well", func(ctx context.Context, _ *none) (wire.ClusterReply, error) {
		return cluster(ctx, b), nil
	})
	get(api, "topics", "/api/v1/topics", "Lists the topics with their partitions and leaders", func(context.Context, *none) ([]wire.Topic, error) {
		m, err := b.Metadata()
		return m.Topics, httpError(b, err)
	})
	get(api, "topic", "/api/v1/topics/{name}", "Describes a topic", func(_ context.Context, q *namePath) (wire.Topic, error) {
		m, err := b.Metadata(q.Name)
		if err != nil {
			return wire.Topic{}, httpError(b, err)
		}
		return m.Topics[0], nil
	})
	get(api, "partition", "/api/v1/topics/{topic}/partitions/{partition}", "Describes a partition, replica by replica, with lag", func(ctx context.Context, q *partitionPath) (wire.StatusReply, error) {
		st, err := status(ctx, b, q.Topic, q.Partition)
		return st, httpError(b, err)
	})
	get(api, "groups", "/api/v1/groups", "Lists the consumer groups", func(ctx context.Context, _ *none) ([]string, error) { return groupNames(ctx, b) })
	get(api, "group", "/api/v1/groups/{name}", "Describes a group: members, partitions, committed offsets, lag", func(ctx context.Context, q *namePath) (wire.DescribeGroupReply, error) {
		g, err := describeGroup(ctx, b, q.Name)
		return g, httpError(b, err)
	})
	get(api, "overview", "/api/v1/overview", "All of it at once, for the page", func(ctx context.Context, _ *none) (Overview, error) { return overview(ctx, b, s.AppName), nil })
}

// wait begins something and waits for its outcome.
func wait[T any](ctx context.Context, begin func(done func(T, error))) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	result := make(chan outcome, 1)
	begin(func(value T, err error) { result <- outcome{value, err} })
	select {
	case o := <-result:
		return o.value, o.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

func status(ctx context.Context, b *server.Server, topic string, partition int) (wire.StatusReply, error) {
	return wait(ctx, func(done func(wire.StatusReply, error)) {
		b.Status(service.Partition{Topic: topic, ID: partition}, done)
	})
}

func groupNames(ctx context.Context, b *server.Server) ([]string, error) {
	return wait(ctx, func(done func([]string, error)) {
		b.Service().Groups(func(names []string) { done(append([]string{}, names...), nil) })
	})
}

func describeGroup(ctx context.Context, b *server.Server, name string) (wire.DescribeGroupReply, error) {
	return wait(ctx, func(done func(wire.DescribeGroupReply, error)) { b.DescribeGroup(name, done) })
}

// httpError turns an error into a problem document (RFC 9457).
func httpError(b *server.Server, err error) error {
	if err == nil {
		return nil
	}
	we := b.WireError(err)
	status := http.StatusInternalServerError
	switch we.Code {
	case wire.UnknownTopic, wire.UnknownPartition:
		status = http.StatusNotFound
	case wire.BadRequest:
		status = http.StatusBadRequest
	case wire.Unavailable, wire.NotCoordinator, wire.NotLeader:
		status = http.StatusServiceUnavailable
	}
	return huma.NewError(status, we.Message)
}

// Overview is everything that the page shows.
type Overview struct {
	Service    string                    `json:"service"`
	Broker     wire.BrokerID             `json:"broker" doc:"the one that answers"`
	Controller string                    `json:"controller"`
	Cluster    wire.ClusterReply         `json:"cluster"`
	Brokers    []wire.Broker             `json:"brokers"`
	Topics     []TopicOverview           `json:"topics"`
	Groups     []wire.DescribeGroupReply `json:"groups"`
}

// TopicOverview is a topic with the status of each partition.
type TopicOverview struct {
	Name        string             `json:"name"`
	Internal    bool               `json:"internal"`
	Partitioner string             `json:"router"`
	Partitions  []wire.StatusReply `json:"partitions"`
}

// overviewLimit bounds what one look costs.
const overviewLimit = 200

func overview(ctx context.Context, b *server.Server, app string) Overview {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	o := Overview{Service: app, Broker: wire.BrokerID(b.ID()), Controller: b.Service().Controller(), Brokers: b.Brokers(), Topics: []TopicOverview{}, Groups: []wire.DescribeGroupReply{}}
	o.Cluster = cluster(ctx, b)
	m, err := b.Metadata()
	if err != nil {
		return o
	}
	left := overviewLimit
	for _, t := range m.Topics {
		if t.Internal {
			continue
		}
		to := TopicOverview{Name: t.Name, Partitioner: t.Partitioner, Partitions: []wire.StatusReply{}}
		for i := range t.Partitions {
			if left--; left < 0 {
				break
			}
			if s, err := status(ctx, b, t.Name, i); err == nil {
				to.Partitions = append(to.Partitions, s)
			}
		}
		o.Topics = append(o.Topics, to)
	}
	names, _ := groupNames(ctx, b) // what came in time
	for _, name := range names {
		if g, err := describeGroup(ctx, b, name); err == nil {
			o.Groups = append(o.Groups, g)
		}
	}
	return o
}

// cluster waits for the cluster at a glance, as long as ctx lasts.
func cluster(ctx context.Context, b *server.Server) wire.ClusterReply {
	r, _ := wait(ctx, func(done func(wire.ClusterReply, error)) {
		b.Cluster(func(r wire.ClusterReply) { done(r, nil) })
	})
	return r
}

func logRequests(next http.Handler, logger *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sw := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(sw, r)
		logger.Debug("request", "method", r.Method, "path", r.URL.Path, "status", sw.status)
	})
}

type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// shutdownGrace is how long requests that were accepted may take to finish.
const shutdownGrace = 10 * time.Second

// Serve answers HTTP on ln until ctx ends, then finishes what it accepted and returns.
// It closes ln.
func Serve(ctx context.Context, ln net.Listener, b *server.Server, s server.Settings, logger *slog.Logger) error {
	srv := &http.Server{
		Handler:           Handler(b, s, logger),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}
	logger.Info("serving", "address", ln.Addr().String(), "health", "http://"+ln.Addr().String()+"/api/health", "page", "http://"+ln.Addr().String()+"/")
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(ln) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	logger.Info("shutting down")
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
	defer cancel()
	err := srv.Shutdown(grace)
	if serr := <-failed; err == nil && !errors.Is(serr, http.ErrServerClosed) {
		err = serr
	}
	return err
}

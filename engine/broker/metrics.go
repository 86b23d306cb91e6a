package broker

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"logbook/engine/controller"
	"logbook/engine/replica"
	"logbook/engine/wire"
)

// metrics counts what a broker does, for Prometheus.
type metrics struct {
	registry    *prometheus.Registry
	connections prometheus.Gauge
	refused     prometheus.Counter
	hostile     prometheus.Counter
	requests    *prometheus.CounterVec
	errors      *prometheus.CounterVec
	in, out     *prometheus.CounterVec
	latency     prometheus.Histogram
}

func newMetrics() *metrics {
	m := &metrics{
		registry:    prometheus.NewRegistry(),
		connections: prometheus.NewGauge(prometheus.GaugeOpts{Name: "logbook_connections", Help: "Open connections of clients and peers."}),
		refused:     prometheus.NewCounter(prometheus.CounterOpts{Name: "logbook_connections_refused_total", Help: "Connections refused because of the limit or a shutdown."}),
		hostile:     prometheus.NewCounter(prometheus.CounterOpts{Name: "logbook_bad_frames_total", Help: "Connections ended because of what they sent."}),
		requests:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "logbook_requests_total", Help: "Requests, by type."}, []string{"type"}),
		errors:      prometheus.NewCounterVec(prometheus.CounterOpts{Name: "logbook_errors_total", Help: "Error replies, by code."}, []string{"code"}),
		in:          prometheus.NewCounterVec(prometheus.CounterOpts{Name: "logbook_records_in_total", Help: "Records produced and acknowledged, by topic."}, []string{"topic"}),
		out:         prometheus.NewCounterVec(prometheus.CounterOpts{Name: "logbook_records_out_total", Help: "Records fetched, by topic."}, []string{"topic"}),
		latency:     prometheus.NewHistogram(prometheus.HistogramOpts{Name: "logbook_produce_seconds", Help: "From a produce's append to its acknowledgement.", Buckets: prometheus.ExponentialBuckets(0.0001, 2, 16)}),
	}
	m.registry.MustRegister(m.connections, m.refused, m.hostile, m.requests, m.errors, m.in, m.out, m.latency,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *metrics) produced(p controller.Partition, n int, took time.Duration) {
	m.in.WithLabelValues(p.Topic).Add(float64(n))
	m.latency.Observe(took.Seconds())
}

func (m *metrics) fetched(p controller.Partition, n int) {
	m.out.WithLabelValues(p.Topic).Add(float64(n))
}

var kinds = func() map[string]bool {
	all := map[string]bool{}
	for _, m := range wire.Messages {
		all[m.Type] = true
	}
	return all
}()

// kindLabel keeps what strangers send from becoming labels.
func kindLabel(kind string) string {
	if kinds[kind] {
		return kind
	}
	return "unknown"
}

// partitionCollector reports each replica's log when it is asked.
type partitionCollector struct{ b *Broker }

var (
	endDesc    = prometheus.NewDesc("logbook_log_end_offset", "Log end offset of a replica on this broker.", []string{"topic", "partition"}, nil)
	hwDesc     = prometheus.NewDesc("logbook_high_watermark", "High watermark, as this broker knows it.", []string{"topic", "partition"}, nil)
	leaderDesc = prometheus.NewDesc("logbook_leader", "1 where this broker leads the partition.", []string{"topic", "partition"}, nil)
)

// Describe implements prometheus.Collector.
func (c partitionCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- endDesc
	ch <- hwDesc
	ch <- leaderDesc
}

// Collect implements prometheus.Collector.
func (c partitionCollector) Collect(ch chan<- prometheus.Metric) {
	for _, p := range c.b.node.Partitions() {
		s, err := c.b.node.Status(p)
		if err != nil {
			continue
		}
		leads := 0.0
		if s.Role == replica.Leader {
			leads = 1
		}
		labels := []string{p.Topic, p.String()[len(p.Topic)+1:]}
		ch <- prometheus.MustNewConstMetric(endDesc, prometheus.GaugeValue, float64(s.End), labels...)
		ch <- prometheus.MustNewConstMetric(hwDesc, prometheus.GaugeValue, float64(s.HighWatermark), labels...)
		ch <- prometheus.MustNewConstMetric(leaderDesc, prometheus.GaugeValue, leads, labels...)
	}
}

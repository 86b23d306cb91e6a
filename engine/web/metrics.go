package web

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"logbook/engine/replica"
	"logbook/engine/server"
)

// collector turns a broker's counters and its replicas' state into metrics, when asked.
type collector struct{ b *server.Server }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("logbook_"+name, help, labels, nil)
}

var (
	connections = desc("connections", "Open connections of clients and peers.")
	refused     = desc("connections_refused_total", "Connections refused because of the limit or a shutdown.")
	badFrames   = desc("bad_frames_total", "Connections ended because of what they sent.")
	requests    = desc("requests_total", "Requests, by type.", "type")
	failures    = desc("errors_total", "Error replies, by code.", "code")
	recordsIn   = desc("records_in_total", "Records produced and acknowledged, by topic.", "topic")
	recordsOut  = desc("records_out_total", "Records fetched, by topic.", "topic")
	produce     = desc("produce_seconds", "From a produce's append to its acknowledgement.")
	logEnd      = desc("log_end_offset", "Log end offset of a replica on this broker.", "topic", "partition")
	highMark    = desc("high_watermark", "High watermark, as this broker knows it.", "topic", "partition")
	usable      = desc("replica_usable", "0 where this broker cannot use its replica: damaged, missing, or refused by the disk.", "topic", "partition")
	kafkaIn     = desc("kafka_requests_total", "Requests of Kafka's clients, by name.", "request")
	kafkaConns  = desc("kafka_connections", "Open connections of Kafka's clients.")
	active      = desc("active_controller", "1 on the broker that is the active controller.")
	fencedCount = desc("fenced_brokers", "Brokers that are not heard of, and count for nothing.")
	leaderless  = desc("offline_partitions", "Partitions that nobody leads.")
	under       = desc("under_replicated_partitions", "Partitions with a replica that is not in sync.")
	underMin    = desc("under_min_isr_partitions", "Partitions that take no writes for quorum and all.")
	term        = desc("metadata_term", "Term of the quorum.")
	committed   = desc("metadata_committed_index", "Index of the last decision that counts, as far as this broker knows.")
	applied     = desc("metadata_applied_index", "Index of the last decision that this broker follows.")
	uncleanly   = desc("unclean_leader_elections_total", "Leaders that had not been in sync, since this broker started.")
	leads       = desc("leader", "1 where this broker leads the partition.", "topic", "partition")
)

// Describe implements prometheus.Collector: what there is depends on the topics.
func (collector) Describe(ch chan<- *prometheus.Desc) { ch <- connections }

// cluster are the figures that Kafka's dashboards show of a controller.
func (c collector) cluster(one func(*prometheus.Desc, prometheus.ValueType, float64, ...string)) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	r := cluster(ctx, c.b)
	fenced, isActive := 0, 0.0
	for _, b := range r.Brokers {
		if b.Fenced {
			fenced++
		}
	}
	if r.ControllerID != 0 && r.ControllerID == r.Broker {
		isActive = 1
	}
	one(active, prometheus.GaugeValue, isActive)
	one(fencedCount, prometheus.GaugeValue, float64(fenced))
	one(leaderless, prometheus.GaugeValue, float64(len(r.Leaderless)))
	one(under, prometheus.GaugeValue, float64(len(r.UnderReplicated)))
	one(underMin, prometheus.GaugeValue, float64(len(r.UnderMinISR)))
	if r.Term > 0 {
		one(term, prometheus.GaugeValue, float64(r.Term))
		one(committed, prometheus.GaugeValue, float64(r.Committed))
		one(uncleanly, prometheus.CounterValue, float64(r.Unclean))
		one(applied, prometheus.GaugeValue, float64(r.Applied))
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	n := c.b.Counters()
	one := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	}
	one(connections, prometheus.GaugeValue, float64(n.Connections))
	one(kafkaConns, prometheus.GaugeValue, float64(c.b.Kafka().Connections()))
	for name, n := range c.b.Kafka().Requests() {
		one(kafkaIn, prometheus.CounterValue, float64(n), name)
	}
	bad := c.b.Service().Unusable()
	for p := range c.b.Service().Sizes() {
		ok := 1.0
		if slices.Contains(bad, p) {
			ok = 0
		}
		one(usable, prometheus.GaugeValue, ok, p.Topic, strconv.Itoa(p.ID))
	}
	c.cluster(one)
	one(refused, prometheus.CounterValue, float64(n.Refused))
	one(badFrames, prometheus.CounterValue, float64(n.BadFrames))
	for d, by := range map[*prometheus.Desc]map[string]int64{requests: n.Requests, failures: n.Errors, recordsIn: n.RecordsIn, recordsOut: n.RecordsOut} {
		for label, v := range by {
			one(d, prometheus.CounterValue, float64(v), label)
		}
	}
	buckets, total := map[float64]uint64{}, uint64(0)
	for i, v := range n.Produce {
		total += uint64(v)
		if i < len(server.ProduceBuckets) {
			buckets[server.ProduceBuckets[i].Seconds()] = total
		}
	}
	ch <- prometheus.MustNewConstHistogram(produce, total, n.ProduceSum.Seconds(), buckets)
	for p, s := range c.b.Service().Replicas() {
		partition := strconv.Itoa(p.ID)
		lead := 0.0
		if s.Role == replica.Leader {
			lead = 1
		}
		one(logEnd, prometheus.GaugeValue, float64(s.LogEndOffset), p.Topic, partition)
		one(highMark, prometheus.GaugeValue, float64(s.HighWatermark), p.Topic, partition)
		one(leads, prometheus.GaugeValue, lead, p.Topic, partition)
	}
}

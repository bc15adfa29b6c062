package topology

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/plugin/kprom"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/processors/compactor"
	"github.com/varve-io/varve/processors/ingest"
	"github.com/varve-io/varve/processors/publisher"
	"github.com/varve-io/varve/schemas/record"
)

const (
	// maxMetricTables bounds the tables that have series of their own.
	maxMetricTables = 1000
	// otherTables is the label of those beyond.
	otherTables = "(others)"
)

// metrics are what a node counts as it goes. What it knows anyway is read when
// someone asks (collector.go). Labels are tables, partitions and words of closed
// lists; never keys or values.
type metrics struct {
	registry   *prometheus.Registry
	collectors []prometheus.Collector // our own, for the documentation's test
	hooks      []kgo.Hook

	outcomes       *prometheus.CounterVec
	published      *prometheus.CounterVec
	failures       *prometheus.CounterVec
	publishSeconds prometheus.Histogram
	letters        *prometheus.CounterVec
	pauses         *prometheus.CounterVec
	records        *prometheus.CounterVec
	events         *prometheus.CounterVec
	logEnd         *prometheus.GaugeVec
	jobs           *prometheus.CounterVec
	jobRows        *prometheus.CounterVec
	jobBytes       *prometheus.CounterVec
	jobSeconds     *prometheus.CounterVec
	outputs        *prometheus.CounterVec

	mu     sync.Mutex
	tables map[string]bool
	behind map[int32]time.Time // partitions that are not at their log's end, since when
}

func newMetrics(n *Node) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		registry:  prometheus.NewRegistry(),
		outcomes:  counter("varve_outcomes_total", "Records of the log that were applied since the start, by what was decided.", "partition", "type", "code", "reason"),
		published: counter("varve_snapshots_published_total", "Commits of a table's metadata since the start.", "table"),
		failures:  counter("varve_publish_failures_total", "Attempts to publish that failed since the start; cause: conflict, unknown (it may have happened), catalog, store.", "table", "cause"),
		publishSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "varve_publish_seconds", Help: "How long publishing a cut took, from its manifests to its commit.", Buckets: prometheus.ExponentialBuckets(0.01, 2, 14),
		}),
		letters:    counter("varve_dead_letters_sent_total", "Events that were refused since the start, by why; those that are read again count again.", "table", "reason"),
		pauses:     counter("varve_fetch_pauses_total", "How often a shard began to wait for a store, a disk or a broker.", "table", "partition"),
		records:    counter("varve_shard_records_total", "Source records in accepted records of the log since the start, by what became of them: applied, control, dead_letter, elsewhere (of another table of a routed topic, or of none). There is nothing else.", "table", "partition", "result"),
		events:     counter("varve_shard_events_total", "Events of the source records applied, by what became of them: row, superseded (by a later event of the same append), delete, absent_delete, late.", "table", "partition", "result"),
		logEnd:     gauge("varve_log_end_offset", "End of the partition of the log, as last heard.", "partition"),
		jobs:       counter("varve_jobs_total", "Attempts at jobs that ended on this node; result: executed (a compaction), searched (a part of a find job), failed.", "table", "result"),
		jobRows:    counter("varve_job_rows_total", "Rows that executed jobs of this node wrote.", "table"),
		jobBytes:   counter("varve_job_bytes_total", "Bytes that executed jobs of this node read and wrote; direction: in, out.", "table", "direction"),
		jobSeconds: counter("varve_job_seconds_total", "Time that executed jobs of this node took.", "table"),
		outputs:    counter("varve_outputs_checked_total", "Outputs of completed jobs that were looked at in the store; result: right, wrong (missing, damaged, or other rows than the log says: the node's log names it).", "table", "result"),
		tables:     map[string]bool{}, behind: map[int32]time.Time{},
	}
	m.collectors = []prometheus.Collector{
		m.outcomes, m.published, m.failures, m.publishSeconds, m.letters, m.pauses, m.records, m.events, m.logEnd, m.jobs, m.jobRows, m.jobBytes, m.jobSeconds, m.outputs, &nodeCollector{n: n, m: m},
	}
	m.registry.MustRegister(m.collectors...)
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.hooks = []kgo.Hook{&clientHooks{Metrics: kprom.NewMetrics("varve_kafka", kprom.Registerer(sharedOnly{m.registry}),
		kprom.FetchAndProduceDetail(kprom.ByNode, kprom.UncompressedBytes, kprom.CompressedBytes, kprom.Batches, kprom.Records))}}
	return m
}

// clientHooks counts for all clients of a node together: each partition that is
// read has a client of its own.
type clientHooks struct {
	*kprom.Metrics
	once sync.Once
}

// OnNewClient registers the counters with the first client.
func (h *clientHooks) OnNewClient(c *kgo.Client) { h.once.Do(func() { h.Metrics.OnNewClient(c) }) }

// OnClientClosed leaves the counters to the other clients.
func (h *clientHooks) OnClientClosed(*kgo.Client) {}

// sharedOnly leaves out the gauges that show one client's own buffers.
type sharedOnly struct{ prometheus.Registerer }

func (s sharedOnly) Register(c prometheus.Collector) error {
	if _, ok := c.(prometheus.Metric); ok {
		return nil
	}
	return s.Registerer.Register(c)
}

func (s sharedOnly) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		if err := s.Register(c); err != nil {
			panic(err) // two metrics of one name: a programmer's error
		}
	}
}

// table is a table's label.
func (m *metrics) table(name string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.tables[name] {
		if len(m.tables) >= maxMetricTables {
			return otherTables
		}
		m.tables[name] = true
	}
	return name
}

func partitionLabel(p int32) string { return strconv.Itoa(int(p)) }

// applied counts an outcome of a partition of the log.
func (m *metrics) applied(partition int32, o *record.OutcomeMessage) {
	m.outcomes.WithLabelValues(partitionLabel(partition), o.Type.String(), o.Outcome.Code.String(), o.Outcome.Reason.String()).Inc()
}

// publishedIn counts a commit.
func (m *metrics) publishedIn(table string, took time.Duration) {
	m.published.WithLabelValues(m.table(table)).Inc()
	m.publishSeconds.Observe(took.Seconds())
}

// publishFailed counts an attempt that failed.
func (m *metrics) publishFailed(table string, err error) {
	m.failures.WithLabelValues(m.table(table), publisher.Cause(err)).Inc()
}

// letter counts a dead letter.
func (m *metrics) letter(l *processors.DeadLetter) {
	m.letters.WithLabelValues(m.table(l.Table), l.Reject.Code).Inc()
}

// jobDone counts an attempt at a job.
func (m *metrics) jobDone(table, result string, r *compactor.Result, took time.Duration) {
	table = m.table(table)
	m.jobs.WithLabelValues(table, result).Inc()
	if r == nil {
		return
	}
	m.jobRows.WithLabelValues(table).Add(float64(r.Rows))
	m.jobBytes.WithLabelValues(table, "in").Add(float64(r.BytesIn))
	m.jobBytes.WithLabelValues(table, "out").Add(float64(r.BytesOut))
	m.jobSeconds.WithLabelValues(table).Add(took.Seconds())
}

// outputChecked counts an output of a job that was looked at.
func (m *metrics) outputChecked(table, result string) {
	m.outputs.WithLabelValues(m.table(table), result).Inc()
}

// paused counts the beginning of a wait.
func (m *metrics) paused(table string, partition int32) {
	m.pauses.WithLabelValues(m.table(table), partitionLabel(partition)).Inc()
}

// tallied counts what became of a shard's source records.
func (m *metrics) tallied(table string, partition int32) func(*ingest.Tally) {
	return func(t *ingest.Tally) {
		name, p := m.table(table), partitionLabel(partition)
		for result, n := range map[string]int64{"applied": t.Applied, "control": t.Control, "dead_letter": t.Letters, "elsewhere": t.Elsewhere} {
			m.records.WithLabelValues(name, p, result).Add(float64(n))
		}
		for result, n := range map[string]int64{"row": t.Rows, "superseded": t.Superseded, "delete": t.Deletes, "absent_delete": t.AbsentDeletes, "late": t.Late} {
			m.events.WithLabelValues(name, p, result).Add(float64(n))
		}
	}
}

// logRead tells how far a state is and how far its log reaches.
func (m *metrics) logRead(partition int32, next, end int64) {
	m.logEnd.WithLabelValues(partitionLabel(partition)).Set(float64(end))
	m.mu.Lock()
	defer m.mu.Unlock()
	if next >= end {
		delete(m.behind, partition)
	} else if m.behind[partition].IsZero() {
		m.behind[partition] = time.Now()
	}
}

// left forgets a partition whose state this node no longer has.
func (m *metrics) left(partition int32) {
	m.logEnd.DeleteLabelValues(partitionLabel(partition))
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.behind, partition)
}

// longBehind are the partitions whose state has not seen its log's end for so long.
func (m *metrics) longBehind(d time.Duration) []int32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []int32
	for p, since := range m.behind {
		if time.Since(since) >= d {
			out = append(out, p)
		}
	}
	return out
}

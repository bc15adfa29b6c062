package topology

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/varve-io/varve/processors/ingest"
	"github.com/varve-io/varve/statestore"
)

// nodeCollector reads what a node knows of its tables and shards when it is asked.
type nodeCollector struct {
	n *Node
	m *metrics
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	descReady      = describe("varve_node_opened", "1 once the node has caught up with its log at its start.")
	descFailed     = describe("varve_node_failed", "1 when a role has stopped with an error.")
	descDisk       = describe("varve_disk_short", "1 while a local disk has less than its reserve free and no events are taken in.")
	descTables     = describe("varve_tables", "Tables that the node knows.")
	descLogApplied = describe("varve_log_applied_offset", "Newest offset of the log that is applied.", "partition")
	descLag        = describe("varve_source_lag_events", "Events of the source that are not in the log yet, as last heard.", "table", "partition")
	descSourceEnd  = describe("varve_source_end_offset", "End of what was accepted of the source.", "table", "partition")
	descRunning    = describe("varve_shard_running", "1 while the node owns the shard and takes its events in.", "table", "partition")
	descWaiting    = describe("varve_shard_waiting", "1 while the shard waits for a store, a disk or a broker.", "table", "partition")
	descCkptTime   = describe("varve_checkpoint_timestamp_seconds", "When this node made the newest checkpoint of the state; 0: it has not made one.", "partition")
	descCkptBehind = describe("varve_checkpoint_behind_records", "Records of the log that the newest checkpoint lacks.", "partition")
	descCkptFailed = describe("varve_checkpoint_failing", "1 when the last attempt at a checkpoint failed; status says why.", "partition")
	descRows       = describe("varve_table_rows", "Rows in the live data files, dead ones included.", "table")
	descDead       = describe("varve_table_dead_rows", "Rows in the live data files that deletion vectors mark, as of the last cut.", "table")
	descFiles      = describe("varve_table_files", "Live data files.", "table")
	descBytes      = describe("varve_table_bytes", "Size of the live data files.", "table")
	descVectors    = describe("varve_table_vectors", "Published deletion vectors.", "table")
	descSnapshot   = describe("varve_table_snapshot_timestamp_seconds", "When the newest snapshot was made.", "table")
	descFreshness  = describe("varve_table_freshness_seconds", "0 when a snapshot shows all that was accepted; else how old the newest snapshot is.", "table")
	descAttempts   = describe("varve_table_pending_attempts", "Failed attempts at the cut that is being published.", "table")
	descTableWait  = describe("varve_table_waiting", "1 while the table is not ingested, applied or published on; status says why.", "table")
	descEvents     = describe("varve_table_events_total", "Events in accepted records, dead letters not included.", "table")
	descUpserts    = describe("varve_table_upserts_total", "Rows written.", "table")
	descDeletes    = describe("varve_table_deletes_total", "Rows removed by deletes.", "table")
	descLate       = describe("varve_table_late_events_total", "Events that lost against a newer version.", "table")
	descLetters    = describe("varve_table_dead_letters_total", "Events that were refused, in accepted records.", "table")
	descDeleteReq  = describe("varve_table_open_delete_requests", "Deletion requests that are not settled.", "table")
	descBuffers    = describe("varve_buffer_bytes", "Memory of the shards' buffers of events that are not in the log yet.")
	descUnrouted   = describe("varve_unrouted_records", "Records that are of no table, in a topic whose records say of which they are, since its start and as far as the node looked.", "topic")
	descOpenJobs   = describe("varve_table_open_jobs", "Compaction jobs that are not completed.", "table")
)

var nodeDescs = []*prometheus.Desc{
	descReady, descFailed, descDisk, descTables, descLogApplied, descLag, descSourceEnd, descRunning, descWaiting, descCkptTime, descCkptBehind, descCkptFailed, descRows, descDead, descFiles, descBytes,
	descVectors, descSnapshot, descFreshness, descAttempts, descTableWait, descEvents, descUpserts, descDeletes, descLate, descLetters, descDeleteReq, descOpenJobs, descUnrouted, descBuffers,
}

// Describe is prometheus.Collector's.
func (c *nodeCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range nodeDescs {
		ch <- d
	}
}

// Collect is prometheus.Collector's.
func (c *nodeCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	opened := c.n.opened.Load()
	gauge(descReady, one(opened))
	if !opened {
		return
	}
	gauge(descDisk, one(c.n.disk.full() != ""))
	st, err := c.n.Status(context.Background())
	if err != nil {
		// The state cannot be read: the node fails of it, if it has not already.
		gauge(descFailed, 1)
		return
	}
	gauge(descFailed, one(st.Error != ""))
	gauge(descBuffers, float64(c.n.room.Held()))
	for topic, n := range st.Unrouted {
		gauge(descUnrouted, float64(n), topic)
	}
	gauge(descTables, float64(len(st.Tables)))
	for i := range st.Heads {
		gauge(descLogApplied, float64(st.Heads[i].Offset), partitionLabel(st.Heads[i].Partition))
	}
	for i := range st.Checkpoints {
		k := &st.Checkpoints[i]
		p := partitionLabel(k.Partition)
		gauge(descCkptTime, float64(k.MadeMs)/1000, p)
		gauge(descCkptBehind, float64(k.Behind), p)
		gauge(descCkptFailed, one(k.Error != ""), p)
	}
	for _, s := range st.Shards {
		table, p := c.m.table(s.Table), partitionLabel(s.Partition)
		if table == otherTables {
			continue
		}
		end := max(s.SourceEnd, 0)
		if s.SourceEnd < 0 { // appends are in flight
			end = s.Position
		}
		gauge(descLag, float64(max(0, s.SourceHigh-end)), table, p)
		gauge(descSourceEnd, float64(end), table, p)
		gauge(descRunning, one(s.Stage == ingest.Running), table, p)
		gauge(descWaiting, one(s.Waiting != ""), table, p)
	}
	for _, t := range st.Tables {
		if c.m.table(t.Name) == otherTables {
			continue
		}
		gauge(descRows, float64(t.Rows), t.Name)
		gauge(descDead, float64(t.Dead), t.Name)
		gauge(descFiles, float64(t.Files), t.Name)
		gauge(descBytes, float64(t.Bytes), t.Name)
		gauge(descVectors, float64(t.Vectors), t.Name)
		gauge(descSnapshot, float64(t.Head.TimestampMs)/1000, t.Name)
		gauge(descFreshness, freshness(t, time.Now()), t.Name)
		attempts := int64(0)
		if t.Pending != nil {
			attempts = t.Pending.Attempts
		}
		gauge(descAttempts, float64(attempts), t.Name)
		gauge(descTableWait, one(st.Waiting[t.Name] != ""), t.Name)
		gauge(descDeleteReq, float64(len(t.Requests)+len(t.Finds)), t.Name)
		gauge(descOpenJobs, float64(t.OpenJobs), t.Name)
		counter(descEvents, t.Counts.Events, t.Name)
		counter(descUpserts, t.Counts.Upserts, t.Name)
		counter(descDeletes, t.Counts.Deletes, t.Name)
		counter(descLate, t.Counts.LateIgnored, t.Name)
		counter(descLetters, t.Counts.DeadUpserts+t.Counts.DeadDeletes+t.Counts.DeadOther, t.Name)
	}
}

// freshness is how old what readers see is, in seconds.
func freshness(t *statestore.TableInfo, now time.Time) float64 {
	if t.Pending == nil && !t.Changes || t.Head.TimestampMs == 0 {
		return 0
	}
	return max(0, now.Sub(time.UnixMilli(t.Head.TimestampMs)).Seconds())
}

func one(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

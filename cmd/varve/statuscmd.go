package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/varve-io/varve/processors/ingest"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/topology"
)

func (a *app) statusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show where every table and shard stands",
		Long: "Shows, for each partition of the log, the last offset applied and the chain hash; for\n" +
			"each table what is committed and what waits; for each shard how far it is behind its\n" +
			"source. Of a deployment that nodes share: what the node has, who has the rest, and\n" +
			"how far each is. CSV and JSON lines hold the shards alone. Asks the node that runs on the data\n" +
			"folder; a stopped folder is opened and brought up to its log.",
		Example: "  varve status\n  varve status --output json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(cmd.Context(), readRoles, func(s *session) error {
				st, err := s.status(cmd.Context())
				if err != nil {
					return err
				}
				shards, err := a.shardRows(cmd.Context(), s, st.Tables, st.Shards)
				if err != nil && shards == nil {
					return err
				}
				if err != nil && st.Error == "" {
					st.Error = err.Error() // what the node knows is shown all the same
				}
				groups, err := a.groupRows(cmd.Context(), s, st)
				if err != nil && st.Error == "" {
					st.Error = err.Error()
				}
				return a.showRows(statusObject(st, s.node == nil, shards, groups), "shards")
			})
		},
	}
	a.dataFlags(cmd.Flags())
	a.brokerFlags(cmd.Flags())
	return cmd
}

// groupRows is who has what of a deployment that nodes share; nil: none do.
func (a *app) groupRows(ctx context.Context, s *session, st *topology.Status) (*rowset, error) {
	if !st.Groups {
		return nil, nil
	}
	admin, err := topology.NewAdmin(a.client(s.Brokers()...))
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	ctx, cancel := context.WithTimeout(ctx, statusWait)
	defer cancel()
	parts, err := admin.GroupParts(ctx, st.Deployment)
	if err != nil {
		return nil, err
	}
	rs := &rowset{cols: []string{"group", "topic", "partition", "node", "host", "committed", "end", "lag"}}
	for i := range parts {
		p := &parts[i]
		rs.rows = append(rs.rows, []any{p.Group, p.Topic, p.Partition, textOrNull(p.Node), textOrNull(p.Host), offsetOrNull(p.Committed), offsetOrNull(p.End), offsetOrNull(p.Lag())})
	}
	return rs, nil
}

// statusObject shows of a shared deployment what the node itself has, and who
// has the rest.
func statusObject(st *topology.Status, running bool, shards, groups *rowset) object {
	has := func(p int32) bool { return !st.Groups || slices.Contains(st.Owned, p) }
	logs := &rowset{cols: []string{"partition", "offset", "chain_hash", "apply_version", "table_time"}}
	for i := range st.Heads {
		h := &st.Heads[i]
		if !has(h.Partition) {
			continue
		}
		logs.rows = append(logs.rows, []any{h.Partition, h.Offset, h.Chain.String(), int64(h.ApplyVersion), millisOrNull(h.TimeMs)})
	}
	checkpoints := &rowset{cols: []string{"partition", "checkpoint", "offset", "made", "records_behind", "running", "uploaded", "to_upload", "restored", "error"}}
	for i := range st.Checkpoints {
		c := &st.Checkpoints[i]
		checkpoints.rows = append(checkpoints.rows, []any{int64(c.Partition), textOrNull(c.ID), offsetOrNull(c.Offset), millisOrNull(c.MadeMs), c.Behind, c.Running,
			byteSize(c.Uploaded), byteSize(c.ToUpload), textOrNull(c.Restored), textOrNull(c.Error)})
	}
	tables := &rowset{cols: []string{"table", "rows", "files", "vectors", "bytes", "snapshot_id", "committed", "fresh", "pending_cut", "pending_attempts", "waits_for", "failed_attempts", "last_failure",
		"requests_open", "jobs_open", "late_ignored", "dead_letters"}}
	for _, t := range st.Tables {
		if !has(schemas.PartitionOf(t.Name, int32(len(st.Heads)))) {
			continue
		}
		var pending, attempts, waits any
		if t.Pending != nil {
			pending, attempts, waits = t.Pending.Build, t.Pending.Attempts, textOrNull(t.Pending.LastCause)
		}
		// Of the snapshots that are kept, and of the one that is pending.
		failed, failure := int64(0), any(nil)
		for i := range t.Snapshots {
			if x := &t.Snapshots[i]; x.Attempts > 0 {
				failed, failure = failed+x.Attempts, x.Cause
			}
		}
		if t.Pending != nil && t.Pending.Attempts > 0 {
			failed, failure = failed+t.Pending.Attempts, t.Pending.LastCause
		}
		if n := len(t.Held); n > 0 {
			waits = fmt.Sprintf("shards have still to take the keys of the files that came with %d records, from log offset %d on", n, t.Held[0])
		}
		if why := st.Waiting[t.Name]; why != "" {
			waits = why
		}
		tables.rows = append(tables.rows, []any{t.Name, t.Rows - t.Dead, t.Files, t.Vectors, byteSize(t.Bytes), idOrNull(t.Head.SnapshotID), millisOrNull(t.Head.TimestampMs),
			t.Pending == nil && !t.Changes, pending, attempts, waits, failed, failure, int64(len(t.Requests) + len(t.Finds)), t.OpenJobs, t.Counts.LateIgnored, deadLetters(&t.Counts)})
	}
	for _, p := range slices.Sorted(maps.Keys(st.Stopped)) {
		if st.Error == "" {
			st.Error = fmt.Sprintf("transactions partition %d: %s", p, st.Stopped[p])
		}
	}
	o := object{
		{"deployment", st.Deployment}, {"running", running}, {"brokers", st.Brokers}, {"warehouse", st.Warehouse}, {"catalog", textOrNull(st.Catalog)}, {"error", textOrNull(st.Error)},
		{"log", logs}, {"checkpoints", checkpoints}, {"tables", tables}, {"shards", shards},
	}
	if len(st.Unrouted) > 0 {
		unrouted := &rowset{cols: []string{"topic", "records"}}
		for _, topic := range slices.Sorted(maps.Keys(st.Unrouted)) {
			unrouted.rows = append(unrouted.rows, []any{topic, st.Unrouted[topic]})
		}
		o = append(o, field{"unrouted", unrouted})
	}
	if groups != nil {
		o = append(o, object{{"node", st.NodeID}, {"groups", groups}}...)
	}
	return o
}

func offsetOrNull(o int64) any {
	if o < 0 {
		return nil
	}
	return o
}

// shardRows is one row a shard of the tables: what the state knows of it, how
// far its source reaches, and what the node that owns it says. An error beside
// rows says why it is not known how far the sources reach.
func (a *app) shardRows(ctx context.Context, s *session, tables []*statestore.TableInfo, owned []topology.ShardStatus) (*rowset, error) {
	rs := &rowset{cols: []string{"table", "topic", "partition", "stage", "source_end", "source_high", "lag", "events", "upserts", "deletes", "late_ignored", "dead_letters", "error"}}
	admin, err := topology.NewAdmin(a.client(s.Brokers()...))
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	highs := map[string][]topology.PartitionOffsets{}
	var away error
	for _, t := range tables {
		for i := range t.Shards {
			sh := &t.Shards[i]
			offsets, asked := highs[sh.Topic]
			if !asked {
				if offsets, err = a.sourceOffsets(ctx, admin, sh.Topic, away); err != nil {
					away = err
				}
				highs[sh.Topic] = offsets
			}
			var high, lag any
			if int(sh.Partition) < len(offsets) && !sh.Retired {
				high = offsets[sh.Partition].High
				lag = max(0, offsets[sh.Partition].High-sh.SourceEnd)
			}
			stage := "not owned"
			var failure any
			switch {
			case sh.Retired:
				stage = "retired"
			case sh.Open:
				stage = "claimed"
			}
			for j := range owned {
				if o := &owned[j]; o.TableID == t.ID && o.Topic == sh.Topic && o.Partition == sh.Partition {
					stage, failure = stageName(o.Stage), textOrNull(cmp.Or(o.Err, o.Waiting))
				}
			}
			c := &sh.Counts
			rs.rows = append(rs.rows, []any{t.Name, sh.Topic, sh.Partition, stage, sh.SourceEnd, high, lag, c.Events, c.Upserts, c.Deletes, c.LateIgnored, deadLetters(c), failure})
		}
	}
	return rs, away
}

// statusWait bounds how long a status waits for the brokers.
const statusWait = 10 * time.Second

// sourceOffsets are a source's ends, none for a topic that is not there. Brokers
// that did not answer before (away) are not asked again.
func (a *app) sourceOffsets(ctx context.Context, admin *topology.Admin, topic string, away error) ([]topology.PartitionOffsets, error) {
	if away != nil {
		return nil, away
	}
	ctx, cancel := context.WithTimeout(ctx, statusWait)
	defer cancel()
	offsets, err := admin.Offsets(ctx, topic)
	if err == nil || errors.Is(err, topology.ErrNoTopic) {
		return offsets, nil
	}
	return nil, fmt.Errorf("how far the sources reach is not known: topic %s: %w; the node waits for the brokers and goes on by itself", topic, err)
}

func stageName(s ingest.Stage) string {
	switch s {
	case ingest.Idle:
		return "idle"
	case ingest.Claiming:
		return "claiming"
	case ingest.Running:
		return "running"
	case ingest.Fenced:
		return "fenced"
	case ingest.Stopped:
		return "stopped"
	}
	return fmt.Sprintf("stage %d", s)
}

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/schemas/record"
)

func (a *app) transactionCommand() *cobra.Command {
	return group("transaction", "Read a table's log, and append to it",
		"  varve transaction list shop.orders\n  varve transaction show shop.orders 17",
		a.transactionListCommand(), a.transactionShowCommand(), a.transactionAppendCommand(), a.transactionExportCommand(), a.transactionVoidCommand(), a.transactionTruncateCommand())
}

func (a *app) transactionListCommand() *cobra.Command {
	var (
		from  int64
		limit int64
		all   bool
		since string
	)
	cmd := &cobra.Command{
		Use:     "list TABLE",
		Short:   "List the records of a table's log with their outcomes",
		Long:    "Lists one line a record, in the order of the log. --all shows the records of other\ntables in the same partition too.",
		Example: "  varve transaction list shop.orders\n  varve transaction list shop.orders --from 1000 --limit 50 --output jsonl",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if from < 0 || limit < 0 {
				return usagef("--from and --limit are 0 or more")
			}
			at, sinceMs, err := parseSince(since)
			if err != nil {
				return err
			}
			from = max(from, at)
			return a.with(cmd.Context(), readRoles, func(s *session) error {
				out := a.list("offset", "time", "type", "table", "outcome", "reason", "changed", "bytes", "what")
				n := int64(0)
				err := s.Transactions(cmd.Context(), args[0], from, func(d *processors.Decided) error {
					if !all && d.Outcome.Table != args[0] || d.Record.TimeMs < sinceMs {
						return nil
					}
					if n++; limit > 0 && n > limit {
						return errListedEnough
					}
					return out.row(transactionRow(d)...)
				})
				if err != nil && !errors.Is(err, errListedEnough) {
					return err
				}
				return out.close()
			})
		},
	}
	a.dataFlags(cmd.Flags())
	a.brokerFlags(cmd.Flags())
	f := cmd.Flags()
	f.Int64Var(&from, "from", 0, "first log `offset` to list")
	f.StringVar(&since, "since", "", "records from a `time` on: a time, a duration before now (2h), or a log offset")
	f.Int64Var(&limit, "limit", 0, "at most so many `records` (default: all)")
	f.BoolVar(&all, "all", false, "records of all tables in the table's partition")
	return cmd
}

func transactionRow(d *processors.Decided) []any {
	o := &d.Outcome
	kind := o.Type.String()
	if o.Type == 0 {
		kind = "undecodable"
	}
	if o.Derived {
		kind += " (derived)"
	}
	var reason any
	if o.Outcome.Reason != record.ReasonNone {
		reason = o.Outcome.Reason.String()
	}
	return []any{o.Offset, millis(d.Record.TimeMs), kind, textOrNull(o.Table), o.Outcome.Code.String(), reason, o.Outcome.Changed,
		byteSize(len(d.Record.Value)), what(d)}
}

// what tells the gist of a record in a few words; null where there is none or
// the body lies elsewhere. It shows no key values (E1).
func what(d *processors.Decided) any {
	var env record.Envelope
	if record.DecodeEnvelope(d.Record.Key, d.Record.Header, d.Record.Value, &env) != nil || env.BodyRef != nil {
		return nil
	}
	v, err := record.DecodeBody(env.Type, env.TypeVersion, env.Body)
	if err != nil {
		return nil
	}
	switch v := v.(type) {
	case *record.ClaimShard:
		return fmt.Sprintf("%s/%d by %s", v.Shard.Topic, v.Shard.Partition, v.Member)
	case *record.AppendRows:
		rows := int64(0)
		for i := range v.Files {
			rows += v.Files[i].Rows
		}
		return fmt.Sprintf("%s/%d [%d, %d): %d files of %d rows, %d delete blocks", v.Shard.Topic, v.Shard.Partition, v.SourceFrom, v.SourceTo, len(v.Files), rows, len(v.Deletes))
	case *record.DeleteKeys:
		return fmt.Sprintf("%d keys", v.Count)
	case *record.SnapshotCommitted:
		if v.SnapshotID == 0 {
			if v.MetadataVersion == 0 {
				return "metadata " + v.MetadataPath
			}
			return fmt.Sprintf("metadata version %d", v.MetadataVersion)
		}
		return fmt.Sprintf("snapshot %d, %s", v.SnapshotID, v.Operation)
	case *record.SnapshotFailed:
		return fmt.Sprintf("attempt %d: %s", v.Attempt, v.Cause)
	case *record.CatalogBase:
		return fmt.Sprintf("sequence %d, next row id %d, %d snapshots removed, %d held, %d properties, %d schemas", v.Sequence, v.NextRowID,
			len(v.Removed), len(v.Held), len(v.Set)+len(v.Unset), len(v.Schemas))
	case *record.CatalogSpecs:
		return fmt.Sprintf("%d partition specs, %d is the default", len(v.Specs), v.DefaultSpec)
	case *record.RenumberSpecs:
		return fmt.Sprintf("%d partition specs of another writer, whose ids specs of ours had", len(v.Specs))
	case *record.CatalogSchemas:
		return fmt.Sprintf("schema ids below %d and field ids up to %d are given", v.NextSchema, v.LastColumnID)
	case *record.PlanJobs:
		files := 0
		for i := range v.Items {
			files += len(v.Items[i].Inputs)
		}
		return fmt.Sprintf("%d jobs of %d files", len(v.Items), files) + rejectedItems(d, len(v.Items))
	case *record.SplitPartition:
		refs, made := 0, int32(0)
		for i := range v.Items {
			refs += len(v.Items[i].Refs)
			made += v.Items[i].Children
		}
		return fmt.Sprintf("%d nodes, %d children, %d references", len(v.Items), made, refs) + rejectedItems(d, len(v.Items))
	case *record.ExtendTree:
		return fmt.Sprintf("a root of %d children", v.Children)
	case *record.CompleteJob:
		files, rows := 0, int64(0)
		for i := range v.Items {
			files += len(v.Items[i].Outputs)
			for k := range v.Items[i].Outputs {
				rows += v.Items[i].Outputs[k].Rows
			}
		}
		return fmt.Sprintf("%d jobs: %d files of %d rows", len(v.Items), files, rows) + rejectedItems(d, len(v.Items))
	case *record.ReleaseJob:
		return fmt.Sprintf("%d jobs: %s", len(v.Items), v.Cause) + rejectedItems(d, len(v.Items))
	case *record.CollectFiles:
		return fmt.Sprintf("%d objects: %s", len(v.Items), v.Cause) + rejectedItems(d, len(v.Items))
	case *record.FilesCollected:
		return fmt.Sprintf("%d objects of the collection at %d are deleted", v.Objects, v.Collect)
	case *record.AddFiles:
		rows := int64(0)
		for i := range v.Items {
			rows += v.Items[i].Rows
		}
		return fmt.Sprintf("%d files of %d rows", len(v.Items), rows) + rejectedItems(d, len(v.Items))
	case *record.AdoptFiles:
		rows := int64(0)
		for i := range v.Items {
			rows += v.Items[i].Rows
		}
		return fmt.Sprintf("%d files of others, of %d rows", len(v.Items), rows) + rejectedItems(d, len(v.Items))
	case *record.ForeignSnapshot:
		rows, to := int64(0), int64(0)
		for i := range v.Files {
			rows += v.Files[i].Rows
		}
		if n := len(v.Snapshots); n > 0 {
			to = v.Snapshots[n-1].ID
		}
		return fmt.Sprintf("%d snapshots of others, up to %d: %d files of %d rows, %d files gone, %d vectors", len(v.Snapshots), to, len(v.Files), rows, len(v.Removed), len(v.Vectors))
	case *record.DeletePositions:
		return fmt.Sprintf("%d delete blocks", len(v.Deletes)) + rejectedItems(d, len(v.Deletes))
	case *record.DeleteWhere:
		return "rows of which a predicate holds"
	case *record.RowsFound:
		return fmt.Sprintf("part %d of the find job at %d: %d rows read, rows of %d files", v.Job.Item, v.Job.Plan, v.Rows, len(v.Deletes))
	case *record.SkipSource:
		return fmt.Sprintf("%s/%d [%d, %d)", v.Shard.Topic, v.Shard.Partition, v.From, v.To)
	case *record.Reshard:
		return fmt.Sprintf("%s: %d partitions, %d shards to drain", v.Topic, v.Partitions, len(v.Ends))
	case *record.AlterRefs:
		return fmt.Sprintf("%d branches and tags set, %d dropped", len(v.Set), len(v.Drop))
	case *record.ExpireSnapshots:
		return fmt.Sprintf("%d named, those before %s but the last %d", len(v.Snapshots), time.UnixMilli(v.BeforeMs).UTC().Format(time.RFC3339), v.KeepLast)
	case *record.Rollback:
		return fmt.Sprintf("to snapshot %d: %d files, %d vectors", v.Snapshot, len(v.Files), len(v.Vectors))
	case *record.RetireShard:
		return fmt.Sprintf("%s/%d", v.Shard.Topic, v.Shard.Partition)
	case *record.AlterSpec:
		return fmt.Sprintf("partitioned by %d terms", len(v.Terms))
	case *record.AlterTable:
		text := fmt.Sprintf("%d columns added, %d widened, %d properties", len(v.Add), len(v.Widen), len(v.Set)+len(v.Remove))
		if v.Policy != nil {
			text += ", policy"
		}
		return text
	}
	return nil
}

// rejectedItems tells how many items of a batch record were rejected, and why the
// first of them.
func rejectedItems(d *processors.Decided, n int) string {
	bad, why := 0, record.ReasonNone
	if err := d.Outcome.Outcome.RejectedItems(n, func(_ int, r record.Reason) {
		if bad++; bad == 1 {
			why = r
		}
	}); err != nil || bad == 0 {
		return ""
	}
	return fmt.Sprintf("; %d rejected: %s", bad, why)
}

func (a *app) transactionShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show TABLE OFFSET",
		Short:   "Show one record of a table's log, whole, with its outcome",
		Example: "  varve transaction show shop.orders 17\n  varve transaction show shop.orders 17 --output json",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := strconv.ParseInt(args[1], 10, 64)
			if err != nil || at < 0 {
				return usagef("%q is no log offset; \"varve transaction list %s\" shows them", args[1], args[0])
			}
			return a.with(cmd.Context(), readRoles, func(s *session) error {
				var found object
				err := s.Transactions(cmd.Context(), args[0], at, func(d *processors.Decided) error {
					if d.Outcome.Offset != at || d.Outcome.Derived {
						return errListedEnough
					}
					if t := d.Outcome.Table; t != "" && t != args[0] {
						return usagef("the record at offset %d is of table %s: \"varve transaction show %s %d\" shows it", at, t, t, at)
					}
					if found, err = transactionObject(cmd.Context(), s, d); err != nil {
						return err
					}
					return errListedEnough
				})
				if err != nil && !errors.Is(err, errListedEnough) {
					return err
				}
				if found == nil {
					return usagef("the log of table %s has no record at offset %d yet; \"varve transaction list %s\" shows those it has", args[0], at, args[0])
				}
				return a.show(found)
			})
		},
	}
	a.dataFlags(cmd.Flags())
	a.brokerFlags(cmd.Flags())
	return cmd
}

// decision is an outcome whole, and the items of a batch record that it rejects, each
// with its reason.
func decision(m *record.OutcomeMessage) (object, error) {
	outcome, err := record.AppendRecordJSON(nil, m)
	if err != nil {
		return nil, err
	}
	rejected := &rowset{cols: []string{"item", "reason"}}
	if err := m.Outcome.RejectedItems(math.MaxInt32, func(i int, why record.Reason) {
		rejected.rows = append(rejected.rows, []any{int64(i), why.String()})
	}); err != nil {
		return nil, fmt.Errorf("log offset %d: %w", m.Offset, err)
	}
	return object{{"rejected_items", rejected}, {"outcome", json.RawMessage(outcome)}}, nil
}

func transactionObject(ctx context.Context, s *session, d *processors.Decided) (object, error) {
	decided, err := decision(&d.Outcome)
	if err != nil {
		return nil, err
	}
	o := append(object{{"offset", d.Record.Offset}, {"time", millis(d.Record.TimeMs)}}, decided...)
	env, body, err := s.Bodies().Open(ctx, d.Record.Key, d.Record.Header, d.Record.Value)
	if errors.Is(err, record.ErrUndecodable) || errors.Is(err, record.ErrNewerForm) {
		return append(o, field{"error", err.Error()}), nil
	}
	if errors.Is(err, processors.ErrBodyMissing) && d.Outcome.Outcome.Reason == record.Undecodable {
		return append(o, field{"error", "its body was declared lost"}), nil
	}
	if err != nil {
		return nil, fmt.Errorf("log offset %d: %w", d.Record.Offset, err)
	}
	envelope, err := record.AppendRecordJSON(nil, &env)
	if err != nil {
		return nil, err
	}
	o = append(o, field{"envelope", json.RawMessage(envelope)})
	v, err := record.DecodeBody(env.Type, env.TypeVersion, body)
	if err != nil {
		return append(o, field{"error", err.Error()}), nil
	}
	rec, err := record.AppendRecordJSON(nil, v)
	if err != nil {
		return nil, err
	}
	return append(o, field{"record", json.RawMessage(rec)}), nil
}

// maxTransactionBytes bounds a record given to transaction append.
const maxTransactionBytes = 64 << 20

func (a *app) transactionAppendCommand() *cobra.Command {
	var kind string
	cmd := &cobra.Command{
		Use:   "append TABLE FILE",
		Short: "Append a record to a table's log and wait for its outcome",
		Long: "Appends the record that FILE (or - for stdin) holds as JSON, in the form that\n" +
			"\"transaction show\" prints it, and waits for what the state machine decides. A large\n" +
			"body goes to the object store first.",
		Example: "  echo '{}' | varve transaction append shop.orders --type Cut -\n" +
			"  varve transaction append shop.orders --type AlterTable alter.json",
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, ok := record.ParseType(kind)
			if !ok {
				var names []string
				for n := record.Type(1); n <= record.TypeErasureProgress; n++ {
					names = append(names, n.String())
				}
				return usagef("--type %q is no record type%s (for example AlterTable, DeleteKeys, Cut)", kind, didYouMean(kind, names))
			}
			var b []byte
			var err error
			if args[1] == "-" {
				b, err = io.ReadAll(io.LimitReader(a.in, maxTransactionBytes+1))
			} else {
				b, err = readPath(cmd.Context(), args[1], maxTransactionBytes)
			}
			if err != nil {
				return asUsage(err)
			}
			if len(b) > maxTransactionBytes {
				return usagef("the record has more than %d bytes", maxTransactionBytes)
			}
			v, err := record.ParseRecordJSON(t, bytes.TrimSpace(b))
			if err != nil {
				return usagef("%s: %w", args[1], err)
			}
			return a.with(cmd.Context(), publishRoles, func(s *session) error {
				id := int64(-1)
				if t != record.TypeCreateTable {
					info, err := s.Table(cmd.Context(), args[0])
					if err != nil {
						return err
					}
					id = info.ID
				}
				out, err := s.Request(cmd.Context(), args[0], id, v)
				if err != nil {
					return err
				}
				decided, err := decision(&out)
				if err != nil {
					return err
				}
				if err := a.show(append(object{{"offset", out.Offset}, {"code", out.Outcome.Code.String()}, {"reason", out.Outcome.Reason.String()}}, decided...)); err != nil {
					return err
				}
				if out.Outcome.Code == record.Rejected {
					return fmt.Errorf("table %s: the record at log offset %d was rejected: %s", args[0], out.Offset, out.Outcome.Reason)
				}
				return nil
			})
		},
	}
	a.dataFlags(cmd.Flags())
	a.brokerFlags(cmd.Flags())
	cmd.Flags().StringVar(&kind, "type", "", "`type` of the record, for example AlterTable")
	return cmd
}

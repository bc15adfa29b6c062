package main

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

func (a *app) tableTagCommand() *cobra.Command    { return a.refCommand("tag", false) }
func (a *app) tableBranchCommand() *cobra.Command { return a.refCommand("branch", true) }

// refCommand makes, moves and drops branches or tags through the log.
func (a *app) refCommand(kind string, branch bool) *cobra.Command {
	var (
		snapshot   int64
		drop, wait bool
	)
	cmd := &cobra.Command{
		Use:   kind + " TABLE NAME",
		Short: "Make, move or drop a " + kind,
		Long: "Makes NAME a " + kind + " of the table's newest snapshot, or of --snapshot; one that is there moves.\n" +
			"Every reader of the table sees it. What a branch or tag names is never expired: drop it\n" +
			"when it is of no more use. varve itself writes branch main only.",
		Example: "  varve table " + kind + " shop.orders audit-2026\n  varve table " + kind + " shop.orders audit-2026 --snapshot 4180927112233\n  varve table " + kind + " shop.orders audit-2026 --drop",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, name := cmd.Context(), args[1]
			if drop && a.given("snapshot") {
				return usagef("--drop takes a %s away, whatever snapshot it names: leave --snapshot out", kind)
			}
			return a.with(ctx, publishRoles, func(s *session) error {
				t, err := s.Table(ctx, args[0])
				if err != nil {
					return err
				}
				meta, err := a.committedMetadata(ctx, t.Name)
				if err != nil {
					return err
				}
				there := meta.Ref(name)
				x := &record.AlterRefs{Drop: []string{name}}
				switch {
				case there != nil && there.Type != kind:
					return usagef("%s is a %s of table %s: drop it with \"varve table %s %s %s --drop\", or choose another name", name, there.Type, t.Name, there.Type, t.Name, name)
				case drop && there == nil:
					return usagef("table %s has no %s %s; \"varve table refs %s\" lists them", t.Name, kind, name, t.Name)
				case drop:
				default:
					if snapshot == 0 {
						if meta.CurrentSnapshot == nil {
							return usagef("table %s has no snapshot yet", t.Name)
						}
						snapshot = *meta.CurrentSnapshot
					}
					x = &record.AlterRefs{Set: []record.TableRef{{Name: name, Branch: branch, Snapshot: snapshot}}}
				}
				out, err := s.Request(ctx, t.Name, t.ID, x)
				if err != nil {
					return err
				}
				if err := accepted(&out, t.Name, kind); err != nil {
					return err
				}
				if wait {
					if err := s.WaitVisible(ctx, t.Name, out.Offset); err != nil {
						return err
					}
				}
				var at any
				if !drop {
					at = snapshot
				}
				return a.show(object{{"table", t.Name}, {"name", name}, {"type", kind}, {"snapshot_id", at}, {"dropped", drop}, {"offset", out.Offset}})
			})
		},
	}
	a.dataFlags(cmd.Flags())
	a.brokerFlags(cmd.Flags())
	f := cmd.Flags()
	f.Int64Var(&snapshot, "snapshot", 0, "snapshot `id` (default: the newest)")
	f.BoolVar(&drop, "drop", false, "drop it")
	f.BoolVar(&wait, "wait", true, "wait until readers see it")
	return cmd
}

// committedMetadata is the table's metadata as readers have it.
func (a *app) committedMetadata(ctx context.Context, table string) (*iceberg.Metadata, error) {
	l, err := a.openLake(ctx)
	if err != nil {
		return nil, err
	}
	t, err := a.table(ctx, l, table)
	if err != nil {
		return nil, err
	}
	return t.meta, nil
}

func (a *app) tableRefsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "refs TABLE",
		Short:   "List a table's branches and tags",
		Example: "  varve table refs shop.orders\n  varve table refs shop.orders --output json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			meta, err := a.committedMetadata(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			out := a.list("name", "type", "snapshot_id", "committed")
			for i := range meta.Refs {
				r := &meta.Refs[i]
				var at any
				if s := meta.Snapshot(r.SnapshotID); s != nil {
					at = millis(s.TimestampMs)
				}
				if err := out.row(r.Name, r.Type, r.SnapshotID, at); err != nil {
					return err
				}
			}
			return out.close()
		},
	}
	a.dataFlags(cmd.Flags())
	return cmd
}

// refusedSnapshot explains a snapshot that cannot be taken.
func refusedSnapshot(out *record.OutcomeMessage, table string, err error) error {
	id := "it"
	if n := out.Outcome.Numbers; len(n) > 0 {
		id = "snapshot " + strconv.FormatInt(n[0], 10)
	}
	if out.Outcome.Reason == record.SnapshotHeld {
		return usagef("%w: %s is the newest, or a branch or tag names it; \"varve table refs %s\" lists them", err, id, table)
	}
	return usagef("%w: %s is not retained, or about to be expired; \"varve snapshots %s\" lists them", err, id, table)
}

// stay says whether a snapshot is the head or named by a ref: expiry leaves it.
func stay(m *iceberg.Metadata, t *statestore.TableInfo, id int64) bool {
	for i := range m.Refs {
		if m.Refs[i].SnapshotID == id {
			return true
		}
	}
	for i := range t.Refs {
		if t.Refs[i].Snapshot == id {
			return true
		}
	}
	return false
}

package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/varve-io/varve/topology"
)

func (a *app) rollbackCommand() *cobra.Command {
	var (
		to     snapshotFlags
		ref    string
		cause  string
		dryRun bool
		wait   bool
	)
	cmd := &cobra.Command{
		Use:   "rollback TABLE",
		Short: "Make an earlier snapshot of a table its newest again",
		Long: "Makes a retained snapshot the table's head: by id, by time, or by the name of a branch or\n" +
			"tag. The log goes on: what was accepted since stays in it and in the snapshots that are\n" +
			"kept, but is no part of the table any more; source events of that time are not read\n" +
			"again, and deletion requests that were answered since are undone (both are counted).\n" +
			"First every file of the snapshot is looked for; --dry-run does only that. Events that\n" +
			"come later change the table as it then is. Asks the node that runs on the data folder,\n" +
			"which must have the table's state; a stopped folder is opened.",
		Example: "  varve rollback shop.orders --as-of 2026-08-01T10:30:00Z --dry-run\n  varve rollback shop.orders --snapshot 4180927112233 --cause \"a bad load\"\n  varve rollback shop.orders --ref before-the-load",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			given := 0
			for _, name := range []string{"snapshot", "as-of", "ref"} {
				if a.given(name) {
					given++
				}
			}
			if given != 1 {
				return usagef("say where to, by one of --snapshot, --as-of and --ref")
			}
			return a.with(ctx, publishRoles, func(s *session) error {
				if _, err := s.Table(ctx, args[0]); err != nil {
					return err
				}
				l, err := a.openLake(ctx)
				if err != nil {
					return err
				}
				t, err := a.table(ctx, l, args[0])
				if err != nil {
					return err
				}
				id := int64(0)
				if ref != "" {
					r := t.meta.Ref(ref)
					if r == nil {
						return usagef("table %s has no branch or tag %s; \"varve table refs %s\" lists them", t.name, ref, t.name)
					}
					id = r.SnapshotID
				} else {
					snap, err := t.snapshot(&to)
					if err != nil {
						return err
					}
					id = snap.ID
				}
				p, err := a.rollback(ctx, s, t.name, id, cause, dryRun)
				if errors.Is(err, topology.ErrNoRollback) {
					return asUsage(err)
				}
				if err != nil {
					return err
				}
				var at any
				if !dryRun {
					at = p.Offset
					if wait {
						if err := s.WaitVisible(ctx, t.name, p.Offset); err != nil {
							return err
						}
					}
				}
				return a.show(object{
					{"table", p.Table}, {"snapshot_id", p.Snapshot}, {"from_snapshot_id", p.From}, {"rows", p.Rows}, {"files", p.Files}, {"vectors", p.Vectors},
					{"events_not_read_again", p.Unread}, {"requests_undone", p.Undone}, {"dry_run", dryRun}, {"offset", at},
				})
			})
		},
	}
	a.dataFlags(cmd.Flags())
	a.brokerFlags(cmd.Flags())
	f := cmd.Flags()
	f.Int64Var(&to.id, "snapshot", 0, "snapshot `id`")
	f.StringVar(&to.asOf, "as-of", "", "what was the newest at a `time` (RFC 3339)")
	f.StringVar(&ref, "ref", "", "`name` of a branch or tag")
	f.StringVar(&cause, "cause", "", "`why`; it stands in the log")
	f.BoolVar(&dryRun, "dry-run", false, "only make sure that every file is there")
	f.BoolVar(&wait, "wait", true, "wait until readers see it")
	return cmd
}

func (a *app) rollback(ctx context.Context, s *session, table string, id int64, cause string, drill bool) (*topology.RollbackPlan, error) {
	switch {
	case s.node == nil:
		return topology.RequestRollback(ctx, a.data, table, id, cause, drill)
	case drill:
		_, p, err := s.node.PlanRollback(ctx, table, id)
		return p, err
	}
	return s.node.Rollback(ctx, table, id, cause)
}

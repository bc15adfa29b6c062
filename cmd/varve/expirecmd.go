package main

import (
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/varve-io/varve/schemas/record"
)

func (a *app) expireCommand() *cobra.Command {
	var (
		olderThan    time.Duration
		keep         int64
		ids          []int64
		dryRun, wait bool
	)
	cmd := &cobra.Command{
		Use:   "expire TABLE",
		Short: "Remove old snapshots of a table",
		Long: "Removes the snapshots that are older than --older-than and not among the last --keep, and\n" +
			"those named by --snapshot. The newest one and what branches and tags name stay.\n" +
			"Snapshots go by themselves, by the table's own limits, with each commit\n" +
			"(\"varve table alter --retention-age --retention-snapshots\"); this is for now. Files that\n" +
			"nothing lists any more stay until they are collected.",
		Example: "  varve expire shop.orders --older-than 24h --dry-run\n  varve expire shop.orders --older-than 24h --keep 10\n  varve expire shop.orders --snapshot 4180927112233",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			byAge := a.given("older-than") || a.given("keep")
			switch {
			case !byAge && len(ids) == 0:
				return usagef("say which: --older-than, --keep, or --snapshot")
			case byAge && (olderThan < 0 || keep < 1):
				return usagef("--older-than is a time span, and --keep at least 1: the newest snapshot stays")
			}
			slices.Sort(ids)
			ids = slices.Compact(ids)
			return a.with(ctx, publishRoles, func(s *session) error {
				t, err := s.Table(ctx, args[0])
				if err != nil {
					return err
				}
				meta, err := a.committedMetadata(ctx, t.Name)
				if err != nil {
					return err
				}
				x := &record.ExpireSnapshots{Snapshots: ids}
				if byAge {
					x.BeforeMs, x.KeepLast = time.Now().Add(-olderThan).UnixMilli(), keep
				}
				var goes []int64
				for i := range meta.Snapshots {
					y := &meta.Snapshots[i]
					old := byAge && y.TimestampMs < x.BeforeMs && int64(len(meta.Snapshots)-i) > keep
					if old && !stay(meta, t, y.ID) || slices.Contains(ids, y.ID) {
						goes = append(goes, y.ID)
					}
				}
				if dryRun {
					return a.showExpired(t.Name, goes, true, nil)
				}
				out, err := s.Request(ctx, t.Name, t.ID, x)
				if err != nil {
					return err
				}
				if err := accepted(&out, t.Name, "expire snapshots of"); err != nil {
					return err
				}
				if wait && out.Outcome.Changed {
					if err := s.WaitVisible(ctx, t.Name, out.Offset); err != nil {
						return err
					}
				}
				return a.showExpired(t.Name, goes, false, out.Offset)
			})
		},
	}
	a.dataFlags(cmd.Flags())
	a.brokerFlags(cmd.Flags())
	f := cmd.Flags()
	f.DurationVar(&olderThan, "older-than", 0, "`age` from which snapshots go")
	f.Int64Var(&keep, "keep", 1, "how many of the newest stay, whatever their age")
	f.Int64SliceVar(&ids, "snapshot", nil, "snapshot `id`s that go")
	f.BoolVar(&dryRun, "dry-run", false, "only say which would go")
	f.BoolVar(&wait, "wait", true, "wait until readers do not see them any more")
	return cmd
}

func (a *app) showExpired(table string, ids []int64, dry bool, offset any) error {
	gone := &rowset{cols: []string{"snapshot_id"}}
	for _, id := range ids {
		gone.rows = append(gone.rows, []any{id})
	}
	return a.showRows(object{{"table", table}, {"dry_run", dry}, {"count", len(ids)}, {"offset", offset}, {"snapshots", gone}}, "snapshots")
}

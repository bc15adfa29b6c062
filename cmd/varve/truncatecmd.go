package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/varve-io/varve/topology"
)

func (a *app) transactionTruncateCommand() *cobra.Command {
	var (
		before      string
		dryRun, yes bool
	)
	cmd := &cobra.Command{
		Use:   "truncate TABLE",
		Short: "Delete the beginning of a table's log, behind a checkpoint",
		Long: "Deletes records of the transactions partition of a table that nobody needs any more who\n" +
			"starts from a checkpoint, also those of other tables that share the partition. The\n" +
			"checkpoint is fetched and checked first, byte by byte. Records stay that a key index, a\n" +
			"pending cut, an open job, a request or a rollback may be read for: the answer says what\n" +
			"holds them. A state that is behind what is left starts from a checkpoint; a replay from\n" +
			"the beginning needs a file exported before (\"varve transaction export\").",
		Example: "  varve checkpoint create\n  varve transaction truncate shop.orders --before 48211-3fa9c1d20b77 --dry-run\n  varve transaction truncate shop.orders --before 48211-3fa9c1d20b77 --yes",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			switch {
			case before == "":
				return usagef("name a checkpoint with --before; \"varve checkpoint list\" shows them")
			case !dryRun && !yes:
				return usagef("records that are deleted cannot be had again; look with --dry-run, then say --yes")
			}
			return a.with(ctx, readRoles, func(s *session) error {
				if _, err := s.Table(ctx, args[0]); err != nil {
					return err
				}
				var t *topology.Truncation
				var err error
				if s.node != nil {
					t, err = s.node.Truncate(ctx, args[0], before, dryRun)
				} else {
					t, err = topology.RequestTruncate(ctx, a.data, args[0], before, dryRun)
				}
				if errors.Is(err, topology.ErrNoTruncate) {
					return asUsage(err)
				}
				if err != nil {
					return err
				}
				return a.show(object{
					{"partition", int64(t.Partition)}, {"checkpoint", t.Checkpoint}, {"checkpoint_offset", t.Offset}, {"from", t.From}, {"before", t.Before},
					{"records", t.Records}, {"held_by", textOrNull(t.Held)}, {"dry_run", dryRun}, {"deleted", t.Done},
				})
			})
		},
	}
	a.dataFlags(cmd.Flags())
	a.brokerFlags(cmd.Flags())
	f := cmd.Flags()
	f.StringVar(&before, "before", "", "`checkpoint`, by its id or the beginning of it")
	f.BoolVar(&dryRun, "dry-run", false, "only say what would go")
	f.BoolVar(&yes, "yes", false, "do it")
	return cmd
}

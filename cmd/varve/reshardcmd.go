package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/topology"
)

func (a *app) tableReshardCommand() *cobra.Command {
	var stoodStill, noWait bool
	cmd := &cobra.Command{
		Use:   "reshard TABLE",
		Short: "Take a source topic that gained partitions",
		Long: "A keyed table stops when its source topic gains partitions: the events of a key may now\n" +
			"come in another partition, whose shard does not know the key's row. This reads the\n" +
			"partitions that there were to their ends, and then gives every partition's shard all\n" +
			"keys that they knew.\n\n" +
			"By the time it is run, every producer must know of the new partitions (Kafka's producers\n" +
			"do after metadata.max.age.ms, 5 minutes by default): a key that still goes to its old\n" +
			"partition afterwards would get a second row. Which of a key's events came last is told by\n" +
			"the ordering column. A table without one needs producers that stood still from before the\n" +
			"partitions were added until the command is done: say so with --producers-stood-still.",
		Example: "  varve table reshard shop.orders\n  varve table reshard shop.orders --producers-stood-still --no-wait",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			return a.with(ctx, readRoles, func(s *session) error {
				out, err := s.Reshard(ctx, args[0], stoodStill)
				if errors.Is(err, topology.ErrNoReshard) {
					return asUsage(err)
				}
				if err != nil {
					return err
				}
				if out.Outcome.Reason == record.ReshardOpen && !noWait && len(out.Outcome.Numbers) > 0 {
					out.Offset = out.Outcome.Numbers[0] // asked for before: it is waited for
				} else if err := accepted(&out, args[0], "reshard"); err != nil {
					return err
				}
				t, err := s.Table(ctx, args[0])
				if err == nil && s.node != nil && s.node.Embedded() {
					err = s.node.Ingest(ctx, t) // nobody else reads its source
				}
				if err == nil && !noWait {
					t, err = s.Resharded(ctx, args[0])
				}
				if err != nil {
					return err
				}
				var at any
				shards := 0
				if b := t.Base; b != nil && t.Resharding == nil {
					at, shards = b.Offset, int(b.Partitions)
				}
				return a.show(object{{"table", t.Name}, {"offset", out.Offset}, {"done", t.Resharding == nil}, {"divided_offset", at}, {"partitions", shards}})
			})
		},
	}
	a.dataFlags(cmd.Flags())
	a.brokerFlags(cmd.Flags())
	f := cmd.Flags()
	f.BoolVar(&stoodStill, "producers-stood-still", false, "no producer wrote from before the topic gained partitions until now")
	f.BoolVar(&noWait, "no-wait", false, "end once the request is in the log")
	return cmd
}

// badReshard explains a Reshard that the state rejected.
func badReshard(out *record.OutcomeMessage, err error) error {
	what := int64(0)
	if len(out.Outcome.Numbers) > 0 {
		what = out.Outcome.Numbers[0]
	}
	switch what {
	case 1:
		return usagef("%w: the topic has not more partitions than the table's shards were made for", err)
	case 3:
		return usagef("%w: a shard has not uploaded its index since the topic was divided last; wait until all partitions are read", err)
	}
	return err
}

package main

import (
	"context"
	"errors"
	"math"

	"github.com/spf13/cobra"

	"github.com/varve-io/varve/statestore/checkpoint"
	"github.com/varve-io/varve/topology"
)

func (a *app) checkpointCommand() *cobra.Command {
	return group("checkpoint", "Keep, list and restore copies of the state in the object store",
		"  varve checkpoint create\n  varve checkpoint list --output json\n  varve checkpoint restore --data ./new-folder --warehouse s3://lake/varve",
		a.checkpointCreateCommand(), a.checkpointListCommand(), a.checkpointRestoreCommand(), a.checkpointDeleteCommand())
}

// partitionFlag adds --partition; -1: all.
func (a *app) partitionFlag(cmd *cobra.Command, to *int32, usage string) {
	a.dataFlags(cmd.Flags())
	cmd.Flags().StringVar(&a.deployment, "deployment", "varve", "name of the deployment, the prefix of its topics")
	cmd.Flags().Int32Var(to, "partition", -1, usage)
	inner := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if a.given("partition") && *to < 0 {
			return usagef("--partition %d: partitions count from 0", *to)
		}
		return inner(cmd, args)
	}
}

func (a *app) checkpoints(ctx context.Context) (*topology.Checkpoints, error) {
	o, err := a.nodeOptions()
	if err != nil {
		return nil, err
	}
	return topology.OpenCheckpoints(ctx, o)
}

func (a *app) checkpointCreateCommand() *cobra.Command {
	var partition int32
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Make a checkpoint of the state now",
		Long: "Has the node that runs on the data folder make a checkpoint of each partition whose\n" +
			"state it has; of a stopped folder it is made directly. Files that an earlier\n" +
			"checkpoint has are shared with it. A running node also makes them by itself (see\n" +
			"--checkpoint-interval of varve run).",
		Example: "  varve checkpoint create\n  varve checkpoint create --partition 3 --output json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			made, err := topology.RequestCheckpoint(cmd.Context(), a.data, partition)
			if errors.Is(err, topology.ErrNotRunning) {
				var c *topology.Checkpoints
				if c, err = a.checkpoints(cmd.Context()); err == nil {
					made, err = c.Create(cmd.Context(), partition)
				}
			}
			if err != nil {
				return err
			}
			out := a.list("partition", "checkpoint", "offset", "uploaded", "shared", "took_ms")
			for _, m := range made {
				if err := out.row(int64(m.Partition), m.ID, m.Offset, byteSize(m.Uploaded), byteSize(m.Shared), m.TookMs); err != nil {
					return err
				}
			}
			return out.close()
		},
	}
	a.partitionFlag(cmd, &partition, "only this `partition` of the transactions topic; -1: all")
	return cmd
}

func (a *app) checkpointListCommand() *cobra.Command {
	var partition int32
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the checkpoints in the object store, oldest first",
		Long: "Lists the checkpoints of the deployment. own is what would go with a checkpoint,\n" +
			"shared what others have too. error says why one cannot be used; files are looked at\n" +
			"only when one is restored.",
		Example: "  varve checkpoint list\n  varve checkpoint list --partition 0 --output json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.checkpoints(cmd.Context())
			if err != nil {
				return err
			}
			es, err := c.List(cmd.Context(), partition)
			if err != nil {
				return err
			}
			out := a.list("partition", "checkpoint", "offset", "made", "table_time", "own", "shared", "tables", "files", "chain_hash", "apply_version", "error")
			for i := range es {
				e := &es[i]
				row := []any{int64(e.Partition), e.ID, e.Offset, millisOrNull(e.MadeMs), nil, nil, nil, nil, nil, nil, nil, nil}
				if m := e.Manifest; m != nil {
					row[4], row[5], row[6], row[7], row[8] = millisOrNull(m.TimeMs), byteSize(e.Own), byteSize(e.Shared), m.Content.Tables, m.Content.Files
					row[9], row[10] = m.Chain, int64(m.ApplyVersion)
				}
				if e.Err != nil {
					row[11] = e.Err.Error()
				}
				if err := out.row(row...); err != nil {
					return err
				}
			}
			return out.close()
		},
	}
	a.partitionFlag(cmd, &partition, "only this `partition` of the transactions topic; -1: all")
	return cmd
}

func (a *app) checkpointRestoreCommand() *cobra.Command {
	var partition int32
	var id string
	cmd := &cobra.Command{
		Use:   "restore",
		Short: "Bring checkpoints into a data folder that has no state",
		Long: "Brings the newest usable checkpoint of each partition into a data folder on which no\n" +
			"node runs and that has no state of it. Each file is checked by length and hash; a\n" +
			"damaged checkpoint is passed over for an older one. The next start holds the state\n" +
			"against the log and applies what came since. A node that starts without a state does\n" +
			"the same by itself.",
		Example: "  varve checkpoint restore --data ./new-folder --warehouse s3://lake/varve\n  varve checkpoint restore --partition 0 --checkpoint 48211-3fa9c1d20b77",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if id != "" && partition < 0 {
				return usagef("--checkpoint needs --partition: checkpoints are a partition's")
			}
			c, err := a.checkpoints(cmd.Context())
			if err != nil {
				return err
			}
			rs, err := c.Restore(cmd.Context(), partition, id)
			if err != nil {
				return err
			}
			out := a.list("partition", "checkpoint", "offset", "bytes", "took_ms")
			for _, r := range rs {
				if err := out.row(int64(r.Partition), r.ID, r.Offset, byteSize(r.Bytes), r.Took.Milliseconds()); err != nil {
					return err
				}
			}
			return out.close()
		},
	}
	a.partitionFlag(cmd, &partition, "only this `partition` of the transactions topic; -1: all")
	cmd.Flags().StringVar(&id, "checkpoint", "", "this checkpoint, by its `id` or the beginning of it (default: the newest that can be used)")
	return cmd
}

func (a *app) checkpointDeleteCommand() *cobra.Command {
	var partition int32
	cmd := &cobra.Command{
		Use:   "delete CHECKPOINT",
		Short: "Remove a checkpoint",
		Long: "Removes a checkpoint, by its id or the beginning of it. Files that no other one has go\n" +
			"when the partition's next checkpoint is made, not before " + checkpoint.DefaultGrace.String() + " have passed.",
		Example: "  varve checkpoint delete 48211-3fa9c1d20b77 --partition 0",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.checkpoints(cmd.Context())
			if err != nil {
				return err
			}
			if err := c.Delete(cmd.Context(), partition, args[0]); err != nil {
				return err
			}
			return a.show(object{{"deleted", args[0]}})
		},
	}
	a.partitionFlag(cmd, &partition, "its `partition` of the transactions topic; -1: the only one")
	return cmd
}

// checkpointFlags are the flags of varve run.
type checkpointFlags struct {
	interval string
	records  int64
	keep     int
}

func (f *checkpointFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.interval, "checkpoint-interval", topology.DefaultCheckpointInterval.String(), "the `time` that the state may change until there is a new checkpoint of it; off: any time")
	cmd.Flags().Int64Var(&f.records, "checkpoint-records", topology.DefaultCheckpointRecords, "the `number` of records of the log may be applied until there is one")
	cmd.Flags().IntVar(&f.keep, "checkpoint-keep", checkpoint.DefaultKeep, "the `number` of checkpoints of a partition that stay")
}

func (f *checkpointFlags) options() (o topology.CheckpointOptions, err error) {
	o.Interval = -1
	if f.interval != "off" {
		if o.Interval, err = parseDuration(f.interval); err != nil {
			return o, usagef("--checkpoint-interval: %w, or off", err)
		}
	}
	if f.records < 1 {
		return o, usagef("--checkpoint-records %d: one or more; %d is as good as never", f.records, int64(math.MaxInt64))
	}
	if f.keep < 1 {
		return o, usagef("--checkpoint-keep %d: one or more", f.keep)
	}
	o.Records, o.Keep = f.records, f.keep
	return o, nil
}

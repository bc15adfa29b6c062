package main

import (
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/topology"
)

func (a *app) transactionVoidCommand() *cobra.Command {
	var (
		partition int32
		offset    int64
		lost      record.Ref
		hash      string
	)
	cmd := &cobra.Command{
		Use:   "void --partition P --offset O",
		Short: "Give up an object that a record of the log needs and that is lost for good",
		Long: "A record with a large body names an object of the warehouse, and so does one that needs a\n" +
			"forwarding map. When that object is gone, the partition waits until it is back: restore\n" +
			"it wherever you can. When it is lost for good, this writes down, once and for everyone,\n" +
			"that it is: the record is rejected, and the partition goes on behind it. What the record\n" +
			"asked for does not happen: its sender sees the outcome, and an owner of a shard reads\n" +
			"its events again.\n\n" +
			"The log of the waiting node says the command with its values. It is refused when the\n" +
			"object is there, and for a record that was applied already. With an embedded broker,\n" +
			"stop the node first.",
		Example: "  varve transaction void --partition 0 --offset 4711\n" +
			"  varve transaction void --partition 0 --offset 4712 --object _varve/varve/maps/5d41402abc4b2a76b9719d911017c592 --length 8192 --hash 9f86d081…",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			if !a.given("partition") || !a.given("offset") || offset < 0 || partition < 0 {
				return usagef("--partition P and --offset O name the record that waits; the node's log and \"varve status\" say which")
			}
			opts, err := a.nodeOptions()
			if err != nil {
				return err
			}
			v := topology.VoidOptions{
				Data: opts.Data, Brokers: opts.Brokers, Deployment: opts.Deployment, Client: opts.Client, Logger: a.log, Partition: partition, Offset: offset,
			}
			if a.given("object") || a.given("length") || a.given("hash") {
				b, err := hex.DecodeString(hash)
				if err != nil || len(b) != len(lost.Hash) || lost.Path == "" || lost.Length < 1 {
					return usagef("--object, --length and --hash go together: path, bytes and SHA-256 in hex of what is lost, as the node's log says them")
				}
				copy(lost.Hash[:], b)
				v.Object = &lost
			}
			if conn, _, err := topology.Dial(ctx, a.data, a.client()); err == nil {
				if len(v.Brokers) == 0 {
					v.Brokers = conn.Brokers()
				}
				if err := conn.CloseConn(); err != nil {
					return err
				}
			} else if !errors.Is(err, topology.ErrNotRunning) {
				return err
			}
			l, err := a.openLake(ctx)
			if err != nil {
				return err
			}
			v.Store = l.store
			ref, err := topology.Void(ctx, v)
			if errors.Is(err, topology.ErrApplied) || errors.Is(err, processors.ErrNotLost) {
				return asUsage(fmt.Errorf("partition %d, offset %d: nothing was declared void: %w", partition, offset, err))
			}
			if err != nil {
				return err
			}
			return a.show(object{{"partition", int64(partition)}, {"offset", offset}, {"void", ref.Path}, {"sha256", ref.Hash.String()}})
		},
	}
	a.dataFlags(cmd.Flags())
	a.brokerFlags(cmd.Flags())
	f := cmd.Flags()
	f.Int32Var(&partition, "partition", 0, "`partition` of the transactions topic")
	f.Int64Var(&offset, "offset", 0, "log `offset` of the record that waits")
	f.StringVar(&lost.Path, "object", "", "`path` of a forwarding map that is lost (default: the record's own body)")
	f.Int64Var(&lost.Length, "length", 0, "its `bytes`")
	f.StringVar(&hash, "hash", "", "its SHA-256 in `hex`")
	return cmd
}

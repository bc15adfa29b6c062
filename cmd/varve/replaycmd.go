package main

import (
	"context"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/varve-io/varve/schemas/logfile"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/objstore"
	"github.com/varve-io/varve/topology"
)

func (a *app) replayCommand() *cobra.Command {
	var (
		into, to  string
		from      []string
		partition int32
		compare   bool
	)
	cmd := &cobra.Command{
		Use:   "replay --into FOLDER",
		Short: "Build the state again from the log alone, and compare what comes out",
		Long: "Applies the log from its beginning, from the topic or from files that \"varve\n" +
			"transaction export\" wrote, and leaves the states of its partitions in a fresh folder.\n" +
			"With --compare every snapshot's metadata, manifests and vectors are made again and held\n" +
			"against the lake byte by byte, the chain hashes against the outcomes topic and the\n" +
			"checkpoints, and the state against that of a stopped data folder. Where tables are\n" +
			"published to an outside catalog, the metadata is its own and left out. Nothing but FOLDER is\n" +
			"written. It ends with exit code 3 at the first difference.\n\n" +
			"--to ends it at a log offset (a number; with several partitions also --partition), at a\n" +
			"time, or at a snapshot (snapshot:ID).",
		Example: "  varve replay --into /tmp/again --compare\n" +
			"  varve replay --into /tmp/then --to 2026-08-01T10:30:00Z\n" +
			"  varve replay --into /tmp/again --from orders.varvelog --to snapshot:6712355512301",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if into == "" {
				return usagef("--into FOLDER: name a folder that is empty or not there yet; the state is built in it")
			}
			o := topology.ReplayOptions{Exports: from, StateOnly: !compare, Logger: a.log}
			if o.To, err = parseReplayTo(to); err != nil {
				return err
			}
			if a.given("partition") {
				o.Partitions = []int32{partition}
			}
			if _, err := a.replayPlaces(cmd.Context(), &o, into, compare); err != nil {
				return err
			}
			p := a.progress()
			o.Told = func(g topology.ReplayProgress) {
				p.set(float64(g.Next)/float64(max(g.End, 1)), "partition %d: offset %d of %d, %.0f records/s, %s left, %d snapshots", g.Partition, g.Next, g.End,
					g.PerSecond, g.Left.Round(time.Second), g.Cuts)
			}
			got, err := topology.Replay(cmd.Context(), o)
			p.done()
			if err != nil {
				return replayCode(err)
			}
			return a.showReplayed(got, into)
		},
	}
	a.dataFlags(cmd.Flags())
	a.brokerFlags(cmd.Flags())
	f := cmd.Flags()
	f.StringVar(&into, "into", "", "`folder` for the states that are built; empty, or not there yet")
	f.StringSliceVar(&from, "from", nil, "exported log `file`s, one a partition, in place of the topic")
	f.StringVar(&to, "to", "", "`where` to end: an offset, a time, or snapshot:ID (default: the end of the log)")
	f.Int32Var(&partition, "partition", 0, "only this `partition` of the transactions topic (default: all)")
	f.BoolVar(&compare, "compare", false, "make every snapshot again and hold it against the lake")
	return cmd
}

// replayCode gives an error of a replay its exit code.
func replayCode(err error) error {
	switch {
	case errors.Is(err, topology.ErrReplayDiffers), errors.Is(err, statestore.ErrFork):
		return &codeError{exitDiffers, err}
	case errors.Is(err, logfile.ErrNotLog), errors.Is(err, logfile.ErrNewer):
		return asUsage(err)
	}
	return err
}

func parseReplayTo(s string) (to topology.ReplayTo, err error) {
	if s == "" {
		return to, nil
	}
	if id, ok := strings.CutPrefix(s, "snapshot:"); ok {
		if to.Snapshot, err = strconv.ParseInt(id, 10, 64); err != nil || to.Snapshot <= 0 {
			return to, usagef("--to %s: a snapshot id is a number; \"varve snapshots TABLE\" shows them", s)
		}
		return to, nil
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		if n < 0 {
			return to, usagef("--to %s: offsets count from 0", s)
		}
		if n > 1<<40 {
			return to, usagef("--to %s: no log has such an offset; a snapshot is written snapshot:%s, a time 2026-08-01T10:30:00Z", s, s)
		}
		to.Offset = &n
		return to, nil
	}
	if to.TimeMs, err = parseTime(s); err != nil {
		return to, usagef("--to: %w, or a log offset, or snapshot:ID", err)
	}
	return to, nil
}

// replayPlaces finds what a replay reads and where it writes. running: a node
// runs on the data folder.
func (a *app) replayPlaces(ctx context.Context, o *topology.ReplayOptions, into string, compare bool) (running bool, err error) {
	if o.State, err = filepath.Abs(into); err != nil {
		return false, asUsage(err)
	}
	es, err := os.ReadDir(o.State)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, asUsage(err)
	}
	if len(es) > 0 {
		return false, usagef("%s is not empty; a replay overwrites nothing: name a folder that is empty or not there yet", into)
	}
	node, err := readNodeFacts(a.data)
	if err != nil {
		return false, err
	}
	opts, err := a.nodeOptions()
	if err != nil {
		return false, err
	}
	o.Data, o.Brokers, o.Deployment, o.Client = opts.Data, opts.Brokers, opts.Deployment, opts.Client
	if conn, _, err := topology.Dial(ctx, a.data, a.client()); err == nil {
		if len(o.Brokers) == 0 {
			o.Brokers = conn.Brokers()
		}
		running = true
		if err := conn.CloseConn(); err != nil {
			return false, err
		}
	} else if !errors.Is(err, topology.ErrNotRunning) {
		return false, err
	}
	if node == nil && len(o.Brokers) == 0 && len(o.Exports) == 0 {
		return false, usagef("there is no deployment in %s; name its folder with --data, its brokers with --brokers, or exported files with --from", a.data)
	}
	if node != nil && node.ID != "" {
		id, err := hex.DecodeString(strings.ReplaceAll(node.ID, "-", ""))
		if err != nil || len(id) != len(o.Expect) {
			return false, usagef("%s says deployment id %q, which is none", filepath.Join(a.data, "node.json"), node.ID)
		}
		copy(o.Expect[:], id)
	}
	l, err := a.openLake(ctx)
	if err != nil {
		return false, err
	}
	o.Bodies = l.store
	if !compare {
		return running, nil
	}
	o.Compare, o.Outside = l.store, l.remote != nil
	if !running && node != nil {
		o.Against = a.data
	}
	o.Store, err = objstore.Open(ctx, filepath.Join(o.State, "lake"), objstore.WithLocation(l.store.Location("")))
	return running, err
}

func (a *app) showReplayed(got *topology.Replayed, into string) error {
	out := a.list("partition", "offset", "chain_hash", "table_time", "apply_version", "folder")
	for _, h := range got.Heads {
		if err := out.row(int64(h.Partition), h.Offset, h.Chain.String(), millisOrNull(h.TimeMs), int64(h.ApplyVersion), topology.ReplayFolder(into, h.Partition)); err != nil {
			return err
		}
	}
	if err := out.close(); err != nil {
		return err
	}
	rate := float64(got.Records) / max(got.Elapsed.Seconds(), 1e-6)
	a.notef("%d records in %s (%.0f/s)", got.Records, got.Elapsed.Round(time.Millisecond), rate)
	if got.Cuts > 0 || got.Compared > 0 || got.Chains > 0 {
		a.notef("%d snapshots made again: %d files of metadata are the same in the lake, %d are not there any more; %d chain hashes and %d states are the same",
			got.Cuts, got.Compared, got.Gone, got.Chains, got.States)
	}
	return nil
}

func (a *app) transactionExportCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export TABLE|PARTITION FILE",
		Short: "Write the log of a table's partition to a file that can be kept",
		Long: "Writes the records that a partition of the transactions topic has now, those of all its\n" +
			"tables, to a file that must not be there: each with a checksum, the whole with its\n" +
			"SHA-256. \"varve replay --from FILE\" builds the state from it. Data files and large\n" +
			"bodies of records stay in the lake.",
		Example: "  varve transaction export shop.orders orders.varvelog\n  varve transaction export 3 partition-3.varvelog",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd.Context(), readRoles, func(s *session) error {
				var p int32
				if n, err := strconv.ParseInt(args[0], 10, 32); err == nil {
					p = int32(n)
				} else if t, err := s.Table(cmd.Context(), args[0]); err != nil {
					return err
				} else {
					p = s.PartitionOf(t.Name)
				}
				bar := a.progress()
				began := time.Now()
				got, err := s.Export(cmd.Context(), p, args[1], func(done, all int64) {
					rate := float64(done) / max(time.Since(began).Seconds(), 1e-6)
					bar.set(float64(done)/float64(max(all, 1)), "%d of %d records, %.0f/s", done, all, rate)
				})
				bar.done()
				if err != nil {
					return err
				}
				return a.show(object{{"file", args[1]}, {"partition", int64(got.Partition)}, {"first", got.First}, {"records", got.Next - got.First}, {"bytes", byteSize(got.Bytes)}})
			})
		},
	}
	a.dataFlags(cmd.Flags())
	a.brokerFlags(cmd.Flags())
	return cmd
}

// parseSince reads a time or an offset to list from.
func parseSince(s string) (offset, ms int64, err error) {
	if s == "" {
		return 0, 0, nil
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && n >= 0 && n < 1e10 {
		return n, 0, nil
	}
	if d, err := parseDuration(s); err == nil {
		return 0, time.Now().Add(-d).UnixMilli(), nil
	}
	ms, err = parseTime(s)
	if err != nil {
		return 0, 0, usagef("--since: %w, a duration such as 2h, or a log offset", err)
	}
	return 0, ms, nil
}

package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/varve-io/varve/topology"
)

func (a *app) verifyCommand() *cobra.Command {
	var full, deep, source bool
	var scratch string
	cmd := &cobra.Command{
		Use:   "verify [TABLE...]",
		Short: "Hold log, state, checkpoints, catalog, objects, rows and source against each other",
		Long: "Builds the state from the log beside whoever runs the deployment, up to where the log\n" +
			"ends now, and holds against it: the chain hashes of the outcomes topic and of\n" +
			"checkpoints, the state of a stopped data folder (content hash), the metadata, manifests\n" +
			"and vectors of each table, and that every object is there with its length. It begins at\n" +
			"the newest checkpoint that fits, with --full at the log's beginning.\n\n" +
			"--deep also reads the data files' footers, all vectors, and the key of every live row:\n" +
			"each must have exactly one entry in the data folder's key indexes, each entry a row.\n" +
			"--source folds the source topics by key and holds what comes out against the rows, one\n" +
			"by one: a lost row and a doubled one do not cancel out.\n\n" +
			"What is found is listed, with exit code 3. Nothing is written but the scratch folder,\n" +
			"where sorted runs keep memory bounded.",
		Example: "  varve verify\n  varve verify shop.orders --deep --source\n  varve verify --full --output json",
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			dir, err := os.MkdirTemp(scratch, "varve-verify-*")
			if err != nil {
				return asUsage(fmt.Errorf("--scratch: %w", err))
			}
			defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
			var r topology.ReplayOptions
			running, err := a.replayPlaces(cmd.Context(), &r, dir, false)
			if err != nil {
				return err
			}
			p := a.progress()
			o := topology.VerifyOptions{
				Brokers: r.Brokers, Client: r.Client, Data: r.Data, Stopped: !running, Deployment: r.Deployment, Expect: r.Expect, Store: r.Bodies, Scratch: dir,
				Tables: args, Full: full, Deep: deep, Source: source, Registry: a.registry, Logger: a.log,
				Told: func(what string, done, all int64) {
					p.set(float64(done)/float64(max(all, 1)), "%s: %d of %d", what, done, all)
				},
			}
			got, err := topology.Verify(cmd.Context(), o)
			p.done()
			if err != nil {
				return err
			}
			return a.showVerified(got)
		},
	}
	a.dataFlags(cmd.Flags())
	a.brokerFlags(cmd.Flags())
	f := cmd.Flags()
	f.BoolVar(&full, "full", false, "begin at the log's beginning, not at a checkpoint")
	f.BoolVar(&deep, "deep", false, "read footers, vectors and the keys of all rows")
	f.BoolVar(&source, "source", false, "fold the source topics and compare row by row (implies --full)")
	f.StringVar(&scratch, "scratch", "", "`folder` for what is built and sorted (default: the system's for temporary files)")
	return cmd
}

func (a *app) showVerified(v *topology.Verified) error {
	out := a.list("check", "table", "partition", "offset", "what")
	for i := range v.Findings {
		f := &v.Findings[i]
		if err := out.row(f.Check, textOrNull(f.Table), int64(f.Partition), f.Offset, f.What); err != nil {
			return err
		}
	}
	if len(v.Findings) > 0 || a.mode != modeTable {
		if err := out.close(); err != nil {
			return err
		}
	}
	for _, h := range v.Heads {
		a.notef("partition %d at offset %d: chain hash %s", h.Partition, h.Offset, h.Chain)
	}
	a.notef("%d records applied, %d chain hashes and %d state contents the same; %d tables: %d data files, %d vectors, %d other objects; %d rows, %d index entries, %d source events; %s",
		v.Records, v.Chains, v.States, v.Tables, v.Files, v.Vectors, v.Objects, v.Rows, v.Entries, v.Events, v.Elapsed.Round(time.Millisecond))
	for _, s := range v.Skipped {
		a.notef("not looked at: %s", s)
	}
	if n := int64(len(v.Findings)) + v.More; n > 0 {
		found := "one difference was found: "
		if n > 1 {
			found = fmt.Sprintf("%d differences were found; the first: ", n)
		}
		return &codeError{exitDiffers, errors.New(found + v.Findings[0].What)}
	}
	return nil
}

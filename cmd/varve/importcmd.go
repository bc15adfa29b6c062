package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/varve-io/varve/topology"
)

func (a *app) tableImportCommand() *cobra.Command {
	var noWait, dryRun bool
	cmd := &cobra.Command{
		Use:   "import TABLE FILE...",
		Short: "Bring Parquet files into a table",
		Long: "Writes the rows of Parquet files into the table's own files, and enters them in the log.\n" +
			"In a table with a key they are held until every shard has taken their keys: rows of\n" +
			"keys that the table has replace the older version, or with an ordering column the one\n" +
			"of the smaller value. Waits until a snapshot shows them, unless --no-wait.\n\n" +
			"Columns are found by their field ids, or in files that have none by their names; each\n" +
			"must be a column of the table, and fit it. --dry-run checks the files and adds nothing.\n" +
			"A row group is held in memory at a time.",
		Example: "  varve table import shop.orders orders-2024.parquet orders-2025.parquet\n  varve table import shop.orders old.parquet --dry-run",
		Args:    cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withTables(cmd.Context(), args[:1], allRoles, func(s *session) error {
				return a.importFiles(cmd.Context(), s, args[0], args[1:], dryRun, noWait)
			})
		},
	}
	a.dataFlags(cmd.Flags())
	a.brokerFlags(cmd.Flags())
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "end once the files are in the log")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "check the files, and add none")
	return cmd
}

func (a *app) importFiles(ctx context.Context, s *session, table string, paths []string, dryRun, noWait bool) (err error) {
	t, err := s.Table(ctx, table)
	if err != nil {
		return err
	}
	var files []topology.ImportFile
	total := int64(0)
	for _, path := range paths {
		f, e := os.Open(path)
		if e != nil {
			return usagef("import %s: %v", path, e)
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		st, e := f.Stat()
		if e != nil {
			return fmt.Errorf("import %s: %w", path, e)
		}
		files = append(files, topology.ImportFile{Name: path, Size: st.Size(), ReaderAt: f})
		// All of them are checked before the first is written.
		p, e := topology.CheckImport(t.Definition, &files[len(files)-1])
		if e != nil {
			return e
		}
		total += p.NumRows()
	}
	result := object{{"table", table}, {"files", int64(len(files))}, {"rows", total}}
	if dryRun {
		return a.show(append(result, field{"imported", false}))
	}
	bar := a.progress()
	done := int64(0)
	out, err := s.Import(ctx, table, files, func(n int64) {
		done += n
		bar.set(float64(done)/float64(max(total, 1)), "importing into %s: %d of %d rows", table, done, total)
	})
	bar.done()
	if err != nil {
		if len(out.Offsets) > 0 {
			err = fmt.Errorf("%w; the first %d of %d files are in the table", err, len(out.Offsets), len(files))
		}
		return err
	}
	result = append(result, field{"imported", true}, field{"data_files", out.Files}, field{"bytes", byteSize(out.Bytes)})
	if len(out.Offsets) == 0 || noWait {
		return a.show(append(result, field{"visible", false}))
	}
	through, err := s.WaitKeysTaken(ctx, table, out.Offsets)
	if err != nil {
		return err
	}
	if err := s.WaitVisible(ctx, table, through); err != nil {
		return err
	}
	if t, err = s.Table(ctx, table); err != nil {
		return err
	}
	return a.show(append(result, field{"visible", true}, field{"offset", out.Offsets[len(out.Offsets)-1]},
		field{"snapshot_id", idOrNull(t.Head.SnapshotID)}, field{"metadata_location", t.Head.MetadataPath}))
}

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
	var of otherTable
	cmd := &cobra.Command{
		Use:   "import TABLE [FILE...]",
		Short: "Bring Parquet files, or an Iceberg table, into a table",
		Long: "Writes the rows of Parquet files into the table's own files, and enters them in the log.\n" +
			"In a table with a key they are held until every shard has taken their keys: rows of\n" +
			"keys that the table has replace the older version, or with an ordering column the one\n" +
			"of the smaller value. Waits until a snapshot shows them, unless --no-wait.\n\n" +
			"Columns are found by their field ids, or in files that have none by their names; each\n" +
			"must be a column of the table, and fit it. --dry-run checks the files and adds nothing.\n" +
			"A row group is held in memory at a time.\n\n" +
			"With --iceberg the files of an Iceberg table (version 1 to 3) in the warehouse are\n" +
			"taken as they lie: nothing is copied, rows that its deletion vectors and position\n" +
			"deletes end are dead in the table, too. Its columns must have the same field ids\n" +
			"(\"varve table create --iceberg\" makes a table so). Rows get new row ids. That table,\n" +
			"and whoever maintains it, must not delete the files from then on. The same import again\n" +
			"adds nothing twice, and goes on where one ended too early.",
		Example: "  varve table import shop.orders orders-2024.parquet orders-2025.parquet\n  varve table import shop.orders old.parquet --dry-run\n" +
			"  varve table import shop.orders --iceberg s3://lake/old/orders --dry-run",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := of.check(); err != nil {
				return err
			}
			if of.location != "" {
				if len(args) > 1 {
					return usagef("name either files or a table with --iceberg")
				}
				return a.withTables(cmd.Context(), args[:1], allRoles, func(s *session) error {
					return a.importIceberg(cmd.Context(), s, args[0], &of, dryRun, noWait)
				})
			}
			if len(args) < 2 {
				return usagef("name Parquet files, or an Iceberg table with --iceberg")
			}
			return a.withTables(cmd.Context(), args[:1], allRoles, func(s *session) error {
				return a.importFiles(cmd.Context(), s, args[0], args[1:], dryRun, noWait)
			})
		},
	}
	a.dataFlags(cmd.Flags())
	a.brokerFlags(cmd.Flags())
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "end once the files are in the log")
	of.add(cmd.Flags())
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
	return a.showImported(ctx, s, table, result, out.Offsets, noWait)
}

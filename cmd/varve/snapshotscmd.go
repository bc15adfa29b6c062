package main

import (
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/varve-io/varve/schemas/iceberg"
)

func (a *app) snapshotsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "snapshots TABLE",
		Short: "List the snapshots that a table keeps, oldest first",
		Long: "Lists the snapshots of the table's committed metadata with what each changed.\n" +
			"rows counts the rows that a reader sees.",
		Example: "  varve snapshots shop.orders\n  varve snapshots shop.orders --output json --data /var/lib/varve",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := a.openLake(cmd.Context())
			if err != nil {
				return err
			}
			t, err := a.table(cmd.Context(), l, args[0])
			if err != nil {
				return err
			}
			return a.listSnapshots(t)
		},
	}
	a.dataFlags(cmd.Flags())
	return cmd
}

// summaryColumns are the columns of a snapshots listing that come from the
// snapshot's summary (S10).
var summaryColumns = []struct{ column, property string }{
	{"added_files", "added-data-files"},
	{"removed_files", "deleted-data-files"},
	{"added_rows", "added-records"},
	{"added_vectors", "added-dvs"},
	{"removed_vectors", "removed-dvs"},
	{"added_deletes", "added-position-deletes"},
	{"files", "total-data-files"},
}

func (a *app) listSnapshots(t *lakeTable) error {
	cols := []string{"sequence", "snapshot_id", "parent_id", "committed", "operation"}
	for _, c := range summaryColumns {
		cols = append(cols, c.column)
	}
	out := a.list(append(cols, "rows", "bytes", "offset", "refs")...)
	for i := range t.meta.Snapshots {
		s := &t.meta.Snapshots[i]
		values := []any{s.Sequence, s.ID, optional(s.ParentID), millis(s.TimestampMs), s.Operation}
		for _, c := range summaryColumns {
			v := summaryNumber(s, c.property)
			if v == nil && !strings.HasPrefix(c.property, "total-") {
				v = int64(0) // writers leave out what did not change
			}
			values = append(values, v)
		}
		if err := out.row(append(values, liveRows(s), summaryBytes(s, "total-files-size"), summaryNumber(s, "varve.offset"), refsOf(t.meta, s.ID))...); err != nil {
			return err
		}
	}
	return out.close()
}

// optional is a pointed-to number, or null.
func optional(p *int64) any {
	if p == nil {
		return nil
	}
	return *p
}

func summaryText(s *iceberg.Snapshot, key string) string {
	for i := range s.Summary {
		if s.Summary[i].Key == key {
			return s.Summary[i].Value
		}
	}
	return ""
}

// summaryNumber is a number of the summary; null when the writer left it out.
func summaryNumber(s *iceberg.Snapshot, key string) any {
	v, err := strconv.ParseInt(summaryText(s, key), 10, 64)
	if err != nil {
		return nil
	}
	return v
}

func summaryBytes(s *iceberg.Snapshot, key string) any {
	if v, ok := summaryNumber(s, key).(int64); ok {
		return byteSize(v)
	}
	return nil
}

// liveRows is total records less deleted positions. With equality deletes
// nobody knows it without reading.
func liveRows(s *iceberg.Snapshot) any {
	records, ok := summaryNumber(s, "total-records").(int64)
	if !ok {
		return nil
	}
	if eq, ok := summaryNumber(s, "total-equality-deletes").(int64); ok && eq > 0 {
		return nil
	}
	dead, _ := summaryNumber(s, "total-position-deletes").(int64)
	return records - dead
}

func refsOf(m *iceberg.Metadata, id int64) []string {
	out := []string{}
	for i := range m.Refs {
		if m.Refs[i].SnapshotID == id {
			out = append(out, m.Refs[i].Name)
		}
	}
	return out
}

package iceberg

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// testdata/foreign holds files that Iceberg Java 1.10 (through Spark) and
// PyIceberg 0.12 wrote: Java's onto a table that varve's writers had begun, so
// its manifests carry on entries of ours. testdata/foreign.txt says what is
// read from them; `go test -rewrite` writes that text anew.
func TestForeignFiles(t *testing.T) {
	datadriven.RunTest(t, "testdata/foreign.txt", func(t *testing.T, d *datadriven.TestData) string {
		var name string
		d.ScanArgs(t, "file", &name)
		b, err := os.ReadFile(filepath.Join("testdata", "foreign", name))
		if err != nil {
			t.Fatal(err)
		}
		switch d.Cmd {
		case "list":
			lines, err := ReadManifestList(b)
			if err != nil {
				return err.Error()
			}
			var sb strings.Builder
			for i := range lines {
				printLine(&sb, &lines[i])
			}
			return sb.String()
		case "manifest":
			m, err := ReadManifest(b)
			if err != nil {
				return err.Error()
			}
			var sb strings.Builder
			fmt.Fprintf(&sb, "version %d, content %d, spec %d\n%s\n", m.FormatVersion, m.Content, m.SpecID, m.SpecJSON)
			for i := range m.Entries {
				printEntry(&sb, &m.Entries[i])
			}
			return sb.String()
		case "metadata":
			m, err := ParseMetadata(b)
			if err != nil {
				return err.Error()
			}
			again, err := m.Marshal()
			if err != nil {
				return err.Error()
			}
			return fmt.Sprintf("sequence %d, next row id %d, %d snapshots, current %d; written again as the same JSON: %t\n",
				m.LastSequence, m.NextRowID, len(m.Snapshots), m.Current().ID, sameJSON(t, again, b))
		}
		t.Fatalf("command %s", d.Cmd)
		return ""
	})
}

func opt[T any](p *T) string {
	if p == nil {
		return "null"
	}
	return fmt.Sprint(*p)
}

func printLine(sb *strings.Builder, l *ManifestFile) {
	fmt.Fprintf(sb, "%s\n  length %d, spec %d, content %d, sequence %d (lowest %d), snapshot %d, first row id %s\n",
		filepath.Base(l.Path), l.Length, l.SpecID, l.Content, l.Sequence, l.MinSequence, l.AddedSnapshotID, opt(l.FirstRowID))
	fmt.Fprintf(sb, "  files +%d =%d -%d, rows +%d =%d -%d\n", l.AddedFiles, l.ExistingFiles, l.DeletedFiles, l.AddedRows, l.ExistingRows, l.DeletedRows)
	for _, p := range l.Partitions {
		fmt.Fprintf(sb, "  null %t, NaN %s, %x to %x\n", p.ContainsNull, opt(p.ContainsNaN), p.Lower, p.Upper)
	}
}

func printEntry(sb *strings.Builder, e *Entry) {
	f := &e.File
	fmt.Fprintf(sb, "status %d, snapshot %s, sequence %s, file sequence %s\n  content %d, %s %s, %d records, %d bytes, partition %x\n",
		e.Status, opt(e.SnapshotID), opt(e.Sequence), opt(e.FileSequence), f.Content, f.Format, filepath.Base(f.Path), f.Records, f.Bytes, f.Partition)
	fmt.Fprintf(sb, "  sizes %v, values %v, nulls %v, NaN %v\n  lower %x\n  upper %x\n", f.ColumnSizes, f.ValueCounts, f.NullCounts, f.NaNCounts, f.Lower, f.Upper)
	of := "null"
	if f.ReferencedDataFile != nil {
		of = filepath.Base(*f.ReferencedDataFile)
	}
	fmt.Fprintf(sb, "  splits %v, equality %v, sort order %s, first row id %s, of %s at %s, %s bytes, key %x\n",
		f.SplitOffsets, f.EqualityIDs, opt(f.SortOrderID), opt(f.FirstRowID), of, opt(f.ContentOffset), opt(f.ContentSize), f.KeyMetadata)
}

package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/varve-io/varve/topology"
)

// demoEvents is a story of orders as Debezium writes it, one Kafka record a
// line (see demo_test.go, which tells it).
//
//go:embed demo/orders.jsonl
var demoEvents []byte

const demoTable = "shop.orders"

func (a *app) demoCommand() *cobra.Command {
	var fresh bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Load bundled change events and show what came of them",
		Long: "Loads about 60 change events of a small shop (inserts, updates, deletes, a changed key,\n" +
			"tombstones, one event that nobody can read) into the table shop.orders, in two rounds, and\n" +
			"shows its rows, snapshots, files and vectors, and how to open it in other engines. The\n" +
			"data stays in ./varve-demo; --fresh makes it new.",
		Example: "  varve demo\n  varve demo --fresh --data /tmp/varve-demo",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !a.given("data") {
				a.data = "./varve-demo"
			}
			if a.mode != modeTable {
				return usagef("demo is for reading; \"varve scan %s --data %s --output %s\" prints its rows", demoTable, a.data, a.output)
			}
			if fresh {
				if err := removeDemo(a.data); err != nil {
					return err
				}
			}
			if err := a.loadDemo(cmd.Context()); err != nil {
				return err
			}
			return a.showDemo(cmd.Context())
		},
	}
	a.dataFlags(cmd.Flags())
	cmd.Flags().BoolVar(&fresh, "fresh", false, "remove the demo's data folder first")
	return cmd
}

// demoMark is a file that only the demo makes, so that --fresh removes no
// folder of anybody else.
const demoMark = "varve-demo.txt"

func removeDemo(dir string) error {
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if _, err := os.Stat(filepath.Join(dir, demoMark)); err != nil {
		return usagef("%s was not made by the demo (there is no %s in it); name another folder with --data", dir, demoMark)
	}
	lock, err := topology.LockDir(dir) // no node may be running on it
	if err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(dir), lock.Unlock())
}

// loadDemo loads the events that are not loaded yet: in a first round those
// up to the deletes, then the rest, so that the table has vectors.
func (a *app) loadDemo(ctx context.Context) error {
	old, err := readNodeFacts(a.data)
	if err != nil {
		return err
	}
	if old != nil {
		if _, err := os.Stat(filepath.Join(a.data, demoMark)); err != nil {
			return usagef("%s holds a deployment that is not the demo's; name another folder with --data", a.data)
		}
		a.notef("%s is there from an earlier demo; --fresh makes it new", a.data)
		return nil
	}
	if err := os.MkdirAll(a.data, 0o755); err != nil {
		return fmt.Errorf("make the demo's folder: %w", err)
	}
	if err := os.WriteFile(filepath.Join(a.data, demoMark), []byte("Made by `varve demo`; `varve demo --fresh` removes this folder.\n"), 0o644); err != nil {
		return fmt.Errorf("make the demo's folder: %w", err)
	}
	o, err := a.nodeOptions(allRoles...)
	if err != nil {
		return err
	}
	n, err := a.openNode(ctx, o)
	if err != nil {
		return err
	}
	return errors.Join(a.loadRounds(ctx, n), closeNode(ctx, n))
}

func (a *app) loadRounds(ctx context.Context, n *topology.Node) error {
	first, rest := demoRounds()
	for i, events := range [][]byte{first, rest} {
		w := &wish{name: demoTable, format: "debezium-json", key: []string{"order_id"}}
		src, err := newEventSource([]string{"-"}, bytes.NewReader(events), true)
		if err != nil {
			return err
		}
		r, err := a.loadInto(ctx, n, w, src, 1)
		if err != nil {
			return err
		}
		a.notef("round %d: %d events, %d rows now, %d dead letters, snapshot %d", i+1, r.events, r.rows, deadLetters(&r.counts), r.snapshot)
	}
	return nil
}

// demoRounds parts the events where the first half of the story ends.
func demoRounds() (first, rest []byte) {
	const split = 24 // lines: the orders as they were placed
	at := 0
	for range split {
		at += bytes.IndexByte(demoEvents[at:], '\n') + 1
	}
	return demoEvents[:at], demoEvents[at:]
}

func (a *app) showDemo(ctx context.Context) error {
	l, err := a.openLake(ctx)
	if err != nil {
		return err
	}
	t, err := a.table(ctx, l, demoTable)
	if err != nil {
		return err
	}
	title := func(s string) {
		fmt.Fprintf(a.out, "\n%s\n%s\n", s, strings.Repeat("═", textWidth(s)))
	}
	title("Rows of " + demoTable + " (varve scan)")
	if err := a.scan(ctx, l, t, &scanOptions{}); err != nil {
		return err
	}
	title("Snapshots (varve snapshots)")
	snapshots := a.list("sequence", "snapshot_id", "committed", "operation", "added_files", "added_vectors", "deleted_rows", "rows")
	for i := range t.meta.Snapshots {
		s := &t.meta.Snapshots[i]
		zero := func(key string) any {
			if v := summaryNumber(s, key); v != nil {
				return v
			}
			return int64(0)
		}
		if err := snapshots.row(s.Sequence, s.ID, millis(s.TimestampMs), s.Operation, zero("added-data-files"), zero("added-dvs"), zero("added-position-deletes"), liveRows(s)); err != nil {
			return err
		}
	}
	if err := snapshots.close(); err != nil {
		return err
	}
	title("Files and their deletion vectors (varve files)")
	if err := a.listFiles(ctx, l, t, t.meta.Current()); err != nil {
		return err
	}
	_, err = fmt.Fprint(a.out, a.demoLines(t, l))
	return err
}

// demoLines is what to paste into other engines.
func (a *app) demoLines(t *lakeTable, l *lake) string {
	folder := strings.TrimPrefix(t.meta.Location, "file://")
	warehouse := strings.TrimPrefix(l.store.Location(""), "file://")
	return fmt.Sprintf(`
Open it elsewhere
═════════════════
DuckDB 1.5:
  INSTALL iceberg; LOAD iceberg;
  SELECT status, count(*), sum(amount) FROM iceberg_scan('%[1]s') GROUP BY status;

PyIceberg 0.12:
  from pyiceberg.table import StaticTable
  print(StaticTable.from_metadata("%[2]s").scan().to_arrow())

Spark 4.0 with Iceberg 1.10:
  spark-sql --packages org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0 \
    --conf spark.sql.catalog.varve=org.apache.iceberg.spark.SparkCatalog \
    --conf spark.sql.catalog.varve.type=hadoop --conf spark.sql.catalog.varve.warehouse=%[3]s \
    -e "SELECT * FROM varve.%[4]s"

All tables at once: "varve run --data %[5]s" serves them as a REST catalog and prints
where; then, in DuckDB:
  ATTACH '' AS lake (TYPE iceberg, ENDPOINT 'http://127.0.0.1:8181', AUTHORIZATION_TYPE 'none');

Go on with it:
  varve scan %[4]s --data %[5]s --where "status = 'paid'"
  varve delete %[4]s --data %[5]s --key order_id=1002
  varve transaction list %[4]s --data %[5]s
`, folder, t.location, warehouse, t.name, a.data)
}

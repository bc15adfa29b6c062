package endtoend

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/topology"
	"github.com/varve-io/varve/topology/readers"
)

// TestRandomEvents: given random events of two tables in two partitions of the
// log, with restarts and deletes by key between them, every snapshot that was
// ever committed holds exactly the rows that the accepted records below its
// build offset ask for, with their row lineage.
func TestRandomEvents(t *testing.T) {
	onBackends(t, func(t *testing.T, b backend) { randomEvents(t, b, "", 8) })
}

func randomEvents(t *testing.T, b backend, warehouse string, rounds int) {
	s := seed(t)
	r := rng(s)
	ctx := longContext(t)
	o := topology.NodeOptions{Data: dataDir(t), Brokers: b.brokers, Warehouse: warehouse, Deployment: "random", Partitions: 2}
	n := start(t, o)
	rounds = count(t, "VARVE_ROUNDS", rounds, rounds)
	feeds := []*feed{
		newFeed(orders(otherPartition("shop.orders", 0), 40, 200), s),
		newFeed(users(otherPartition("people.users", 1), 40, 150), s),
	}
	models := make([]*model, len(feeds))
	for i, f := range feeds {
		models[i] = f.model()
		if _, err := n.Produce(ctx, f.def.SourceTopic, f.partitions, f.take(1+r.IntN(50)), nil); err != nil {
			t.Fatal(err)
		}
		info, created, err := n.EnsureTable(ctx, f.def)
		if err != nil || !created {
			t.Fatalf("created %v: %v", created, err)
		}
		if err := n.Ingest(ctx, info); err != nil {
			t.Fatal(err)
		}
	}
	for round := range rounds {
		for i, f := range feeds {
			if _, err := n.Produce(ctx, f.def.SourceTopic, f.partitions, f.take(r.IntN(120)), nil); err != nil {
				t.Fatal(err)
			}
			if r.IntN(3) == 0 {
				askDelete(ctx, t, n, f, models[i], r.IntN(2*f.partitions*20))
			}
		}
		switch {
		case round%5 == 4:
			stop(t, n)
			n = start(t, o)
		case r.IntN(3) == 0:
			for _, f := range feeds {
				if err := n.WaitLoaded(ctx, f.def.Name, nil); err != nil {
					t.Fatal(err)
				}
			}
		default:
			time.Sleep(time.Duration(r.IntN(120)) * time.Millisecond)
		}
	}
	for i, f := range feeds {
		settle(ctx, t, n, f, models[i])
	}
	stop(t, n)
}

// settle waits until everything is published and holds the table's whole
// history, its last version and its dead letters against the model.
func settle(ctx context.Context, t *testing.T, n *topology.Node, f *feed, m *model) {
	t.Helper()
	if err := n.WaitLoaded(ctx, f.def.Name, nil); err != nil {
		t.Fatal(err)
	}
	info, err := n.Table(ctx, f.def.Name)
	if err != nil {
		t.Fatal(err)
	}
	h := readHistory(ctx, t, n, f.def.Name)
	h.check(ctx, t, m, f.key)
	if err := covered(f, h); err != nil {
		t.Fatal(err)
	}
	c := &info.Counts
	if got := c.DeadUpserts + c.DeadDeletes + c.DeadOther; got != m.bad || c.LateIgnored != m.late || c.Events != m.good {
		t.Errorf("table %s counts %d dead letters, %d late, %d events; want %d, %d, %d", info.Name, got, c.LateIgnored, c.Events, m.bad, m.late, m.good)
	}
	checkLetters(ctx, t, n, f)
	t.Logf("%s: %d events, %d bad, %d late; %d records, %d commits, %d live rows in %d files", info.Name, m.good, m.bad, m.late,
		len(h.appends), len(h.commits), info.Rows-info.Dead, info.Files)
	if len(h.commits) < 2 {
		t.Error("nothing was committed")
	}
	for _, engine := range []readers.Engine{readers.DuckDB, readers.PyIceberg} {
		last := h.commits[len(h.commits)-1].MetadataPath
		t.Run(string(engine), func(t *testing.T) {
			readers.Need(t, engine)
			got, err := readLake(ctx, engine, last, readers.Options{Lineage: engine == readers.DuckDB})
			if err != nil {
				t.Fatal(err)
			}
			if engine == readers.DuckDB {
				other, err := readLake(ctx, readers.IcebergGo, last, readers.Options{Lineage: true})
				if err != nil {
					t.Fatal(err)
				}
				diff(t, "lineage of DuckDB and iceberg-go", got.Sorted(), other.Sorted())
				takeLineage(t, got, f.key)
			}
			compare(t, string(engine), got, m, f.key)
		})
	}
}

// covered: the accepted source ranges follow each other without gap or overlap
// and reach the end (A3).
func covered(f *feed, h *history) error {
	at := map[int32]int64{}
	for i := range h.appends {
		a := &h.appends[i]
		if a.SourceFrom != at[a.Shard.Partition] {
			return fmt.Errorf("partition %d: the record at %d takes events from %d, the one before ended at %d", a.Shard.Partition, a.offset, a.SourceFrom, at[a.Shard.Partition])
		}
		at[a.Shard.Partition] = a.SourceTo
	}
	for p, es := range f.made {
		if at[p] != int64(len(es)) {
			return fmt.Errorf("partition %d: %d of %d events are in the log", p, at[p], len(es))
		}
	}
	return nil
}

// checkLetters: every bad event has a letter that names its place, and no other has.
func checkLetters(ctx context.Context, t *testing.T, n *topology.Node, f *feed) {
	t.Helper()
	want := map[string]*event{}
	for p, es := range f.made {
		for i := range es {
			if es[i].bad {
				want[fmt.Sprintf("%d:%d", p, i)] = &es[i]
			}
		}
	}
	got := map[string]bool{}
	if len(want) == 0 {
		return // there is no such topic
	}
	for _, r := range readTopic(ctx, t, n, f.def.SourceTopic+".dlq", 0) {
		h := map[string]string{}
		for _, x := range r.Headers {
			h[x.Key] = string(x.Value)
		}
		at := h["__connect.errors.partition"] + ":" + h["__connect.errors.offset"]
		e := want[at]
		if e == nil {
			t.Fatalf("a dead letter for the good event %s: %v", at, h)
		}
		if !bytes.Equal(r.Key, e.key) || !bytes.Equal(r.Value, e.value) || h["__connect.errors.topic"] != f.def.SourceTopic || h["__connect.errors.exception.message"] == "" {
			t.Fatalf("the letter of event %s: %s %s %v", at, r.Key, r.Value, h)
		}
		got[at] = true
	}
	if len(got) != len(want) {
		t.Fatalf("%d letters, want %d", len(got), len(want))
	}
}

// readTopic reads a partition from its start to its end.
func readTopic(ctx context.Context, t *testing.T, n *topology.Node, topic string, partition int32) []topology.LogRecord {
	t.Helper()
	o := topology.ClientOptions{Brokers: n.Brokers()}
	a, err := topology.NewAdmin(o)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	at, err := a.Offsets(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	r, err := topology.OpenLogReader(ctx, o, topology.ReaderOptions{Topic: topic, Partition: partition})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var out []topology.LogRecord
	for r.Next() < at[partition].High {
		rs, err := r.Poll(ctx, time.Second, 0)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, rs...)
	}
	return out
}

// askDelete appends a DeleteKeys of some keys of the model's.
func askDelete(ctx context.Context, t *testing.T, n *topology.Node, f *feed, m *model, from int) {
	t.Helper()
	info, err := n.Table(ctx, f.def.Name)
	if err != nil {
		t.Fatal(err)
	}
	s := info.Definition.Schema()
	enc, err := rows.NewKeyEncoder(s, info.Definition.Key)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	var keys [][]byte
	col := rows.NewColumn(s.Fields[s.ByID(info.Definition.Key[0])].Type)
	for i := range 3 {
		name := fmt.Sprint(from + i)
		if f.key == "name" {
			name = fmt.Sprintf("ü-%03d-%d", (from+i)/2, (from+i)%2)
			col.AppendBytes([]byte(name))
		} else {
			v, err := strconv.ParseInt(name, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			col.AppendInt(v)
		}
		k, err := enc.AppendFrom(nil, []rows.Column{col}, i)
		if err != nil {
			t.Fatal(err)
		}
		names, keys = append(names, name), append(keys, k)
	}
	slices.SortFunc(keys, bytes.Compare)
	offset, err := n.DeleteKeys(ctx, f.def.Name, keys, nil)
	if err != nil {
		t.Fatal(err)
	}
	m.asked[offset] = names
}

// lakeFiles are the files below a data folder's lake by path.
func lakeFiles(t testing.TB, data string) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	err := filepath.WalkDir(filepath.Join(data, "lake"), func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			out[path] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

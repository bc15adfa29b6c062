package endtoend

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/varve-io/varve/processors/deletefiles"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/restcat"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/topology"
	"github.com/varve-io/varve/topology/readers"
)

// foreignStep is what another writer committed once the table's shards had taken so
// many events: rows by key as an upsert has them, nil: a delete, whatever the
// ordering value.
type foreignStep struct {
	taken map[int32]int64
	rows  map[string]*otherRow
}

// step is what another writer committed just now (H12), while nothing of the source is on
// its way; it waits until that is taken in.
func (s *outside) step(n *topology.Node, rows map[string]*otherRow) foreignStep {
	s.t.Helper()
	s.visible(longContext(s.t), n)
	return s.now(rows)
}

func (s *outside) now(rows map[string]*otherRow) foreignStep {
	x := foreignStep{map[int32]int64{}, rows}
	for p, events := range s.f.made {
		x.taken[p] = int64(len(events))
	}
	return x
}

// want is the model after all events and steps (K2, H7).
func (s *outside) want(steps []foreignStep) *model {
	s.t.Helper()
	m := s.f.model()
	at := map[int32]int64{}
	take := func(to map[int32]int64) {
		for p, n := range to {
			if err := m.append(&record.AppendRows{Shard: record.ShardKey{Partition: p}, SourceFrom: at[p], SourceTo: n}, 1, 0); err != nil {
				s.t.Fatal(err)
			}
			at[p] = n
		}
	}
	for _, x := range steps {
		take(x.taken)
		for name, r := range x.rows {
			v := m.keys[name]
			switch {
			case r == nil:
				v.row = nil
			case v.order == nil || r.ver != nil && *r.ver >= *v.order:
				v.row = row{"name": &name, "ver": nil, "score": str("%d", r.score), "ok": nil}
				if r.ver != nil {
					v.row["ver"], v.order = str("%d", *r.ver), r.ver
				}
			}
			m.keys[name] = v
		}
	}
	take(s.now(nil).taken)
	return m
}

// holds reads the table by three engines: each key has one live row, and it is the
// one that the source's events and the other writers left.
func (s *outside) holds(n *topology.Node, steps ...foreignStep) {
	s.t.Helper()
	ctx := longContext(s.t)
	if err := n.WaitLoaded(ctx, s.f.def.Name, nil); err != nil {
		s.t.Fatal(err)
	}
	s.visible(ctx, n)
	want := s.want(steps)
	for _, engine := range []readers.Engine{readers.IcebergGo, readers.PyIceberg, readers.DuckDB} {
		readers.Need(s.t, engine)
		got, err := readers.Read(ctx, engine, s.info(n).Head.MetadataPath, readers.Options{})
		if err != nil {
			s.t.Fatal(engine, ": ", err)
		}
		compare(s.t, string(engine), got, want, s.f.key)
	}
	consistent(s.t, s.metadata())
}

// visible waits until everything that was accepted is published, and nothing is held.
func (s *outside) visible(ctx context.Context, n *topology.Node) {
	s.t.Helper()
	waitUntil(s.t, "all is published", func() bool {
		info, err := n.Table(ctx, s.f.def.Name)
		if err != nil {
			s.t.Fatal(err)
		}
		return info.Pending == nil && !info.Changes && len(info.Held) == 0 && s.metadata().Current().ID == info.Head.SnapshotID
	})
}

func long(v int64) *int64 { return &v }

// TestForeignAppend: another writer appends rows of keys that we have and of new
// ones, unsorted and two of a key; each key has one live row, and the next upsert of
// a foreign key is right (H1, H2, H7).
func TestForeignAppend(t *testing.T) {
	s, n := newOutside(t)
	s.load(t, n, 100)
	w := &otherWriter{t: t, s: s}
	high := long(1 << 40)
	given := [][]otherRow{
		{{name: "ü-001-1", ver: high, score: 2}, {name: "ü-000-0", ver: high, score: 1}, {name: "theirs-1", score: 4}, {name: "theirs-0", ver: long(6), score: 5}, {name: "theirs-0", ver: long(5), score: 3}},
		{{name: "theirs-2", ver: high, score: 7}},
	}
	w.do(func(*otherHead) change { return change{op: "append", add: given} })
	theirs := s.step(n, map[string]*otherRow{"ü-001-1": &given[0][0], "ü-000-0": &given[0][1], "theirs-1": &given[0][2], "theirs-0": &given[0][3], "theirs-2": &given[1][0]})
	s.load(t, n, 100)
	s.holds(n, theirs)
	if took := accepted(s.records(n, record.TypeForeignSnapshot)); took != 1 {
		t.Errorf("%d ForeignSnapshots were accepted", took)
	}
	stop(t, n)
	n = start(t, s.o)
	s.load(t, n, 50)
	s.holds(n, theirs)
	// Where it lies is told, and rows have the ids that its writer gave.
	h := w.read()
	if i := slices.IndexFunc(h.files, func(f *otherFile) bool { return len(f.rows) == 1 && f.rows[0].name == "theirs-2" }); i < 0 {
		t.Error("the other writer's file is not listed any more")
	}
	s.replayed(n)
}

// delete is a delete by vectors of every row whose key is among these.
func (w *otherWriter) delete(h *otherHead, names ...string) change {
	c := change{op: "delete", dead: map[string]*roaring.Bitmap{}}
	for _, f := range h.files {
		for i, r := range f.rows {
			if !f.dead.Contains(uint32(i)) && slices.Contains(names, r.name) {
				if c.dead[f.entry.File.Path] == nil {
					c.dead[f.entry.File.Path] = f.dead.Clone()
				}
				c.dead[f.entry.File.Path].Add(uint32(i))
			}
		}
	}
	return c
}

// TestForeignVectors: another writer deletes rows of ours and of its own by deletion
// vectors, also where the file has one of ours, and rows that were replaced or
// compacted since; it updates a row by a vector and a new file. Nothing comes back
// (H2, H4, P2).
func TestForeignVectors(t *testing.T) {
	s, n := newOutside(t)
	s.load(t, n, 100)
	w := &otherWriter{t: t, s: s}
	add := otherRow{name: "theirs-0", ver: long(4), score: 9}
	w.do(func(*otherHead) change { return change{op: "append", add: [][]otherRow{{add}}} })
	steps := []foreignStep{s.step(n, map[string]*otherRow{"theirs-0": &add})}
	live := func() (names []string) {
		for name, v := range s.want(steps).keys {
			if v.row != nil && name != "theirs-0" {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		return names
	}
	for round := range 4 {
		s.load(t, n, 60)
		s.visible(longContext(t), n)
		names := live()
		gone := []string{names[round], names[len(names)-1-round]}
		if round == 2 {
			gone = append(gone, "theirs-0")
		}
		up := otherRow{name: names[len(names)/2], ver: long(1<<41 + int64(round)), score: int64(round)}
		w.do(func(h *otherHead) change {
			c := w.delete(h, append(slices.Clone(gone), up.name)...)
			c.op, c.add = "overwrite", [][]otherRow{{up}}
			return c
		})
		left := map[string]*otherRow{up.name: &up}
		for _, name := range gone {
			left[name] = nil
		}
		steps = append(steps, s.step(n, left))
		s.load(t, n, 60)
		s.holds(n, steps...)
	}
	if took := accepted(s.records(n, record.TypeForeignSnapshot)); took != 5 {
		t.Errorf("%d ForeignSnapshots were accepted", took)
	}
	s.replayed(n)
}

// rewrite is copy-on-write: the files that have a row which is to change leave, and
// what is left of them is in new ones. each says what becomes of a live row, nil: it
// goes. lineage: the new files carry row ids.
func (w *otherWriter) rewrite(h *otherHead, op string, lineage bool, touches func(r *otherRow) bool, each func(r otherRow) *otherRow) change {
	c := change{op: op, remove: map[string]bool{}}
	var all []otherRow
	for _, f := range h.files {
		hit := false
		var live []otherRow
		for i := range f.rows {
			if f.dead.Contains(uint32(i)) {
				continue
			}
			hit = hit || touches(&f.rows[i])
			if r := each(f.rows[i]); r != nil {
				x := *r
				if !lineage {
					x.rowID, x.seq = nil, nil
				}
				live = append(live, x)
			}
		}
		if !hit {
			continue
		}
		c.remove[f.entry.File.Path] = true
		all = append(all, live...)
	}
	slices.Reverse(all) // in no order that we know
	for len(all) > 0 {
		n := min(len(all), 40)
		c.add = append(c.add, all[:n])
		all = all[n:]
	}
	return c
}

// lineage is the row id of each live row.
func (h *otherHead) lineage() map[string]int64 {
	ids := map[string]int64{}
	for _, f := range h.files {
		for i := range f.rows {
			if !f.dead.Contains(uint32(i)) {
				ids[f.rows[i].name] = *f.rows[i].rowID
			}
		}
	}
	return ids
}

// TestForeignRewrite: another writer deletes and updates by copy-on-write, and
// compacts all of the table. Our rows, and what died since it read them, are as they
// were, with their row ids (H3, H13).
func TestForeignRewrite(t *testing.T) {
	s, n := newOutside(t)
	w := &otherWriter{t: t, s: s}
	s.load(t, n, 100)
	var steps []foreignStep
	live := func() (names []string) {
		for name, v := range s.want(steps).keys {
			if v.row != nil {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		return names
	}
	same := func(r otherRow) *otherRow { return &r }
	for round := range 3 {
		s.load(t, n, 60)
		s.visible(longContext(t), n)
		names := live()
		gone, up := names[round], otherRow{name: names[len(names)-1-round], ver: long(1<<41 + int64(round)), score: int64(round)}
		w.do(func(h *otherHead) change {
			return w.rewrite(h, "overwrite", round != 1, func(r *otherRow) bool { return r.name == gone || r.name == up.name }, func(r otherRow) *otherRow {
				switch r.name {
				case gone:
					return nil
				case up.name:
					up.rowID, up.seq = r.rowID, r.seq
					return &up
				}
				return &r
			})
		})
		steps = append(steps, s.step(n, map[string]*otherRow{gone: nil, up.name: &up}))
		s.load(t, n, 60)
		s.holds(n, steps...)
		before := w.read().lineage()
		w.do(func(h *otherHead) change {
			return w.rewrite(h, "replace", true, func(*otherRow) bool { return true }, same)
		})
		s.visible(longContext(t), n)
		if after := w.read().lineage(); !maps.Equal(before, after) {
			t.Errorf("round %d: row ids changed by another engine's compaction:\n%v\n%v", round, before, after)
		}
		s.load(t, n, 60)
		s.holds(n, steps...)
	}
	if took := accepted(s.records(n, record.TypeForeignSnapshot)); took != 6 {
		t.Errorf("%d ForeignSnapshots were accepted", took)
	}
	s.replayed(n)
}

// TestForeignOwed: rows die after another writer read them and before it commits
// their copies: by a request, by a find job, with or without a compaction of their
// files in between. None of them comes back (H3).
func TestForeignOwed(t *testing.T) {
	s, n := newOutsideWith(t, topology.NodeOptions{Jobs: quickJobs, Roles: topology.Roles()})
	ctx := longContext(t)
	w := &otherWriter{t: t, s: s}
	s.load(t, n, 100)
	info := s.info(n)
	enc, err := rows.NewKeyEncoder(info.Definition.Schema(), info.Definition.Key)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(seed(t), 7))
	var steps []foreignStep
	carried := 0
	for round := range 6 {
		s.load(t, n, 60)
		s.load(t, n, 60)
		s.visible(ctx, n)
		var names []string
		for name, v := range s.want(steps).keys {
			if v.row != nil {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		victims := map[string]*otherRow{names[rng.IntN(len(names))]: nil, names[rng.IntN(len(names))]: nil}
		h := w.read()
		s.proxy.hold(true)
		before := countJobs(ctx, t, n, s.f.def.Name).completed
		if rng.IntN(2) == 0 { // some job carries rows over that were published
			for end := time.Now().Add(3 * time.Second); time.Now().Before(end) && countJobs(ctx, t, n, s.f.def.Name).completed == before; {
				time.Sleep(20 * time.Millisecond)
			}
		}
		for name := range victims {
			if round%2 == 0 {
				b := rows.NewBatch(info.Definition.Schema())
				b.Cols[0].AppendBytes([]byte(name))
				b.AppendEvent(rows.Upsert, 0, 0, false)
				key, err := enc.Append(nil, b, 0)
				if err != nil {
					t.Fatal(err)
				}
				at, err := n.DeleteKeys(ctx, s.f.def.Name, [][]byte{key}, nil)
				if err == nil {
					_, err = n.WaitSettled(ctx, s.f.def.Name, at)
				}
				if err != nil {
					t.Fatal(err)
				}
				continue
			}
			at, _, err := n.DeleteWhere(ctx, s.f.def.Name, "name = '"+name+"'")
			if err == nil {
				_, err = n.WaitFound(ctx, s.f.def.Name, at, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if countJobs(ctx, t, n, s.f.def.Name).completed > before {
			carried++
		}
		steps = append(steps, s.now(victims))
		if err := w.commit(h, w.rewrite(h, "replace", rng.IntN(2) == 0, func(*otherRow) bool { return true }, func(r otherRow) *otherRow { return &r })); err != nil {
			t.Fatal(err)
		}
		s.proxy.hold(false)
		s.load(t, n, 60)
		s.holds(n, steps...)
	}
	t.Logf("in %d of 6 rounds a job carried rows over in between", carried)
	s.replayed(n)
}

// TestForeignBusy: another writer appends, deletes by vectors, updates by
// copy-on-write and compacts, while events come in and jobs run, without a pause
// for either. What it writes has keys of its own, or ordering values above the
// source's: so the rows in the end do not depend on who came first, and each key has
// one (H1–H3).
func TestForeignBusy(t *testing.T) {
	s, n := newOutsideWith(t, topology.NodeOptions{Jobs: quickJobs, Roles: topology.Roles()})
	ctx := longContext(t)
	w := &otherWriter{t: t, s: s}
	rng := rand.New(rand.NewPCG(seed(t), 11))
	theirs := map[string]*otherRow{}
	all := func(*otherRow) bool { return true }
	same := func(r otherRow) *otherRow { return &r }
	did := map[string]int{}
	for round := range 24 {
		if _, err := n.Produce(ctx, s.f.def.SourceTopic, s.f.partitions, s.f.take(30), nil); err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprintf("theirs-%02d", rng.IntN(8))
		row := otherRow{name: name, ver: long(1<<42 + int64(round)), score: int64(round)}
		kind := []string{"append", "update ours", "delete by vectors", "update by copy", "compact"}[rng.IntN(5)]
		did[kind]++
		switch kind {
		case "append":
			w.do(func(*otherHead) change { return change{op: "append", add: [][]otherRow{{row}}} })
			theirs[name] = &row
		case "update ours":
			row.name = fmt.Sprintf("ü-%03d-%d", rng.IntN(20), rng.IntN(2))
			w.do(func(*otherHead) change { return change{op: "append", add: [][]otherRow{{row}}} })
			theirs[row.name] = &row
		case "delete by vectors":
			w.do(func(h *otherHead) change { return w.delete(h, name) })
			theirs[name] = nil
		case "update by copy":
			w.do(func(h *otherHead) change {
				c := w.rewrite(h, "overwrite", rng.IntN(2) == 0, func(r *otherRow) bool { return r.name == name }, func(r otherRow) *otherRow {
					if r.name == name {
						return nil
					}
					return &r
				})
				c.add = append(c.add, []otherRow{row})
				return c
			})
			theirs[name] = &row
		case "compact":
			w.do(func(h *otherHead) change { return w.rewrite(h, "replace", rng.IntN(2) == 0, all, same) })
		}
	}
	s.load(t, n, 60)
	jobsOver(ctx, t, n, s.f.def.Name)
	s.visible(ctx, n)
	// The rows of the source, and over them the newest of theirs: their values are
	// larger, and an event without a value comes after them, or before.
	want := s.want(nil)
	got, err := readers.Read(ctx, readers.IcebergGo, s.info(n).Head.MetadataPath, readers.Options{})
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]row{}
	for _, r := range got.Rows {
		x := row{}
		for i, c := range got.Columns {
			x[c] = r[i]
		}
		if have[*x["name"]] != nil {
			t.Errorf("key %s has two live rows", *x["name"])
		}
		have[*x["name"]] = x
	}
	for name, r := range theirs {
		x, ours := have[name], strings.HasPrefix(name, "ü")
		switch {
		case r == nil && x != nil:
			t.Errorf("key %s was deleted by the other writer, and is there", name)
		case r != nil && x == nil && !ours:
			t.Errorf("key %s is gone", name)
		case r != nil && !ours && (x["ver"] == nil || *x["ver"] != fmt.Sprint(*r.ver)):
			t.Errorf("key %s has the version %v, want %d", name, x["ver"], *r.ver)
		case r != nil && x != nil && ours && x["ver"] != nil && *x["ver"] != fmt.Sprint(*r.ver):
			t.Errorf("key %s has the version %s, older than %d", name, *x["ver"], *r.ver)
		}
	}
	for name, v := range want.keys {
		if _, overwritten := theirs[name]; overwritten {
			continue
		}
		if (v.row == nil) != (have[name] == nil) {
			t.Errorf("key %s is there: %t, want %t", name, have[name] != nil, v.row != nil)
			continue
		}
		for c, value := range v.row {
			if a, b := have[name][c], value; (a == nil) != (b == nil) || a != nil && *a != *b {
				t.Errorf("key %s has another %s than the source said", name, c)
			}
		}
	}
	for _, engine := range []readers.Engine{readers.PyIceberg, readers.DuckDB} {
		readers.Need(t, engine)
		other, err := readers.Read(ctx, engine, s.info(n).Head.MetadataPath, readers.Options{})
		if err != nil {
			t.Fatal(engine, ": ", err)
		}
		diff(t, "iceberg-go and "+string(engine), other.Sorted(), got.Sorted())
	}
	c := countJobs(ctx, t, n, s.f.def.Name)
	t.Logf("%v; %d commits taken in, %d refused; jobs %+v", did, accepted(s.records(n, record.TypeForeignSnapshot)),
		len(s.records(n, record.TypeForeignSnapshot))-accepted(s.records(n, record.TypeForeignSnapshot)), c)
	s.replayed(n)
}

// TestForeignSpark: the same by Spark, where it is installed: it appends, deletes by
// vectors, updates by copy-on-write and compacts, between events of ours (H1–H3, H13).
func TestForeignSpark(t *testing.T) {
	if err := readers.Available(readers.Spark); err != nil {
		t.Skip(err)
	}
	s, n := newOutsideWith(t, topology.NodeOptions{Jobs: quickJobs, Roles: topology.Roles()})
	s.load(t, n, 100)
	spark := startForeign(t, readers.Spark)
	sql := func(statements ...string) {
		t.Helper()
		for _, x := range statements {
			for try := 0; ; try++ {
				_, refused := spark.do(fmt.Sprintf("spark.sql(%q).collect()", x))
				if refused == "" {
					break
				}
				// A commit of ours came between: nothing was done.
				if try == 20 || !slices.ContainsFunc([]string{"Commit", "Validation", "concurrently modified"}, func(why string) bool { return strings.Contains(refused, why) }) {
					t.Fatalf("Spark: %s: %s", x, refused)
				}
			}
		}
	}
	if _, refused := spark.do(fmt.Sprintf(`
import glob, os, sys
from pyspark.sql import SparkSession
b = SparkSession.builder.master("local[1]").config("spark.ui.showConsoleProgress", "false").config("spark.jars", ",".join(glob.glob(os.path.join(sys.prefix, "jars", "*.jar"))))
for k, v in {
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions", "spark.driver.memory": "1g",
    "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1",
    "spark.sql.catalog.o": "org.apache.iceberg.spark.SparkCatalog", "spark.sql.catalog.o.type": "rest", "spark.sql.catalog.o.uri": %q,
    "spark.sql.catalog.o.cache-enabled": "false",
}.items():
    b = b.config(k, v)
spark = b.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
`, s.catalog.URI())); refused != "" {
		t.Fatal("Spark: ", refused)
	}
	table := "o." + s.f.def.Name
	mode := func(kind string) {
		t.Helper()
		sql(fmt.Sprintf("ALTER TABLE %s SET TBLPROPERTIES ('write.delete.mode'='%s', 'write.update.mode'='%s', 'write.merge.mode'='%s')", table, kind, kind, kind))
	}
	var steps []foreignStep
	did := func(rows map[string]*otherRow) {
		t.Helper()
		steps = append(steps, s.step(n, rows))
		s.load(t, n, 60)
		s.holds(n, steps...)
	}
	live := func(i int) string {
		var names []string
		for name, v := range s.want(steps).keys {
			if v.row != nil && strings.HasPrefix(name, "ü") {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		return names[i]
	}
	s.visible(longContext(t), n)
	name := live(0)
	sql(fmt.Sprintf("INSERT INTO %s (name, ver, score, ok) VALUES ('%s', %d, 1, NULL), ('spark', 7, 2, NULL)", table, name, int64(1)<<41))
	did(map[string]*otherRow{name: {ver: long(1 << 41), score: 1}, "spark": {ver: long(7), score: 2}})

	mode("merge-on-read")
	s.visible(longContext(t), n)
	name = live(1)
	sql(fmt.Sprintf("DELETE FROM %s WHERE name IN ('%s', 'spark')", table, name))
	did(map[string]*otherRow{name: nil, "spark": nil})

	mode("copy-on-write")
	s.visible(longContext(t), n)
	name = live(2)
	sql(fmt.Sprintf("UPDATE %s SET ver = %d, score = 3, ok = NULL WHERE name = '%s'", table, int64(1)<<42, name))
	did(map[string]*otherRow{name: {ver: long(1 << 42), score: 3}})

	// Delete files as Flink has them, by Iceberg's own writers: SQL makes none.
	s.visible(longContext(t), n)
	name = live(3)
	if _, refused := spark.do(fmt.Sprintf(`
j = spark._jvm
theirs = j.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, %q)
names = j.java.util.ArrayList()
names.add("name")
by = theirs.schema().select(names)
ids = spark._sc._gateway.new_array(j.int, 1)
ids[0] = theirs.schema().findField("name").fieldId()
made = j.org.apache.iceberg.data.GenericAppenderFactory(theirs.schema(), theirs.spec(), ids, by, None)
out = j.org.apache.iceberg.encryption.EncryptedFiles.plainAsEncryptedOutput(theirs.io().newOutputFile(theirs.locationProvider().newDataLocation("equal.parquet")))
w = made.newEqDeleteWriter(out, j.org.apache.iceberg.FileFormat.PARQUET, None)
for name in (%q, "nobody"):
    row = j.org.apache.iceberg.data.GenericRecord.create(by)
    row.setField("name", name)
    w.write(row)
w.close()
theirs.newRowDelta().addDeletes(w.toDeleteFile()).commit()
`, table, name)); refused != "" {
		t.Fatal("Spark: ", refused)
	}
	did(map[string]*otherRow{name: nil})

	s.visible(longContext(t), n)
	sql(fmt.Sprintf("CALL o.system.rewrite_data_files(table => '%s', options => map('rewrite-all', 'true'))", s.f.def.Name),
		fmt.Sprintf("CALL o.system.rewrite_manifests(table => '%s')", s.f.def.Name))
	did(nil)
	t.Logf("%d commits taken in", accepted(s.records(n, record.TypeForeignSnapshot)))
	stop(t, n)
}

// TestForeignDeleteFiles: another writer deletes by equality, and upserts in that way,
// as Flink does; a third deletes by a position-delete file. What they end is dead, their
// delete files leave with our next commit, and later events of those keys are right (H15).
func TestForeignDeleteFiles(t *testing.T) {
	s, n := newOutside(t)
	s.load(t, n, 150)
	w := &otherWriter{t: t, s: s}
	high := long(1 << 40)
	live := func(h *otherHead) (names []string) {
		for _, f := range h.files {
			for i := range f.rows {
				if !f.dead.Contains(uint32(i)) {
					names = append(names, f.rows[i].name)
				}
			}
		}
		slices.Sort(names)
		return names
	}
	names := live(w.read())
	if len(names) < 8 {
		t.Fatalf("%d rows to delete", len(names))
	}
	var steps []foreignStep
	// One that was never there is among them.
	w.do(func(*otherHead) change {
		return change{op: "delete", equal: []string{names[0], names[1], "nobody"}}
	})
	steps = append(steps, s.step(n, map[string]*otherRow{names[0]: nil, names[1]: nil}))
	// The row that comes with the delete is not ended by it.
	up := []otherRow{{name: names[2], ver: high, score: 21}, {name: "theirs-0", ver: high, score: 22}}
	w.do(func(*otherHead) change {
		return change{op: "overwrite", add: [][]otherRow{up}, equal: []string{names[2], "theirs-0"}}
	})
	steps = append(steps, s.step(n, map[string]*otherRow{names[2]: &up[0], "theirs-0": &up[1]}))
	s.load(t, n, 60)
	// Two commits before the log sees either: the second one's delete ends what the first one brought.
	w.do(func(*otherHead) change {
		return change{op: "append", add: [][]otherRow{{{name: "theirs-1", ver: high, score: 23}, {name: "theirs-2", ver: high, score: 24}}}}
	})
	w.do(func(*otherHead) change { return change{op: "delete", equal: []string{"theirs-1"}} })
	steps = append(steps, s.step(n, map[string]*otherRow{"theirs-1": {name: "theirs-1", ver: high}, "theirs-2": {name: "theirs-2", ver: high, score: 24}}))
	steps = append(steps, s.now(map[string]*otherRow{"theirs-1": nil}))
	// By position, of a file without a vector.
	var gone []string
	w.do(func(h *otherHead) change {
		gone = nil
		c := change{op: "delete", at: map[string]*roaring.Bitmap{}}
		for _, f := range h.files {
			if f.dv == nil && len(f.rows) > 1 && len(gone) == 0 {
				c.at[f.entry.File.Path] = roaring.BitmapOf(0)
				gone = append(gone, f.rows[0].name)
			}
		}
		if len(gone) == 0 {
			t.Fatal("every file has a vector")
		}
		return c
	})
	steps = append(steps, s.step(n, map[string]*otherRow{gone[0]: nil}))
	s.holds(n, steps...)
	h := w.read()
	for path, entries := range h.in {
		for i := range entries {
			if deletefiles.Is(&entries[i].File) && entries[i].File.Content != 0 {
				t.Errorf("%s lists %s still", path, entries[i].File.Path)
			}
		}
	}
	if took := accepted(s.records(n, record.TypeForeignSnapshot)); took < 4 {
		t.Errorf("%d ForeignSnapshots were accepted", took)
	}
	s.load(t, n, 100)
	s.holds(n, steps...)
	stop(t, n)
	n = start(t, s.o)
	s.load(t, n, 50)
	s.holds(n, steps...)
	s.replayed(n)
}

// TestForeignDeleteFilesStay: our commits do not come through while other writers'
// delete files stay, come with a vector, move to another manifest, and leave; a
// compaction that began before a delete keeps the sequence number from then, so the
// delete applies to its copies. Nothing comes back, and what the source says
// meanwhile stands (H13, H15).
func TestForeignDeleteFilesStay(t *testing.T) {
	s, n := newOutsideWith(t, topology.NodeOptions{Jobs: quickJobs, Roles: topology.Roles()})
	ctx := longContext(t)
	s.load(t, n, 150)
	s.visible(ctx, n)
	w := &otherWriter{t: t, s: s}
	var names []string
	for name, v := range s.want(nil).keys {
		if v.row != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	all, same := func(*otherRow) bool { return true }, func(r otherRow) *otherRow { return &r }
	var steps []foreignStep
	for round, lineage := range []bool{true, false} {
		gone := names[8*round : 8*round+4]
		s.proxy.hold(true)
		published := s.now(nil).taken // whatever the source says from here is later than what the others do
		taken := func(deletes int64) {
			t.Helper()
			main := s.metadata().Current().ID
			waitUntil(t, "the log has what the other writers committed", func() bool {
				info := s.info(n)
				return info.Head.SnapshotID == main && len(info.Held) == 0 && info.Head.Deletes == deletes
			})
			if _, err := n.Produce(ctx, s.f.def.SourceTopic, s.f.partitions, s.f.take(30), nil); err != nil {
				t.Fatal(err)
			}
		}
		before := s.metadata().LastSequence
		step := func(c func(h *otherHead) change, gone ...string) {
			t.Helper()
			w.do(c)
			rows := map[string]*otherRow{}
			for _, name := range gone {
				rows[name] = nil
			}
			steps = append(steps, foreignStep{published, rows})
		}
		step(func(*otherHead) change { return change{op: "delete", equal: []string{gone[0], "nobody"}} }, gone[0])
		taken(1)
		// What the delete ended is copied, and it applies to the copy.
		step(func(h *otherHead) change {
			c := w.rewrite(h, "replace", lineage, all, same)
			c.older, c.renew = &before, true
			return c
		})
		taken(1)
		stop(t, n)
		n = start(t, s.o)
		again := names[8*round+4]
		step(func(h *otherHead) change {
			c := w.delete(h, gone[1], again)
			c.equal = []string{gone[2], again}
			return c
		}, gone[1], gone[2], again)
		taken(2)
		step(func(*otherHead) change { return change{op: "replace", renew: true} })
		taken(2)
		// One that heeds them takes them out.
		step(func(h *otherHead) change {
			c := w.rewrite(h, "overwrite", lineage, all, func(r otherRow) *otherRow {
				if slices.Contains(gone, r.name) || r.name == again {
					return nil
				}
				return &r
			})
			c.clear = true
			return c
		}, gone[3])
		taken(0)
		step(func(*otherHead) change { return change{op: "delete", equal: []string{gone[0], names[8*round+5]}} }, gone[0], names[8*round+5])
		taken(1)
		s.proxy.hold(false)
		s.holds(n, steps...)
	}
	s.load(t, n, 100)
	s.holds(n, steps...)
	s.replayed(n)
}

// TestForeignDeleteFilesStop: delete files that cannot be taken stop the table, by
// name and without a key in what is said, and by no more than that: once main is set
// back, or the file is whole again, the table goes on by itself (H11, H15).
func TestForeignDeleteFilesStop(t *testing.T) {
	s, n := newOutside(t)
	s.load(t, n, 150)
	ctx := longContext(t)
	s.visible(ctx, n)
	w := &otherWriter{t: t, s: s}
	shown := &schemas.Spec{ID: 1, Fields: []schemas.PartitionField{{SourceID: 1, FieldID: 1000, Name: "who", Transform: schemas.Identity}}}
	s.commit(restcat.AddSpec(shown))
	var written string
	spoil := func(what func(d *iceberg.DataFile)) change {
		return change{spoil: func(d *iceberg.DataFile) {
			written = w.local(d.Path)
			if what != nil {
				what(d)
			}
		}}
	}
	damage := func(whole []byte) {
		text := slices.Clone(whole)
		for i := 4; i < 40; i++ {
			text[i] ^= 0xff
		}
		w.must(os.WriteFile(written, text, 0o644))
	}
	secret := "nobody-else"
	for name, c := range map[string]struct {
		change
		file func(whole []byte)
		want string
	}{
		"encrypted":           {spoil(func(d *iceberg.DataFile) { d.KeyMetadata = []byte{1} }), nil, "-eq.parquet is encrypted"},
		"of an unknown field": {spoil(func(d *iceberg.DataFile) { d.EqualityIDs = []int32{77} }), nil, "field id 77"},
		"elsewhere":           {spoil(func(d *iceberg.DataFile) { d.Path = "file:///elsewhere/d.parquet" }), nil, "/elsewhere/d.parquet does not lie in the warehouse"},
		"a wrong count":       {spoil(func(d *iceberg.DataFile) { d.Records = 9 }), nil, "has 1 rows, its manifest says 9"},
		"of a spec that shows a key": {func() change {
			c := spoil(func(d *iceberg.DataFile) { d.SpecID, d.Partition = 1, schemas.EncodeTuple([][]byte{[]byte(secret)}) })
			c.of = shown
			return c
		}(), nil, "-eq.parquet is a delete file of the partition spec 1, which varve cannot write"},
		"missing": {spoil(nil), func([]byte) { w.must(os.Remove(written)) }, "-eq.parquet is missing"},
		"damaged": {spoil(nil), damage, "-eq.parquet: "},
	} {
		back := s.metadata().Current().ID
		c.op, c.equal = "delete", []string{secret}
		var whole []byte
		w.before = func() {
			if c.file != nil {
				var err error
				whole, err = os.ReadFile(written)
				w.must(err)
				c.file(whole)
			}
		}
		w.do(func(*otherHead) change { return c.change })
		w.before = nil
		why := ""
		waitUntil(t, "the table stops: "+name, func() bool {
			st, err := n.Status(ctx)
			w.must(err)
			why = st.Waiting[s.f.def.Name]
			return why != ""
		})
		if !strings.Contains(why, c.want) || !strings.Contains(why, s.f.def.Name) || !strings.Contains(why, "set branch main back") || strings.Contains(why, secret) {
			t.Errorf("%s: %s", name, why)
		}
		if c.file == nil {
			s.commit(restcat.SetRef(iceberg.MainBranch, "branch", back, nil))
		} else {
			w.must(os.WriteFile(written, whole, 0o644))
		}
		s.load(t, n, 20)
		s.visible(ctx, n)
	}
	s.holds(n)
}

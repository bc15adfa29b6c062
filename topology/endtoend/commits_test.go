package endtoend

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/RoaringBitmap/roaring/v2"
	icebergio "github.com/apache/iceberg-go/io"
	"github.com/apache/iceberg-go/table"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/processors/collector"
	"github.com/varve-io/varve/processors/publisher"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/schemas/source"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/objstore"
	"github.com/varve-io/varve/topology/readers"
)

// TestManyCommits: a table of a fixed set of keys whose rows are replaced
// again and again, with a commit a second of table time and a retention of 10
// seconds, stays small for ever (G4, S6, M3): its metadata, lists, manifests
// and the time to plan a scan do not grow with the number of commits. Files
// that no retained snapshot names are deleted on the way, and never missed.
func TestManyCommits(t *testing.T) {
	commits := count(t, "VARVE_COMMITS", 200, 200)
	first := max(commits/20, 120) // the metadata log and the first merges of manifests are full by then
	d := newDriver(t)
	var at *footprint
	for i := 1; i <= commits; i++ {
		d.commit(250)
		if i%200 == 0 || i == first || i == commits {
			d.collect()
		}
		if i != first && i != commits {
			continue
		}
		f := d.measure()
		t.Logf("%6d commits: %s", i, f)
		if at == nil {
			at = f
			continue
		}
		for _, x := range []struct {
			what      string
			was, is   int
			allowance int
		}{
			{"bytes of metadata.json", at.metadata, f.metadata, at.metadata/10 + 500},
			{"snapshots", at.snapshots, f.snapshots, 0},
			{"entries of the snapshot log", at.snapshotLog, f.snapshotLog, 0},
			// Manifests grow to 100 of a kind and are merged then (M3).
			{"manifests", at.manifests, f.manifests, 2*publisher.MergeAbove + 2},
			{"bytes of the manifest list", at.list, f.list, (2*publisher.MergeAbove + 2) * 400},
			{"live data files", at.files, f.files, at.files/2 + 10},
			{"keys of the state", at.keys, f.keys, 4*publisher.MergeAbove + at.files},
			{"bytes of the heap", at.heap, f.heap, 32 << 20},    // what waits for the write-back, and cached manifests
			{"bytes of the state", at.state, f.state, 24 << 20}, // a memtable, and what waits for Pebble's compaction
		} {
			if x.is > x.was+x.allowance {
				t.Errorf("%s: %d after %d commits, %d after %d", x.what, x.is, i, x.was, first)
			}
		}
	}
}

// driver publishes a table straight from a state store, as a node would, but
// without a broker and with a clock of its own.
type driver struct {
	t      *testing.T
	ctx    context.Context
	dir    string
	def    schemas.Definition
	store  objstore.Store
	bodies *processors.Bodies
	st     *statestore.Store
	pub    *publisher.Publisher
	enc    rows.WriteOptions

	next, timeMs, source, epoch int64
	table                       int64
	writer                      uint32
	counter                     uint64
	keys                        []placed // by key
	version                     int64    // commits made
	path                        string   // of the newest metadata
	spent                       time.Duration
}

type placed struct {
	file  uint64
	pos   uint32
	value int64
}

const driverKeys = 1000

func newDriver(t *testing.T) *driver {
	d := &driver{t: t, ctx: longContext(t), timeMs: 1_700_000_000_000, keys: make([]placed, driverKeys)}
	if testing.Short() || os.Getenv("VARVE_COMMITS") == "" {
		d.dir = t.TempDir()
	} else {
		// Hours of fsync tell nothing of sizes: a long run is made in memory.
		d.dir = memoryFolder(t)
		d.ctx = context.Background()
	}
	var err error
	if d.store, err = objstore.Open(d.ctx, filepath.Join(d.dir, "lake")); err != nil {
		t.Fatal(err)
	}
	if d.st, err = statestore.Open(filepath.Join(d.dir, "state"), statestore.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.st.Close(); err != nil {
			t.Error(err)
		}
	})
	d.bodies = processors.NewBodies(d.store, "varve")
	d.pub = publisher.New(publisher.Config{Store: d.store, Bodies: d.bodies, Grace: time.Millisecond})
	d.def = definition("shop.stock", source.RowsJSON, []schemas.Field{
		{Name: "id", Type: schemas.Of(schemas.Long)}, {Name: "v", Type: schemas.Of(schemas.Long)},
	})
	d.def.Location = d.store.Location("shop/stock")
	d.def.RetentionMs, d.def.RetentionCount = 10_000, 1
	d.enc = rows.WriteOptions{Schema: d.def.Schema()}
	d.do("", -1, &record.SetApplyVersion{Deployment: [16]byte{1}, Partitions: 1, Version: statestore.ApplyVersion})
	d.table = d.do(d.def.Name, -1, &record.CreateTable{Definition: d.def}).TableID
	claim := d.do(d.def.Name, d.table, &record.ClaimShard{Shard: driverShard})
	d.epoch, d.writer = claim.Offset, uint32(claim.Outcome.Numbers[record.ClaimWriter])
	d.publish()
	return d
}

// memoryFolder is a folder in memory where there is one.
func memoryFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "varve-commits-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

var driverShard = record.ShardKey{TopicID: [16]byte{9}, Topic: "stock"}

// do applies a record, which must be accepted.
func (d *driver) do(name string, id int64, v any) record.OutcomeMessage {
	d.t.Helper()
	env := record.Envelope{ApplyVersion: statestore.ApplyVersion, OffsetSeen: d.next - 1, Table: name, TableID: id}
	if record.TypeOf(v) != record.TypeAppendRows {
		binary.BigEndian.PutUint64(env.Request[:], uint64(d.next)+1)
	}
	m, err := d.bodies.Message(d.ctx, env, v)
	if err != nil {
		d.t.Fatal(err)
	}
	out, err := d.st.Apply(&statestore.Record{Key: m.Key, Header: m.Header[:], Value: m.Value, Offset: d.next, TimeMs: d.timeMs})
	if err != nil {
		d.t.Fatal(err)
	}
	if out.Outcome.Code != record.Accepted {
		d.t.Fatalf("%s: %s %s %v", record.TypeOf(v), out.Outcome.Code, out.Outcome.Reason, out.Outcome.Numbers)
	}
	d.next++
	return out
}

// commit replaces n rows, in a file of their own, and publishes that.
func (d *driver) commit(n int) {
	d.t.Helper()
	began := time.Now()
	d.version++
	d.timeMs += 1000
	r := rng(uint64(d.version))
	chosen := r.Perm(driverKeys)[:n]
	if d.version == 1 {
		chosen = r.Perm(driverKeys)
	}
	slices.Sort(chosen)
	d.counter++
	id := statestore.FileID(d.writer, d.counter)
	b := rows.NewBatch(d.def.Schema())
	kills := map[uint64]*roaring.Bitmap{}
	for i, k := range chosen {
		b.Cols[0].AppendInt(int64(k))
		b.Cols[1].AppendInt(d.version)
		b.AppendEvent(rows.Upsert, 0, 0, false)
		if old := d.keys[k]; old.file != 0 {
			if kills[old.file] == nil {
				kills[old.file] = roaring.New()
			}
			kills[old.file].Add(old.pos)
		}
		d.keys[k] = placed{id, uint32(i), d.version}
	}
	sel := make([]uint32, len(chosen))
	for i := range sel {
		sel[i] = uint32(i)
	}
	var file bytes.Buffer
	info, err := rows.Write(&file, d.enc, b, sel, rows.Extra{})
	if err != nil {
		d.t.Fatal(err)
	}
	key := "shop/stock/data/" + schemas.DataFileName(d.table, d.epoch, d.counter)
	if err := d.store.Create(d.ctx, key, file.Bytes()); err != nil {
		d.t.Fatal(err)
	}
	a := record.AppendRows{
		Shard: driverShard, Epoch: d.epoch, Counter: d.version, SourceFrom: d.source, SourceTo: d.source + int64(n),
		RequestFrom: d.epoch, RequestTo: d.epoch,
		Files: []record.DataFile{{ID: id, Rows: info.Rows, Bytes: info.Bytes, Partition: schemas.EncodeTuple(nil)}},
	}
	d.source = a.SourceTo
	metrics := record.FileMetrics{ID: id, SplitOffsets: info.SplitOffsets}
	for _, c := range info.Columns {
		metrics.Columns = append(metrics.Columns, record.ColumnMetrics{
			FieldID: c.FieldID, Bytes: c.Size, Values: c.Values, Nulls: c.Nulls, NaNs: -1, HasLower: true, Lower: c.Lower, HasUpper: true, Upper: c.Upper,
		})
	}
	body, err := record.EncodeRowsBody(nil, &record.RowsBody{Files: []record.FileMetrics{metrics}})
	if err != nil {
		d.t.Fatal(err)
	}
	ref, err := d.bodies.Put(d.ctx, body)
	if err != nil {
		d.t.Fatal(err)
	}
	a.Changes = &ref
	for f := range kills {
		a.Deletes = append(a.Deletes, record.DeleteBlock{File: f})
	}
	slices.SortFunc(a.Deletes, func(x, y record.DeleteBlock) int { return int(int64(x.File) - int64(y.File)) })
	for i := range a.Deletes {
		if a.Deletes[i].Bitmap, err = dv.AppendBitmap(nil, kills[a.Deletes[i].File]); err != nil {
			d.t.Fatal(err)
		}
	}
	d.do(d.def.Name, d.table, &a)
	d.publish()
	d.spent += time.Since(began)
}

func (d *driver) publish() {
	d.t.Helper()
	d.do(d.def.Name, d.table, &record.Cut{})
	box, err := d.st.Commit()
	if err != nil {
		d.t.Fatal(err)
	}
	f, err := d.st.Frozen(d.table)
	if err != nil || f == nil {
		d.t.Fatalf("frozen cut %v: %v", f, err)
	}
	r, err := d.pub.Publish(d.ctx, f)
	if err != nil {
		d.t.Fatal(err)
	}
	d.path = r.Committed.MetadataPath
	d.do(d.def.Name, d.table, &r.Committed)
	if _, err := d.st.Commit(); err != nil {
		d.t.Fatal(err)
	}
	if n := len(box.Outcomes); n > 0 {
		d.st.Sent(box.Outcomes[n-1].Offset)
	}
}

// collect deletes what no retained snapshot reaches, as a node's collector does
// (G7), and metadata beyond the log. Nothing else may be left in the folder.
func (d *driver) collect() {
	d.t.Helper()
	if _, err := d.pub.CollectMetadata(d.ctx, time.Now().Add(time.Hour)); err != nil {
		d.t.Fatal(err)
	}
	index, err := d.bodies.Put(d.ctx, []byte("an index"))
	if err != nil {
		d.t.Fatal(err)
	}
	d.do(d.def.Name, d.table, &record.ShardIndex{Shard: driverShard, Epoch: d.epoch, Offset: d.next - 1, File: index})
	gc := collector.New(collector.Config{State: d.st, Store: d.store, Catalog: d.pub, Grace: -1})
	for {
		if _, err := d.st.Commit(); err != nil {
			d.t.Fatal(err)
		}
		info, err := d.st.Table(d.def.Name)
		if err != nil {
			d.t.Fatal(err)
		}
		asks, err := gc.Propose(info, "test")
		if err != nil {
			d.t.Fatal(err)
		}
		if len(asks) == 0 {
			break
		}
		for i := range asks {
			d.do(d.def.Name, d.table, &asks[i])
		}
		all, err := d.st.Collections(d.table)
		if err == nil {
			err = gc.CheckCatalog(d.ctx, info)
		}
		if err != nil {
			d.t.Fatal(err)
		}
		for i := range all {
			done, err := gc.Delete(d.ctx, info, &all[i])
			if err != nil {
				d.t.Fatal(err)
			}
			d.do(d.def.Name, d.table, done)
		}
	}
	l := &lake{data: d.dir, named: map[string]string{}}
	m := d.metadata(l)
	for i := range m.Snapshots {
		l.nameSnapshot(d.t, m.Snapshots[i].ManifestList)
	}
	left := 0
	for path := range lakeFiles(d.t, d.dir) {
		log := strings.Contains(path, "/_varve/") // what the log needs stays with it (G9)
		if l.named[path] == "" && !log && filepath.Ext(path) != ".json" && filepath.Ext(path) != ".text" {
			left++
		}
	}
	if left > 0 {
		d.t.Errorf("%d objects are left that no retained snapshot reaches", left)
	}
}

func (d *driver) metadata(l *lake) *iceberg.Metadata {
	d.t.Helper()
	m, err := iceberg.ParseMetadata(l.read(d.t, d.path))
	if err != nil {
		d.t.Fatal(err)
	}
	return m
}

// footprint is what a reader meets and what the state takes.
type footprint struct {
	metadata, snapshots, snapshotLog, list, manifests, files, vectors, state, keys, heap int
	plan                                                                                 time.Duration
	read                                                                                 map[readers.Engine]time.Duration
	perCommit                                                                            time.Duration
}

func (f *footprint) String() string {
	return fmt.Sprintf("metadata.json %d B, %d snapshots, list %d B, %d manifests, %d data files, %d vectors, state %d B with %d keys beside request ids and file chunks, heap %d KiB; planned in %s, read in %v, %s a commit",
		f.metadata, f.snapshots, f.list, f.manifests, f.files, f.vectors, f.state, f.keys, f.heap>>10, f.plan.Round(100*time.Microsecond), f.read, f.perCommit.Round(100*time.Microsecond))
}

// measure looks at the newest version, whose rows must be the model's.
func (d *driver) measure() *footprint {
	d.t.Helper()
	l := &lake{data: d.dir, named: map[string]string{}}
	m := d.metadata(l)
	s := m.Current()
	list := l.read(d.t, s.ManifestList)
	lines, err := iceberg.ReadManifestList(list)
	if err != nil {
		d.t.Fatal(err)
	}
	l.nameSnapshot(d.t, s.ManifestList)
	f := &footprint{
		metadata: len(l.read(d.t, d.path)), snapshots: len(m.Snapshots), snapshotLog: len(m.SnapshotLog), list: len(list), manifests: len(lines),
		read: map[readers.Engine]time.Duration{}, perCommit: d.spent / time.Duration(d.version),
	}
	info, err := d.st.Table(d.def.Name)
	if err != nil {
		d.t.Fatal(err)
	}
	f.files, f.vectors = int(info.Files), int(info.Vectors)
	if err := d.st.Flush(); err != nil {
		d.t.Fatal(err)
	}
	if err := filepath.WalkDir(filepath.Join(d.dir, "state"), func(path string, e os.DirEntry, err error) error {
		if i, ierr := e.Info(); err == nil && ierr == nil && e.Type().IsRegular() {
			f.state += int(i.Size())
		}
		return nil // Pebble's files come and go
	}); err != nil {
		d.t.Fatal(err)
	}
	if err := d.st.Dump(func(key, _ []byte) error {
		switch key[0] {
		case 'r', 'a': // request ids are kept for a day (L9)
		case 'f': // one for 128 files
		default:
			f.keys++
		}
		return nil
	}); err != nil {
		d.t.Fatal(err)
	}
	var mem runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&mem)
	f.heap = int(mem.HeapAlloc)
	began := time.Now()
	tbl, err := table.NewFromLocation(d.ctx, table.Identifier{"shop", "stock"}, d.path, icebergio.LoadFSFunc(nil, d.path), nil)
	if err != nil {
		d.t.Fatal(err)
	}
	tasks, err := tbl.Scan().PlanFiles(d.ctx)
	if err != nil {
		d.t.Fatal(err)
	}
	f.plan = time.Since(began)
	if len(tasks) != f.files {
		d.t.Errorf("iceberg-go plans %d files, the state has %d", len(tasks), f.files)
	}
	var want []string
	for k, p := range d.keys {
		want = append(want, fmt.Sprintf("id=%d v=%d", k, p.value))
	}
	slices.Sort(want)
	for _, engine := range readers.All {
		if readers.Available(engine) != nil && !readers.Wanted() {
			continue
		}
		began := time.Now()
		got, err := readers.Read(d.ctx, engine, d.path, readers.Options{})
		if err != nil {
			d.t.Fatal(err)
		}
		f.read[engine] = time.Since(began).Round(time.Millisecond)
		diff(d.t, string(engine), got.Sorted(), want)
	}
	return f
}

package main

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/puffin"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/statestore/hadoopcat"
	"github.com/varve-io/varve/statestore/objstore"
)

// varve runs a command line as a process would, without environment.
func varve(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return varveWith(t, nil, "", args...)
}

func varveWith(t *testing.T, env []string, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = execute(t.Context(), streams{in: strings.NewReader(stdin), out: &out, err: &errs, env: env}, args)
	return code, out.String(), errs.String()
}

// run is varve that must succeed.
func run(t *testing.T, args ...string) string {
	t.Helper()
	code, out, errs := varve(t, args...)
	if code != exitDone {
		t.Fatalf("varve %s: exit code %d\n%s", strings.Join(args, " "), code, errs)
	}
	return out
}

// fixture is a lake with the table shop.orders, written by our own writers:
// its third snapshot has two data files, one of them with a vector.
type fixture struct {
	data      string // --data
	table     string // folder of the table
	snapshots []int64
	times     []int64
	puffin    string
	manifest  string
	list      string
	dataFile  string
}

type order struct {
	id       int64
	customer string // "" is null
	amount   int64  // cents; -1 is null
	at       int64  // µs
	paid     bool
	score    float64
}

var orderColumns = []schemas.Field{
	{ID: 1, Name: "order_id", Type: schemas.Of(schemas.Long), Required: true},
	{ID: 2, Name: "customer", Type: schemas.Of(schemas.String), Doc: "who bought"},
	{ID: 3, Name: "amount", Type: schemas.DecimalOf(10, 2)},
	{ID: 4, Name: "created_at", Type: schemas.Of(schemas.TimestampTz)},
	{ID: 5, Name: "paid", Type: schemas.Of(schemas.Boolean)},
	{ID: 6, Name: "score", Type: schemas.Of(schemas.Double)},
}

const day = int64(86_400_000_000)

// fixtureStart is 2026-08-01T00:00:00Z in ms.
const fixtureStart = int64(1_785_542_400_000)

func newFixture(t *testing.T) *fixture {
	t.Helper()
	ctx := t.Context()
	fx := &fixture{data: t.TempDir()}
	store, err := objstore.Open(ctx, filepath.Join(fx.data, "lake"))
	if err != nil {
		t.Fatal(err)
	}
	fx.table = filepath.Join(fx.data, "lake", "shop", "orders")
	b := &tableBuilder{t: t, ctx: ctx, store: store, catalog: hadoopcat.New(store), key: "shop/orders", fx: fx,
		def: &schemas.Definition{
			Name: "shop.orders", Location: store.Location("shop/orders"), FormatVersion: 3, Mode: schemas.ModeDV,
			Schemas: []schemas.Schema{{ID: 0, Fields: orderColumns, Identifier: []int32{1}}}, LastColumnID: 6,
			Specs:           []schemas.Spec{{ID: 0, Fields: []schemas.PartitionField{{SourceID: 4, FieldID: 1000, Name: "created_at_day", Transform: schemas.Day}}}},
			LastPartitionID: 1000, Key: []int32{1},
		},
		ident: iceberg.TableIdentity{Deployment: [16]byte{7}, TableID: 1},
	}
	if b.meta, err = iceberg.NewTable(b.def, b.ident.UUID(), fixtureStart); err != nil {
		t.Fatal(err)
	}
	b.publish()
	at := fixtureStart * 1000
	first := b.file("1-1-1.parquet", []order{
		{1, "ada", 1250, at, true, 0.5}, {2, "bob", 990, at + 1, false, 1}, {3, "", -1, at + 2, true, 2.25},
		{4, "dan", 100000, at + 3_000_000, true, -1e300}, {9007199254740993, "eve, \"x\"\nz", 1, at + 4, false, 0},
	})
	one := b.snapshot("append", nil, []iceberg.DataFile{first}, nil)
	vector := b.vector(first, 1, 2)
	second := b.file("1-1-2.parquet", []order{{2, "bob", 1990, at + day, true, 3}, {5, "fay", 500, at + day + 1, false, 4}})
	b.snapshot("overwrite", one, []iceberg.DataFile{second}, []iceberg.DataFile{vector})
	b.meta.SetProperty("note", "by hand")
	if err := b.meta.Touch(b.meta.NextTimestamp(0)); err != nil {
		t.Fatal(err)
	}
	b.publish()
	return fx
}

type tableBuilder struct {
	t       *testing.T
	ctx     context.Context
	store   objstore.Store
	catalog *hadoopcat.Catalog
	key     string
	def     *schemas.Definition
	meta    *iceberg.Metadata
	ident   iceberg.TableIdentity
	version int
	build   int64
	fx      *fixture
}

func (b *tableBuilder) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *tableBuilder) publish() {
	b.t.Helper()
	if b.version > 0 {
		b.meta.LogMetadata(b.store.Location(fmt.Sprintf("%s/metadata/v%d.metadata.json", b.key, b.version)), b.meta.LastUpdatedMs-1, 100)
	}
	j, err := b.meta.Marshal()
	b.must(err)
	b.version++
	b.must(b.catalog.Commit(b.ctx, b.key, b.version, j))
}

func (b *tableBuilder) create(name string, data []byte) string {
	b.t.Helper()
	b.must(b.store.Create(b.ctx, b.key+"/"+name, data))
	return b.store.Location(b.key + "/" + name)
}

func (b *tableBuilder) file(name string, orders []order) iceberg.DataFile {
	b.t.Helper()
	batch := rows.NewBatch(b.def.Schema())
	for _, o := range orders {
		batch.Cols[0].AppendInt(o.id)
		if o.customer == "" {
			batch.Cols[1].AppendNull()
		} else {
			batch.Cols[1].AppendBytes([]byte(o.customer))
		}
		if o.amount < 0 {
			batch.Cols[2].AppendNull()
		} else {
			batch.Cols[2].AppendInt(o.amount)
		}
		batch.Cols[3].AppendInt(o.at)
		batch.Cols[4].AppendInt(map[bool]int64{true: 1}[o.paid])
		batch.Cols[5].AppendFloat(o.score)
		batch.AppendEvent(rows.Upsert, 0, 0, false)
	}
	var buf bytes.Buffer
	info, err := rows.Write(&buf, rows.WriteOptions{Schema: b.def.Schema(), RowGroupRows: 3}, batch, nil, rows.Extra{})
	b.must(err)
	tuples, err := rows.NewTupleEncoder(b.def.Schema(), b.def.Spec(0))
	b.must(err)
	partition, err := tuples.Append(nil, batch, 0)
	b.must(err)
	f := iceberg.DataFile{Path: b.create("data/"+name, buf.Bytes()), Format: iceberg.FormatParquet, Partition: partition,
		Records: info.Rows, Bytes: info.Bytes, SplitOffsets: info.SplitOffsets}
	for _, c := range info.Columns {
		f.ColumnSizes = append(f.ColumnSizes, iceberg.IDCount{ID: c.FieldID, Count: c.Size})
		f.ValueCounts = append(f.ValueCounts, iceberg.IDCount{ID: c.FieldID, Count: c.Values})
		f.NullCounts = append(f.NullCounts, iceberg.IDCount{ID: c.FieldID, Count: c.Nulls})
		if c.Floats {
			f.NaNCounts = append(f.NaNCounts, iceberg.IDCount{ID: c.FieldID, Count: c.NaNs})
		}
		if c.Lower != nil {
			f.Lower = append(f.Lower, iceberg.IDBytes{ID: c.FieldID, Value: c.Lower})
			f.Upper = append(f.Upper, iceberg.IDBytes{ID: c.FieldID, Value: c.Upper})
		}
	}
	b.fx.dataFile = filepath.Join(b.fx.table, "data", name)
	return f
}

func (b *tableBuilder) vector(of iceberg.DataFile, dead ...uint32) iceberg.DataFile {
	b.t.Helper()
	set, err := dv.AppendBitmap(nil, roaring.BitmapOf(dead...))
	b.must(err)
	var buf bytes.Buffer
	w := puffin.NewWriter(&buf, puffin.DefaultCreatedBy)
	blob, err := w.AddVector(of.Path, set)
	b.must(err)
	size, err := w.Close()
	b.must(err)
	path := b.create("metadata/v.puffin", buf.Bytes())
	b.fx.puffin = filepath.Join(b.fx.table, "metadata", "v.puffin")
	return iceberg.DataFile{Content: iceberg.PositionDeletes, Path: path, Format: iceberg.FormatPuffin, Partition: of.Partition,
		Records: int64(len(dead)), Bytes: size, ReferencedDataFile: &of.Path, ContentOffset: &blob.Offset, ContentSize: &blob.Length}
}

func (b *tableBuilder) snapshot(op string, keep []iceberg.ManifestFile, data, deletes []iceberg.DataFile) []iceberg.ManifestFile {
	b.t.Helper()
	b.build++
	id, sequence := b.ident.SnapshotID(b.build, 0), b.meta.LastSequence+1
	types, err := iceberg.PartitionTypes(b.def.Spec(0), b.def.Schema())
	b.must(err)
	first := b.meta.NextRowID
	next := first
	lines := append([]iceberg.ManifestFile(nil), keep...)
	for content, files := range [][]iceberg.DataFile{data, deletes} {
		if len(files) == 0 {
			continue
		}
		var entries []iceberg.Entry
		for _, f := range files {
			entries = append(entries, iceberg.Entry{Status: iceberg.Added, SnapshotID: &id, File: f})
		}
		raw, stats, err := iceberg.WriteManifest(iceberg.ManifestOptions{SchemaJSON: b.def.Schema().AppendJSON(nil), Spec: b.def.Spec(0),
			PartitionTypes: types, Content: iceberg.Content(content), SnapshotID: id, Sequence: sequence}, entries)
		b.must(err)
		line := stats.File
		name := fmt.Sprintf("metadata/m%d-%d.avro", b.build, content)
		line.Path = b.create(name, raw)
		b.fx.manifest = filepath.Join(b.fx.table, name)
		if content == 0 {
			v := next
			line.FirstRowID = &v
			next += stats.NewRowIDs
		}
		lines = append(lines, line)
	}
	raw, err := iceberg.WriteManifestList(iceberg.ListOptions{SnapshotID: id, ParentID: b.meta.CurrentSnapshot, Sequence: sequence, FirstRowID: first}, lines)
	b.must(err)
	name := fmt.Sprintf("metadata/l%d.avro", b.build)
	list := b.create(name, raw)
	b.fx.list = filepath.Join(b.fx.table, name)
	schemaID, added := int64(0), next-first
	at := fixtureStart + b.build*60_000
	b.must(b.meta.AddSnapshot(iceberg.Snapshot{Sequence: sequence, ID: id, ParentID: b.meta.CurrentSnapshot, TimestampMs: at, Operation: op,
		Summary: []schemas.Property{
			{Key: "added-data-files", Value: fmt.Sprint(len(data))}, {Key: "added-dvs", Value: fmt.Sprint(len(deletes))},
			{Key: "total-records", Value: fmt.Sprint(next)}, {Key: "total-position-deletes", Value: fmt.Sprint(2 * len(deletes))},
			{Key: "total-files-size", Value: "2048"}, {Key: "varve.offset", Value: fmt.Sprint(b.build * 10)},
		}, ManifestList: list, SchemaID: &schemaID, FirstRowID: &first, AddedRows: &added}))
	b.must(b.meta.SetRef(iceberg.MainBranch, "branch", id))
	b.fx.snapshots = append(b.fx.snapshots, id)
	b.fx.times = append(b.fx.times, at)
	b.publish()
	return lines
}

package readers

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/processors/publisher"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/objstore"
)

// evolving is a table that goes the whole way: real data files, appends in a
// log, the state store, the publisher. Its model is the rows that live.
type evolving struct {
	t       *testing.T
	dir     string
	store   objstore.Store
	bodies  *processors.Bodies
	st      *statestore.Store
	pub     *publisher.Publisher
	def     *schemas.Definition
	id      int64
	next    int64
	timeMs  int64
	writer  uint32
	counter uint64
	appends int64
	nextKey int64
	alive   map[uint64]map[uint32]string // file → position → the row's text
	version int64
}

func newEvolving(t *testing.T) *evolving {
	t.Helper()
	ctx := context.Background()
	e := &evolving{t: t, dir: t.TempDir(), timeMs: 1_700_000_000_000, alive: map[uint64]map[uint32]string{}}
	var err error
	if e.store, err = objstore.Open(ctx, e.dir); err != nil {
		t.Fatal(err)
	}
	if e.st, err = statestore.Open(t.TempDir(), statestore.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.st.Close(); err != nil {
			t.Error(err)
		}
	})
	e.bodies = processors.NewBodies(e.store, "varve")
	e.pub = publisher.New(publisher.Config{Store: e.store, Bodies: e.bodies})
	def := schemas.Definition{
		Name: "shop.orders", Location: e.store.Location("shop/orders"), FormatVersion: 3, Mode: schemas.ModeDV,
		Schemas: []schemas.Schema{{ID: 0, Identifier: []int32{1}, Fields: []schemas.Field{
			{ID: 1, Name: "id", Type: schemas.Of(schemas.Long), Required: true},
			{ID: 2, Name: "name", Type: schemas.Of(schemas.String)},
			{ID: 3, Name: "shop", Type: schemas.Of(schemas.Int)},
		}}},
		LastColumnID: 3, LastPartitionID: 1000, Key: []int32{1}, DefaultSpec: 1,
		Specs: []schemas.Spec{{ID: 0}, {ID: 1, Fields: []schemas.PartitionField{
			{SourceID: 3, FieldID: 1000, Name: "shop", Transform: schemas.Identity},
		}}},
		SourceTopic: "orders", Format: "rows-json", CommitIntervalMs: 1000, TombstoneTTLMs: 1000, RetentionMs: 3_600_000, RetentionCount: 100,
	}
	e.def = &def
	e.do("", -1, &record.SetApplyVersion{Deployment: [16]byte{7}, Partitions: 1, Version: 1})
	e.id = e.do(def.Name, -1, &record.CreateTable{Definition: def}).TableID
	e.writer = uint32(e.do(def.Name, e.id, &record.ClaimShard{Shard: e.shard()}).Outcome.Numbers[record.ClaimWriter])
	return e
}

func (e *evolving) shard() record.ShardKey {
	return record.ShardKey{TopicID: [16]byte{9}, Topic: "orders"}
}

func (e *evolving) do(table string, id int64, v any) record.OutcomeMessage {
	e.t.Helper()
	body, err := record.EncodeBody(nil, v)
	if err != nil {
		e.t.Fatal(err)
	}
	env := record.Envelope{
		Type: record.TypeOf(v), TypeVersion: record.BodyVersion(record.TypeOf(v)), ApplyVersion: 1, OffsetSeen: e.next - 1, Table: table, TableID: id, Body: body,
	}
	binary.BigEndian.PutUint64(env.Request[:], uint64(e.next)+1)
	var m record.Message
	record.Encode(&m, &env)
	out, err := e.st.Apply(&statestore.Record{Key: m.Key, Header: m.Header[:], Value: m.Value, Offset: e.next, TimeMs: e.timeMs})
	if err != nil {
		e.t.Fatal(err)
	}
	if out.Outcome.Code != record.Accepted {
		e.t.Fatalf("%s: %+v", record.TypeOf(v), out.Outcome)
	}
	e.next++
	return out
}

// append writes a data file of n rows in each given shop (-1: null, spec 0 when
// unpartitioned) and kills some rows of what lives.
func (e *evolving) append(rng *rand.Rand, n int, shops []int32, kill int) {
	e.t.Helper()
	e.appends++
	a := record.AppendRows{
		Shard: e.shard(), Epoch: 2, Counter: e.appends, SourceFrom: e.appends - 1, SourceTo: e.appends, RequestFrom: 2, RequestTo: 2,
		SchemaID: e.def.CurrentSchema,
	}
	dead := map[uint64]*roaring.Bitmap{}
	for range kill {
		files := sortedFiles(e.alive)
		if len(files) == 0 {
			break
		}
		f := files[rng.IntN(len(files))]
		pos := sortedFiles(e.alive[f])
		p := pos[rng.IntN(len(pos))]
		if dead[f] == nil {
			dead[f] = roaring.New()
		}
		dead[f].Add(p)
		if delete(e.alive[f], p); len(e.alive[f]) == 0 {
			delete(e.alive, f)
		}
	}
	for _, f := range sortedFiles(dead) {
		set, err := dv.AppendBitmap(nil, dead[f])
		if err != nil {
			e.t.Fatal(err)
		}
		a.Deletes = append(a.Deletes, record.DeleteBlock{File: f, Bitmap: set})
	}
	var body record.RowsBody
	for i, shop := range shops {
		file, metrics := e.file(rng, n, shop, int32(1-i%2))
		a.Files, body.Files = append(a.Files, file), append(body.Files, metrics)
	}
	text, err := record.EncodeRowsBody(nil, &body)
	if err != nil {
		e.t.Fatal(err)
	}
	ref, err := e.bodies.Put(context.Background(), text)
	if err != nil {
		e.t.Fatal(err)
	}
	a.Changes = &ref
	e.do(e.def.Name, e.id, &a)
}

func sortedFiles[K uint32 | uint64, V any](m map[K]V) []K {
	out := make([]K, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	sort.Slice(out, func(i, j int) bool { return out[i] < out[j] })
	return out
}

// file writes one data file.
func (e *evolving) file(rng *rand.Rand, n int, shop, spec int32) (record.DataFile, record.FileMetrics) {
	e.t.Helper()
	e.counter++
	id := statestore.FileID(e.writer, e.counter)
	b := rows.NewBatch(e.def.Schema())
	e.alive[id] = map[uint32]string{}
	for p := range n {
		e.nextKey++
		text := map[string]string{"id": strconv.FormatInt(e.nextKey, 10), "name": "∅", "shop": "∅"}
		b.Cols[0].AppendInt(e.nextKey)
		if rng.IntN(5) > 0 {
			text["name"] = fmt.Sprintf("name of %d", e.nextKey)
			b.Cols[1].AppendBytes([]byte(text["name"]))
		} else {
			b.Cols[1].AppendNull()
		}
		if shop >= 0 {
			text["shop"] = strconv.Itoa(int(shop))
			b.Cols[2].AppendInt(int64(shop))
		}
		if len(b.Cols) > 3 {
			text["note"] = fmt.Sprint("note ", p)
			b.Cols[3].AppendBytes([]byte(text["note"]))
		}
		b.AppendEvent(rows.Upsert, 0, 0, false)
		e.alive[id][uint32(p)] = line(text)
	}
	var out bytes.Buffer
	info, err := rows.Write(&out, rows.WriteOptions{Schema: e.def.Schema()}, b, nil, rows.Extra{})
	if err != nil {
		e.t.Fatal(err)
	}
	name := schemas.DataFileName(e.id, 2, e.counter)
	if err := e.store.Create(context.Background(), "shop/orders/data/"+name, out.Bytes()); err != nil {
		e.t.Fatal(err)
	}
	var tuple []byte
	if spec == 1 && shop >= 0 {
		tuple = schemas.EncodeTuple([][]byte{binary.LittleEndian.AppendUint32(nil, uint32(shop))})
	} else if spec == 1 {
		tuple = schemas.EncodeTuple([][]byte{nil})
	}
	m := record.FileMetrics{ID: id, SplitOffsets: info.SplitOffsets}
	for i := range info.Columns {
		c := &info.Columns[i]
		m.Columns = append(m.Columns, record.ColumnMetrics{
			FieldID: c.FieldID, Bytes: c.Size, Values: c.Values, Nulls: c.Nulls, NaNs: -1,
			HasLower: c.Lower != nil, Lower: c.Lower, HasUpper: c.Upper != nil, Upper: c.Upper,
		})
	}
	return record.DataFile{ID: id, Rows: info.Rows, Bytes: info.Bytes, SpecID: spec, Partition: tuple}, m
}

// line is a row as Table.Sorted writes it.
func line(row map[string]string) string {
	names := make([]string, 0, len(row))
	for n := range row {
		names = append(names, n)
	}
	sort.Strings(names)
	parts := make([]string, len(names))
	for i, n := range names {
		parts[i] = n + "=" + row[n]
	}
	return strings.Join(parts, " ")
}

// cut publishes, and returns the snapshot's id.
func (e *evolving) cut() int64 {
	e.t.Helper()
	e.do(e.def.Name, e.id, &record.Cut{})
	if _, err := e.st.Commit(); err != nil {
		e.t.Fatal(err)
	}
	f, err := e.st.Frozen(e.id)
	if err != nil {
		e.t.Fatal(err)
	}
	r, err := e.pub.Publish(context.Background(), f)
	if err != nil {
		e.t.Fatal(err)
	}
	e.do(e.def.Name, e.id, &r.Committed)
	if _, err := e.st.Commit(); err != nil {
		e.t.Fatal(err)
	}
	e.def, e.version = f.Definition, r.Committed.MetadataVersion
	e.timeMs += 1000
	return r.Committed.SnapshotID
}

func (e *evolving) want() []string {
	var out []string
	for _, f := range e.alive {
		for _, text := range f {
			out = append(out, text)
		}
	}
	sort.Strings(out)
	return out
}

// A table evolved at random over two specs and a new column, with hundreds of
// rows killed and whole files gone: every engine reads the rows of the model,
// now and at an earlier snapshot.
func TestPublishedTable(t *testing.T) {
	e := newEvolving(t)
	rng := rand.New(rand.NewPCG(11, 12))
	e.cut()
	var middle int64
	var then []string
	for i := range 24 {
		var shops []int32
		for range rng.IntN(4) {
			shops = append(shops, int32(rng.IntN(4))-1)
		}
		if len(shops) == 0 && len(e.alive) == 0 {
			shops = []int32{0}
		}
		e.append(rng, 5+rng.IntN(40), shops, 5+rng.IntN(40))
		if i == 15 {
			e.do(e.def.Name, e.id, &record.AlterTable{Add: []record.AddColumn{{Name: "note", Type: schemas.Of(schemas.String)}}})
		}
		id := e.cut()
		if i == 12 {
			middle, then = id, e.want()
		}
	}
	// Rows of files that lack the new column read as null.
	for _, f := range e.alive {
		for p, text := range f {
			if !strings.Contains(text, "note=") {
				f[p] = strings.Replace(text, " shop=", " note=∅ shop=", 1)
			}
		}
	}
	path := filepath.Join(e.dir, "shop/orders/metadata", fmt.Sprintf("v%d.metadata.json", e.version))
	want := e.want()
	if len(want) < 50 || len(then) < 50 {
		t.Fatalf("only %d and %d rows live", len(want), len(then))
	}
	info, err := e.st.Table(e.def.Name)
	if err != nil || info.Vectors < 5 || info.Files > int64(e.counter)-5 {
		t.Fatalf("%d vectors, %d of %d files live: the table is too tame (%v)", info.Vectors, info.Files, e.counter, err)
	}
	for _, engine := range All {
		t.Run(string(engine), func(t *testing.T) {
			Need(t, engine)
			check := func(what string, o Options, want []string) {
				t.Helper()
				table, err := Read(context.Background(), engine, path, o)
				if err != nil {
					t.Fatal(err)
				}
				got := table.Sorted()
				if strings.Join(got, "\n") != strings.Join(want, "\n") {
					t.Fatalf("%s: %d rows, want %d\n got %v\nwant %v", what, len(got), len(want), got, want)
				}
			}
			check("now", Options{}, want)
			check("then", Options{Snapshot: middle, Columns: []string{"id", "name", "shop"}}, then)
			if engine == PyIceberg {
				return
			}
			table, err := Read(context.Background(), engine, path, Options{Lineage: true})
			if err != nil {
				t.Fatal(err)
			}
			seen := map[string]bool{}
			for _, id := range table.Column("_row_id") {
				if id == "∅" || seen[id] {
					t.Fatalf("row id %s is null or stands twice", id)
				}
				seen[id] = true
			}
			if len(seen) != len(want) {
				t.Fatalf("%d row ids for %d rows", len(seen), len(want))
			}
		})
	}
}

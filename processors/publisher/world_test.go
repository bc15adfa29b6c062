package publisher_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/processors/publisher"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/objstore"
)

var ctx = context.Background()

const tableName = "shop.orders"

// world is one table: a real state store, its log, an object store, and a
// model of what the table must hold.
type world struct {
	t      testing.TB
	st     *statestore.Store
	store  objstore.Store
	bodies *processors.Bodies
	pub    *publisher.Publisher
	next   int64 // log offset
	timeMs int64

	id      int64
	def     schemas.Definition
	writer  uint32
	epoch   int64
	epochs  map[uint32]int64 // by writer
	request int64            // the shard's request end
	counter uint64           // of files
	appends int64
	source  int64

	files  map[uint64]*modelFile
	states map[int64]map[uint64]modelFile // what each snapshot holds
	cuts   []*statestore.FrozenCut
	done   []publisher.Result
	rowIDs map[uint64]int64 // first row id of a file, for ever

	manifests map[string]*iceberg.Manifest // read before
	blobs     map[string]*roaring.Bitmap   // the same
}

// modelFile is a data file as the model knows it.
type modelFile struct {
	rows, bytes int64
	spec        int32
	partition   []byte
	dead        *roaring.Bitmap
}

func (f modelFile) clone() modelFile {
	f.dead = f.dead.Clone()
	return f
}

// definition is a table with a long key, a string and a day.
func definition(specs ...schemas.Spec) schemas.Definition {
	d := schemas.Definition{
		Name: tableName, Location: "mem://store/shop/orders", FormatVersion: 3, Mode: schemas.ModeDV,
		Schemas: []schemas.Schema{{ID: 0, Identifier: []int32{1}, Fields: []schemas.Field{
			{ID: 1, Name: "id", Type: schemas.Of(schemas.Long), Required: true},
			{ID: 2, Name: "name", Type: schemas.Of(schemas.String)},
			{ID: 3, Name: "day", Type: schemas.Of(schemas.Int)},
		}}},
		LastColumnID: 3, Specs: specs, LastPartitionID: 999, Key: []int32{1},
		SourceTopic: "orders", Format: "rows-json", CommitIntervalMs: 1000, TombstoneTTLMs: 1000,
		RetentionMs: 10_000, RetentionCount: 5,
	}
	if len(specs) == 0 {
		d.Specs = []schemas.Spec{{}}
	}
	for _, s := range d.Specs {
		for _, f := range s.Fields {
			d.LastPartitionID = max(d.LastPartitionID, f.FieldID)
		}
	}
	return d
}

// byDay is a spec that partitions by the day column.
func byDay(id int32) schemas.Spec {
	return schemas.Spec{ID: id, Fields: []schemas.PartitionField{{SourceID: 3, FieldID: 1000 + id, Name: fmt.Sprintf("day_%d", id), Transform: schemas.Identity}}}
}

func newWorld(t testing.TB, store objstore.Store, def schemas.Definition) *world {
	t.Helper()
	st, err := statestore.Open(t.TempDir(), statestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	w := &world{
		t: t, st: st, store: store, bodies: processors.NewBodies(store, "varve"), timeMs: 1_700_000_000_000, def: def,
		files: map[uint64]*modelFile{}, states: map[int64]map[uint64]modelFile{}, rowIDs: map[uint64]int64{}, epochs: map[uint32]int64{},
		manifests: map[string]*iceberg.Manifest{}, blobs: map[string]*roaring.Bitmap{},
	}
	w.pub = w.newPublisher()
	w.do("", -1, &record.SetApplyVersion{Deployment: [16]byte{0xab, 2, 3}, Partitions: 1, Version: 1})
	w.id = w.do(def.Name, -1, &record.CreateTable{Definition: def}).TableID
	w.claim()
	return w
}

// claim makes the shard's owner claim it, perhaps again.
func (w *world) claim() {
	w.t.Helper()
	out := w.do(w.def.Name, w.id, &record.ClaimShard{Shard: shard()})
	w.epoch, w.writer, w.appends, w.counter = out.Offset, uint32(out.Outcome.Numbers[record.ClaimWriter]), 0, 0
	w.request, w.epochs[w.writer] = out.Outcome.Numbers[record.ClaimRequestEnd], w.epoch
}

func (w *world) newPublisher() *publisher.Publisher {
	return publisher.New(publisher.Config{Store: w.store, Bodies: w.bodies})
}

func shard() record.ShardKey {
	return record.ShardKey{TopicID: [16]byte{9}, Topic: "orders", Partition: 3}
}

// do appends a record, which must be accepted.
func (w *world) do(table string, id int64, v any) record.OutcomeMessage {
	w.t.Helper()
	out := w.try(table, id, v)
	if out.Outcome.Code != record.Accepted {
		w.t.Fatalf("%s: %+v", record.TypeOf(v), out.Outcome)
	}
	return out
}

func (w *world) try(table string, id int64, v any) record.OutcomeMessage {
	w.t.Helper()
	body, err := record.EncodeBody(nil, v)
	if err != nil {
		w.t.Fatal(err)
	}
	env := record.Envelope{
		Type: record.TypeOf(v), TypeVersion: record.BodyVersion(record.TypeOf(v)), ApplyVersion: 1, OffsetSeen: w.next - 1, Table: table, TableID: id, Body: body,
	}
	binary.BigEndian.PutUint64(env.Request[:], uint64(w.next)+1)
	var m record.Message
	record.Encode(&m, &env)
	out, err := w.st.Apply(&statestore.Record{Key: m.Key, Header: m.Header[:], Value: m.Value, Offset: w.next, TimeMs: w.timeMs})
	if err != nil {
		w.t.Fatal(err)
	}
	w.next++
	return out
}

// newFile is a file to be appended.
type newFile struct {
	rows      int64
	spec      int32
	partition []byte
}

// append appends files and kills positions of older or of these files (by
// their index from the end of the ids that append returns).
func (w *world) append(files []newFile, kills map[uint64][]uint32) (ids []uint64) {
	w.t.Helper()
	w.appends++
	w.source += 10
	a := record.AppendRows{
		Shard: shard(), Epoch: w.epoch, Counter: w.appends, SourceFrom: w.source - 10, SourceTo: w.source, RequestFrom: w.request, RequestTo: w.request,
	}
	var body record.RowsBody
	for _, f := range files {
		w.counter++
		id := statestore.FileID(w.writer, w.counter)
		ids = append(ids, id)
		bytes := 100 + f.rows*7
		a.Files = append(a.Files, record.DataFile{ID: id, Rows: f.rows, Bytes: bytes, SpecID: f.spec, Partition: f.partition})
		low, high := make([]byte, 8), make([]byte, 8)
		binary.LittleEndian.PutUint64(low, w.counter)
		binary.LittleEndian.PutUint64(high, w.counter+uint64(f.rows))
		body.Files = append(body.Files, record.FileMetrics{ID: id, SplitOffsets: []int64{4}, Columns: []record.ColumnMetrics{
			{FieldID: 1, Bytes: 50, Values: f.rows, NaNs: -1, HasLower: true, Lower: low, HasUpper: true, Upper: high},
			{FieldID: 2, Bytes: 40, Values: f.rows, Nulls: f.rows, NaNs: -1},
		}})
		w.files[id] = &modelFile{rows: f.rows, bytes: bytes, spec: f.spec, partition: f.partition, dead: roaring.New()}
	}
	for _, id := range sortedIDs(kills) {
		b := roaring.BitmapOf(kills[id]...)
		set, err := dv.AppendBitmap(nil, b)
		if err != nil {
			w.t.Fatal(err)
		}
		a.Deletes = append(a.Deletes, record.DeleteBlock{File: id, Bitmap: set})
		w.files[id].dead.Or(b)
	}
	text, err := record.EncodeRowsBody(nil, &body)
	if err != nil {
		w.t.Fatal(err)
	}
	ref, err := w.bodies.Put(ctx, text)
	if err != nil {
		w.t.Fatal(err)
	}
	a.Changes = &ref
	w.do(w.def.Name, w.id, &a)
	return ids
}

func sortedIDs[V any](m map[uint64]V) []uint64 {
	var ids []uint64
	for id := range m {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// freeze appends a Cut and returns what it froze.
func (w *world) freeze() *statestore.FrozenCut {
	w.t.Helper()
	if out := w.try(w.def.Name, w.id, &record.Cut{}); out.Outcome.Reason == record.NothingToCut {
		// All that a random round added it killed again (V7).
		w.append([]newFile{{rows: 5, partition: emptyTuple(&w.def.Specs[0])}}, nil)
		w.do(w.def.Name, w.id, &record.Cut{})
	} else if out.Outcome.Code != record.Accepted {
		w.t.Fatalf("cut: %+v", out.Outcome)
	}
	if _, err := w.st.Commit(); err != nil {
		w.t.Fatal(err)
	}
	f, err := w.st.Frozen(w.id)
	if err != nil || f == nil {
		w.t.Fatalf("frozen cut: %v %v", f, err)
	}
	w.checkNumbers(f)
	return f
}

// confirm appends the SnapshotCommitted and moves the model on.
func (w *world) confirm(f *statestore.FrozenCut, r publisher.Result) {
	w.t.Helper()
	w.do(w.def.Name, w.id, &r.Committed)
	if _, err := w.st.Commit(); err != nil {
		w.t.Fatal(err)
	}
	w.cuts, w.done = append(w.cuts, f), append(w.done, r)
	for id, m := range w.files {
		if int64(m.dead.GetCardinality()) == m.rows {
			delete(w.files, id)
		}
	}
	if id := r.Committed.SnapshotID; id != 0 {
		state := map[uint64]modelFile{}
		for id, m := range w.files {
			state[id] = m.clone()
		}
		w.states[id] = state
	}
}

// cut freezes, publishes and confirms.
func (w *world) cut() publisher.Result {
	w.t.Helper()
	f := w.freeze()
	r, err := w.pub.Publish(ctx, f)
	if err != nil {
		w.t.Fatal(err)
	}
	w.confirm(f, r)
	w.timeMs += 1000
	return r
}

// alive are some positions of a file that are not dead yet.
func (w *world) alive(rng *rand.Rand, id uint64, n int) (out []uint32) {
	f := w.files[id]
	for p := range uint32(f.rows) {
		if !f.dead.Contains(p) {
			out = append(out, p)
		}
	}
	rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out[:min(n, len(out))]
}

// round appends and kills at random.
func (w *world) round(rng *rand.Rand) {
	ids := sortedIDs(w.files)
	for range 1 + rng.IntN(2) {
		var files []newFile
		for range rng.IntN(4) {
			f := newFile{rows: 1 + rng.Int64N(40), spec: int32(rng.IntN(len(w.def.Specs)))}
			if len(w.def.Specs[f.spec].Fields) > 0 {
				f.partition = schemas.EncodeTuple([][]byte{binary.LittleEndian.AppendUint32(nil, rng.Uint32N(3))})
				if rng.IntN(8) == 0 {
					f.partition = schemas.EncodeTuple([][]byte{nil})
				}
			}
			files = append(files, f)
		}
		kills := map[uint64][]uint32{}
		for range rng.IntN(6) {
			if len(ids) == 0 {
				break
			}
			id := ids[rng.IntN(len(ids))]
			n := 1 + rng.IntN(4)
			if rng.IntN(4) == 0 {
				n = 1 << 20 // all of it
			}
			if p := w.alive(rng, id, n); len(p) > 0 && kills[id] == nil {
				kills[id] = p
			}
		}
		if len(files)+len(kills) == 0 {
			files = append(files, newFile{rows: 5, spec: 0, partition: emptyTuple(&w.def.Specs[0])})
		}
		ids = append(ids, w.append(files, kills)...)
	}
}

func emptyTuple(s *schemas.Spec) []byte { return schemas.EncodeTuple(make([][]byte, len(s.Fields))) }

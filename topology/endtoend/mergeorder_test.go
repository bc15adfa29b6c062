package endtoend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/varve-io/varve/processors/planner"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/schemas/source"
	"github.com/varve-io/varve/topology"
	"github.com/varve-io/varve/topology/readers"
)

// mergeCase is a case of merge order: what stands in the table before, what is deleted
// or written around a compaction of all of it, and what comes after both. The rows in
// the end are the same whether the compaction is over before the deletes, is planned
// before and executed after them, or begins after them.
type mergeCase struct {
	n       int // its number among the cases; several may be of one
	what    string
	ordered bool // by the column ver
	parted  bool // by the column p
	before  []mergeAct
	delete  []mergeAct
	after   []mergeAct
	want    map[int]int64 // values by key, but for the rows that every table has
}

// mergeAct is what happens to a case's table.
type mergeAct func(ctx context.Context, m *mergeTable) error

// mergeTable is the table of a case in a deployment.
type mergeTable struct {
	mergeCase
	workload
	n     *topology.Node
	lake  string
	at    map[int64]filePlace // where values were before the compaction
	seen  map[int64][]string  // rows of snapshots that are to stay as they were
	order string
}

type filePlace struct {
	file     uint64
	position uint32
}

// mergeEvent is an event of a key.
type mergeEvent string

// up upserts: a value, then an ordering value, then a partition value; "" is none.
func up(id int, v int64, more ...any) mergeEvent {
	e := fmt.Sprintf(`{"id":%d,"v":%d`, id, v)
	for _, x := range more {
		switch x := x.(type) {
		case int:
			e += fmt.Sprintf(`,"ver":%d`, x)
		case string:
			e += fmt.Sprintf(`,"p":%q`, x)
		}
	}
	return mergeEvent(e + "}")
}

func del(id int, ver ...int) mergeEvent {
	e := fmt.Sprintf(`{"id":%d,"__deleted":"true"`, id)
	for _, x := range ver {
		e += fmt.Sprintf(`,"ver":%d`, x)
	}
	return mergeEvent(e + "}")
}

func each(from, to int, event func(i int) mergeEvent) (out []mergeEvent) {
	for i := from; i < to; i++ {
		out = append(out, event(i))
	}
	return out
}

// send brings events on their way, flush also waits until a snapshot has them.
func send(events ...mergeEvent) mergeAct {
	return func(ctx context.Context, m *mergeTable) error {
		i := 0
		_, err := m.n.Produce(ctx, m.def.SourceTopic, 1, func() (*topology.SourceEvent, error) {
			if i == len(events) {
				return nil, io.EOF
			}
			e := string(events[i])
			i++
			id, _, _ := strings.Cut(e, ",")
			return &topology.SourceEvent{Key: []byte(id + "}"), Value: []byte(e)}, nil
		}, nil)
		return err
	}
}

func flush(events ...mergeEvent) mergeAct {
	return func(ctx context.Context, m *mergeTable) error {
		if err := send(events...)(ctx, m); err != nil {
			return err
		}
		return m.n.WaitLoaded(ctx, m.def.Name, nil)
	}
}

// strike deletes rows by the positions at which their values were before the
// compaction.
func strike(values ...int64) mergeAct {
	return func(ctx context.Context, m *mergeTable) error {
		blocks := map[uint64]*roaring.Bitmap{}
		for _, v := range values {
			at, known := m.at[v]
			if !known {
				return fmt.Errorf("no row had the value %d", v)
			}
			if blocks[at.file] == nil {
				blocks[at.file] = roaring.New()
			}
			blocks[at.file].Add(at.position)
		}
		d := &record.DeletePositions{}
		for _, file := range slices.Sorted(maps.Keys(blocks)) {
			set, err := dv.AppendBitmap(nil, blocks[file])
			if err != nil {
				return err
			}
			d.Deletes = append(d.Deletes, record.DeleteBlock{File: file, Bitmap: set})
		}
		return m.request(ctx, d)
	}
}

func (m *mergeTable) request(ctx context.Context, v any) error {
	info, err := m.n.Table(ctx, m.def.Name)
	if err != nil {
		return err
	}
	out, err := m.n.Request(ctx, m.def.Name, info.ID, v)
	if err == nil && out.Outcome.Code != record.Accepted {
		err = fmt.Errorf("%T is %s: %s", v, out.Outcome.Code, out.Outcome.Reason)
	}
	return err
}

// asks asks for the deletion of keys whatever their versions; asked also waits
// until that is answered.
func asks(ids ...int) mergeAct { return deleteKeys(false, ids) }

func asked(ids ...int) mergeAct { return deleteKeys(true, ids) }

func deleteKeys(wait bool, ids []int) mergeAct {
	return func(ctx context.Context, m *mergeTable) error {
		schema := m.def.Schema()
		enc, err := rows.NewKeyEncoder(schema, m.def.Key)
		if err != nil {
			return err
		}
		var keys [][]byte
		for _, id := range ids {
			b := rows.NewBatch(schema)
			b.Cols[0].AppendInt(int64(id))
			b.AppendEvent(rows.Upsert, 0, 0, false)
			key, err := enc.Append(nil, b, 0)
			if err != nil {
				return err
			}
			keys = append(keys, key)
		}
		at, err := m.n.DeleteKeys(ctx, m.def.Name, keys, nil)
		if err == nil && wait {
			_, err = m.n.WaitSettled(ctx, m.def.Name, at)
		}
		return err
	}
}

// where deletes by a condition; it is still under way when the next act comes, for no
// worker need be there.
func where(condition string) mergeAct {
	return func(ctx context.Context, m *mergeTable) error {
		_, _, err := m.n.DeleteWhere(ctx, m.def.Name, condition)
		return err
	}
}

// added is a row of a file that is imported; ver 0 is none.
type addedValue struct {
	id, v, ver int64
}

// imports brings a file; imported also waits until its keys are taken.
func imports(list ...addedValue) mergeAct { return importFile(false, list) }

func imported(list ...addedValue) mergeAct { return importFile(true, list) }

func importFile(wait bool, list []addedValue) mergeAct {
	return func(ctx context.Context, m *mergeTable) error {
		schema := m.def.Schema()
		b := rows.NewBatch(schema)
		for _, x := range list {
			b.Cols[0].AppendInt(x.id)
			b.Cols[1].AppendInt(x.v)
			if x.ver == 0 {
				b.Cols[2].AppendNull()
			} else {
				b.Cols[2].AppendInt(x.ver)
			}
			b.Cols[3].AppendNull()
			b.AppendEvent(rows.Upsert, 0, 0, false)
		}
		var out bytes.Buffer
		if _, err := rows.Write(&out, rows.WriteOptions{Schema: schema}, b, nil, rows.Extra{}); err != nil {
			return err
		}
		got, err := m.n.Import(ctx, m.def.Name, []topology.ImportFile{{Name: "a file", Size: int64(out.Len()), ReaderAt: bytes.NewReader(out.Bytes())}}, func(int64) {})
		if err == nil && wait {
			_, err = m.n.WaitKeysTaken(ctx, m.def.Name, got.Offsets)
		}
		return err
	}
}

// keep notes the rows of the newest snapshot, which must have so many; it must be as
// readable in the end.
func keep(count int) mergeAct {
	return func(ctx context.Context, m *mergeTable) error {
		info, err := m.n.Table(ctx, m.def.Name)
		if err != nil {
			return err
		}
		got, err := readers.Read(ctx, readers.IcebergGo, info.Head.MetadataPath, readers.Options{Snapshot: info.Head.SnapshotID})
		if err == nil && len(got.Rows) != count+len(mergeRows) {
			err = fmt.Errorf("snapshot %d has %d rows, want %d", info.Head.SnapshotID, len(got.Rows), count+len(mergeRows))
		}
		if err == nil {
			m.seen[info.Head.SnapshotID] = got.Sorted()
		}
		return err
	}
}

// clean removes all snapshots but the newest, and what only they had.
func clean(ctx context.Context, m *mergeTable) error {
	info, err := m.n.Table(ctx, m.def.Name)
	if err != nil {
		return err
	}
	x := &record.ExpireSnapshots{}
	for _, s := range info.Snapshots[:len(info.Snapshots)-1] {
		x.Snapshots = append(x.Snapshots, s.ID)
	}
	slices.Sort(x.Snapshots)
	if err := m.request(ctx, x); err != nil {
		return err
	}
	taken := int64(0)
	for taken == 0 { // once the snapshots are gone from the catalog
		g, err := m.n.CollectGarbage(ctx, m.def.Name, true, 0)
		if err != nil {
			return err
		}
		taken = g.Taken
		if ctx.Err() != nil {
			return errors.New("nothing was collected")
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil
}

// sharedPuffin: the newest snapshot's vectors lie in one Puffin file.
func sharedPuffin(ctx context.Context, m *mergeTable) error {
	if m.order != mergeOrders[0] {
		return nil // the files are others
	}
	most := 0
	h, err := decidedHistory(ctx, m.n, m.def.Name)
	if err != nil {
		return err
	}
	for i := range h.commits {
		if len(h.commits[i].Puffins) == 1 {
			most = max(most, len(h.commits[i].Vectors))
		}
	}
	if most < 2 {
		return fmt.Errorf("%d vectors share a Puffin file", most)
	}
	return nil
}

// mergeRows are in every table, in two files, so that a job has something to do.
var mergeRows = map[int]int64{900: 1, 901: 2, 902: 3}

// mergeOrders are the orders of compaction and deletes.
var mergeOrders = []string{"compaction before the delete", "compaction during the delete", "compaction after the delete"}

var mergeCases = []mergeCase{
	{n: 1, what: "a row that was updated is deleted from its newer file",
		before: []mergeAct{flush(up(1, 10), up(2, 11), up(3, 12), up(4, 13)), flush(del(1), up(3, 22))},
		delete: []mergeAct{flush(del(3))}, want: map[int]int64{2: 11, 4: 13}},
	{n: 2, what: "a block names a position that the output does not have",
		before: []mergeAct{flush(up(1, 10), up(2, 11), up(3, 12), up(4, 13)), flush(del(1), up(3, 22))},
		delete: []mergeAct{strike(13)}, after: []mergeAct{strike(13)}, want: map[int]int64{2: 11, 3: 22}},
	{n: 3, what: "deleted by a live file's block, upserted by a block against an old base",
		before: []mergeAct{flush(up(1, 10), up(2, 20))},
		delete: []mergeAct{flush(del(1)), send(up(1, 11)), flush(up(1, 12)), strike(10)}, after: []mergeAct{flush(up(2, 21)), strike(10, 20)}, want: map[int]int64{1: 12, 2: 21}},
	{n: 4, what: "insert, delete, insert in one flush, and across flushes",
		before: []mergeAct{flush(up(2, 20))},
		delete: []mergeAct{flush(up(1, 10), del(1), up(1, 30)), flush(del(2))}, after: []mergeAct{flush(up(2, 40))}, want: map[int]int64{1: 30, 2: 40}},
	{n: 5, what: "equal ordering values", ordered: true,
		before: []mergeAct{flush(up(1, 10, 5), up(2, 20, 5), up(3, 30, 5))},
		delete: []mergeAct{flush(up(1, 11, 5), del(2, 5), del(3, 5))}, after: []mergeAct{flush(up(3, 31, 5))}, want: map[int]int64{1: 11, 3: 31}},
	{n: 6, what: "late events", ordered: true,
		before: []mergeAct{flush(up(1, 10, 10), up(2, 20, 10))},
		delete: []mergeAct{flush(up(1, 11, 5), del(1, 7), up(2, 21, 5), del(2, 7)), flush(del(1, 12))}, after: []mergeAct{flush(up(1, 12, 11))}, want: map[int]int64{2: 20}},
	{n: 7, what: "positions in any order, and again",
		before: []mergeAct{flush(up(1, 10), up(2, 11), up(3, 12), up(4, 13)), flush(up(5, 14), up(6, 15))},
		delete: []mergeAct{strike(13, 14, 10, 13, 10), strike(14, 10)}, after: []mergeAct{strike(10, 13, 14)}, want: map[int]int64{2: 11, 3: 12, 6: 15}},
	{n: 8, what: "a row dies while its file is read",
		before: []mergeAct{flush(each(0, 10, func(i int) mergeEvent { return up(i, int64(100+i)) })...), flush(del(2))},
		delete: []mergeAct{flush(del(5))}, want: map[int]int64{0: 100, 1: 101, 3: 103, 4: 104, 6: 106, 7: 107, 8: 108, 9: 109}},
	{n: 9, what: "and its key is inserted again",
		before: []mergeAct{flush(each(0, 10, func(i int) mergeEvent { return up(i, int64(100+i)) })...), flush(del(2))},
		delete: []mergeAct{flush(del(5))}, after: []mergeAct{flush(up(5, 205))},
		want: map[int]int64{0: 100, 1: 101, 3: 103, 4: 104, 5: 205, 6: 106, 7: 107, 8: 108, 9: 109}},
	{n: 10, what: "many inserts, few updates",
		delete: []mergeAct{flush(append(each(1000, 1000+manyInserts, func(i int) mergeEvent { return up(i, int64(i)) }), each(0, 100, func(i int) mergeEvent { return up(1000+i*(manyInserts/100), -1) })...)...)},
		want:   manyRows()},
	{n: 11, what: "a second delete on one file",
		before: []mergeAct{flush(each(0, 6, func(i int) mergeEvent { return up(i, int64(i)) })...), flush(del(2))},
		delete: []mergeAct{flush(del(4))}, want: map[int]int64{0: 0, 1: 1, 3: 3, 5: 5}},
	{n: 12, what: "time travel",
		before: []mergeAct{flush(each(0, 100, func(i int) mergeEvent { return up(i, int64(i)) })...), keep(100)},
		delete: []mergeAct{flush(each(0, 50, func(i int) mergeEvent { return del(i) })...), keep(50)},
		after:  []mergeAct{flush(each(80, 100, func(i int) mergeEvent { return del(i) })...), keep(30)},
		want:   valuesFrom(50, 80)},
	{n: 13, what: "another partition value, and a delete by the key alone", parted: true,
		before: []mergeAct{flush(up(1, 10, "a"), up(2, 20, "a"), up(3, 30, "b"), up(4, 40, "a"))},
		delete: []mergeAct{flush(up(1, 11, "b"), up(2, 21, "b"), del(3)), flush(del(1))}, after: []mergeAct{flush(up(4, 41, "c")), flush(up(4, 42, "a"))},
		want: map[int]int64{2: 21, 4: 42}},
	{n: 15, what: "a third delete on one file",
		before: []mergeAct{flush(each(0, 6, func(i int) mergeEvent { return up(i, int64(i)) })...), flush(del(1))},
		delete: []mergeAct{flush(del(2))}, after: []mergeAct{flush(del(3))}, want: map[int]int64{0: 0, 4: 4, 5: 5}},
	{n: 24, what: "of two vectors in a Puffin file one is replaced, and garbage goes", parted: true,
		before: []mergeAct{flush(append(each(0, 4, func(i int) mergeEvent { return up(i, int64(i), "a") }), each(4, 8, func(i int) mergeEvent { return up(i, int64(i), "b") })...)...)},
		delete: []mergeAct{flush(del(1), del(5)), flush(del(2))}, after: []mergeAct{sharedPuffin, flush(up(9, 9, "c")), clean, flush(del(3))},
		want: map[int]int64{0: 0, 4: 4, 6: 6, 7: 7, 9: 9}},
	{n: 28, what: "deleted by a condition while an upsert is in flight",
		before: []mergeAct{flush(up(1, 10), up(2, 20))},
		delete: []mergeAct{where("id < 3"), send(up(1, 11))}, after: []mergeAct{flush(up(3, 30))}, want: map[int]int64{1: 11, 3: 30}},
	{n: 29, what: "a tombstone outlives the owner that left it", ordered: true,
		before: []mergeAct{flush(up(1, 10, 3))},
		delete: []mergeAct{flush(del(1, 12))}, after: []mergeAct{flush(up(1, 11, 11))}, want: map[int]int64{}},
	{n: 33, what: "a file with keys that the table has", ordered: true,
		before: []mergeAct{flush(up(1, 10, 5), up(2, 20, 5), up(4, 40, 5))},
		delete: []mergeAct{send(up(1, 12, 8), up(4, 41, 6)), imported(addedValue{1, 11, 7}, addedValue{2, 21, 4}, addedValue{3, 31, 1}, addedValue{4, 42, 7})}, after: []mergeAct{flush(up(4, 43, 6))},
		want: map[int]int64{1: 12, 2: 20, 3: 31, 4: 42}},
	{n: 35, what: "a request, and an upsert behind it",
		before: []mergeAct{flush(up(1, 10), up(2, 20))},
		delete: []mergeAct{asks(1, 2), send(up(1, 11))}, want: map[int]int64{1: 11}},
	{n: 36, what: "a delete and an upsert in one flush, then another owner",
		before: []mergeAct{flush(up(3, 30))},
		delete: []mergeAct{flush(del(1), up(1, 10), del(2), up(2, 20), del(3), up(3, 31))}, after: []mergeAct{flush(up(1, 11), del(2), up(3, 32))},
		want: map[int]int64{1: 11, 3: 32}},
	{n: 37, what: "a value, then none, then a late one", ordered: true,
		before: []mergeAct{flush(up(2, 20, 2))},
		delete: []mergeAct{flush(up(1, 10, 2), up(1, 11), up(2, 21))}, after: []mergeAct{flush(up(1, 12, 1), up(2, 22, 1))}, want: map[int]int64{1: 11, 2: 21}},
	{n: 38, what: "late after a request", ordered: true,
		before: []mergeAct{flush(up(1, 10, 3), up(2, 20, 3))},
		delete: []mergeAct{asked(1), flush(up(2, 21, 1))}, after: []mergeAct{flush(up(1, 11, 1)), asked(2), flush(up(2, 22, 2))}, want: map[int]int64{}},
	{n: 38, what: "late after a death by position", ordered: true,
		before: []mergeAct{flush(up(1, 10, 3), up(2, 20, 3))},
		delete: []mergeAct{strike(10), send(up(1, 11, 1))}, after: []mergeAct{flush(up(1, 12, 2)), flush(up(2, 21, 1))}, want: map[int]int64{2: 20}},
	{n: 40, what: "the source deletes a key of a held file",
		before: []mergeAct{flush(up(1, 10))},
		delete: []mergeAct{imports(addedValue{1, 11, 0}, addedValue{2, 21, 0}, addedValue{3, 31, 0}), send(del(1), del(2))}, want: map[int]int64{3: 31}},
	{n: 47, what: "a key twice in a file, and in two",
		before: []mergeAct{flush(up(1, 10), up(2, 20))},
		delete: []mergeAct{imported(addedValue{1, 11, 0}, addedValue{3, 31, 0}, addedValue{1, 12, 0}), imports(addedValue{2, 21, 0}), imported(addedValue{2, 22, 0})}, want: map[int]int64{1: 12, 2: 22, 3: 31}},
}

const manyInserts = 110_000

func manyRows() map[int]int64 {
	out := valuesFrom(1000, 1000+manyInserts)
	for i := range 100 {
		out[1000+i*(manyInserts/100)] = -1
	}
	return out
}

func valuesFrom(from, to int) map[int]int64 {
	out := map[int]int64{}
	for i := from; i < to; i++ {
		out[i] = int64(i)
	}
	return out
}

// newMergeTable is a case's table; all of its events are of one partition.
func newMergeTable(i int, c mergeCase, order, lake string) *mergeTable {
	def := definition(fmt.Sprintf("cases.c%02d_%d", c.n, i), source.RowsJSON, []schemas.Field{
		{Name: "id", Type: schemas.Of(schemas.Long)}, {Name: "v", Type: schemas.Of(schemas.Long)}, {Name: "ver", Type: schemas.Of(schemas.Long)}, {Name: "p", Type: schemas.Of(schemas.String)},
	})
	def.CommitIntervalMs = 50
	// The planner looks at tables soon after each start: the only jobs are those that are asked for.
	def.Properties = append(def.Properties, schemas.Property{Key: "varve.compaction.paused", Value: "true"})
	if c.n == 10 {
		def.CommitIntervalMs = 3000 // all of it in one commit
	}
	if c.ordered {
		def.Order = schemas.Order{Kind: schemas.OrderByColumn, Column: 3}
	}
	if c.parted {
		def.Specs = []schemas.Spec{{Fields: []schemas.PartitionField{{SourceID: 4, FieldID: 1000, Name: "p", Transform: schemas.Identity}}}}
		def.LastPartitionID = 1000
	}
	return &mergeTable{mergeCase: c, workload: workload{def: def, partitions: 1, key: "id"}, lake: lake, at: map[int64]filePlace{}, seen: map[int64][]string{}, order: order}
}

// locate notes where each value is.
func (m *mergeTable) locate(ctx context.Context) error {
	h, err := decidedHistory(ctx, m.n, m.def.Name)
	if err != nil {
		return err
	}
	info, err := m.n.Table(ctx, m.def.Name)
	if err != nil {
		return err
	}
	for i := range h.appends {
		for _, f := range h.appends[i].Files {
			text, err := os.ReadFile(filepath.Join(m.lake, filepath.FromSlash(strings.ReplaceAll(m.def.Name, ".", "/")), "data", schemas.DataFileName(info.ID, h.appends[i].Epoch, f.ID&(1<<40-1))))
			if err != nil {
				return err
			}
			file, err := rows.Open(bytes.NewReader(text), int64(len(text)))
			if err != nil {
				return err
			}
			cols, err := file.Read(m.def.Schema().Fields[1:2])
			if err != nil {
				return err
			}
			for p, v := range cols[0].Ints {
				m.at[v] = filePlace{f.ID, uint32(p)}
			}
		}
	}
	return nil
}

// compact asks for a job of all files; there must be one.
func (m *mergeTable) compact(ctx context.Context) error {
	p, err := m.n.Compact(ctx, m.def.Name, []planner.Strategy{planner.Full})
	if err == nil && (p.Jobs == 0 || p.Rejected > 0) {
		err = fmt.Errorf("the plan is %+v", p)
	}
	return err
}

func (m *mergeTable) acts(ctx context.Context, acts []mergeAct) error {
	for i, a := range acts {
		if err := a(ctx, m); err != nil {
			return fmt.Errorf("act %d: %w", i, err)
		}
	}
	return nil
}

// TestMergeOrder runs each case with the compaction before, during and after its
// deletes, each order in a deployment of its own. Between the three parts of a case its node is
// stopped, so that the next one is another owner: the one of the middle part has no
// workers, so that jobs that are planned then are under way until the last part. The rows are the
// case's own each time, for three engines.
func TestMergeOrder(t *testing.T) {
	for turn, order := range mergeOrders {
		t.Run(order, func(t *testing.T) { mergeInOrder(t, turn) })
	}
}

func mergeInOrder(t *testing.T, turn int) {
	ctx := longContext(t)
	o := topology.NodeOptions{Data: dataDir(t), Jobs: topology.JobOptions{PlanEvery: time.Hour, Workers: 2}, Roles: topology.Roles(), Garbage: topology.GarbageOptions{Every: -1, SweepEvery: -1}}
	var all []*mergeTable
	for i, c := range mergeCases {
		all = append(all, newMergeTable(i, c, mergeOrders[turn], filepath.Join(o.Data, "lake")))
	}
	var n *topology.Node
	// phase does the same with all tables, some at a time.
	phase := func(what func(m *mergeTable) error) {
		t.Helper()
		slots := make(chan struct{}, 6)
		var work sync.WaitGroup
		for _, m := range all {
			slots <- struct{}{}
			work.Go(func() {
				defer func() { <-slots }()
				m.n = n
				if err := what(m); err != nil {
					t.Errorf("case %d, %s: %v", m.mergeCase.n, m.what, err)
				}
			})
		}
		work.Wait()
		if t.Failed() {
			t.FailNow()
		}
	}
	open := func(roles []string) {
		t.Helper()
		o.Roles = roles
		n = start(t, o)
		for _, m := range all {
			if err := prepare(ctx, n, m.workload); err != nil {
				t.Fatal(err)
			}
		}
	}
	over := func(m *mergeTable) error {
		for ctx.Err() == nil {
			info, err := m.n.Table(ctx, m.def.Name)
			if err != nil || info.OpenJobs == 0 && len(info.Held)+len(info.Requests) == 0 && !info.Changes && info.Pending == nil {
				return err
			}
			time.Sleep(20 * time.Millisecond)
		}
		return ctx.Err()
	}
	compact := func(m *mergeTable) error {
		if err := over(m); err != nil { // requests are to be answered, and files taken
			return err
		}
		return m.compact(ctx)
	}

	open(topology.Roles())
	phase(func(m *mergeTable) error {
		p := func(s string) any {
			if m.parted {
				return s
			}
			return nil
		}
		for _, f := range []mergeAct{flush(up(900, 1, p("z")), up(901, 2, p("z"))), flush(up(902, 3, p("z")))} {
			if err := f(ctx, m); err != nil {
				return err
			}
		}
		if err := m.acts(ctx, m.before); err != nil {
			return err
		}
		if err := m.locate(ctx); err != nil || turn > 0 {
			return err
		}
		return errors.Join(compact(m), over(m))
	})
	stop(t, n)

	open([]string{topology.RoleIngest, topology.RoleState, topology.RolePublisher, topology.RolePlanner})
	phase(func(m *mergeTable) error {
		if turn == 1 {
			if err := compact(m); err != nil {
				return err
			}
		}
		return m.acts(ctx, m.delete)
	})
	stop(t, n)

	open(topology.Roles())
	phase(func(m *mergeTable) error {
		if err := m.n.WaitLoaded(ctx, m.def.Name, nil); err != nil {
			return err
		}
		if turn == 2 {
			if err := compact(m); err != nil {
				return err
			}
		}
		if err := over(m); err != nil {
			return err
		}
		if err := m.acts(ctx, m.after); err != nil {
			return err
		}
		if err := m.n.WaitLoaded(ctx, m.def.Name, nil); err != nil {
			return err
		}
		return over(m)
	})
	engines := []readers.Engine{readers.IcebergGo}
	if readers.Wanted() {
		engines = append(engines, readers.PyIceberg, readers.DuckDB)
	}
	for _, m := range all {
		info, err := n.Table(ctx, m.def.Name)
		if err != nil {
			t.Fatal(err)
		}
		want := maps.Clone(m.want)
		maps.Copy(want, mergeRows)
		for _, e := range engines {
			readers.Need(t, e)
			got, err := readers.Read(ctx, e, info.Head.MetadataPath, readers.Options{})
			if err != nil {
				t.Fatal(err)
			}
			have := map[int]int64{}
			ids, values := got.Column("id"), got.Column("v")
			for i := range ids {
				id, errID := strconv.Atoi(ids[i])
				v, errV := strconv.ParseInt(values[i], 10, 64)
				if err := errors.Join(errID, errV); err != nil {
					t.Fatal(err)
				}
				if _, twice := have[id]; twice {
					t.Errorf("case %d, %s: %s reads key %d twice", m.mergeCase.n, m.what, e, id)
				}
				have[id] = v
			}
			if !maps.Equal(have, want) {
				t.Errorf("case %d, %s: %s reads %s", m.mergeCase.n, m.what, e, mapDiff(have, want))
			}
		}
		for id, rows := range m.seen {
			got, err := readers.Read(ctx, readers.IcebergGo, info.Head.MetadataPath, readers.Options{Snapshot: id})
			if err != nil {
				t.Fatal(err)
			}
			diff(t, fmt.Sprintf("case %d, snapshot %d", m.mergeCase.n, id), got.Sorted(), rows)
		}
		if c := countJobs(ctx, t, n, m.def.Name); c.completed == 0 || c.completed < c.planned {
			t.Errorf("case %d, %s: jobs %+v", m.mergeCase.n, m.what, c)
		}
	}
	stop(t, n)
}

func mapDiff(have, want map[int]int64) string {
	var out []string
	for id, v := range have {
		if w, ok := want[id]; !ok || v != w {
			out = append(out, fmt.Sprintf("key %d as %d", id, v))
		}
	}
	for id, v := range want {
		if _, ok := have[id]; !ok {
			out = append(out, fmt.Sprintf("no key %d, want %d", id, v))
		}
	}
	slices.Sort(out)
	return fmt.Sprintf("%d rows, want %d: %s", len(have), len(want), strings.Join(out[:min(len(out), 10)], "; "))
}

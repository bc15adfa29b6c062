package ingest

import (
	"bytes"
	"context"
	"log/slog"
	"math"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/keyindex"
	"github.com/varve-io/varve/statestore/objstore"
)

// deaths is a shard of a table of keys and values, of which only the index works.
type deaths struct {
	*Shard
	t     *testing.T
	store objstore.Store
}

func newDeaths(t *testing.T, ordered bool) *deaths {
	t.Helper()
	def := &schemas.Definition{
		Name: "shop.orders", Location: "mem://store/shop/orders", FormatVersion: 3, Mode: schemas.ModeDV,
		Schemas: []schemas.Schema{{Identifier: []int32{1}, Fields: []schemas.Field{
			{ID: 1, Name: "id", Type: schemas.Of(schemas.Long), Required: true},
			{ID: 2, Name: "v", Type: schemas.Of(schemas.Long)},
		}}},
		LastColumnID: 2, Specs: []schemas.Spec{{}}, LastPartitionID: 999, Key: []int32{1}, SourceTopic: "orders", Format: "rows-json",
		CommitIntervalMs: 1000, TombstoneTTLMs: 1000, RetentionMs: 10_000, RetentionCount: 5,
	}
	if ordered {
		def.Order = schemas.Order{Kind: schemas.OrderByColumn, Column: 2}
	}
	fs, store := vfs.NewMem(), objstore.NewMem()
	s := &Shard{log: slog.New(slog.DiscardHandler), stage: Running, side: newSide(), cfg: Config{
		Table: def.Name, TableID: 1, Store: store, FS: fs, Dir: "shard", SideAppends: DefaultSideAppends,
	}}
	if err := s.define(def); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.index, err = keyindex.Open("index", keyindex.Options{FS: fs, Sync: true, Wide: !s.narrow}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.index.Close(); err != nil {
			t.Error(err)
		}
	})
	return &deaths{Shard: s, t: t, store: store}
}

func (s *deaths) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// file writes a data file of one row with key 7.
func (s *deaths) file(id uint64, f fileInfo, value int64) {
	s.t.Helper()
	sch := s.def.Schema()
	b := rows.NewBatch(sch)
	b.Cols[0].AppendInt(7)
	b.Cols[1].AppendInt(value)
	b.AppendEvent(rows.Upsert, 0, 0, false)
	var out bytes.Buffer
	_, err := rows.Write(&out, rows.WriteOptions{Schema: sch}, b, nil, rows.Extra{})
	s.must(err)
	s.side.Files[id] = f
	key, err := s.fileKey(f, id)
	s.must(err)
	s.must(s.store.Create(context.Background(), key, out.Bytes()))
}

// TestDeathOfCarriedVersion: H10, H1. A version from before snapshot 10 is carried by
// a job that was planned at 20; another writer appends a row of its key onto that
// snapshot, while the output is in no snapshot yet. The version dies by its position,
// before the row comes or after it, in the job's output or in its input: the row is
// the later one each time, as it is where no job ran.
func TestDeathOfCarriedVersion(t *testing.T) {
	const input, output, build, plan, append0 = 5, 1 << 30, 10, 20, 30
	theirs := statestore.FileID(statestore.ForeignWriter, 1)
	for _, x := range []struct {
		name    string
		carried bool
		before  bool // it dies before the row comes
		ordered bool
		value   int64 // of the row; the version's is 5
		live    bool  // the row stays
	}{
		{"no job, dies before", false, true, false, 9, true},
		{"no job, dies after", false, false, false, 9, true},
		{"carried, dies before", true, true, false, 9, true},
		{"carried, dies after", true, false, false, 9, true},
		{"carried, a larger value, dies before", true, true, true, 9, true},
		{"carried, the same value, dies before", true, true, true, 5, true},
		{"carried, the same value, dies after", true, false, true, 5, true},
		{"no job, the same value, dies before", false, true, true, 5, true},
		{"carried, a smaller value, dies before", true, true, true, 4, false},
		{"carried, a smaller value, dies after", true, false, true, 4, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			s := newDeaths(t, x.ordered)
			ctx := context.Background()
			file, info := uint64(input), fileInfo{Record: 5, Added: 5, Epoch: 2, FirstRow: 0}
			if x.carried {
				file, info = output, fileInfo{Record: plan, Added: 25, Epoch: -1, FirstRow: -1, Name: [16]byte{1}}
			}
			s.file(file, info, 5)
			c, err := s.readColumns(ctx, info, file)
			s.must(err)
			e, _, err := s.rowEntry(c, file, 0, nil)
			s.must(err)
			s.must(s.index.Apply([]keyindex.Entry{e}, 25))
			set, err := dv.AppendBitmap(nil, roaring.BitmapOf(0))
			s.must(err)
			die := func(at int64) {
				s.must(s.foldBlocks(ctx, &record.OutcomeMessage{Offset: at, TimeMs: 1000}, []record.DeleteBlock{{File: file, Bitmap: set}}, false))
			}
			if x.before {
				die(26)
			}
			h := heldAdd{Offset: append0, Place: build, TimeMs: 1000, Files: []heldPart{{theirs, 1}}}
			s.file(theirs, fileInfo{Record: build, Added: append0, Epoch: -1, FirstRow: 100, Path: "mem://store/shop/orders/data/theirs.parquet"}, x.value)
			s.side.Held = append(s.side.Held, h)
			p := passage{s: s.Shard, until: math.MaxInt64, timeMs: 1000, lookup: s.index.LookupConfirmed}
			s.must(p.judge(ctx, append0, append0+1))
			s.must(s.applyFold(p.entries, 31))
			s.side.Held[0].Taken = 31
			if !x.before {
				die(32)
			}
			killed := false
			for _, k := range p.kills {
				killed = killed || k.file == theirs
			}
			if killed == x.live {
				t.Errorf("the row is killed: %t", killed)
			}
			found, err := s.index.LookupConfirmed([]keyindex.Key{e.Key}, nil)
			s.must(err)
			if f := &found[0]; x.live != (f.Present && f.File == theirs) {
				t.Errorf("the index has %+v", f)
			}
		})
	}
}

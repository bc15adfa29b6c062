package publisher

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/statestore"
)

// ErrLater: other writers' commits cannot be taken in before something else is over.
var ErrLater = errors.New("not yet")

// debts are rows of removed files that died since the head was committed: copies of
// them in added files are dead (H3). A copy is known by its row id, where its file
// carries them; else by its key; and where a live row of a removed file has that key
// too, since the head listed both, by its values.
type debts struct {
	rowIDs map[int64]bool
	keys   map[string]*owedKey // nil in a table without a key
}

// owedKey is a key of which a row died.
type owedKey struct {
	died, live map[uint64]bool // values of the rows that died, and of those that did not
}

// owed finds what added files owe. The state's deaths are as of one log offset; what
// a shard's own event does later to a key the shard knows when it takes the files.
func (r *foreignReader) owed(ctx context.Context, st *statestore.Store, before, both *listing) (*debts, error) {
	maps := map[record.Hash][]byte{}
	var d *statestore.Deaths
	for {
		var needs []record.Ref
		var err error
		if d, needs, err = st.Deaths(r.f.TableID, r.rec.Removed, maps); err != nil {
			return nil, err
		}
		if len(needs) == 0 {
			break
		}
		for i := range needs {
			if maps[needs[i].Hash], err = r.p.cfg.Bodies.Map(ctx, &needs[i]); err != nil {
				return nil, err
			}
		}
	}
	r.rec.AsOf = d.AsOf
	if d.Open >= 0 && d.Open < r.f.Head.Through {
		// Its answer would find the copies of what it deletes.
		return nil, fmt.Errorf("%w: the delete request at log offset %d is from before the last snapshot, and not every shard has answered it", ErrLater, d.Open)
	}
	paths := make(map[uint64]string, len(r.ids))
	for path, id := range r.ids {
		paths[id] = path
	}
	out := &debts{rowIDs: map[int64]bool{}}
	def := r.f.Known.Definition
	keys, err := r.keyEncoder(def)
	if err != nil {
		return nil, err
	}
	if keys != nil {
		out.keys = map[string]*owedKey{}
	}
	// What delete files of the head had ended no writer has copied (H15).
	seen, err := r.ended(ctx, before, both, func(path string) bool {
		_, removed := slices.BinarySearch(r.rec.Removed, r.ids[path])
		return removed
	})
	if err != nil {
		return nil, err
	}
	for _, id := range r.rec.Removed {
		dead := d.Dead[id].Clone()
		path := paths[id]
		if x := seen[path]; x != nil {
			dead.AndNot(x)
		}
		if v := r.was[id]; v != nil {
			was, err := r.blob(ctx, v.Puffin, v.Offset, v.Length, v.Cardinality)
			if err != nil {
				return nil, err
			}
			dead.AndNot(was)
		}
		if dead.IsEmpty() {
			continue
		}
		if err := r.each(ctx, before.files[path], keys, func(x *foreignRow) {
			if !dead.Contains(uint32(x.at)) {
				return
			}
			out.rowIDs[x.id] = true
			if keys == nil || x.key == nil {
				return
			}
			k := out.keys[string(x.key)]
			if k == nil {
				k = &owedKey{map[uint64]bool{}, map[uint64]bool{}}
				out.keys[string(x.key)] = k
			}
			k.died[x.values] = true
		}); err != nil {
			return nil, err
		}
	}
	if len(out.rowIDs) == 0 {
		return nil, nil
	}
	if keys == nil {
		return out, nil
	}
	for _, id := range r.rec.Removed {
		if err := r.each(ctx, before.files[paths[id]], keys, func(x *foreignRow) {
			if k := out.keys[string(x.key)]; k != nil && x.key != nil && !d.Dead[id].Contains(uint32(x.at)) {
				k.live[x.values] = true
			}
		}); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (r *foreignReader) keyEncoder(def *schemas.Definition) (*rows.KeyEncoder, error) {
	if !def.Keyed() {
		return nil, nil
	}
	return rows.NewKeyEncoder(def.Schema(), def.Key)
}

// foreignRow is a row of a data file. Key is of use during the call only.
type foreignRow struct {
	at     int
	key    []byte // nil where it has none that the table can have
	id     int64
	own    bool   // the file carries the row id
	values uint64 // a hash of its flat values
}

// each calls fn with each row of a data file.
func (r *foreignReader) each(ctx context.Context, e entryAt, keys *rows.KeyEncoder, fn func(*foreignRow)) error {
	d, def := &e.File, r.f.Known.Definition
	obj, err := r.open(ctx, d.Path)
	if err != nil {
		return err
	}
	defer obj.Close()
	file, err := rows.Open(obj, obj.Size())
	if err != nil {
		return r.stopped("%s: %v", d.Path, err)
	}
	schema := def.Schema()
	var want []schemas.Field
	if keys != nil {
		for _, id := range keys.Fields() {
			want = append(want, schema.Fields[schema.ByID(id)])
		}
	}
	n := len(want)
	want = append(want, schemas.Field{ID: schemas.RowIDField, Name: schemas.RowIDColumn, Type: schemas.Of(schemas.Long)})
	for i := range schema.Fields {
		if f := &schema.Fields[i]; !f.Type.IsNested() {
			want = append(want, *f)
		}
	}
	x := foreignRow{at: -1}
	var scratch []byte
	for g := range file.NumRowGroups() {
		cols, err := file.ReadGroup(g, want)
		if err != nil {
			return fmt.Errorf("%s: %w", d.Path, err)
		}
		ids := &cols[n]
		for i := range ids.Len() {
			x.at++
			if x.id, x.own = *d.FirstRowID+int64(x.at), !ids.IsNull(i); x.own {
				x.id = ids.Ints[i]
			}
			x.key, x.values = nil, hashRow(cols[n+1:], i)
			if keys != nil && !nullIn(cols[:n], i) {
				if scratch, err = keys.AppendFrom(scratch[:0], cols[:n], i); err == nil {
					x.key = scratch
				} else if !errors.Is(err, rows.ErrBadKey) {
					return fmt.Errorf("%s: %w", d.Path, err)
				}
			}
			fn(&x)
		}
	}
	return nil
}

var rowSeed = maphash.MakeSeed()

// hashRow is within one process: nothing that is kept depends on it.
func hashRow(cols []rows.Column, i int) uint64 {
	var h maphash.Hash
	h.SetSeed(rowSeed)
	var b [8]byte
	for j := range cols {
		c := &cols[j]
		if c.IsNull(i) {
			_ = h.WriteByte(0)
			continue
		}
		_ = h.WriteByte(1)
		switch {
		case c.Storage == rows.Ints:
			binary.BigEndian.PutUint64(b[:], uint64(c.Ints[i]))
			_, _ = h.Write(b[:])
		case c.Storage == rows.Floats:
			binary.BigEndian.PutUint64(b[:], math.Float64bits(c.Floats[i]))
			_, _ = h.Write(b[:])
		default:
			v := c.BytesAt(i)
			binary.BigEndian.PutUint64(b[:], uint64(len(v)))
			_, _ = h.Write(b[:])
			_, _ = h.Write(v)
		}
	}
	return h.Sum64()
}

func nullIn(cols []rows.Column, i int) bool {
	for j := range cols {
		if cols[j].IsNull(i) {
			return true
		}
	}
	return false
}

// pay finds the rows of an added file that are dead since they owe it.
func (r *foreignReader) pay(ctx context.Context, d *debts, e entryAt) (*roaring.Bitmap, error) {
	keys, err := r.keyEncoder(r.f.Known.Definition)
	if err != nil {
		return nil, err
	}
	byID, byKey := roaring.New(), roaring.New()
	carries := false
	if err := r.each(ctx, e, keys, func(x *foreignRow) {
		if x.own {
			if carries = true; d.rowIDs[x.id] {
				byID.Add(uint32(x.at))
			}
		} else if k := d.keys[string(x.key)]; k != nil && x.key != nil && (len(k.live) == 0 || k.died[x.values] && !k.live[x.values]) {
			byKey.Add(uint32(x.at))
		}
	}); err != nil {
		return nil, err
	}
	switch {
	case carries:
		return byID, nil // a row without an id of its own is new
	case keys == nil:
		return nil, r.stopped("it takes files out of a table without a key whose rows have died since, and %s does not carry _row_id: nobody knows which of its rows are copies of those", e.File.Path)
	}
	return byKey, nil
}

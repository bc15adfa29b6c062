package publisher

import (
	"context"
	"errors"
	"fmt"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/statestore"
)

// ErrLater: other writers' commits cannot be taken in before something else is over.
var ErrLater = errors.New("not yet")

// debts are rows of removed files that died since the head was committed: copies of
// them in added files are dead (H3).
type debts struct {
	keys   map[string]bool // nil in a table without a key
	rowIDs map[int64]bool
}

// owed finds what added files owe. The state's deaths are as of one log offset; what
// a shard's own event does later to a key the shard knows when it takes the files.
func (r *foreignReader) owed(ctx context.Context, st *statestore.Store, before *listing) (*debts, error) {
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
			if maps[needs[i].Hash], err = r.p.cfg.Bodies.Get(ctx, &needs[i]); err != nil {
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
		out.keys = map[string]bool{}
	}
	for _, id := range r.rec.Removed {
		dead := d.Dead[id]
		path := paths[id]
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
		if err := r.each(ctx, before.files[path], keys, func(row int, key []byte, rowID int64, _ bool) {
			if dead.Contains(uint32(row)) {
				out.rowIDs[rowID] = true
				if keys != nil {
					out.keys[string(key)] = true
				}
			}
		}); err != nil {
			return nil, err
		}
	}
	if len(out.rowIDs) == 0 {
		return nil, nil
	}
	return out, nil
}

func (r *foreignReader) keyEncoder(def *schemas.Definition) (*rows.KeyEncoder, error) {
	if !def.Keyed() {
		return nil, nil
	}
	return rows.NewKeyEncoder(def.Schema(), def.Key)
}

// each calls fn with each row of a data file: its key, nil where it has none that the
// table can have, and its row id; own says that the file carries it.
func (r *foreignReader) each(ctx context.Context, e entryAt, keys *rows.KeyEncoder, fn func(row int, key []byte, rowID int64, own bool)) error {
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
	var scratch []byte
	row := 0
	for g := range file.NumRowGroups() {
		cols, err := file.ReadGroup(g, want)
		if err != nil {
			return fmt.Errorf("%s: %w", d.Path, err)
		}
		ids := &cols[n]
		for i := range ids.Len() {
			rowID, own := *d.FirstRowID+int64(row), !ids.IsNull(i)
			if own {
				rowID = ids.Ints[i]
			}
			var key []byte
			if keys != nil && !nullIn(cols[:n], i) {
				if scratch, err = keys.AppendFrom(scratch[:0], cols[:n], i); err == nil {
					key = scratch
				} else if !errors.Is(err, rows.ErrBadKey) {
					return fmt.Errorf("%s: %w", d.Path, err)
				}
			}
			fn(row, key, rowID, own)
			row++
		}
	}
	return nil
}

func nullIn(cols []rows.Column, i int) bool {
	for j := range cols {
		if cols[j].IsNull(i) {
			return true
		}
	}
	return false
}

// pay finds the rows of an added file that are dead since they owe it: by row id
// where the file carries it, else by key.
func (r *foreignReader) pay(ctx context.Context, d *debts, e entryAt) (*roaring.Bitmap, error) {
	keys, err := r.keyEncoder(r.f.Known.Definition)
	if err != nil {
		return nil, err
	}
	dead := roaring.New()
	carries := false
	unknown := 0
	if err := r.each(ctx, e, keys, func(row int, key []byte, rowID int64, own bool) {
		carries = carries || own
		switch {
		case own && d.rowIDs[rowID], !own && d.keys[string(key)] && key != nil:
			dead.Add(uint32(row))
		case !own && keys == nil:
			unknown++
		}
	}); err != nil {
		return nil, err
	}
	if carries { // a row without an id of its own is new
		dead = roaring.New()
		if err := r.each(ctx, e, keys, func(row int, _ []byte, rowID int64, own bool) {
			if own && d.rowIDs[rowID] {
				dead.Add(uint32(row))
			}
		}); err != nil {
			return nil, err
		}
	} else if unknown > 0 {
		return nil, r.stopped("it takes files out of a table without a key whose rows have died since, and %s does not carry _row_id: nobody knows which of its %d rows are copies of those", e.File.Path, unknown)
	}
	return dead, nil
}

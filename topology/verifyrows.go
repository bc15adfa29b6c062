package topology

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/schemas/source"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/keyindex"
	"github.com/varve-io/varve/statestore/objstore"
)

// localIndex is a copy of a shard's key index in the data folder.
type localIndex struct {
	name      string
	table     int64
	topic     [16]byte
	partition int32
	index     *keyindex.Index
}

// openIndexes copies the data folder's key indexes and opens the copies. The
// identity in them says whose they are, but its topic id and partition are in
// the folder's name too.
func (v *verifier) openIndexes() error {
	root := filepath.Join(v.o.Data, "index")
	es, err := os.ReadDir(root)
	if errors.Is(err, os.ErrNotExist) || v.o.Data == "" {
		return nil
	}
	if err != nil {
		return err
	}
	if v.o.Expect == ([16]byte{}) {
		return nil
	}
	for _, e := range es {
		parts := strings.Split(e.Name(), "-")
		if len(parts) != 3 || !e.IsDir() {
			continue
		}
		table, err1 := strconv.ParseInt(parts[0], 10, 64)
		p, err2 := strconv.ParseInt(parts[2], 10, 32)
		topic, err3 := folderTopic(parts[1])
		if err1 != nil || err2 != nil || err3 != nil {
			continue
		}
		id := append([]byte(nil), v.o.Expect[:]...)
		id = binary.BigEndian.AppendUint64(id, uint64(table))
		id = append(id, topic[:]...)
		id = binary.BigEndian.AppendUint32(id, uint32(p))
		var index *keyindex.Index
		for try := 0; ; try++ { // a running node may change its folder meanwhile
			dir := filepath.Join(v.scratch, "index", e.Name()+"-"+strconv.Itoa(try))
			err = copyFiles(filepath.Join(root, e.Name()), dir)
			if err == nil { // which width it has only the table's definition says
				index, err = keyindex.Open(dir, keyindex.Options{Identity: id})
			}
			if errors.Is(err, keyindex.ErrForeign) {
				index, err = keyindex.Open(dir, keyindex.Options{Wide: true, Identity: id})
			}
			if err == nil || try == 2 {
				break
			}
		}
		switch {
		case errors.Is(err, keyindex.ErrForeign):
			v.skip("key index %s is another deployment's", e.Name())
			continue
		case errors.Is(err, keyindex.ErrVersion):
			v.skip("key index %s: %v", e.Name(), err)
			continue
		case err != nil:
			v.find("index", "", "key index %s cannot be read: %v; stop the node and remove the folder: it is built again", e.Name(), err)
			continue
		}
		if index.Offset() < 0 {
			if err := index.Close(); err != nil {
				return err
			}
			continue
		}
		v.indexes = append(v.indexes, &localIndex{name: e.Name(), table: table, topic: topic, partition: int32(p), index: index})
	}
	return nil
}

// folderTopic is the topic id in the name of an index folder: its hexadecimal
// form, in folders of before that of how Kafka writes it, base64.
func folderTopic(s string) (id [16]byte, err error) {
	b, err := hex.DecodeString(s)
	if err == nil && len(b) != len(id) {
		b, err = base64.StdEncoding.DecodeString(string(b))
	}
	if err != nil || len(b) != len(id) {
		return id, fmt.Errorf("%q is no topic id", s)
	}
	return [16]byte(b), nil
}

// copyFiles copies the files of a folder: what happens to the copies stays there.
func copyFiles(from, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	es, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range es {
		if !e.Type().IsRegular() {
			continue
		}
		if err := copyFile(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// indexStops has each table's indexes looked at where the last of them stands.
func (v *verifier) indexStops(stops map[int64][]func(context.Context) error) {
	tables := map[int64]int64{}
	for _, x := range v.indexes {
		tables[x.table] = max(tables[x.table], x.index.Offset())
	}
	for id, at := range tables {
		if at >= v.part.end {
			continue // another partition's table, or the log went on meanwhile
		}
		if at < v.store.Head().Offset {
			v.skip("table id %d: its key indexes stand at offset %d, before the checkpoint that this began with; --full compares them", id, at)
			continue
		}
		stops[at] = append(stops[at], func(ctx context.Context) error { return v.index(ctx, id, at) })
	}
}

// index holds a table's live rows against its key indexes: each row has one
// entry, and each entry a row.
func (v *verifier) index(ctx context.Context, id, at int64) (err error) {
	var t *statestore.TableInfo
	if err := v.store.Tables(func(x *statestore.TableInfo) error {
		if x.ID == id {
			t = x
		}
		return nil
	}); err != nil || t == nil || !v.wants(t.Name) || !t.Definition.Keyed() {
		return err
	}
	for i := range t.Shards {
		s := &t.Shards[i]
		var mine *localIndex
		for _, x := range v.indexes {
			if x.table == id && x.partition == s.Partition && x.topic == s.TopicID {
				mine = x
			}
		}
		if mine == nil {
			v.skip("table %s: the key index of %s/%d is not in this data folder; its rows are not compared with it", t.Name, s.Topic, s.Partition)
			return nil
		}
		if last, known := v.touched[id]; mine.index.Offset() < at && (known && last > mine.index.Offset() || !known && !v.complete) {
			v.skip("table %s: its key indexes stand at different offsets, and the table changed between; stop the node to compare them", t.Name)
			return nil
		}
	}
	files, entries := newSortedRuns(v.scratch), newSortedRuns(v.scratch)
	defer func() { err = errors.Join(err, files.close(), entries.close()) }()
	known := map[uint64]indexedFile{}
	if err := v.liveRows(ctx, t, false, func(f *statestore.FileInfo, k keyindex.Key, row int64, _ [2]uint64) error {
		return files.add(item{hi: k.Hi, lo: k.Lo, a: f.ID, b: uint64(row)})
	}, known); err != nil {
		return err
	}
	for _, x := range v.indexes {
		if x.table != id {
			continue
		}
		if err := x.index.Verify(); err != nil {
			v.find("index", t.Name, "key index %s is damaged: %v; stop the node and remove the folder: it is built again", x.name, err)
			return nil
		}
		if err := x.index.Iterate(func(e *keyindex.Entry) error {
			if e.Tombstone() {
				return nil
			}
			v.out.Entries++
			return entries.add(item{hi: e.Key.Hi, lo: e.Key.Lo, a: e.File, b: uint64(e.Pos)})
		}); err != nil {
			return err
		}
	}
	return v.joinIndex(t, files, entries, known)
}

type indexedFile struct {
	rows int64
	path string
	dead []byte
}

func (v *verifier) joinIndex(t *statestore.TableInfo, files, entries *sortedRuns, known map[uint64]indexedFile) error {
	fs, err := files.sorted()
	if err != nil {
		return err
	}
	is, err := entries.sorted()
	if err != nil {
		return err
	}
	f, err := fs.next()
	if err != nil {
		return err
	}
	x, err := is.next()
	if err != nil {
		return err
	}
	var lastFile, lastEntry *item
	path := func(i *item) string { return known[i.a].path }
	for f != nil || x != nil {
		switch {
		case x == nil || f != nil && f.compare(x) < 0:
			v.find("index", t.Name, "row %d of %s is live, and its key has no entry of it in the key index", f.b, path(f))
		case f == nil || x.compare(f) < 0:
			switch file, ok := known[x.a]; {
			case !ok:
				v.find("index", t.Name, "the key index names row %d of file %d, which is not there any more", x.b, x.a)
			case int64(x.b) >= file.rows:
				v.find("index", t.Name, "the key index names row %d of %s, which has %d", x.b, file.path, file.rows)
			case isDead(file.dead, x.b):
				v.find("index", t.Name, "the key index names row %d of %s, which is dead", x.b, file.path)
			default:
				v.find("index", t.Name, "the key index names row %d of %s for another key than it has", x.b, file.path)
			}
		}
		step := 0
		if x != nil && f != nil {
			step = f.compare(x)
		} else if f == nil {
			step = 1
		} else {
			step = -1
		}
		if step <= 0 {
			if lastFile != nil && lastFile.hi == f.hi && lastFile.lo == f.lo {
				v.find("rows", t.Name, "one key has two live rows: row %d of %s and row %d of %s", lastFile.b, path(lastFile), f.b, path(f))
			}
			lastFile = f
			if f, err = fs.next(); err != nil {
				return err
			}
		}
		if step >= 0 {
			if lastEntry != nil && lastEntry.hi == x.hi && lastEntry.lo == x.lo {
				v.find("index", t.Name, "one key has two entries: row %d of %s and row %d of %s", lastEntry.b, path(lastEntry), x.b, path(x))
			}
			lastEntry = x
			if x, err = is.next(); err != nil {
				return err
			}
		}
	}
	return nil
}

func isDead(set []byte, row uint64) bool {
	b, err := dv.ReadBitmap(set)
	return err == nil && b.Contains(uint32(row))
}

// liveRows calls fn with the key of every live row, and with hashed the hash of
// its values. known, if not nil, takes the files. A file that cannot be read is
// a finding.
func (v *verifier) liveRows(ctx context.Context, t *statestore.TableInfo, hashed bool,
	fn func(f *statestore.FileInfo, k keyindex.Key, row int64, h [2]uint64) error, known map[uint64]indexedFile,
) error {
	schema := t.Definition.Schema()
	var enc *rows.KeyEncoder
	var want []schemas.Field
	var err error
	keyed := t.Definition.Keyed()
	if keyed {
		if enc, err = rows.NewKeyEncoder(schema, t.Definition.Key); err != nil {
			return err
		}
		for _, id := range enc.Fields() {
			want = append(want, schema.Fields[schema.ByID(id)])
		}
	}
	nKeys := len(want)
	if hashed {
		want = append(want, schema.Fields...)
	}
	deployment := v.store.Head().Deployment
	h := rowHasher{}
	return v.store.Files(t.ID, func(f *statestore.FileInfo) error {
		if f.Gone {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		path := dataPath(t, f)
		if known != nil {
			known[f.ID] = indexedFile{f.Rows, path, deadSet(f)}
		}
		dead, err := dv.ReadBitmap(deadSet(f))
		if err != nil {
			return fmt.Errorf("dead rows of %s: %w", path, err)
		}
		key, ok := v.o.Store.Key(path)
		if !ok {
			v.skip("table %s: %s lies outside of the warehouse", t.Name, path)
			return nil
		}
		obj, err := v.o.Store.Open(ctx, key)
		if errors.Is(err, objstore.ErrNotFound) {
			v.find("object", t.Name, "data file %s is missing", path)
			return nil
		}
		if err != nil {
			return err
		}
		defer obj.Close()
		file, err := rows.Open(obj, obj.Size())
		if err != nil {
			v.find("object", t.Name, "data file %s cannot be read: %v", path, err)
			return nil
		}
		row := int64(0)
		var scratch []byte
		for g := range file.NumRowGroups() {
			cols, err := file.ReadGroup(g, want)
			if err != nil {
				v.find("object", t.Name, "data file %s cannot be read: %v", path, err)
				return nil
			}
			for i := range int(file.GroupRows(g)) {
				at := row
				row++
				if dead.Contains(uint32(at)) {
					continue
				}
				v.out.Rows++
				var k keyindex.Key
				if keyed {
					if scratch, err = enc.AppendFrom(scratch[:0], cols[:nKeys], i); err != nil {
						return fmt.Errorf("row %d of %s: %w", at, path, err)
					}
					k = indexKeyOf(enc, deployment, scratch)
				}
				var sum [2]uint64
				if hashed {
					sum = h.row(cols[nKeys:], i)
				}
				if err := fn(f, k, at, sum); err != nil {
					return err
				}
			}
			v.told("table "+t.Name+": rows", v.out.Rows, t.Rows)
		}
		return nil
	})
}

// indexKeyOf is the index key of a canonical key.
func indexKeyOf(enc *rows.KeyEncoder, deployment [16]byte, key []byte) keyindex.Key {
	if enc.Narrow() && len(key) == 8 {
		return keyindex.Key{Hi: binary.BigEndian.Uint64(key)}
	}
	hi, lo := rows.Hash128(deployment, key)
	return keyindex.Key{Hi: hi, Lo: lo}
}

// rowHasher hashes the values of rows.
type rowHasher struct{ b []byte }

func (h *rowHasher) row(cols []rows.Column, i int) [2]uint64 {
	h.b = h.b[:0]
	for j := range cols {
		c := &cols[j]
		if c.IsNull(i) {
			h.b = append(h.b, 0)
			continue
		}
		h.b = append(h.b, 1)
		switch c.Storage {
		case rows.Ints:
			h.b = binary.BigEndian.AppendUint64(h.b, uint64(c.Ints[i]))
		case rows.Floats:
			h.b = binary.BigEndian.AppendUint64(h.b, math.Float64bits(c.Floats[i]))
		default:
			v := c.BytesAt(i)
			h.b = append(binary.BigEndian.AppendUint64(h.b, uint64(len(v))), v...)
		}
	}
	s := sha256.Sum256(h.b)
	// The last bits of the second word are an event's flags.
	return [2]uint64{binary.BigEndian.Uint64(s[:]), binary.BigEndian.Uint64(s[8:]) &^ 3}
}

// Flags of a source event in an item's d.
const (
	eventDelete   = 1
	eventHasOrder = 2
)

// source folds a table's source topics by key, up to where its shards have
// read, and holds what comes out against the table's live rows, row by row.
func (v *verifier) source(ctx context.Context, t *statestore.TableInfo) (err error) {
	if v.skipped[t.ID] {
		v.skip("table %s: a user moved a source end past events; the source is not compared", t.Name)
		return nil
	}
	if !v.complete {
		v.skip("table %s: the log's beginning is gone; the source is not compared", t.Name)
		return nil
	}
	d := t.Definition
	keyed := d.Keyed()
	events, lake := newSortedRuns(v.scratch), newSortedRuns(v.scratch)
	defer func() { err = errors.Join(err, events.close(), lake.close()) }()
	for i := range t.Shards {
		if ok, err := v.sourceEvents(ctx, t, &t.Shards[i], events); err != nil || !ok {
			return err
		}
	}
	if err := v.liveRows(ctx, t, true, func(f *statestore.FileInfo, k keyindex.Key, row int64, h [2]uint64) error {
		if !keyed {
			k = keyindex.Key{Hi: h[0], Lo: h[1]}
		}
		return lake.add(item{hi: k.Hi, lo: k.Lo, a: f.ID, b: uint64(row), c: h[0], d: h[1]})
	}, nil); err != nil {
		return err
	}
	asked, err := v.askedKeys(ctx, t)
	if err != nil {
		return err
	}
	es, err := events.sorted()
	if err != nil {
		return err
	}
	ls, err := lake.sorted()
	if err != nil {
		return err
	}
	return v.joinSource(t, keyed, es, ls, asked)
}

// askedKeys are the keys that requests deleted: what the source says of them is
// not the whole truth.
func (v *verifier) askedKeys(ctx context.Context, t *statestore.TableInfo) (map[keyindex.Key]bool, error) {
	out := map[keyindex.Key]bool{}
	if len(v.asked[t.ID]) == 0 {
		return out, nil
	}
	enc, err := rows.NewKeyEncoder(t.Definition.Schema(), t.Definition.Key)
	if err != nil {
		return nil, err
	}
	for i := range v.asked[t.ID] {
		b, err := v.bodies.Get(ctx, &v.asked[t.ID][i].Keys)
		if err != nil {
			v.skip("table %s: the keys of a delete request cannot be read (%v); rows that it deleted are told as missing", t.Name, err)
			continue
		}
		var k record.KeysBody
		if err := record.DecodeKeysBody(b, &k); err != nil {
			return nil, err
		}
		for _, key := range k.Keys {
			out[indexKeyOf(enc, v.store.Head().Deployment, key)] = true
		}
	}
	v.skip("table %s: %d keys were deleted by requests and are not compared with the source", t.Name, len(out))
	return out, nil
}

func (v *verifier) joinSource(t *statestore.TableInfo, keyed bool, es, ls *sortedItems, asked map[keyindex.Key]bool) error {
	e, err := es.next()
	if err != nil {
		return err
	}
	l, err := ls.next()
	if err != nil {
		return err
	}
	for e != nil || l != nil {
		k := keyindex.Key{Hi: math.MaxUint64, Lo: math.MaxUint64}
		if e != nil {
			k = keyindex.Key{Hi: e.hi, Lo: e.lo}
		}
		if l != nil && (keyindex.Key{Hi: l.hi, Lo: l.lo}).Less(k) {
			k = keyindex.Key{Hi: l.hi, Lo: l.lo}
		}
		var want, got int
		var wantHash [2]uint64
		var remembered uint64
		var has bool
		last := item{}
		for ; e != nil && e.hi == k.Hi && e.lo == k.Lo; e, err = es.next() {
			last = *e
			if !keyed {
				want++
				continue
			}
			if e.d&eventHasOrder != 0 {
				if has && e.b < remembered {
					continue // late (K2)
				}
				has, remembered = true, e.b
			}
			want, wantHash = 1, [2]uint64{e.c, e.d &^ 3}
			if e.d&eventDelete != 0 {
				want = 0
			}
		}
		if err != nil {
			return err
		}
		var first, row item
		other := false
		for ; l != nil && l.hi == k.Hi && l.lo == k.Lo; l, err = ls.next() {
			if got++; got == 1 {
				first = *l
			}
			row = *l
			other = other || keyed && [2]uint64{l.c, l.d} != wantHash
		}
		if err != nil {
			return err
		}
		at := func(i *item) string { return fmt.Sprintf("row %d of file %d", i.b, i.a) }
		switch {
		case asked[k]:
		case got > want && want > 0:
			v.find("source", t.Name, "a row is doubled: %s and %s; the source has it %d times, the table %d", at(&first), at(&row), want, got)
		case got > want:
			v.find("source", t.Name, "%s is live, and the source has no such row", at(&first))
		case got < want:
			v.find("source", t.Name, "a row is lost: its last event is at source offset %d (the source has it %d times, the table %d)", last.a>>8, want, got)
		case other && want > 0:
			v.find("source", t.Name, "%s has other values than the event at source offset %d that it comes from", at(&first), last.a>>8)
		}
	}
	return nil
}

// sourceEvents adds the events of a shard up to its source end. ok is false,
// with a reason told, where they cannot all be read.
func (v *verifier) sourceEvents(ctx context.Context, t *statestore.TableInfo, s *statestore.ShardInfo, to *sortedRuns) (ok bool, err error) {
	a, err := NewAdmin(v.src.client)
	if err != nil {
		return false, err
	}
	defer a.Close()
	info, err := a.Topic(ctx, s.Topic)
	if err != nil || info.ID != s.TopicID {
		v.skip("table %s: its source topic %s is gone or was made again; the source is not compared", t.Name, s.Topic)
		return false, nil
	}
	at, err := a.Offsets(ctx, s.Topic)
	if err != nil {
		return false, err
	}
	if int(s.Partition) >= len(at) || at[s.Partition].High < s.SourceEnd {
		v.find("source", t.Name, "source topic %s partition %d ends before offset %d, which the table has read", s.Topic, s.Partition, s.SourceEnd)
		return false, nil
	}
	if at[s.Partition].Start > 0 {
		v.skip("table %s: source topic %s partition %d begins at offset %d, older events are gone; the source is not compared", t.Name, s.Topic, s.Partition, at[s.Partition].Start)
		return false, nil
	}
	d := t.Definition
	schema := d.Schema()
	dec, err := source.New(source.Options{Format: d.Format, Options: d.FormatOptions, Def: d, Schema: schema})
	if err != nil {
		return false, err
	}
	var enc *rows.KeyEncoder
	if d.Keyed() {
		if enc, err = rows.NewKeyEncoder(schema, d.Key); err != nil {
			return false, err
		}
	}
	r, err := OpenLogReader(ctx, v.src.client, ReaderOptions{Topic: s.Topic, Partition: s.Partition, Committed: true})
	if err != nil {
		return false, err
	}
	defer r.Close()
	batch := rows.NewBatch(schema)
	h := rowHasher{}
	deployment := v.store.Head().Deployment
	var key []byte
	for r.Next() < s.SourceEnd {
		rs, err := r.Poll(ctx, time.Second, 4096)
		if err != nil {
			return false, err
		}
		for i := range rs {
			x := &rs[i]
			if x.Control || x.Offset >= s.SourceEnd {
				continue
			}
			batch.Reset()
			rec := source.Record{Topic: s.Topic, Partition: s.Partition, Offset: x.Offset, TimeMs: x.TimeMs, Key: x.Key, Value: x.Value, Headers: sourceHeaders(nil, x.Headers)}
			if _, err := dec.Decode(batch, &rec); err != nil {
				var reject *source.Reject
				if errors.As(err, &reject) {
					continue // a dead letter
				}
				v.skip("table %s: the event at source offset %d of partition %d wants another schema than the table has now; the source is not compared", t.Name, x.Offset, s.Partition)
				return false, nil
			}
			if len(batch.Carries) > 0 {
				v.skip("table %s: the event at source offset %d of partition %d leaves out unchanged values, which older rows have; the source is not compared", t.Name, x.Offset, s.Partition)
				return false, nil
			}
			for j := range batch.Len() {
				v.out.Events++
				y := item{a: uint64(x.Offset)<<8 | uint64(min(j, 255))}
				sum := h.row(batch.Cols, j)
				if enc == nil {
					y.hi, y.lo = sum[0], sum[1]
				} else {
					if key, err = enc.Append(key[:0], batch, j); err != nil {
						continue // a dead letter too
					}
					k := indexKeyOf(enc, deployment, key)
					y.hi, y.lo = k.Hi, k.Lo
				}
				y.c, y.d = sum[0], sum[1]
				if batch.Ops[j] == rows.Delete {
					y.d |= eventDelete
				}
				if batch.HasOrder[j] == 1 {
					y.b, y.d = uint64(batch.Order[j])^1<<63, y.d|eventHasOrder
				}
				if err := to.add(y); err != nil {
					return false, err
				}
			}
		}
		v.told(fmt.Sprintf("table %s: source %s/%d", t.Name, s.Topic, s.Partition), r.Next(), s.SourceEnd)
	}
	return true, nil
}

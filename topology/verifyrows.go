package topology

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/rows"
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
	base      int64 // the division of its topic that it began with, 0: none
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
		if len(parts) < 3 || len(parts) > 4 || !e.IsDir() {
			continue
		}
		base := int64(0)
		if len(parts) == 4 {
			if base, err = strconv.ParseInt(parts[3], 10, 64); err != nil {
				continue
			}
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
		v.indexes = append(v.indexes, &localIndex{name: e.Name(), table: table, topic: topic, partition: int32(p), base: base, index: index})
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
	var mines []*localIndex
	divided := int64(-1)
	for i := range t.Shards {
		s := &t.Shards[i]
		base := t.BaseOf(s.TopicID)
		if base > 0 {
			divided = base
		}
		var mine *localIndex
		for _, x := range v.indexes {
			if x.table == id && x.partition == s.Partition && x.topic == s.TopicID && x.base == base {
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
		mines = append(mines, mine)
	}
	files, entries := newSortedRuns(v.scratch), newSortedRuns(v.scratch)
	defer func() { err = errors.Join(err, files.close(), entries.close()) }()
	if err := v.liveRows(ctx, t, false, func(f *statestore.FileInfo, k keyindex.Key, row int64, _ [2]uint64) error {
		return files.add(item{hi: k.Hi, lo: k.Lo, a: f.ID, b: uint64(row)})
	}); err != nil {
		return err
	}
	for _, x := range mines {
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
	return v.joinIndex(t, divided, files, entries, func(id uint64) (*indexedFile, error) { return v.indexedFile(t, id) })
}

// indexedFile is what explains an entry that has no live row.
type indexedFile struct {
	rows   int64
	path   string
	dead   *roaring.Bitmap
	record int64 // of its append; -1: a job wrote it
	unread bool  // it is missing or damaged: its rows are not known
}

// indexedFile is a data file with live rows, nil: it is none (any more).
func (v *verifier) indexedFile(t *statestore.TableInfo, id uint64) (*indexedFile, error) {
	f, err := v.store.File(t.ID, id)
	if err != nil || f == nil || f.Gone {
		return nil, err
	}
	dead, err := dv.ReadBitmap(deadSet(f))
	if err != nil {
		return nil, fmt.Errorf("dead rows of %s: %w", dataPath(t, f), err)
	}
	x := &indexedFile{rows: f.Rows, path: dataPath(t, f), dead: dead, record: f.Record}
	if f.Name != ([16]byte{}) {
		x.record = -1
	}
	unread, err := v.names.get(scratchUnread, t.ID, unreadName(id))
	x.unread = unread != nil
	return x, err
}

func unreadName(file uint64) string { return strconv.FormatUint(file, 16) }

// joinIndex holds live rows against entries. The shards of a topic that was
// divided anew at an offset (-1: never) began with all keys (A11): several may
// have an entry of a row, and one that does not own the key does not learn that
// its row died, if that was written before.
func (v *verifier) joinIndex(t *statestore.TableInfo, divided int64, files, entries *sortedRuns, known func(id uint64) (*indexedFile, error)) error {
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
	path := func(i *item) string {
		if f, err := known(i.a); f != nil && err == nil {
			return f.path
		}
		return fmt.Sprintf("file %d", i.a)
	}
	for f != nil || x != nil {
		switch {
		case x == nil || f != nil && f.compare(x) < 0:
			v.find("index", t.Name, "row %d of %s is live, and its key has no entry of it in the key index", f.b, path(f))
		case f == nil || x.compare(f) < 0:
			file, err := known(x.a)
			if err != nil {
				return err
			}
			switch {
			case file == nil && divided >= 0, file != nil && file.unread:
			case file == nil:
				v.find("index", t.Name, "the key index names row %d of file %d, which is not there any more", x.b, x.a)
			case int64(x.b) >= file.rows:
				v.find("index", t.Name, "the key index names row %d of %s, which has %d", x.b, file.path, file.rows)
			case divided >= 0 && file.record <= divided && file.dead.Contains(uint32(x.b)):
			case file.dead.Contains(uint32(x.b)):
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
			if lastEntry != nil && lastEntry.hi == x.hi && lastEntry.lo == x.lo && divided < 0 {
				v.find("index", t.Name, "one key has two entries: row %d of %s and row %d of %s", lastEntry.b, path(lastEntry), x.b, path(x))
			}
			lastEntry = x
			for x != nil && x.compare(lastEntry) == 0 {
				if x, err = is.next(); err != nil {
					return err
				}
				if divided < 0 {
					break
				}
			}
		}
	}
	return nil
}

// liveRows calls fn with the key of every live row, and with hashed the hash of
// its values. A file that cannot be read is a finding.
func (v *verifier) liveRows(ctx context.Context, t *statestore.TableInfo, hashed bool,
	fn func(f *statestore.FileInfo, k keyindex.Key, row int64, h [2]uint64) error,
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
		dead, err := dv.ReadBitmap(deadSet(f))
		if err != nil {
			return fmt.Errorf("dead rows of %s: %w", path, err)
		}
		unread := func(format string, args ...any) error {
			fresh, err := v.names.put(scratchUnread, t.ID, unreadName(f.ID), nil)
			if fresh { // told once, whoever looks
				v.unread[t.ID]++
				v.find("object", t.Name, format, args...)
			}
			return err
		}
		key, ok := v.o.Store.Key(path)
		if !ok {
			v.skip("table %s: %s lies outside of the warehouse", t.Name, path)
			return nil
		}
		obj, err := v.o.Store.Open(ctx, key)
		if errors.Is(err, objstore.ErrNotFound) {
			return unread("data file %s is missing", path)
		}
		if err != nil {
			return err
		}
		defer obj.Close()
		file, err := rows.Open(obj, obj.Size())
		if err != nil {
			return unread("data file %s cannot be read: %v", path, err)
		}
		row := int64(0)
		var scratch []byte
		for g := range file.NumRowGroups() {
			cols, err := file.ReadGroup(g, want)
			if err != nil {
				return unread("data file %s cannot be read: %v", path, err)
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

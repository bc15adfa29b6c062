package publisher_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/puffin"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/hadoopcat"
)

func (w *world) read(path string) []byte {
	w.t.Helper()
	key, ok := w.store.Key(path)
	if !ok {
		w.t.Fatalf("%s is not in the store", path)
	}
	b, err := w.store.ReadAll(ctx, key, 1<<30)
	if err != nil {
		w.t.Fatal(err)
	}
	return b
}

const tableKey = "shop/orders"

// metadata is the newest version.
func (w *world) metadata() (*iceberg.Metadata, []byte, int) {
	w.t.Helper()
	c := hadoopcat.New(w.store)
	tableKey, _ := w.store.Key(w.def.Location)
	n, _, ok, err := c.Current(ctx, tableKey)
	if err != nil || !ok {
		w.t.Fatalf("no version: %v", err)
	}
	text, err := c.Load(ctx, tableKey, n)
	if err != nil {
		w.t.Fatal(err)
	}
	m, err := iceberg.ParseMetadata(text)
	if err != nil {
		w.t.Fatal(err)
	}
	return m, text, n
}

// listed is what one snapshot lists.
type listed struct {
	lines   []iceberg.ManifestFile
	entries map[string][]iceberg.Entry // of each line
	data    map[string]iceberg.Entry   // live data files by path
	vectors map[string]iceberg.Entry   // live vectors by data file
}

func (w *world) list(s *iceberg.Snapshot) *listed {
	w.t.Helper()
	lines, err := iceberg.ReadManifestList(w.read(s.ManifestList))
	if err != nil {
		w.t.Fatal(err)
	}
	l := &listed{lines: lines, entries: map[string][]iceberg.Entry{}, data: map[string]iceberg.Entry{}, vectors: map[string]iceberg.Entry{}}
	for i := range lines {
		line := &lines[i]
		m := w.manifest(line)
		l.entries[line.Path] = m.Entries
		live := 0
		for _, e := range m.Entries {
			if e.Status == iceberg.Deleted {
				if line.AddedSnapshotID != *e.SnapshotID {
					w.t.Fatalf("M2: %s: a deletion of another snapshot", line.Path)
				}
				continue
			}
			live++
			at := l.data
			key := e.File.Path
			if line.Content != iceberg.Data {
				at, key = l.vectors, *e.File.ReferencedDataFile
			}
			if _, twice := at[key]; twice {
				w.t.Fatalf("%s is listed twice for %s (V5, M2)", e.File.Path, key)
			}
			at[key] = e
		}
		if live == 0 && line.AddedSnapshotID != s.ID {
			w.t.Fatalf("M2: %s without live entries is listed again", line.Path)
		}
	}
	return l
}

// manifest reads a manifest once.
func (w *world) manifest(line *iceberg.ManifestFile) *iceberg.Manifest {
	w.t.Helper()
	if m := w.manifests[line.Path]; m != nil {
		return m
	}
	text := w.read(line.Path)
	if int64(len(text)) != line.Length {
		w.t.Fatalf("%s has %d bytes, the list says %d", line.Path, len(text), line.Length)
	}
	m, err := iceberg.ReadManifest(text)
	if err != nil {
		w.t.Fatal(err)
	}
	if line.Content == iceberg.Data && line.FirstRowID == nil {
		w.t.Fatalf("M4: %s has no first row id", line.Path)
	}
	if err := m.Inherit(line); err != nil {
		w.t.Fatal(err)
	}
	w.manifests[line.Path] = m
	return m
}

func (w *world) path(id uint64) string {
	return fmt.Sprintf("%s/data/%d-%d-%d.parquet", w.def.Location, w.id, w.epochs[uint32(id>>40)], id&(1<<40-1))
}

// check holds every snapshot of the newest metadata against the model.
func (w *world) check() {
	w.t.Helper()
	m, _, version := w.metadata()
	last := &w.done[len(w.done)-1].Committed
	if int64(version) != last.MetadataVersion {
		w.t.Fatalf("version %d, the record says %d", version, last.MetadataVersion)
	}
	if got := m.Property("gc.enabled"); got != "false" {
		w.t.Fatalf("S7: gc.enabled is %q", got)
	}
	for i := range m.Snapshots {
		w.checkSnapshot(&m.Snapshots[i])
	}
}

func (w *world) checkSnapshot(s *iceberg.Snapshot) {
	w.t.Helper()
	want, ok := w.states[s.ID]
	if !ok {
		w.t.Fatalf("snapshot %d is none of ours", s.ID)
	}
	l := w.list(s)
	if len(l.data) != len(want) {
		w.t.Fatalf("snapshot %d lists %d data files, want %d", s.ID, len(l.data), len(want))
	}
	var rows, size, vectors, dead int64
	for id, f := range want {
		path := w.path(id)
		e, ok := l.data[path]
		d := e.File
		if !ok || d.Records != f.rows || d.Bytes != f.bytes || d.SpecID != f.spec || !bytes.Equal(d.Partition, f.partition) || d.FirstRowID == nil {
			w.t.Fatalf("snapshot %d: data file %s: %+v, want %+v", s.ID, path, d, f)
		}
		if len(d.Lower) != 1 || len(d.ValueCounts) != 2 || d.NaNCounts != nil || !slices.Equal(d.SplitOffsets, []int64{4}) {
			w.t.Fatalf("metrics of %s: %+v", path, d)
		}
		if first, known := w.rowIDs[id]; known && first != *d.FirstRowID {
			w.t.Fatalf("C6: the first row id of %s was %d, is %d", path, first, *d.FirstRowID)
		}
		w.rowIDs[id] = *d.FirstRowID
		rows += f.rows
		size += f.bytes
		v, ok := l.vectors[path]
		if ok != !f.dead.IsEmpty() {
			w.t.Fatalf("snapshot %d: %s has a vector: %v, want %v", s.ID, path, ok, !ok)
		}
		if !ok {
			continue
		}
		vectors++
		dead += int64(f.dead.GetCardinality())
		size += *v.File.ContentSize
		w.checkVector(&v, &e, &f)
	}
	if len(l.vectors) != int(vectors) {
		w.t.Fatalf("snapshot %d lists %d vectors, want %d", s.ID, len(l.vectors), vectors)
	}
	w.checkRowIDs(want)
	summary := map[string]string{}
	for _, p := range s.Summary {
		summary[p.Key] = p.Value
	}
	for key, n := range map[string]int64{
		"total-data-files": int64(len(want)), "total-records": rows, "total-files-size": size, "total-delete-files": vectors,
		"total-position-deletes": dead, "total-equality-deletes": 0,
	} {
		if summary[key] != strconv.FormatInt(n, 10) {
			w.t.Fatalf("snapshot %d: %s is %s, want %d (%v)", s.ID, key, summary[key], n, summary)
		}
	}
	if summary["varve.deployment"] != "ab020300000000000000000000000000" || len(summary["varve.chain-hash"]) != 64 || !strings.HasPrefix(summary["varve.ranges"], "orders:3=") {
		w.t.Fatalf("summary: %v", summary)
	}
}

// checkVector: V4, V5, and the bits.
func (w *world) checkVector(v, data *iceberg.Entry, f *modelFile) {
	w.t.Helper()
	d := &v.File
	if *v.Sequence < *data.Sequence || d.SpecID != data.File.SpecID || !bytes.Equal(d.Partition, data.File.Partition) || d.Format != "PUFFIN" {
		w.t.Fatalf("vector of %s: %+v", data.File.Path, v)
	}
	got := w.blob(d, data.File.Path)
	if !got.Equals(f.dead) || int64(f.dead.GetCardinality()) != d.Records {
		w.t.Fatalf("vector of %s is %v, want %v", data.File.Path, got, f.dead)
	}
}

// blob reads a vector once.
func (w *world) blob(d *iceberg.DataFile, of string) *roaring.Bitmap {
	w.t.Helper()
	key := fmt.Sprint(d.Path, " ", *d.ContentOffset, " ", *d.ContentSize, " ", of)
	if b := w.blobs[key]; b != nil {
		return b
	}
	text := w.read(d.Path)
	if int64(len(text)) != d.Bytes {
		w.t.Fatalf("%s has %d bytes, the manifest says %d", d.Path, len(text), d.Bytes)
	}
	r, err := puffin.Open(bytes.NewReader(text), int64(len(text)))
	if err != nil {
		w.t.Fatal(err)
	}
	for i, b := range r.Metadata().Blobs {
		if b.Offset != *d.ContentOffset {
			continue
		}
		set, err := r.ReadVector(i)
		if err != nil {
			w.t.Fatal(err)
		}
		got, ok := set.Bitmap32()
		if path, _ := b.Properties.Get("referenced-data-file"); !ok || path != of || b.Length != *d.ContentSize {
			w.t.Fatalf("blob %+v of %s", b, d.Path)
		}
		w.blobs[key] = got
		return got
	}
	w.t.Fatalf("%s has no blob at %d", d.Path, *d.ContentOffset)
	return nil
}

// checkRowIDs: no two files share a row id.
func (w *world) checkRowIDs(files map[uint64]modelFile) {
	w.t.Helper()
	ids := slices.SortedFunc(maps.Keys(files), func(a, b uint64) int { return int(w.rowIDs[a] - w.rowIDs[b]) })
	for i := 1; i < len(ids); i++ {
		if w.rowIDs[ids[i-1]]+files[ids[i-1]].rows > w.rowIDs[ids[i]] {
			w.t.Fatalf("files %d and %d share row ids", ids[i-1], ids[i])
		}
	}
}

// checkNumbers: the state's live manifests are those that the base lists.
func (w *world) checkNumbers(f *statestore.FrozenCut) {
	w.t.Helper()
	for i := len(w.done) - 1; i >= 0; i-- {
		list := w.done[i].Committed.ManifestList
		if list == "" {
			continue
		}
		lines, err := iceberg.ReadManifestList(w.read(list))
		if err != nil {
			w.t.Fatal(err)
		}
		paths := map[string]bool{}
		for _, l := range lines {
			paths[l.Path] = true
		}
		for n, path := range f.Manifests {
			if !paths[path] {
				w.t.Fatalf("the state holds manifest %d for live, which the base does not list: %s", n, path)
			}
		}
		if len(paths) != len(f.Manifests) {
			w.t.Fatalf("the base lists %d manifests, the state has numbers for %d", len(paths), len(f.Manifests))
		}
		return
	}
}

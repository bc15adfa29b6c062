package main

import (
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/iceberg"
)

// listedLake is the newest snapshot of a table of a lake in a folder, open to be
// written anew in place: the metadata that names it stays as it is.
type listedLake struct {
	t     *testing.T
	list  string // the manifest list's file
	id    int64
	lines []iceberg.ManifestFile
}

func fileOf(t *testing.T, location string) string {
	t.Helper()
	u, err := url.Parse(location)
	if err != nil || u.Scheme != "file" {
		t.Fatalf("%s: %v", location, err)
	}
	return filepath.FromSlash(u.Path)
}

func openListed(t *testing.T, lake string) *listedLake {
	t.Helper()
	var m struct {
		Current   int64 `json:"current-snapshot-id"`
		Snapshots []struct {
			ID   int64  `json:"snapshot-id"`
			List string `json:"manifest-list"`
		} `json:"snapshots"`
	}
	b, err := os.ReadFile(newestMetadata(t, lake))
	if err == nil {
		err = json.Unmarshal(b, &m)
	}
	if err != nil {
		t.Fatal(err)
	}
	l := &listedLake{t: t, id: m.Current}
	for _, s := range m.Snapshots {
		if s.ID == m.Current {
			l.list = fileOf(t, s.List)
		}
	}
	if b, err = os.ReadFile(l.list); err == nil {
		l.lines, err = iceberg.ReadManifestList(b)
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// rewrite gives each manifest of the snapshot the entries that alter makes of
// its own, and the list its new length.
func (l *listedLake) rewrite(alter func(content iceberg.Content, entries []iceberg.Entry) []iceberg.Entry) {
	l.t.Helper()
	for i := range l.lines {
		line := &l.lines[i]
		path := fileOf(l.t, line.Path)
		b, err := os.ReadFile(path)
		if err != nil {
			l.t.Fatal(err)
		}
		m, err := iceberg.ReadManifest(b)
		if err == nil {
			err = m.Inherit(line)
		}
		if err != nil {
			l.t.Fatal(err)
		}
		for k := range m.Entries {
			if e := &m.Entries[k]; e.Status == iceberg.Added { // what it inherited stands in it now
				e.Status = iceberg.Existing
			}
		}
		b, stats, err := iceberg.WriteManifest(iceberg.ManifestOptions{
			SchemaJSON: m.SchemaJSON, Spec: &schemas.Spec{ID: line.SpecID}, Content: line.Content, SnapshotID: line.AddedSnapshotID, Sequence: line.Sequence,
		}, alter(line.Content, m.Entries))
		if err == nil {
			err = os.WriteFile(path, b, 0o644)
		}
		if err != nil {
			l.t.Fatal(err)
		}
		stats.File.Path, stats.File.FirstRowID = line.Path, line.FirstRowID
		*line = stats.File
	}
	l.lines = slices.DeleteFunc(l.lines, func(f iceberg.ManifestFile) bool { return f.Live() == 0 })
	b, err := iceberg.WriteManifestList(iceberg.ListOptions{SnapshotID: l.id, Sequence: 9}, l.lines)
	if err == nil {
		err = os.WriteFile(l.list, b, 0o644)
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

// eachData alters the first live data entry of a snapshot.
func eachData(fn func(e *iceberg.Entry) []iceberg.Entry) func(iceberg.Content, []iceberg.Entry) []iceberg.Entry {
	done := false
	return func(c iceberg.Content, in []iceberg.Entry) (out []iceberg.Entry) {
		for i := range in {
			if c == iceberg.Data && !done && in[i].Status != iceberg.Deleted {
				done = true
				out = append(out, fn(&in[i])...)
				continue
			}
			out = append(out, in[i])
		}
		return out
	}
}

// TestVerifyPlanted: verify names each kind of damage that leaves every object
// readable: manifests that say other things than the state, vectors of other
// rows, and states that another log made.
func TestVerifyPlanted(t *testing.T) {
	data := threeLoads(t)
	lake := filepath.Join(data, "lake")
	state := filepath.Join(data, "state", "0")
	one := func(e *iceberg.Entry) []iceberg.Entry { return []iceberg.Entry{*e} }
	catalog := func(fn func(e *iceberg.Entry) []iceberg.Entry) func(*testing.T) {
		return func(t *testing.T) { openListed(t, lake).rewrite(eachData(fn)) }
	}
	vector := func(alter func(rows *roaring.Bitmap)) func(*testing.T) {
		return func(t *testing.T) { rewriteVector(t, lake, alter) }
	}
	for _, c := range []struct {
		name  string
		plant func(t *testing.T)
		args  []string
		words []string
	}{
		{"a file is listed no more", catalog(func(*iceberg.Entry) []iceberg.Entry { return nil }), nil, []string{"catalog", "but no manifest lists it"}},
		{"a file is listed twice", catalog(func(e *iceberg.Entry) []iceberg.Entry { return []iceberg.Entry{*e, *e} }), nil, []string{"catalog", "twice"}},
		{"a file that nobody knows", catalog(func(e *iceberg.Entry) []iceberg.Entry {
			x := *e
			x.File.Path = strings.TrimSuffix(x.File.Path, ".parquet") + "0.parquet"
			return []iceberg.Entry{*e, x}
		}), nil, []string{"catalog", "the state does not know it"}},
		{"rows", catalog(func(e *iceberg.Entry) []iceberg.Entry { e.File.Records++; return one(e) }), nil, []string{"catalog", "its manifest says", "rows and"}},
		{"bytes", catalog(func(e *iceberg.Entry) []iceberg.Entry { e.File.Bytes++; return one(e) }), nil, []string{"catalog", "its manifest says", "bytes, the state"}},
		{"the first row id", catalog(func(e *iceberg.Entry) []iceberg.Entry {
			id := *e.File.FirstRowID + 100
			e.File.FirstRowID = &id
			return one(e)
		}), nil, []string{"catalog", "first row id"}},
		{"the sequence number", func(t *testing.T) {
			openListed(t, lake).rewrite(func(c iceberg.Content, in []iceberg.Entry) []iceberg.Entry {
				for i := range in {
					if c == iceberg.Data && *in[i].Sequence > 1 {
						*in[i].Sequence--
					}
				}
				return in
			})
		}, nil, []string{"catalog", "sequence number"}},
		{"a vector is listed no more", func(t *testing.T) {
			openListed(t, lake).rewrite(func(c iceberg.Content, in []iceberg.Entry) []iceberg.Entry {
				if c == iceberg.Data {
					return in
				}
				return nil
			})
		}, nil, []string{"vector", "only the state has a vector of it"}},
		{"a vector of other length", func(t *testing.T) {
			openListed(t, lake).rewrite(func(c iceberg.Content, in []iceberg.Entry) []iceberg.Entry {
				for i := range in {
					if c != iceberg.Data {
						in[i].File.Records++
					}
				}
				return in
			})
		}, nil, []string{"vector", "another one than the state's"}},
		{"a vector names a live row", vector(func(rows *roaring.Bitmap) {
			top := rows.Maximum() // as many rows, one of them another
			rows.Remove(top)
			for row := uint32(0); ; row++ {
				if row != top && rows.CheckedAdd(row) {
					return
				}
			}
		}), []string{"--deep"}, []string{"vector", "which is live"}},
		{"a vector names a row beyond the file", vector(func(rows *roaring.Bitmap) {
			rows.Remove(rows.Maximum())
			rows.Add(100)
		}), []string{"--deep"}, []string{"vector", "names row 100 of"}},
		{"the state has other files", func(t *testing.T) {
			key, old := alterState(t, state, 'f', func(v []byte) []byte { v[len(v)-1] ^= 1; return v })
			t.Cleanup(func() { putState(t, state, key, old) })
		}, nil, []string{"state", `of kind "files"`}},
		{"the state lacks a vector", func(t *testing.T) {
			key, old := alterState(t, state, 'v', nil)
			t.Cleanup(func() { putState(t, state, key, old) })
		}, nil, []string{"state", `of kind "published vector"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			was := map[string][]byte{}
			for _, suffix := range []string{".avro", ".puffin"} {
				for _, p := range filesUnder(t, lake, suffix) {
					b, err := os.ReadFile(p)
					if err != nil {
						t.Fatal(err)
					}
					was[p] = b
				}
			}
			t.Cleanup(func() {
				for p, b := range was {
					if err := os.WriteFile(p, b, 0o644); err != nil {
						t.Error(err)
					}
				}
			})
			c.plant(t)
			code, out, errs := varve(t, append([]string{"verify", "--data", data}, c.args...)...)
			if code != exitDiffers {
				t.Errorf("exit code %d", code)
			}
			for _, w := range c.words {
				if !strings.Contains(out+errs, w) {
					t.Errorf("no %q in %s%s", w, out, errs)
				}
			}
		})
	}
	if code, _, errs := varve(t, "verify", "--data", data, "--deep", "--source"); code != exitDone {
		t.Errorf("all is mended: exit code %d: %s", code, errs)
	}
}

// rewriteVector gives the first vector that the newest snapshot lists other rows,
// under the checksums and the length of before.
func rewriteVector(t *testing.T, lake string, alter func(rows *roaring.Bitmap)) {
	t.Helper()
	var done bool
	openListed(t, lake).rewrite(func(c iceberg.Content, in []iceberg.Entry) []iceberg.Entry {
		for i := range in {
			f := &in[i].File
			if c == iceberg.Data || done || in[i].Status == iceberg.Deleted {
				continue
			}
			done = true
			path := fileOf(t, f.Path)
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			blob := b[*f.ContentOffset : *f.ContentOffset+*f.ContentSize]
			v, err := dv.Decode(blob)
			if err != nil {
				t.Fatal(err)
			}
			rows, ok := v.Bitmap32()
			if !ok {
				t.Fatal("the vector has positions beyond 32 bits")
			}
			alter(rows)
			fresh, err := dv.AppendBlob(nil, rows)
			if err != nil {
				t.Fatal(err)
			}
			if len(fresh) != len(blob) {
				t.Fatalf("the vector has %d bytes, not %d", len(fresh), len(blob))
			}
			copy(blob, fresh)
			if err := os.WriteFile(path, b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return in
	})
	if !done {
		t.Fatal("the snapshot lists no vector")
	}
}

package statestore_test

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

// listing is what a snapshot of a script lists, with paths for numbers.
type listing struct {
	list    string
	build   int64
	files   map[uint64]listedFile
	vectors map[uint64]listedVector
}

type listedFile struct {
	record.KeptFile
	manifest string
}

type listedVector struct {
	record.KeptVector
	manifest, puffin string
}

// note keeps what the snapshot of a commit lists.
func (s *script) note(f *statestore.FrozenCut, c *record.SnapshotCommitted) {
	if c.SnapshotID == 0 {
		return
	}
	if s.listings == nil {
		s.listings = map[int64]*listing{}
	}
	l := &listing{list: c.ManifestList, build: c.Build, files: map[uint64]listedFile{}, vectors: map[uint64]listedVector{}}
	if old := s.listings[c.Parent]; old != nil {
		l.files, l.vectors = maps.Clone(old.files), maps.Clone(old.vectors)
	}
	moved := map[string]string{}
	for i := range c.Manifests {
		for _, n := range c.Manifests[i].Replaces {
			moved[f.Manifests[n]] = c.Manifests[i].Path
		}
	}
	for id, x := range l.files {
		if to, ok := moved[x.manifest]; ok {
			x.manifest = to
			l.files[id] = x
		}
	}
	for id, x := range l.vectors {
		if to, ok := moved[x.manifest]; ok {
			x.manifest = to
			l.vectors[id] = x
		}
	}
	frozen := map[uint64]*statestore.FrozenFile{}
	for i := range f.Files {
		x := &f.Files[i]
		frozen[x.ID] = x
		if x.Removed {
			delete(l.files, x.ID)
		}
		if x.Vector != nil {
			delete(l.vectors, x.ID)
		}
	}
	for _, y := range c.Files {
		x := frozen[y.File]
		if x == nil || int(y.Manifest) >= len(c.Manifests) || y.Manifest < 0 {
			return // a bent record, which is rejected
		}
		k := record.KeptFile{File: x.ID, Rows: x.Rows, FirstRowID: y.FirstRowID, Record: x.Record, Epoch: x.Epoch}
		if x.Name != [16]byte{} {
			k.Name = x.Name[:]
		}
		l.files[x.ID] = listedFile{k, c.Manifests[y.Manifest].Path}
	}
	for _, y := range c.Vectors {
		x := frozen[y.File]
		if x == nil || y.Manifest < 0 || int(y.Manifest) >= len(c.Manifests) || int(y.Puffin) >= len(c.Puffins) {
			return
		}
		l.vectors[y.File] = listedVector{record.KeptVector{
			File: y.File, Offset: y.Offset, Length: y.Length, Cardinality: y.Cardinality, Sequence: c.Sequence, Dead: x.Dead,
		}, c.Manifests[y.Manifest].Path, c.Puffins[y.Puffin].Path}
	}
	s.listings[c.SnapshotID] = l
}

// rollbackFrom is what a node sends that has read the snapshot, bent by arguments.
func (s *script) rollbackFrom(t *testing.T, a *args) *record.Rollback {
	x := &record.Rollback{Snapshot: a.num("snapshot", 0), Cause: "script"}
	l := s.listings[x.Snapshot]
	if l == nil {
		return x
	}
	x.ManifestList, x.Build = l.list, l.build
	number := func(path string, content uint8) int32 {
		at := slices.IndexFunc(x.Manifests, func(m record.ManifestInfo) bool { return m.Path == path })
		if at < 0 {
			at = len(x.Manifests)
			x.Manifests = append(x.Manifests, record.ManifestInfo{Path: path, Bytes: 10, Content: content})
		}
		return int32(at)
	}
	for _, id := range slices.Sorted(maps.Keys(l.files)) {
		f := l.files[id]
		f.Manifest = number(f.manifest, 0)
		x.Files = append(x.Files, f.KeptFile)
	}
	for _, id := range slices.Sorted(maps.Keys(l.vectors)) {
		v := l.vectors[id]
		v.Manifest = number(v.manifest, 1)
		at := slices.IndexFunc(x.Puffins, func(p record.PuffinInfo) bool { return p.Path == v.puffin })
		if at < 0 {
			at = len(x.Puffins)
			x.Puffins = append(x.Puffins, record.PuffinInfo{Path: v.puffin, Bytes: 10})
		}
		v.Puffin = int32(at)
		x.Vectors = append(x.Vectors, v.KeptVector)
	}
	for _, line := range a.lines {
		f := strings.Fields(line)
		switch f[0] {
		case "list":
			x.ManifestList = f[1]
		case "build":
			x.Build++
		case "no-file":
			x.Files = x.Files[1:]
		case "rows":
			x.Files[0].Rows++
		case "epoch":
			x.Files[0].Epoch++
		case "order":
			slices.SortFunc(x.Files, func(a, b record.KeptFile) int { return -cmp.Compare(a.File, b.File) })
		case "manifest":
			x.Files[0].Manifest = 99
		case "no-vector":
			x.Vectors = nil
		case "dead":
			x.Vectors[0].Dead = positions(0, 1, 2, 3, 4)
		default:
			t.Fatalf("rollback: %s", line)
		}
	}
	return x
}

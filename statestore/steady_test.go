package statestore_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

// lakeModel is what a publisher knows of a table's manifests: which of them
// lists a file, and which its vector.
type lakeModel struct {
	data, vectors map[uint64]string // by file
	used          map[string]int
	deletes       map[string]bool // manifests of vectors
	fresh         int
}

func (m *lakeModel) place(in map[uint64]string, file uint64, path string) {
	if old := in[file]; old != "" {
		m.used[old]--
	}
	delete(in, file)
	if path != "" {
		in[file] = path
		m.used[path]++
	}
}

func (m *lakeModel) name(deletes bool) string {
	m.fresh++
	path := fmt.Sprintf("m%d", m.fresh)
	m.deletes[path] = deletes
	m.used[path] = 0
	return path
}

// commit is what a publisher sends for a cut: it adds files and vectors,
// rewrites each manifest that loses an entry, merges some others at random,
// and lets go those without entries.
func (m *lakeModel) commit(t *testing.T, r *rand.Rand, fr *statestore.FrozenCut, round, timeMs int64) *record.SnapshotCommitted {
	t.Helper()
	numbers := map[string]int64{}
	for n, path := range fr.Manifests {
		numbers[path] = n
	}
	if len(numbers) != len(fr.Manifests) {
		t.Fatalf("round %d: a path has two numbers: %v", round, fr.Manifests)
	}
	gone := map[string]bool{}
	for path, n := range m.used {
		if numbers[path] == 0 {
			t.Fatalf("round %d: the state has no number for the manifest %s", round, path)
		}
		if n == 0 {
			gone[path] = true
		}
	}
	if len(numbers) != len(m.used) {
		t.Fatalf("round %d: the state has %d live manifests, the table %d", round, len(numbers), len(m.used))
	}
	c := &record.SnapshotCommitted{
		Cut: fr.Cut, Build: fr.Build, Parent: fr.Head.SnapshotID, SnapshotID: round, Sequence: round, FirstRowID: fr.Head.NextRowID,
		TimestampMs: timeMs, MetadataVersion: round + 1, MetadataPath: "v", Puffins: []record.PuffinInfo{{Path: "p"}},
	}
	added := map[bool]string{}
	at := func(deletes bool) int32 {
		if added[deletes] == "" {
			added[deletes] = m.name(deletes)
			content := uint8(0)
			if deletes {
				content = 1
			}
			c.Manifests = append(c.Manifests, record.ManifestInfo{Path: added[deletes], Content: content})
		}
		return int32(slices.IndexFunc(c.Manifests, func(i record.ManifestInfo) bool { return i.Path == added[deletes] }))
	}
	rewrite := map[string]bool{}
	for i := range fr.Files {
		x := &fr.Files[i]
		if x.Manifest != 0 && fr.Manifests[x.Manifest] != m.data[x.ID] {
			t.Fatalf("round %d: file %d is in %s, not %s", round, x.ID, m.data[x.ID], fr.Manifests[x.Manifest])
		}
		if x.Vector != nil {
			if fr.Manifests[x.Vector.Manifest] != m.vectors[x.ID] {
				t.Fatalf("round %d: the vector of file %d is in %s, not %s", round, x.ID, m.vectors[x.ID], fr.Manifests[x.Vector.Manifest])
			}
			rewrite[m.vectors[x.ID]] = true
			m.place(m.vectors, x.ID, "")
		}
		if x.Added {
			c.Files = append(c.Files, record.FileRowID{File: x.ID, FirstRowID: c.FirstRowID + c.AddedRows, Manifest: at(false)})
			c.AddedRows += x.Rows
			m.place(m.data, x.ID, added[false])
		}
		if x.Removed {
			rewrite[m.data[x.ID]] = true
			m.place(m.data, x.ID, "")
		}
		if x.Dead != nil {
			c.Vectors = append(c.Vectors, record.VectorInfo{File: x.ID, Cardinality: x.DeadCount, Manifest: at(true)})
			m.place(m.vectors, x.ID, added[true])
		}
	}
	var old [2][]string
	for _, path := range slices.Sorted(maps.Keys(numbers)) {
		if !gone[path] && (rewrite[path] || r.IntN(3) == 0) {
			kind := 0
			if m.deletes[path] {
				kind = 1
			}
			old[kind] = append(old[kind], path)
		}
	}
	for kind, paths := range old {
		for len(paths) > 0 {
			k := 1 + r.IntN(len(paths))
			info := record.ManifestInfo{Path: m.name(kind == 1), Content: uint8(kind)}
			for _, path := range paths[:k] {
				info.Replaces = append(info.Replaces, numbers[path])
				for _, in := range []map[uint64]string{m.data, m.vectors} {
					for file, p := range in {
						if p == path {
							m.place(in, file, info.Path)
						}
					}
				}
				delete(m.used, path)
			}
			slices.Sort(info.Replaces)
			c.Manifests = append(c.Manifests, info)
			paths = paths[k:]
		}
	}
	for path := range gone {
		c.Manifests[0].Replaces = append(c.Manifests[0].Replaces, numbers[path])
		delete(m.used, path)
	}
	slices.Sort(c.Manifests[0].Replaces)
	return c
}

// collectAll moves the shard's index horizon and collects what can be.
func collectAll(t *testing.T, l *logBuilder, id int64, shard record.ShardKey, epoch int64) {
	t.Helper()
	l.do("t", id, &record.ShardIndex{Shard: shard, Epoch: epoch, Offset: l.next - 1, File: *ref(7)})
	items, next, err := l.st.Collectable(id, nil, statestore.MaxCollect)
	if err != nil || next != nil {
		t.Fatal(next, err)
	}
	if len(items) == 0 {
		return
	}
	at := l.next
	if out := l.do("t", id, &record.CollectFiles{Items: items}); out.Outcome.Code != record.Accepted {
		t.Fatalf("collect: %+v", out.Outcome)
	}
	if out := l.do("t", id, &record.FilesCollected{Collect: at}); out.Outcome.Code != record.Accepted {
		t.Fatalf("collected: %+v", out.Outcome)
	}
}

// TestSteadyTableKeepsFewKeys: a table whose rows are wholly replaced again and
// again has as many keys after thousands of commits as after some hundred, file
// chunks apart (one for 128 files); and each file and vector is found in its
// manifest all the while (G4).
func TestSteadyTableKeepsFewKeys(t *testing.T) {
	commits := int64(4000)
	if testing.Short() {
		commits = 1000
	}
	r := rand.New(rand.NewPCG(1, 2))
	st, err := statestore.Open(t.TempDir(), statestore.Options{WriteBack: 32 << 10})
	if err != nil {
		t.Fatal(err)
	}
	l := &logBuilder{t: t, st: st, timeMs: 1_700_000_000_000}
	defer func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}()
	l.genesis()
	def := definition("t")
	def.Specs = []schemas.Spec{{Fields: []schemas.PartitionField{{SourceID: 2, FieldID: 1000, Name: "name", Transform: schemas.Identity}}}}
	def.LastPartitionID = 1000
	id := l.do("t", -1, &record.CreateTable{Definition: def}).TableID
	claim := l.do("t", id, &record.ClaimShard{Shard: shardKey(0), LogStart: 0}).Outcome.Numbers
	writer := uint32(claim[record.ClaimWriter])
	l.do("t", id, &record.Cut{})
	fr, err := st.Frozen(id)
	if err != nil {
		t.Fatal(err)
	}
	l.do("t", id, &record.SnapshotCommitted{Cut: fr.Cut, Build: fr.Build, TimestampMs: l.timeMs, MetadataVersion: 1, MetadataPath: "v1"})

	m := &lakeModel{data: map[uint64]string{}, vectors: map[uint64]string{}, used: map[string]int{}, deletes: map[string]bool{}}
	tuple := schemas.EncodeTuple([][]byte{[]byte("north")})
	const rows, alive = 8, 24 // a file loses a row at a time; few live long
	left := map[uint64][]uint32{}
	var keys []map[byte]int
	for round := int64(1); round <= commits; round++ {
		a := record.AppendRows{
			Shard: shardKey(0), Epoch: 2, Counter: round, SourceFrom: round - 1, SourceTo: round, RequestFrom: 2, RequestTo: 2,
			Files: []record.DataFile{{ID: statestore.FileID(writer, uint64(round)), Rows: rows, Bytes: 100, Partition: tuple}}, Changes: ref(1),
		}
		for _, file := range slices.Sorted(maps.Keys(left)) {
			dead := left[file]
			if len(left) < alive && r.IntN(4) != 0 {
				continue
			}
			k := 1 + r.IntN(len(dead))
			a.Deletes = append(a.Deletes, record.DeleteBlock{File: file, Bitmap: positions(dead[:k]...)})
			if left[file] = dead[k:]; len(left[file]) == 0 {
				delete(left, file)
			}
		}
		left[a.Files[0].ID] = []uint32{0, 1, 2, 3, 4, 5, 6, 7}
		if out := l.do("t", id, &a); out.Outcome.Code != record.Accepted {
			t.Fatalf("append: %+v", out.Outcome)
		}
		l.timeMs += 1000
		l.do("t", id, &record.Cut{})
		if fr, err = st.Frozen(id); err != nil {
			t.Fatal(err)
		}
		if out := l.do("t", id, m.commit(t, r, fr, round, l.timeMs)); out.Outcome.Code != record.Accepted {
			t.Fatalf("round %d: %+v", round, out.Outcome)
		}
		if round%50 == 0 {
			collectAll(t, l, id, shardKey(0), 2)
		}
		st.Sent(l.next - 1)
		l.commit()
		if round%250 == 0 {
			counts := map[byte]int{}
			if err := st.Dump(func(key, _ []byte) error {
				counts[key[0]]++
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			keys = append(keys, counts)
		}
	}
	for _, space := range slices.Sorted(maps.Keys(keys[0])) {
		first, most := keys[0][space], 0
		for _, k := range keys {
			most = max(most, k[space])
		}
		limit := 2*first + 100
		switch space {
		case 'f':
			limit = int(commits/128) + 2
		case 'r', 'a': // request ids of a day (L9)
			continue
		}
		t.Logf("%c: %d keys after 250 commits, at most %d after %d", space, first, most, commits)
		if most > limit {
			t.Errorf("%c: %d keys after 250 commits, %d after more", space, first, most)
		}
	}
}

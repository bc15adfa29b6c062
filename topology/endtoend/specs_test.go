package endtoend

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/restcat"
	"github.com/varve-io/varve/topology"
)

func term(column string, t schemas.TransformKind, n int32, name string) record.PartitionTerm {
	return record.PartitionTerm{Column: column, Transform: t, N: n, Name: name}
}

// partitionings are ways to partition orders; the first is how they begin.
var partitionings = [][]record.PartitionTerm{
	{term("region", schemas.Identity, 0, "region")},
	{term("id", schemas.Bucket, 3, "id_bucket")},
	{},
	{term("qty", schemas.Truncate, 250, "qty_trunc"), term("region", schemas.Identity, 0, "region")},
}

func partitionBy(t *testing.T, n *topology.Node, table string, terms []record.PartitionTerm) int32 {
	t.Helper()
	ctx := longContext(t)
	info, err := n.Table(ctx, table)
	if err != nil {
		t.Fatal(err)
	}
	out, err := n.Request(ctx, table, info.ID, &record.AlterSpec{Terms: terms})
	if err != nil || out.Outcome.Code != record.Accepted {
		t.Fatalf("%+v, %v", out.Outcome, err)
	}
	return int32(out.Outcome.Numbers[0])
}

// listedSpecs counts the live entries of a table's current snapshot by content
// and spec, such as "0/1", and holds each vector's spec and tuple against its
// file's (V4).
func listedSpecs(t *testing.T, metadata string) map[string]int {
	t.Helper()
	read := func(location string) []byte {
		b, err := os.ReadFile(localPath(t, location))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	m, err := iceberg.ParseMetadata(read(metadata))
	if err != nil {
		t.Fatal(err)
	}
	lines, err := iceberg.ReadManifestList(read(m.Current().ManifestList))
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	files := map[string]iceberg.DataFile{}
	for _, content := range []iceberg.Content{iceberg.Data, iceberg.Deletes} {
		for i := range lines {
			if lines[i].Content != content {
				continue
			}
			x, err := iceberg.ReadManifest(read(lines[i].Path))
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range x.Entries {
				if e.Status == iceberg.Deleted {
					continue
				}
				counts[fmt.Sprintf("%d/%d", content, e.File.SpecID)]++
				if content == iceberg.Data {
					files[e.File.Path] = e.File
				} else if f := files[*e.File.ReferencedDataFile]; f.SpecID != e.File.SpecID || !bytes.Equal(f.Partition, e.File.Partition) {
					t.Errorf("the vector of %s is in spec %d, the file in %d", f.Path, e.File.SpecID, f.SpecID)
				}
			}
		}
	}
	return counts
}

// TestChangedSpecs: T7. A table is partitioned otherwise again and again while
// events come in and jobs run; then rows die in files of every spec. Each snapshot
// is right, and a replay makes the same bytes.
func TestChangedSpecs(t *testing.T) {
	ctx := longContext(t)
	s := seed(t)
	w := orders("shop.orders", 400, 250)
	o := topology.NodeOptions{Data: dataDir(t), Partitions: 1, Roles: topology.Roles(), Jobs: quickJobs}
	n := start(t, o)
	if err := prepare(ctx, n, w); err != nil {
		t.Fatal(err)
	}
	f := newFeed(w, s)
	produce := func(events int, wait bool) {
		t.Helper()
		if _, err := n.Produce(ctx, w.def.SourceTopic, w.partitions, f.take(events), nil); err != nil {
			t.Fatal(err)
		}
		if wait {
			if err := n.WaitLoaded(ctx, w.def.Name, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	for round := range count(t, "VARVE_SPEC_ROUNDS", 5, 24) {
		produce(60, round%3 == 0)
		partitionBy(t, n, w.def.Name, partitionings[(round+1)%len(partitionings)])
		produce(40, round%2 == 0)
	}
	produce(30, true)
	jobsOver(ctx, t, n, w.def.Name)
	stop(t, n)
	o.Jobs.PlanEvery = time.Hour // what follows is compacted no more
	n = start(t, o)
	began := time.Now()
	if err := prepare(ctx, n, w); err != nil {
		t.Fatal(err)
	}
	for i := range partitionings {
		// A spec that was there before is that one again.
		if got := partitionBy(t, n, w.def.Name, partitionings[i]); got != int32(i) {
			t.Errorf("the partitioning %d has the spec %d", i, got)
		}
		produce(120, true)
	}
	produce(160, true)
	time.Sleep(firstPlan - time.Since(began))
	jobsOver(ctx, t, n, w.def.Name)
	settle(ctx, t, n, f, f.model())
	published(ctx, t, n, w.def.Name)
	c := countJobs(ctx, t, n, w.def.Name)
	h := readHistory(ctx, t, n, w.def.Name)
	listed := listedSpecs(t, h.commits[len(h.commits)-1].MetadataPath)
	t.Logf("%+v; entries by content and spec: %v", c, listed)
	files, vectors := 0, 0 // specs that have some
	for i := range partitionings {
		if listed[fmt.Sprintf("%d/%d", iceberg.Data, i)] > 0 {
			files++
		}
		if listed[fmt.Sprintf("%d/%d", iceberg.Deletes, i)] > 0 {
			vectors++
		}
	}
	if files < 3 || vectors < 2 {
		t.Errorf("files of %d specs, vectors of %d: too tame", files, vectors)
	}
	if c.completed == 0 || c.released > 0 {
		t.Errorf("jobs: %+v", c)
	}
	v, err := topology.Verify(ctx, topology.VerifyOptions{
		Brokers: n.Brokers(), Data: o.Data, Deployment: topology.DefaultDeployment, Store: n.Store(), Scratch: t.TempDir(), Deep: true, Full: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range v.Findings {
		t.Errorf("verify: %s: %s", x.Check, x.What)
	}
	location := n.Store().Location("")
	stop(t, n)
	audit(t, o.Data, h)
	replaySame(ctx, t, topology.ReplayOptions{}, o.Data, location, o.Partitions, nil)
}

// TestOutsideSpecs: T7, T8. PyIceberg partitions a table of ours otherwise, and
// so do we, in a catalog that loses answers.
func TestOutsideSpecs(t *testing.T) {
	s, n := newOutside(t)
	s.python(`
from pyiceberg.transforms import *
with table.update_spec() as u:
    u.add_field("score", BucketTransform(4), "score_bucket")
`)
	s.load(t, n, 60)
	if d := s.info(n).Definition; d.DefaultSpec != 1 || len(d.Specs) != 2 || d.Specs[1].Fields[0].Transform != schemas.Bucket || d.LastPartitionID != 1000 {
		t.Errorf("the log has the specs %+v, default %d", d.Specs, d.DefaultSpec)
	}
	s.load(t, n, 100)
	s.proxy.next(lostAnswer)
	partitionBy(t, n, s.f.def.Name, []record.PartitionTerm{term("ok", schemas.Identity, 0, "ok"), term("score", schemas.Bucket, 4, "score_bucket")})
	s.load(t, n, 100)
	s.settled(n)
	m := s.metadata()
	if m.DefaultSpec != 2 || len(m.Specs) != 3 || m.LastPartitionID != 1001 {
		t.Errorf("the catalog has %d specs, default %d, last field id %d", len(m.Specs), m.DefaultSpec, m.LastPartitionID)
	}
	if theirs, err := m.Spec(2); err != nil || fmt.Sprint(theirs.Fields) != fmt.Sprint(s.info(n).Definition.Specs[2].Fields) {
		t.Errorf("spec 2 is %+v there, %v", theirs, err)
	}
	// Theirs again, then none at all.
	s.python(`
with table.update_spec() as u:
    u.remove_field("ok")
`)
	s.load(t, n, 40)
	if d := s.info(n).Definition; d.DefaultSpec != 1 || len(d.Specs) != 3 {
		t.Errorf("the log has %d specs, default %d", len(d.Specs), d.DefaultSpec)
	}
	partitionBy(t, n, s.f.def.Name, nil)
	s.load(t, n, 40)
	s.settled(n)
	if m = s.metadata(); m.DefaultSpec != 0 {
		t.Errorf("the default spec is %d", m.DefaultSpec)
	}
	// The key's values stand in no log: such a spec stops the table until it is undone (E3).
	s.python(`
from pyiceberg.transforms import *
with table.update_spec() as u:
    u.add_field("name", TruncateTransform(2), "name_trunc")
`)
	if _, err := n.Produce(longContext(t), s.f.def.SourceTopic, s.f.partitions, s.f.take(20), nil); err != nil {
		t.Fatal(err)
	}
	if err := n.WaitLoaded(longContext(t), s.f.def.Name, nil); err == nil || !strings.Contains(err.Error(), "shows values of the key") {
		t.Errorf("the table goes on, or stops otherwise: %v", err)
	}
	s.python(`
with table.update_spec() as u:
    u.remove_field("name_trunc")
`)
	waitUntil(t, "the table goes on", func() bool { return n.WaitLoaded(longContext(t), s.f.def.Name, nil) == nil })
	s.load(t, n, 20)
	s.settled(n)
	s.replayed(n)
}

// TestOutsideSpecTaken: T8. The catalog takes no commit of ours while a change of our
// partitioning and rows under it wait, and another writer gives its id to another spec.
// Ours gets the next one, the owner claims its shard again, and nothing is lost.
func TestOutsideSpecTaken(t *testing.T) {
	s, n := newOutside(t)
	s.settled(n)
	s.proxy.hold(true)
	if id := partitionBy(t, n, s.f.def.Name, []record.PartitionTerm{term("ok", schemas.Identity, 0, "ok")}); id != 1 {
		t.Fatalf("ours is spec %d", id)
	}
	before := accepted(s.records(n, record.TypeAppendRows))
	if _, err := n.Produce(longContext(t), s.f.def.SourceTopic, s.f.partitions, s.f.take(60), nil); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "rows come under our spec, and a cut waits", func() bool {
		return accepted(s.records(n, record.TypeAppendRows)) > before && s.info(n).Pending != nil
	})
	theirs := schemas.Spec{ID: 1, Fields: []schemas.PartitionField{{SourceID: 3, FieldID: 1000, Name: "score_bucket", Transform: schemas.Bucket, N: 4}}}
	s.commit(restcat.AddSpec(&theirs), restcat.SetDefaultSpec(1))
	s.proxy.hold(false)
	s.load(t, n, 60)
	s.settled(n)
	d, m := s.info(n).Definition, s.metadata()
	if len(d.Specs) != 3 || d.DefaultSpec != 2 || d.Specs[1].Fields[0].Name != "score_bucket" || d.Specs[2].Fields[0].Name != "ok" || d.LastPartitionID != 1001 {
		t.Errorf("the log has the specs %+v, default %d", d.Specs, d.DefaultSpec)
	}
	if ours, err := m.Spec(2); err != nil || m.DefaultSpec != 2 || len(m.Specs) != 3 || fmt.Sprint(ours.Fields) != fmt.Sprint(d.Specs[2].Fields) {
		t.Errorf("the catalog has %d specs, default %d; spec 2 is %+v, %v", len(m.Specs), m.DefaultSpec, ours, err)
	}
	if took := accepted(s.records(n, record.TypeRenumberSpecs)); took != 1 {
		t.Errorf("%d RenumberSpecs were accepted", took)
	}
	s.load(t, n, 60)
	s.replayed(n)
}

// TestForeignSpecRows: another writer partitions the table otherwise and appends
// rows at once, in files of a spec that the log does not know yet (T8, H2). Rows of
// keys that we have and of new ones are right, and die in those files.
func TestForeignSpecRows(t *testing.T) {
	s, n := newOutside(t)
	spec := schemas.Spec{ID: 1, Fields: []schemas.PartitionField{{SourceID: 3, FieldID: 1000, Name: "score_bucket", Transform: schemas.Bucket, N: 1}}}
	w := &otherWriter{t: t, s: s, spec: &spec, tuple: schemas.EncodeTuple([][]byte{{0, 0, 0, 0}})}
	high := long(1 << 40)
	rows := []otherRow{{name: "ü-001-1", ver: high, score: 2}, {name: "theirs-1", score: 4}, {name: "ü-003-1", score: 9}}
	s.commit(restcat.AddSpec(&spec), restcat.SetDefaultSpec(1))
	w.do(func(*otherHead) change { return change{op: "append", add: [][]otherRow{rows}} })
	theirs := s.step(n, map[string]*otherRow{"ü-001-1": &rows[0], "theirs-1": &rows[1], "ü-003-1": &rows[2]})
	if d := s.info(n).Definition; d.DefaultSpec != 1 || len(d.Specs) != 2 {
		t.Errorf("the log has the specs %+v, default %d", d.Specs, d.DefaultSpec)
	}
	s.load(t, n, 150)
	s.holds(n, theirs)
	partitionBy(t, n, s.f.def.Name, []record.PartitionTerm{term("ok", schemas.Identity, 0, "ok")})
	s.load(t, n, 100)
	s.holds(n, theirs)
	if m := s.metadata(); m.DefaultSpec != 2 || len(m.Specs) != 3 {
		t.Errorf("the catalog has %d specs, default %d", len(m.Specs), m.DefaultSpec)
	}
	s.replayed(n)
}

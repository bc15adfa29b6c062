package statestore_test

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	randv2 "math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

// TestAnyLog: whatever the log, a state that was built record by record, one
// that was built in batches, and one that crashed on the way are equal, and the
// chain tells so (L3, L6, L12). Totals are those of the files.
func TestAnyLog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fs := vfs.NewMem()
		st, err := openMem(fs, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		g := &logGen{t: t, st: st, timeMs: startMs}
		g.add("", -1, &record.SetApplyVersion{Deployment: testDeployment, Partitions: 1, Version: 1})
		steps := rapid.IntRange(10, 120).Draw(t, "steps")
		for range steps {
			g.step()
		}
		if _, err := st.Commit(); err != nil {
			t.Fatal(err)
		}
		g.checkTotals()
		for i := range 2 {
			seed := rapid.Uint64().Draw(t, "replay")
			if err := replayEquals(st, g.log, g.chains, randv2.New(randv2.NewPCG(seed, uint64(i)))); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// logGen makes records, most of which would be sent by somebody.
type logGen struct {
	t      *rapid.T
	st     *statestore.Store
	log    []statestore.Record
	chains []record.Hash
	timeMs int64
	last   record.OutcomeMessage
}

func (g *logGen) n(label string, lo, hi int) int { return rapid.IntRange(lo, hi).Draw(g.t, label) }

func (g *logGen) add(table string, id int64, v any) {
	body, err := record.EncodeBody(nil, v)
	if err != nil {
		g.t.Fatal(err)
	}
	off := int64(len(g.log))
	env := record.Envelope{
		Type: record.TypeOf(v), TypeVersion: record.BodyVersion(record.TypeOf(v)), ApplyVersion: 1, Request: requestID(off), OffsetSeen: off - 1,
		Table: table, TableID: id, Body: body,
	}
	if env.Type == record.TypeAppendRows || env.Type == record.TypeCompleteJob {
		env.Request = record.RequestID{}
	}
	var m record.Message
	record.Encode(&m, &env)
	g.put(statestore.Record{Key: m.Key, Header: m.Header[:], Value: m.Value})
}

func (g *logGen) put(r statestore.Record) {
	r.Offset, r.TimeMs = int64(len(g.log)), g.timeMs
	out, err := applyFetching(g.st, &r)
	if err != nil {
		g.t.Fatalf("log offset %d: %v", r.Offset, err)
	}
	g.log, g.chains, g.last = append(g.log, r), append(g.chains, out.Chain), out
	if _, err := g.st.Commit(); err != nil {
		g.t.Fatal(err)
	}
}

func (g *logGen) step() {
	name := []string{"t", "u"}[g.n("table", 0, 1)]
	i, err := g.st.Table(name)
	if err != nil {
		g.t.Fatal(err)
	}
	switch what := g.n("what", 0, 99); {
	case what < 4:
		g.timeMs += int64(g.n("ms", -1000, 30*3600*1000))
	case what < 6 && len(g.log) > 1:
		r := g.log[g.n("again", 1, len(g.log)-1)]
		g.put(statestore.Record{Key: r.Key, Header: r.Header, Value: r.Value})
	case what < 8:
		g.put(statestore.Record{Key: []byte(name), Header: []byte{1, byte(g.n("type", 0, 30)), 0, 1, 0, 0, 0, 1}, Value: rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(g.t, "bytes")})
	case i == nil:
		d := definition(name)
		d.RetentionCount, d.RetentionMs = int64(g.n("keep", 1, 3)), 3600_000
		if name == "u" {
			d.LastPartitionID = 1000
			d.Specs = []schemas.Spec{{Fields: []schemas.PartitionField{{SourceID: 2, FieldID: 1000, Name: "name", Transform: schemas.Identity}}}}
			d.Order = schemas.Order{Kind: schemas.OrderByPath, Path: "ts"}
		}
		g.add(name, -1, &record.CreateTable{Definition: d, SuffixID: g.n("suffix", 0, 1) == 0})
	case what < 10:
		g.add(name, i.ID, &record.DropTable{})
	case what < 12:
		x := &record.AlterSpec{}
		if n := g.n("buckets", 1, 3); n > 1 {
			x.Terms = []record.PartitionTerm{{Column: "name", Transform: schemas.Bucket, N: int32(n), Name: fmt.Sprint("name_bucket_", n)}}
		}
		g.add(name, i.ID, x)
	case what < 15:
		g.add(name, i.ID, &record.AlterTable{
			Set: []schemas.Property{{Key: "p", Value: fmt.Sprint(g.n("value", 0, 2))}},
			Add: []record.AddColumn{{Name: fmt.Sprintf("c%d", g.n("column", 0, 4)), Type: schemas.Of(schemas.Int)}},
		})
	case what < 24:
		g.add(name, i.ID, &record.ClaimShard{Shard: shardKey(int32(g.n("shard", 0, 2))), LogStart: int64(g.n("start", 0, 5)), Member: "m"})
	case what < 28:
		d := &record.DeleteKeys{Keys: *ref(byte(len(g.log))), Count: 1}
		d.HasOrder = name == "u" && g.n("valued", 0, 1) == 0
		g.add(name, i.ID, d)
	case what < 30:
		g.add(name, i.ID, &record.RetireShard{Shard: shardKey(int32(g.n("shard", 0, 2)))})
	case what < 32:
		k := shardKey(int32(g.n("shard", 0, 2)))
		for _, sh := range i.Shards {
			if sh.Partition == k.Partition {
				g.add(name, i.ID, &record.SkipSource{Shard: k, From: sh.SourceEnd, To: sh.SourceEnd + int64(g.n("skip", 0, 2))})
			}
		}
	case what < 34:
		for _, sh := range i.Shards {
			g.add(name, i.ID, &record.ShardIndex{Shard: shardKey(sh.Partition), Epoch: sh.Epoch, Offset: int64(g.n("horizon", 0, len(g.log))), File: *ref(1)})
		}
	case what < 50:
		g.add(name, i.ID, &record.Cut{})
	case what < 62:
		g.published(name, i)
	default:
		if len(i.Shards) > 0 {
			g.appendRows(name, i, &i.Shards[g.n("of", 0, len(i.Shards)-1)])
		}
	}
}

func (g *logGen) appendRows(name string, i *statestore.TableInfo, sh *statestore.ShardInfo) {
	a := &record.AppendRows{
		Shard: shardKey(sh.Partition), Epoch: sh.Epoch, Counter: sh.Counter + 1, SourceFrom: sh.SourceEnd, SourceTo: sh.SourceEnd + int64(g.n("events", 1, 4)),
		RequestFrom: sh.RequestEnd, RequestTo: int64(g.n("answered", int(sh.RequestEnd), len(g.log))), Counts: record.Counts{Events: 1},
	}
	if g.n("wrong", 0, 19) == 0 {
		a.SourceFrom++
	}
	if g.n("older", 0, 19) == 0 {
		a.Counter--
	}
	last := uint64(0)
	var all []*statestore.FileInfo
	if err := g.st.Files(i.ID, func(f *statestore.FileInfo) error {
		if f.ID>>40 == uint64(sh.Writer) {
			last = statestore.FileCounter(f.ID)
		}
		all = append(all, f)
		return nil
	}); err != nil {
		g.t.Fatal(err)
	}
	for k := range g.n("files", 0, 2) {
		f := record.DataFile{ID: statestore.FileID(sh.Writer, last+1+uint64(k)*uint64(g.n("gap", 1, 100))), Rows: int64(g.n("rows", 1, 5)), Bytes: int64(g.n("bytes", 1, 9))}
		if name == "u" {
			f.Partition = schemas.EncodeTuple([][]byte{[]byte(fmt.Sprint(g.n("partition", 0, 2)))})
		}
		if spec := i.Definition.Specs[g.n("spec", 0, len(i.Definition.Specs)-1)]; spec.ID > 0 { // T7
			if f.SpecID, f.Partition = spec.ID, nil; len(spec.Fields) > 0 {
				f.Partition = schemas.EncodeTuple([][]byte{{byte(g.n("bucket", 0, 1)), 0, 0, 0}})
			}
		}
		a.Files = append(a.Files, f)
	}
	for _, f := range all {
		if g.n("kill", 0, 3) > 0 {
			continue
		}
		var p []uint32
		for range g.n("positions", 1, 5) {
			p = append(p, uint32(g.n("position", 0, int(f.Rows)-1)))
		}
		a.Deletes = append(a.Deletes, record.DeleteBlock{File: f.ID, Bitmap: positions(p...)})
	}
	if len(a.Files) > 0 {
		a.Changes = ref(byte(len(g.log)))
	}
	g.add(name, i.ID, a)
}

func (g *logGen) published(name string, i *statestore.TableInfo) {
	f, err := g.st.Frozen(i.ID)
	if err != nil {
		g.t.Fatal(err)
	}
	if f == nil {
		return
	}
	c := &record.SnapshotCommitted{
		Cut: f.Cut, Build: f.Build, Parent: f.Head.SnapshotID, TimestampMs: f.Head.TimestampMs + 1, MetadataVersion: f.Head.MetadataVersion + 1, MetadataPath: "v",
	}
	if g.n("fails", 0, 4) == 0 {
		g.add(name, i.ID, &record.SnapshotFailed{Cut: f.Cut, Build: f.Build, Cause: "store"})
		return
	}
	if len(f.Files) > 0 {
		c.SnapshotID, c.Sequence, c.FirstRowID = f.Build+1, f.Head.Sequence+1, f.Head.NextRowID
		c.Manifests = []record.ManifestInfo{{Path: fmt.Sprintf("data-%d", f.Build)}, {Path: fmt.Sprintf("vectors-%d", f.Build), Content: 1}}
		c.Puffins = []record.PuffinInfo{{Path: fmt.Sprintf("puffin-%d", f.Build), Bytes: 1}}
		for n := range f.Manifests {
			if len(f.Manifests) > 3 {
				c.Manifests[0].Replaces = append(c.Manifests[0].Replaces, n)
			}
		}
	}
	for k := range f.Files {
		x := &f.Files[k]
		if x.Added {
			c.Files = append(c.Files, record.FileRowID{File: x.ID, FirstRowID: c.FirstRowID + c.AddedRows})
			c.AddedRows += x.Rows
		}
		if x.Dead != nil {
			c.Vectors = append(c.Vectors, record.VectorInfo{File: x.ID, Length: 1, Cardinality: x.DeadCount, Manifest: 1})
		}
	}
	g.add(name, i.ID, c)
}

// checkTotals: running sums are the sums of what there is.
func (g *logGen) checkTotals() {
	if err := g.st.Tables(func(i *statestore.TableInfo) error {
		var files, rows, bytes, vectors int64
		if err := g.st.Files(i.ID, func(f *statestore.FileInfo) error {
			if f.Vector != nil {
				vectors++
			}
			if f.Gone {
				if f.Dead != nil {
					return fmt.Errorf("file %d is gone and has dead positions", f.ID)
				}
				return nil
			}
			files, rows, bytes = files+1, rows+f.Rows, bytes+f.Bytes
			return nil
		}); err != nil {
			return err
		}
		if files != i.Files || rows != i.Rows || bytes != i.Bytes || vectors != i.Vectors {
			return fmt.Errorf("table %s has %d files, %d rows, %d bytes, %d vectors; its totals say %d, %d, %d, %d",
				i.Name, files, rows, bytes, vectors, i.Files, i.Rows, i.Bytes, i.Vectors)
		}
		return nil
	}); err != nil {
		g.t.Fatal(err)
	}
}

// FuzzApply: no bytes of a record panic, stop the partition or pass unseen.
func FuzzApply(f *testing.F) {
	s := newScript(f)
	mk := func(table string, id int64, v any) statestore.Record {
		body, err := record.EncodeBody(nil, v)
		if err != nil {
			f.Fatal(err)
		}
		env := record.Envelope{
			Type: record.TypeOf(v), TypeVersion: record.BodyVersion(record.TypeOf(v)), ApplyVersion: 1, Request: requestID(int64(len(s.log))), OffsetSeen: int64(len(s.log)) - 1, Table: table, TableID: id, Body: body,
		}
		var m record.Message
		record.Encode(&m, &env)
		return statestore.Record{Offset: int64(len(s.log)), TimeMs: startMs, Key: m.Key, Header: m.Header[:], Value: m.Value}
	}
	put := func(r statestore.Record) {
		if _, err := s.st.Apply(&r); err != nil {
			f.Fatal(err)
		}
		s.log = append(s.log, r)
		f.Add(r.Key, r.Header, r.Value)
	}
	put(mk("", -1, &record.SetApplyVersion{Deployment: testDeployment, Partitions: 1, Version: 1}))
	put(mk("t", -1, &record.CreateTable{Definition: definition("t")}))
	put(mk("t", 1, &record.ClaimShard{Shard: shardKey(0)}))
	put(mk("t", 1, &record.AppendRows{
		Shard: shardKey(0), Epoch: 2, Counter: 1, SourceTo: 5, RequestFrom: 2, RequestTo: 2, Files: []record.DataFile{{ID: statestore.FileID(1, 1), Rows: 3, Bytes: 9}},
		Deletes: []record.DeleteBlock{{File: statestore.FileID(1, 1), Bitmap: positions(1)}}, Changes: ref(1),
	}))
	put(mk("t", 1, &record.Cut{}))
	put(mk("t", 1, &record.SnapshotFailed{Cut: 4, Build: 4, Cause: "store"}))
	put(mk("t", 1, &record.SnapshotCommitted{Cut: 4, Build: 4, TimestampMs: startMs, MetadataVersion: 1, MetadataPath: "v"}))
	put(mk("t", 1, &record.AlterTable{Add: []record.AddColumn{{Name: "x", Type: schemas.Of(schemas.Int)}}}))
	put(mk("t", 1, &record.AlterSpec{Terms: []record.PartitionTerm{{Column: "id", Transform: schemas.Bucket, N: 4, Name: "p"}}}))
	put(mk("t", 1, &record.CatalogSpecs{Specs: []schemas.Spec{{ID: 2}}, DefaultSpec: 2, LastPartitionID: 1000}))
	put(mk("t", 1, &record.CatalogSchemas{NextSchema: 3, LastColumnID: 9}))
	put(mk("t", 1, &record.RenumberSpecs{Specs: []schemas.Spec{{ID: 1}}, LastPartitionID: 1000}))
	put(mk("t", 1, &record.DeleteKeys{Keys: *ref(2), Count: 1}))
	put(mk("t", 1, &record.SkipSource{Shard: shardKey(0), From: 5, To: 6}))
	put(mk("t", 1, &record.RetireShard{Shard: shardKey(0)}))
	put(mk("t", 1, &record.ShardIndex{Shard: shardKey(0), Epoch: 2, Offset: 3}))
	job := record.JobID{Plan: 8, Attempt: 1}
	put(mk("t", 1, &record.PlanJobs{Items: []record.PlanItem{{Inputs: []record.JobInput{{File: statestore.FileID(1, 1), Hi: 3}}}, {}}}))
	put(mk("t", 1, &record.CompleteJob{Items: []record.CompletedJob{{Job: job, Outputs: []record.JobOutput{{Name: [16]byte{1}, Rows: 2, Bytes: 9}}, Map: *ref(3)}}, Metrics: ref(4)}))
	put(mk("t", 1, &record.ReleaseJob{Items: []record.ReleasedJob{{Job: job, Again: true}, {Job: job}}}))
	put(mk("t", 1, &record.DeletePositions{Deletes: []record.DeleteBlock{{File: statestore.FileID(1, 1), Bitmap: positions(0, 2)}}}))
	put(mk("t", 1, &record.DropTable{}))
	f.Fuzz(func(t *testing.T, key, header, value []byte) {
		st, err := openMem(vfs.NewMem(), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		for i := range s.log[:8] {
			if _, err := st.Apply(&s.log[i]); err != nil {
				t.Fatal(err)
			}
		}
		r := statestore.Record{Offset: 8, TimeMs: startMs, Key: key, Header: header, Value: value}
		// What a mutation cannot keep is made right again: the checksum.
		if len(value) > 4 && len(header) == record.HeaderSize {
			r.Value = binary.BigEndian.AppendUint32(value[:len(value)-4:len(value)-4], crc32.Checksum(append(header[:len(header):len(header)], value[:len(value)-4]...), crc32.MakeTable(crc32.Castagnoli)))
		}
		if ref := statestore.NeedsBody(&r); ref != nil {
			r.BodyLost = true
		}
		out, err := st.Apply(&r)
		if err != nil {
			if sentinel(err) == statestore.ErrUnknownVersion.Error() {
				return
			}
			t.Fatal(err)
		}
		if out.Offset != 8 || out.Outcome.Code == 0 {
			t.Fatalf("outcome: %+v", out)
		}
		for i, v := range []any{&record.Cut{}, &record.ClaimShard{Shard: shardKey(0)}} {
			next := mk("t", 1, v)
			next.Offset = int64(9 + i)
			if _, err := st.Apply(&next); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := st.Commit(); err != nil {
			t.Fatal(err)
		}
		if _, err := st.Frozen(1); err != nil {
			t.Fatal(err)
		}
	})
}

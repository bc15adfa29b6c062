package endtoend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/restcat"
	"github.com/varve-io/varve/schemas/source"
	"github.com/varve-io/varve/statestore/restclient"
	"github.com/varve-io/varve/topology"
	"github.com/varve-io/varve/topology/readers"
	"github.com/varve-io/varve/topology/testcluster"
)

// remembered is what the rules say of a key: its row, and the largest ordering
// value that was seen, also by deletes (K2).
type remembered struct {
	score int // −1: no live row
	ver   int64
	has   bool
}

// rolled is a table with an ordering column, and what its rows must be.
type rolled struct {
	t     *testing.T
	n     *topology.Node
	o     topology.NodeOptions
	def   schemas.Definition
	r     *rand.Rand
	clock int64
	keys  map[string]remembered
	then  map[int64]map[string]remembered // by snapshot
}

func (x *rolled) event() *topology.SourceEvent {
	p := x.r.IntN(2)
	name := fmt.Sprintf("k-%03d-%d", x.r.IntN(150), p)
	x.clock++
	e := &topology.SourceEvent{Key: fmt.Appendf(nil, `{"name":"%s"}`, name), Partition: int32(p)}
	k, known := x.keys[name]
	if !known {
		k.score = -1
	}
	ver, has := x.clock-x.r.Int64N(8)*x.r.Int64N(40), x.r.IntN(12) > 0
	if x.r.IntN(4) == 0 { // so late that also what was known at a rollback's target decides
		ver = x.r.Int64N(x.clock)
	}
	score := x.r.IntN(1000)
	if x.r.IntN(4) == 0 {
		score = -1
	}
	valued := has && (score >= 0 || ver != 0) // a zero in a deleted row is no value
	late := valued && k.has && ver < k.ver
	text := fmt.Sprintf(`{"name":"%s"`, name)
	if has {
		text += fmt.Sprintf(`,"ver":%d`, ver)
	}
	if score >= 0 {
		text += fmt.Sprintf(`,"score":%d}`, score)
	} else {
		text += `,"__deleted":"true"}`
	}
	e.Value = []byte(text)
	if !late {
		k.score = score
		if valued {
			k.ver, k.has = ver, true
		}
		x.keys[name] = k
	}
	return e
}

// feed publishes events and waits until a snapshot has them; it gives the snapshot.
func (x *rolled) feed(ctx context.Context, n int) int64 {
	x.t.Helper()
	if _, err := x.n.Produce(ctx, x.def.SourceTopic, 2, func() (*topology.SourceEvent, error) {
		if n--; n < 0 {
			return nil, io.EOF
		}
		return x.event(), nil
	}, nil); err != nil {
		x.t.Fatal(err)
	}
	if err := x.n.WaitLoaded(ctx, x.def.Name, nil); err != nil {
		x.t.Fatal(err)
	}
	i, err := x.n.Table(ctx, x.def.Name)
	if err != nil {
		x.t.Fatal(err)
	}
	x.then[i.Head.SnapshotID] = maps.Clone(x.keys)
	return i.Head.SnapshotID
}

func (x *rolled) lines(keys map[string]remembered) (out []string) {
	for name, k := range keys {
		if k.score >= 0 {
			out = append(out, fmt.Sprintf("name=%s score=%d", name, k.score))
		}
	}
	slices.Sort(out)
	return out
}

// check reads the head, and every snapshot of the model that is retained, by each engine.
func (x *rolled) check(ctx context.Context, what string) {
	x.t.Helper()
	i, err := x.n.Table(ctx, x.def.Name)
	if err != nil {
		x.t.Fatal(err)
	}
	for _, e := range readers.All {
		if err := readers.Available(e); err != nil {
			if readers.Wanted() {
				x.t.Fatal(err)
			}
			x.t.Logf("%v: it does not read this table", err)
			continue
		}
		read := func(snapshot int64, keys map[string]remembered, what string) {
			x.t.Helper()
			got, err := readers.Read(ctx, e, i.Head.MetadataPath, readers.Options{Snapshot: snapshot, Columns: []string{"name", "score"}})
			if err != nil {
				x.t.Fatal(what, err)
			}
			diff(x.t, fmt.Sprintf("%s, by %s", what, e), got.Sorted(), x.lines(keys))
		}
		read(0, x.keys, what)
		for id, keys := range x.then {
			read(id, keys, fmt.Sprintf("%s, snapshot %d", what, id))
		}
	}
}

func (x *rolled) back(ctx context.Context, to int64) {
	x.t.Helper()
	if _, _, err := x.n.PlanRollback(ctx, x.def.Name, to); err != nil {
		x.t.Fatal("drill: ", err)
	}
	p, err := x.n.Rollback(ctx, x.def.Name, to, "a test")
	if err != nil {
		x.t.Fatal(err)
	}
	if err := x.n.WaitVisible(ctx, x.def.Name, p.Offset); err != nil {
		x.t.Fatal(err)
	}
	x.keys = maps.Clone(x.then[to])
}

// TestRollback is case 25: back past upserts, deletes, vectors and jobs, while
// events go on; the head and every retained snapshot are read by three engines;
// late is decided as of the target; nothing that was undone comes back, also
// through a restart, a second rollback, and one to the branch that was left (G1,
// G11, G12, S8).
func TestRollback(t *testing.T) {
	onBackends(t, func(t *testing.T, b backend) {
		ctx := longContext(t)
		def := definition("shop.rolled", source.RowsJSON, []schemas.Field{
			{Name: "name", Type: schemas.Of(schemas.String)}, {Name: "ver", Type: schemas.Of(schemas.Long)}, {Name: "score", Type: schemas.Of(schemas.Int)},
		})
		def.Order = schemas.Order{Kind: schemas.OrderByColumn, Column: 2}
		x := &rolled{t: t, def: def, r: rng(seed(t), 25), keys: map[string]remembered{}, then: map[int64]map[string]remembered{}}
		x.o = topology.NodeOptions{Data: dataDir(t), Brokers: b.brokers, Deployment: "rollback", Partitions: 1, Roles: topology.Roles(), Jobs: quickJobs}
		x.n = start(t, x.o)
		if err := prepare(ctx, x.n, workload{def: def, partitions: 2}); err != nil {
			t.Fatal(err)
		}
		x.feed(ctx, 300)
		early := x.feed(ctx, 200)
		for range 4 {
			x.feed(ctx, 150)
		}
		jobsOver(ctx, t, x.n, def.Name)
		late := x.feed(ctx, 100)
		x.check(ctx, "before")

		x.back(ctx, early)
		x.check(ctx, "rolled back")
		for range 3 {
			x.feed(ctx, 150)
		}
		x.check(ctx, "after the rollback")
		stop(t, x.n)

		// Another node without the local index, and without the local state.
		for _, sub := range []string{"index", "state"} {
			if err := os.RemoveAll(filepath.Join(x.o.Data, sub)); err != nil {
				t.Fatal(err)
			}
		}
		x.n = start(t, x.o)
		info, err := x.n.Table(ctx, def.Name)
		if err == nil {
			err = x.n.Ingest(ctx, info)
		}
		if err != nil {
			t.Fatal(err)
		}
		x.feed(ctx, 150)
		x.check(ctx, "after a restart without local disks")
		x.back(ctx, late)
		x.feed(ctx, 200)
		x.check(ctx, "to the branch that was left")

		// A file of the target that is gone is found by the drill, and nothing happens.
		lake := filepath.Join(x.o.Data, "lake", "shop", "rolled", "data")
		all, err := os.ReadDir(lake)
		if err != nil {
			t.Fatal(err)
		}
		aside := t.TempDir()
		for _, f := range all {
			if err := os.Rename(filepath.Join(lake, f.Name()), filepath.Join(aside, f.Name())); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := x.n.Rollback(ctx, def.Name, early, ""); !errors.Is(err, topology.ErrNoRollback) || !strings.Contains(err.Error(), "is missing") {
			t.Errorf("a rollback to files that are gone: %v", err)
		}
		for _, f := range all {
			if err := os.Rename(filepath.Join(aside, f.Name()), filepath.Join(lake, f.Name())); err != nil {
				t.Fatal(err)
			}
		}
		x.check(ctx, "at the end")
		stop(t, x.n)
	})
}

// TestRollbackOutside: the same in a catalog that we did not write, beside a tag
// that another program made: main goes back there, what that program named stays,
// and one to a snapshot that it removed is refused.
func TestRollbackOutside(t *testing.T) {
	ctx := longContext(t)
	def := definition("shop.outside", source.RowsJSON, []schemas.Field{
		{Name: "name", Type: schemas.Of(schemas.String)}, {Name: "ver", Type: schemas.Of(schemas.Long)}, {Name: "score", Type: schemas.Of(schemas.Int)},
	})
	def.Order = schemas.Order{Kind: schemas.OrderByColumn, Column: 2}
	x := &rolled{t: t, def: def, r: rng(seed(t), 26), keys: map[string]remembered{}, then: map[int64]map[string]remembered{}}
	x.o = topology.NodeOptions{Data: dataDir(t), Deployment: "rollback", Partitions: 1, Roles: topology.Roles(), Jobs: quickJobs}
	c := testcluster.StartCatalog(t, "file://"+filepath.Join(x.o.Data, "lake"))
	x.o.Remote = &restclient.Options{URI: c.URI(), Timeout: 5 * time.Second}
	other, err := restclient.Open(ctx, restclient.Options{URI: c.URI()})
	if err != nil {
		t.Fatal(err)
	}
	id := restcat.IdentifierOf(def.Name)
	theirs := func(updates ...restcat.Update) {
		t.Helper()
		if _, err := other.Commit(ctx, &restcat.CommitTable{Identifier: id, Requirements: []restcat.Requirement{}, Updates: updates}); err != nil {
			t.Fatal(err)
		}
	}
	catalog := func() *iceberg.Metadata {
		t.Helper()
		r, err := other.Load(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		m, err := iceberg.ParseMetadata(r.Metadata)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	x.n = start(t, x.o)
	if err := prepare(ctx, x.n, workload{def: def, partitions: 2}); err != nil {
		t.Fatal(err)
	}
	x.feed(ctx, 200)
	early := x.feed(ctx, 150)
	removed := x.feed(ctx, 100)
	for range 2 {
		x.feed(ctx, 120)
	}
	jobsOver(ctx, t, x.n, def.Name)
	late := x.feed(ctx, 100)
	theirs(restcat.SetRef("theirs", "tag", late, nil))

	x.back(ctx, early)
	if m := catalog(); m.Current() == nil || m.Current().ID != early {
		t.Errorf("main of the catalog is not at snapshot %d", early)
	}
	x.check(ctx, "rolled back")
	for range 2 {
		x.feed(ctx, 120)
	}
	x.check(ctx, "after the rollback")
	if r := catalog().Ref("theirs"); r == nil || r.SnapshotID != late {
		t.Errorf("the other program's tag is %+v, not at snapshot %d", r, late)
	}

	theirs(restcat.RemoveSnapshots([]int64{removed}))
	delete(x.then, removed)
	x.feed(ctx, 50)
	if _, err := x.n.Rollback(ctx, def.Name, removed, ""); !errors.Is(err, topology.ErrNoRollback) {
		t.Errorf("a rollback to a snapshot that another program removed: %v", err)
	}
	x.back(ctx, late)
	x.feed(ctx, 100)
	x.check(ctx, "to the branch that was left")
	stop(t, x.n)
}

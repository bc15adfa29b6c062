package publisher_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/processors/publisher"
	"github.com/varve-io/varve/processors/publisher/remotetest"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/restcat"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/objstore"
	"github.com/varve-io/varve/statestore/restclient"
)

// outside is a world whose table is in a catalog that others write to.
type outside struct {
	*world
	cat    *remotetest.Catalog
	ident  restcat.Identifier
	theirs map[int64]bool // snapshots of others
}

func newOutside(t testing.TB, def schemas.Definition) *outside {
	t.Helper()
	o := &outside{world: newWorld(t, objstore.NewMem(), def), cat: remotetest.New(), ident: restcat.IdentifierOf(def.Name), theirs: map[int64]bool{}}
	o.pub = o.publisher()
	o.publish(o.freeze())
	return o
}

func (o *outside) publisher() *publisher.Publisher {
	return publisher.New(publisher.Config{Store: o.store, Bodies: o.bodies, Remote: o.cat})
}

func (o *outside) frozen() *statestore.FrozenCut {
	o.t.Helper()
	if _, err := o.st.Commit(); err != nil {
		o.t.Fatal(err)
	}
	f, err := o.st.Frozen(o.id)
	if err != nil || f == nil {
		o.t.Fatalf("frozen cut: %v %v", f, err)
	}
	return f
}

// publish brings a pending cut to its end, as the node does.
func (o *outside) publish(f *statestore.FrozenCut) (r publisher.Result, tries int) {
	o.t.Helper()
	for tries = 1; ; tries++ {
		r, err := o.pub.Publish(ctx, f)
		var moved *publisher.BaseMoved
		switch {
		case err == nil:
			o.confirm(f, r)
			o.timeMs += 1000
			return r, tries
		case tries > 10:
			o.t.Fatal(err)
		case errors.As(err, &moved):
			out := o.do(o.def.Name, o.id, &moved.Record)
			want := int64(-1)
			if moved.Record.Sequence > f.Head.Sequence || moved.Record.NextRowID > f.Head.NextRowID {
				want = out.Offset
			}
			if out.Outcome.Numbers[2] != want {
				o.t.Fatalf("the pending cut has the build offset %v, want %d", out.Outcome.Numbers, want)
			}
			f = o.frozen()
		case o.tookSpecs(err):
			f = o.frozen()
		case errors.Is(err, restclient.ErrUnknown), errors.Is(err, restclient.ErrConflict):
			o.do(o.def.Name, o.id, &record.SnapshotFailed{Cut: f.Cut, Build: f.Build, Attempt: int64(tries), Cause: publisher.Cause(err)})
			f = o.frozen()
		default:
			o.t.Fatal(err)
		}
	}
}

func (o *outside) meta() *iceberg.Metadata { return o.cat.Metadata(o.ident) }

func (o *outside) must(err error) {
	o.t.Helper()
	if err != nil {
		o.t.Fatal(err)
	}
}

func (o *outside) foreign(branch string, ahead int64) {
	o.t.Helper()
	id, err := o.cat.ForeignSnapshot(o.ident, branch, ahead)
	o.must(err)
	o.theirs[id] = true
}

// checkAll holds every snapshot of ours in the catalog against the model.
func (o *outside) checkAll() {
	o.t.Helper()
	m := o.meta()
	for i := range m.Snapshots {
		if s := &m.Snapshots[i]; !o.theirs[s.ID] {
			o.checkSnapshot(s)
		}
	}
	last := &o.done[len(o.done)-1].Committed
	if last.MetadataVersion != 0 || last.MetadataHash != (record.Hash{}) || !strings.HasPrefix(last.MetadataPath, o.def.Location+"/metadata/") {
		o.t.Fatalf("the record names the metadata %d %s", last.MetadataVersion, last.MetadataPath)
	}
}

// TestRemoteRandom: random cuts beside another writer that commits to a
// branch, tags, sets properties, removes snapshots, adds columns, and whose
// clock is ahead; answers are lost, before and after the effect. Every snapshot
// holds what the model says, whichever build it got.
func TestRemoteRandom(t *testing.T) {
	for seed := range uint64(4) {
		rng := rand.New(rand.NewPCG(seed, 9))
		def := definition(byDay(0), byDay(1))
		def.Properties = []schemas.Property{property("owner", "varve")}
		o := newOutside(t, def)
		lost := errors.Join(restclient.ErrUnknown, errors.New("answer lost"))
		saw := map[string]int{}
		for i := range 60 {
			if rng.IntN(6) == 0 {
				o.alter(i)
			}
			o.round(rng)
			f := o.freeze()
			if rng.IntN(2) == 0 && o.meta().Current() != nil {
				// What is appended now is in the snapshot only if the base moves.
				o.round(rng)
				switch x := rng.IntN(5); x {
				case 0:
					o.foreign(iceberg.MainBranch+"-dev", rng.Int64N(2)*600_000)
					saw["branch"]++
				case 1:
					o.must(o.cat.Foreign(o.ident, restcat.SetRef(fmt.Sprint("tag-", i), "tag", o.meta().Current().ID, nil)))
					o.foreign("b", 0)
					saw["tag"]++
				case 2:
					o.must(o.cat.Foreign(o.ident, restcat.SetProperties([]schemas.Property{property("theirs", fmt.Sprint(i)), property("owner", fmt.Sprint(i))})))
					o.foreign("b", 0)
					saw["property"]++
				case 3:
					if gone := o.meta().Snapshots[0].ID; gone != o.meta().Current().ID {
						o.must(o.cat.Foreign(o.ident, restcat.RemoveSnapshots([]int64{gone})))
						saw["removed"]++
					}
					o.foreign("b", 0)
				case 4:
					if !f.DefChanged {
						// Two new columns at once would stop the table.
						s, err := o.meta().Schema(o.meta().CurrentSchema)
						o.must(err)
						s.Fields = append(slices.Clone(s.Fields), schemas.Field{ID: o.meta().LastColumnID + 1, Name: fmt.Sprint("theirs_", i), Type: schemas.Of(schemas.Date)})
						o.must(o.cat.Foreign(o.ident, restcat.AddSchema(s, s.HighestID()), restcat.SetCurrentSchema(restcat.LastAdded)))
						saw["column"]++
					}
					o.foreign("b", 0)
				}
			} else if rng.IntN(3) == 0 {
				// A change of ours that waits for the next cut, and a base that moves.
				o.alter(100 + i)
				f = o.frozen()
				o.foreign("b", 0)
				saw["altered"]++
			}
			once := false
			o.cat.Before, o.cat.After = nil, nil
			fault := func() error {
				if once {
					return nil
				}
				once = true
				return lost
			}
			switch rng.IntN(4) {
			case 0:
				o.cat.Before = fault
				saw["lost before"]++
			case 1:
				o.cat.After = fault
				saw["lost after"]++
			}
			o.publish(f)
			o.checkAll()
		}
		if len(saw) < 8 {
			t.Errorf("seed %d saw only %v", seed, saw)
		}
		m := o.meta()
		for i := 1; i < len(m.SnapshotLog); i++ {
			if m.SnapshotLog[i].TimestampMs < m.SnapshotLog[i-1].TimestampMs {
				t.Errorf("seed %d: the snapshot log goes back (S2)", seed)
			}
		}
	}
}

// TestRemoteAlteredMeanwhile: a cut is frozen, and then its table gets a column
// and loses a property. What the catalog does not have of that is a change of
// ours, none of another writer's (H5); a base that moves takes it along.
func TestRemoteAlteredMeanwhile(t *testing.T) {
	for _, moves := range []bool{false, true} {
		def := definition()
		def.Properties = []schemas.Property{property("owner", "varve"), property("theirs", "0")}
		o := newOutside(t, def)
		o.append([]newFile{{rows: 9}}, nil)
		o.publish(o.freeze())
		o.append([]newFile{{rows: 3}}, nil)
		o.freeze()
		o.do(def.Name, o.id, &record.AlterTable{
			Add: []record.AddColumn{{Name: "late", Type: schemas.Of(schemas.String)}}, Remove: []string{"owner"}, Set: []schemas.Property{property("new", "1")},
		})
		if moves {
			o.foreign("dev", 0)
		} else {
			o.must(o.cat.Foreign(o.ident, restcat.SetRef("keep", "tag", o.meta().Current().ID, nil)))
		}
		if _, tries := o.publish(o.frozen()); tries != 2 {
			t.Errorf("moves %t: %d tries", moves, tries)
		}
		if m := o.meta(); !moves && (m.CurrentSchema != 0 || len(m.Schemas) != 1 || m.Property("owner") != "varve") {
			t.Errorf("the cut was made before the change: schema %d of %d, %v", m.CurrentSchema, len(m.Schemas), m.Properties)
		}
		if !moves {
			o.publish(o.freeze())
		}
		if m := o.meta(); m.CurrentSchema != 1 || m.Property("owner") != "" || m.Property("new") != "1" || m.Property("theirs") != "0" {
			t.Errorf("moves %t: schema %d, %v", moves, m.CurrentSchema, m.Properties)
		}
		o.checkAll()
	}
}

// TestRemoteTwoPublishers: case 16. Two publishers race with one build: one of
// them meets a conflict, and both come to the same record.
func TestRemoteTwoPublishers(t *testing.T) {
	o := newOutside(t, definition())
	ids := o.append([]newFile{{rows: 9}, {rows: 9}}, nil)
	o.publish(o.freeze())
	o.append([]newFile{{rows: 3}}, map[uint64][]uint32{ids[0]: {1, 2}, ids[1]: {5}})
	f := o.freeze()
	var second publisher.Result
	inner := false
	o.cat.Before = func() error {
		if inner {
			return nil
		}
		inner = true
		var err error
		second, err = o.publisher().Publish(ctx, f)
		return err
	}
	if _, err := o.pub.Publish(ctx, f); !errors.Is(err, restclient.ErrConflict) || publisher.Cause(err) != "conflict" {
		t.Fatalf("the slower publisher: %v", err)
	}
	o.cat.Before = nil
	first, err := o.pub.Publish(ctx, f)
	o.must(err)
	if !reflect.DeepEqual(first, second) {
		t.Errorf("two publishers of one build: %+v, %+v", first.Committed, second.Committed)
	}
	if n := len(o.meta().Snapshots); n != 2 {
		t.Errorf("%d snapshots", n)
	}
	o.confirm(f, first)
	o.checkAll()
}

// TestRemoteStalledPublisher: case 32. A publisher stalls while it uploads;
// another publishes a later build; the first wakes up and changes nothing.
func TestRemoteStalledPublisher(t *testing.T) {
	o := newOutside(t, definition())
	ids := o.append([]newFile{{rows: 9}}, nil)
	o.publish(o.freeze())
	o.append(nil, map[uint64][]uint32{ids[0]: {1}})
	old := o.freeze()
	o.foreign("dev", 0)
	o.append(nil, map[uint64][]uint32{ids[0]: {2, 3}})
	stalled := o.publisher()
	_, err := stalled.Publish(ctx, old)
	var moved *publisher.BaseMoved
	if !errors.As(err, &moved) {
		t.Fatalf("the base had moved: %v", err)
	}
	o.do(o.def.Name, o.id, &moved.Record)
	r, _ := o.publish(o.frozen())
	before := objects(t, o.store, "shop/orders/metadata/")
	if _, err := stalled.Publish(ctx, old); !errors.Is(err, publisher.ErrBehind) {
		t.Errorf("the stalled publisher: %v", err)
	}
	sameObjects(t, objects(t, o.store, "shop/orders/metadata/"), before)
	if got := o.meta().Current().ID; got != r.Committed.SnapshotID {
		t.Errorf("main is at %d, the later build's snapshot is %d", got, r.Committed.SnapshotID)
	}
	o.checkAll()
}

// TestRemoteLateCommit: a commit is on its way while another publisher tells
// the log of a property and a tag. It lands after that, and is the snapshot:
// facts that do not stand in its way leave the build as it is.
func TestRemoteLateCommit(t *testing.T) {
	def := definition()
	def.Properties = []schemas.Property{property("owner", "varve")}
	o := newOutside(t, def)
	ids := o.append([]newFile{{rows: 9}}, nil)
	o.publish(o.freeze())
	o.append(nil, map[uint64][]uint32{ids[0]: {1}})
	f := o.freeze()
	o.cat.Before = func() error {
		o.cat.Before = nil
		o.must(o.cat.Foreign(o.ident, restcat.SetProperties([]schemas.Property{property("owner", "else")}), restcat.SetRef("keep", "tag", o.meta().Current().ID, nil)))
		_, err := o.publisher().Publish(ctx, f)
		var moved *publisher.BaseMoved
		if !errors.As(err, &moved) {
			t.Fatalf("the other publisher: %v", err)
		}
		o.do(def.Name, o.id, &moved.Record)
		return nil
	}
	late, err := o.pub.Publish(ctx, f)
	o.must(err)
	found, err := o.publisher().Publish(ctx, o.frozen())
	o.must(err)
	if !reflect.DeepEqual(late, found) {
		t.Errorf("late %+v, found %+v", late.Committed, found.Committed)
	}
	o.confirm(f, found)
	o.append(nil, map[uint64][]uint32{ids[0]: {2}})
	o.publish(o.freeze())
	o.checkAll()
	if n := len(o.meta().Snapshots); n != 3 {
		t.Errorf("%d snapshots", n)
	}
}

// TestRemoteReplay: publishing every cut again, elsewhere, writes the same
// manifests, lists and Puffins (C7); so does a publisher that finds its own
// snapshots, of which the log does not know.
func TestRemoteReplay(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	o := newOutside(t, definition(byDay(0)))
	for i := range 25 {
		if i%6 == 5 {
			o.alter(i)
		}
		o.round(rng)
		o.publish(o.freeze())
	}
	again := objstore.NewMem()
	bodies := processors.NewBodies(o.store, "varve")
	replay := publisher.New(publisher.Config{Store: again, Bodies: bodies, Remote: remotetest.New()})
	twice := publisher.New(publisher.Config{Store: again, Bodies: bodies, Remote: o.cat})
	for i, f := range o.cuts {
		r, err := replay.Publish(ctx, f)
		o.must(err)
		if !reflect.DeepEqual(r.Committed, o.done[i].Committed) {
			t.Fatalf("cut %d: %+v, want %+v", i, r.Committed, o.done[i].Committed)
		}
		if c := &r.Committed; c.SnapshotID != 0 && o.meta().Snapshot(c.SnapshotID) != nil {
			found, err := twice.Publish(ctx, f)
			o.must(err)
			found.Committed.TimestampMs, found.Committed.MetadataPath = c.TimestampMs, c.MetadataPath
			if !reflect.DeepEqual(found.Committed, *c) {
				t.Fatalf("cut %d was found as %+v, want %+v", i, found.Committed, c)
			}
		}
	}
	sameObjects(t, objects(t, again, "shop/orders/metadata/"), objects(t, o.store, "shop/orders/metadata/"))
}

// TestRemoteHeld: what a tag names stays when it is older than all limits, and
// goes when the tag has gone (S6).
func TestRemoteHeld(t *testing.T) {
	def := definition()
	def.RetentionCount = 2
	o := newOutside(t, def)
	o.append([]newFile{{rows: 2}}, nil)
	r, _ := o.publish(o.freeze())
	tagged := r.Committed.SnapshotID
	o.must(o.cat.Foreign(o.ident, restcat.SetRef("keep", "tag", tagged, nil)))
	for range 5 {
		o.timeMs += 100_000
		o.append([]newFile{{rows: 2}}, nil)
		o.publish(o.freeze())
	}
	if o.meta().Snapshot(tagged) == nil || o.meta().Ref("keep") == nil || len(o.meta().Snapshots) > 4 {
		t.Fatalf("the snapshots are %d, the tagged one %+v", len(o.meta().Snapshots), o.meta().Ref("keep"))
	}
	o.must(o.cat.Foreign(o.ident, []byte(`{"action":"remove-snapshot-ref","ref-name":"keep"}`)))
	for range 2 {
		o.append([]newFile{{rows: 2}}, nil)
		o.publish(o.freeze())
	}
	if o.meta().Snapshot(tagged) != nil {
		t.Error("nothing holds the snapshot any more, and it stays")
	}
}

// TestRemoteDefinition: changes of the definition go out with the next commit,
// alone or with files; a lost answer does not send them twice; what others set
// stays theirs.
func TestRemoteDefinition(t *testing.T) {
	def := definition()
	def.Properties = []schemas.Property{property("a", "1"), property("b", "2")}
	o := newOutside(t, def)
	o.append([]newFile{{rows: 5}}, nil)
	o.publish(o.freeze())
	o.must(o.cat.Foreign(o.ident, restcat.SetProperties([]schemas.Property{property("theirs", "x")})))
	o.do(def.Name, o.id, &record.AlterTable{
		Set: []schemas.Property{property("b", "3"), property("c", "4")}, Remove: []string{"a"},
		Add: []record.AddColumn{{Name: "note", Type: schemas.Of(schemas.String), Default: `"none"`}},
	})
	once := false
	o.cat.After = func() error {
		if once {
			return nil
		}
		once = true
		return restclient.ErrUnknown
	}
	r, tries := o.publish(o.freeze())
	m := o.meta()
	if r.Committed.SnapshotID != 0 || tries != 2 || m.CurrentSchema != 1 || len(m.Schemas) != 2 || m.LastColumnID != 4 {
		t.Fatalf("%d tries, %+v, %+v", tries, r.Committed, m)
	}
	if got := fmt.Sprint(m.Properties); got != "[{b 3} {c 4} {gc.enabled false} {theirs x}]" {
		t.Errorf("properties %s", got)
	}
	o.must(o.cat.Foreign(o.ident, restcat.RemoveProperties([]string{"c"}), restcat.SetProperties([]schemas.Property{property("b", "theirs")})))
	o.append([]newFile{{rows: 5}}, nil)
	o.publish(o.freeze())
	info, err := o.st.Table(def.Name)
	o.must(err)
	if got := fmt.Sprint(info.Definition.Properties); got != "[{b theirs}]" {
		t.Errorf("the definition's properties are %s", got)
	}
	if got := fmt.Sprint(o.meta().Properties); got != "[{b theirs} {gc.enabled false} {theirs x}]" {
		t.Errorf("properties %s", got)
	}
	o.checkAll()
}

// TestRemoteStops: what a person must look at is an error of its own, and
// nothing is committed.
func TestRemoteStops(t *testing.T) {
	for name, x := range map[string]struct {
		harm func(o *outside)
		want string
	}{
		"dropped":          {func(o *outside) { o.cat.Drop(o.ident) }, "has no table shop.orders any more"},
		"another uuid":     {func(o *outside) { o.must(o.cat.Foreign(o.ident, restcat.AssignUUID("else"))) }, "was dropped and made again"},
		"another location": {func(o *outside) { o.must(o.cat.Foreign(o.ident, restcat.SetLocation("mem://store/else"))) }, "a location cannot change"},
		"rolled back": {func(o *outside) {
			o.must(o.cat.Foreign(o.ident, restcat.SetRef(iceberg.MainBranch, "branch", *o.meta().Current().ParentID, nil)))
		}, "it was rolled back"},
		"encrypted": {func(o *outside) {
			o.must(o.cat.Foreign(o.ident, restcat.SetProperties([]schemas.Property{property("encryption.key-id", "k")})))
		}, "encrypted"},
		"a column dropped": {func(o *outside) {
			s, err := o.meta().Schema(0)
			o.must(err)
			s.Fields = s.Fields[:2]
			o.must(o.cat.Foreign(o.ident, restcat.AddSchema(s, 3), restcat.SetCurrentSchema(restcat.LastAdded)))
		}, `column "day" was dropped`},
	} {
		o := newOutside(t, definition())
		for range 2 {
			o.append([]newFile{{rows: 5}}, nil)
			o.publish(o.freeze())
		}
		x.harm(o)
		o.append([]newFile{{rows: 5}}, nil)
		before := o.meta()
		_, err := o.pub.Publish(ctx, o.freeze())
		if !errors.Is(err, publisher.ErrForeign) || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v\nwant %q", name, err, x.want)
		}
		if o.meta() != before {
			t.Errorf("%s: something was committed", name)
		}
	}
	// A first publication does not take another's table for its own.
	o := &outside{world: newWorld(t, objstore.NewMem(), definition()), cat: remotetest.New(), ident: restcat.IdentifierOf(tableName)}
	other := newOutside(t, definition())
	o.cat = other.cat
	other.must(other.cat.Foreign(other.ident, restcat.AssignUUID("else")))
	if _, err := o.publisher().Publish(ctx, o.freeze()); !errors.Is(err, publisher.ErrForeign) || !strings.Contains(err.Error(), "is there already, and not ours") {
		t.Errorf("a table of that name: %v", err)
	}
	// The kind of catalog does not change under a table.
	f := other.cuts[0]
	f.Head.Build = 1
	if _, err := publisher.New(publisher.Config{Store: other.store, Bodies: other.bodies}).Publish(ctx, f); !errors.Is(err, publisher.ErrInconsistent) || !strings.Contains(err.Error(), "outside catalog") {
		t.Errorf("without the catalog: %v", err)
	}
}

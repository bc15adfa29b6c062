package publisher_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/varve-io/varve/processors/publisher"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/restcat"
	"github.com/varve-io/varve/statestore/restclient"
)

// foreignColumn adds a column as another program does.
func (o *outside) foreignColumn(name string) {
	o.t.Helper()
	s, err := o.meta().Schema(o.meta().CurrentSchema)
	o.must(err)
	s.Fields = append(slices.Clone(s.Fields), schemas.Field{ID: o.meta().LastColumnID + 1, Name: name, Type: schemas.Of(schemas.Date)})
	o.must(o.cat.Foreign(o.ident, restcat.AddSchema(s, s.HighestID()), restcat.SetCurrentSchema(restcat.LastAdded)))
}

// publishAll freezes and publishes until nothing is left to tell the catalog.
func (o *outside) publishAll() {
	o.t.Helper()
	for range 5 {
		if out := o.try(o.def.Name, o.id, &record.Cut{}); out.Outcome.Reason == record.NothingToCut {
			return
		}
		o.publish(o.frozen())
	}
	o.t.Fatal("the table never came to rest")
}

// TestRemoteColumnBesideProperty: another writer adds a column while a property
// of ours waits for its commit, frozen or not yet: the column is taken, the
// property published, and the current columns never fall back meanwhile.
func TestRemoteColumnBesideProperty(t *testing.T) {
	for _, frozen := range []bool{false, true} {
		for _, rises := range []bool{false, true} {
			o := newOutside(t, definition())
			o.append([]newFile{{rows: 9}}, nil)
			o.publish(o.freeze())
			alter := func() {
				o.do(o.def.Name, o.id, &record.AlterTable{Set: []schemas.Property{property("owner", "varve")}})
			}
			o.append([]newFile{{rows: 3}}, nil)
			if frozen {
				alter()
				o.freeze()
			} else {
				o.freeze()
				alter()
			}
			o.foreignColumn("theirs")
			if rises {
				o.foreign("dev", 0)
			}
			o.cat.After = func() error {
				if o.meta().CurrentSchema != 1 {
					t.Errorf("frozen %t, rises %t: the current columns were set back to schema %d", frozen, rises, o.meta().CurrentSchema)
				}
				return nil
			}
			o.publish(o.frozen())
			o.publishAll()
			info, err := o.st.Table(o.def.Name)
			o.must(err)
			if d := info.Definition; d.CurrentSchema != 1 || d.Schema().ByName("theirs") < 0 || d.Property("owner") != "varve" {
				t.Errorf("frozen %t, rises %t: the log has schema %d, properties %v", frozen, rises, d.CurrentSchema, d.Properties)
			}
			if m := o.meta(); m.CurrentSchema != 1 || len(m.Schemas) != 2 || m.Property("owner") != "varve" {
				t.Errorf("frozen %t, rises %t: the catalog has schema %d of %d, properties %v", frozen, rises, m.CurrentSchema, len(m.Schemas), m.Properties)
			}
			o.append([]newFile{{rows: 2}}, nil)
			o.publishAll()
			o.checkAll()
		}
	}
}

// TestRemoteColumnAfterLostAnswer: our column is in the catalog, the answer was
// lost, and another writer added one on top of it.
func TestRemoteColumnAfterLostAnswer(t *testing.T) {
	o := newOutside(t, definition())
	o.append([]newFile{{rows: 9}}, nil)
	o.publish(o.freeze())
	o.do(o.def.Name, o.id, &record.AlterTable{Add: []record.AddColumn{{Name: "ours", Type: schemas.Of(schemas.String)}}})
	o.cat.After = func() error {
		o.cat.After = nil
		o.foreignColumn("theirs")
		return restclient.ErrUnknown
	}
	r, _ := o.publish(o.freeze())
	if at := fmt.Sprintf("%s/metadata/%05d.metadata.json", o.def.Location, len(o.meta().MetadataLog)); r.Committed.MetadataPath != at {
		t.Errorf("what the catalog had already is recorded as at %s, it is at %s", r.Committed.MetadataPath, at)
	}
	o.publishAll()
	info, err := o.st.Table(o.def.Name)
	o.must(err)
	if d := info.Definition; d.CurrentSchema != 2 || d.Schema().ByName("ours") < 0 || d.Schema().ByName("theirs") < 0 {
		t.Errorf("the log has schema %d: %+v", d.CurrentSchema, d.Schema())
	}
	if m := o.meta(); m.CurrentSchema != 2 || len(m.Schemas) != 3 {
		t.Errorf("the catalog has schema %d of %d", m.CurrentSchema, len(m.Schemas))
	}
}

// TestRemotePropertyTwice: another writer sets a property while a cut is on its
// way, and again after it. The second value is theirs as the first was.
func TestRemotePropertyTwice(t *testing.T) {
	def := definition()
	def.Properties = []schemas.Property{property("gone", "1"), property("owner", "varve")}
	o := newOutside(t, def)
	o.append([]newFile{{rows: 9}}, nil)
	o.freeze()
	o.must(o.cat.Foreign(o.ident, restcat.SetProperties([]schemas.Property{property("owner", "A")}), restcat.RemoveProperties([]string{"gone"})))
	o.publish(o.frozen())
	o.must(o.cat.Foreign(o.ident, restcat.SetProperties([]schemas.Property{property("gone", "2"), property("owner", "B")})))
	o.append([]newFile{{rows: 9}}, nil)
	o.publishAll()
	info, err := o.st.Table(o.def.Name)
	o.must(err)
	if m := o.meta(); m.Property("owner") != "B" || m.Property("gone") != "2" {
		t.Errorf("the catalog's properties are %v", m.Properties)
	}
	if got := fmt.Sprint(info.Definition.Properties); got != "[{owner B}]" {
		t.Errorf("the definition's properties are %s", got)
	}
}

// columnTakenBack adds a column as another program does, and takes it out again.
func (o *outside) columnTakenBack(name string) {
	o.t.Helper()
	before := o.meta().CurrentSchema
	o.foreignColumn(name)
	o.must(o.cat.Foreign(o.ident, restcat.SetCurrentSchema(int32(before))))
}

// TestRemoteColumnsTakenBack: T9. Another writer adds a column and takes it back before we
// look, so that the catalog gave away the id of our next schema, and that of its field.
// Ours, and theirs, get the next ones.
func TestRemoteColumnsTakenBack(t *testing.T) {
	o := newOutside(t, definition())
	o.append([]newFile{{rows: 9}}, nil)
	o.publish(o.freeze())
	o.columnTakenBack("theirs")
	o.append([]newFile{{rows: 1}}, nil)
	o.publishAll()
	o.do(o.def.Name, o.id, &record.AlterTable{Add: []record.AddColumn{{Name: "ours", Type: schemas.Of(schemas.String)}}})
	o.append([]newFile{{rows: 2}}, nil)
	o.publishAll()
	d, m := o.definition(), o.meta()
	s, err := m.Schema(2)
	o.must(err)
	if d.CurrentSchema != 2 || len(d.Schemas) != 3 || m.CurrentSchema != 2 || len(m.Schemas) != 3 || s.Fields[3].Name != "ours" || s.Fields[3].ID != 5 || d.LastColumnID != 5 || m.LastColumnID != 5 {
		t.Errorf("the log has schema %d of %d, the catalog %d of %d: %+v", d.CurrentSchema, len(d.Schemas), m.CurrentSchema, len(m.Schemas), s.Fields)
	}
	// One that comes and goes and another one that stays, between two looks; both
	// are told apart.
	o.columnTakenBack("again")
	o.foreignColumn("stays")
	o.append([]newFile{{rows: 2}}, nil)
	o.publishAll()
	d, m = o.definition(), o.meta()
	if d.CurrentSchema != 4 || d.Schema().ByName("stays") < 0 || d.Schema().ByName("again") >= 0 || m.CurrentSchema != 4 || d.LastColumnID != 7 {
		t.Errorf("the log has schema %d: %+v", d.CurrentSchema, d.Schema())
	}
	// A property of ours waits: the record of the ids comes behind its commit.
	o.columnTakenBack("once more")
	o.do(o.def.Name, o.id, &record.AlterTable{Set: []schemas.Property{property("owner", "us")}})
	o.publishAll()
	o.append([]newFile{{rows: 2}}, nil)
	o.publishAll()
	if d, m = o.definition(), o.meta(); len(d.Schemas) != 6 || d.CurrentSchema != 4 || m.CurrentSchema != 4 || d.LastColumnID != 8 || m.Property("owner") != "us" {
		t.Errorf("the log has schema %d of %d, last field id %d", d.CurrentSchema, len(d.Schemas), d.LastColumnID)
	}
	o.checkAll()
}

// TestRemoteSchemaIDTaken: the same while a column of ours waits for its cut. Ours stops;
// theirs is not made current in its place.
func TestRemoteSchemaIDTaken(t *testing.T) {
	o := newOutside(t, definition())
	o.append([]newFile{{rows: 9}}, nil)
	o.publish(o.freeze())
	o.append([]newFile{{rows: 1}}, nil)
	o.do(o.def.Name, o.id, &record.AlterTable{Add: []record.AddColumn{{Name: "ours", Type: schemas.Of(schemas.String)}}})
	o.columnTakenBack("theirs")
	f := o.freeze()
	_, err := o.pub.Publish(ctx, f)
	var moved *publisher.BaseMoved
	if errors.As(err, &moved) {
		t.Fatalf("the log is told of %+v", moved.Record)
	}
	if !errors.Is(err, publisher.ErrForeign) || !strings.Contains(err.Error(), "schema 1, which is another one than ours of that id") || !strings.Contains(err.Error(), "remove schema 1 from the catalog's table") {
		t.Errorf("it stops with: %v", err)
	}
	if m := o.meta(); m.CurrentSchema != 0 {
		t.Errorf("schema %d became current", m.CurrentSchema)
	}
	// The way out that it names: theirs, which no snapshot needs, goes.
	m := o.meta()
	m.Schemas = slices.DeleteFunc(m.Schemas, func(x iceberg.Document) bool { return x.ID == 1 })
	o.publish(f)
	o.append([]newFile{{rows: 2}}, nil)
	o.publishAll()
	if s, err := o.meta().Schema(1); err != nil || o.meta().CurrentSchema != 1 || s.ByName("ours") < 0 || s.ByName("theirs") >= 0 {
		t.Errorf("schema %d is current, and it is %+v, %v", o.meta().CurrentSchema, s, err)
	}
	o.checkAll()
}

// TestRemoteRefRaces: a tag of ours and a tag or removal of theirs meet a frozen cut.
func TestRemoteRefRaces(t *testing.T) {
	def := definition()
	def.RetentionCount, def.RetentionMs = 1, 1
	o := newOutside(t, def)
	o.append([]newFile{{rows: 9}}, nil)
	r, _ := o.publish(o.freeze())
	first := r.Committed.SnapshotID
	o.append([]newFile{{rows: 9}}, nil)
	o.timeMs += 100_000
	f := o.freeze()
	// Frozen to expire or not, what theirs tags stays; what ours tags after is refused once it leaves.
	o.must(o.cat.Foreign(o.ident, restcat.SetRef("theirs", "tag", first, nil)))
	o.publish(f)
	o.publishAll()
	if o.meta().Ref("theirs") == nil || o.meta().Snapshot(first) == nil {
		t.Fatal("their tag was expired")
	}
	o.do(o.def.Name, o.id, &record.AlterRefs{Set: []record.TableRef{{Name: "ours", Snapshot: first}}})
	f = o.freeze()
	// They take the snapshot away with both tags: the log is told, and goes on.
	o.must(o.cat.Foreign(o.ident, restcat.RemoveSnapshots([]int64{first})))
	o.publish(f)
	o.append([]newFile{{rows: 2}}, nil)
	o.publishAll()
	info, err := o.st.Table(o.def.Name)
	o.must(err)
	if o.meta().Ref("ours") != nil || slices.ContainsFunc(info.Refs, func(x record.TableRef) bool { return x.Name == "ours" }) {
		t.Errorf("a tag names a snapshot that is gone: %+v", info.Refs)
	}
	// The same tag set by both between our reading and our commit: a conflict, and the log's is the later word.
	o.do(o.def.Name, o.id, &record.AlterRefs{Set: []record.TableRef{{Name: "both", Snapshot: info.Head.SnapshotID}}})
	o.append([]newFile{{rows: 2}}, nil)
	f = o.freeze()
	o.cat.Before = func() error {
		o.cat.Before = nil
		return errors.Join(o.cat.Foreign(o.ident, restcat.SetRef("both", "tag", o.meta().Current().ID, nil), restcat.SetRef(iceberg.MainBranch+"-x", "branch", o.meta().Current().ID, nil)))
	}
	o.publish(f)
	o.publishAll()
	if x := o.meta().Ref("both"); x == nil || x.SnapshotID != info.Head.SnapshotID {
		t.Errorf("the tag is %+v", x)
	}
	o.checkAll()
}

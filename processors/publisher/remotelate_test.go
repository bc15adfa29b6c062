package publisher_test

import (
	"errors"
	"testing"
	"time"

	"github.com/varve-io/varve/processors/publisher"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore/restclient"
)

// TestRemoteLateDefinition: a publisher stands still just before it sends a commit that
// only sets properties or refs; another one makes that commit, and later ones. What the
// first one sends then is refused by a catalog that swaps the place of the metadata
// itself whatever came between, and by a server of the protocol where main, the columns
// or the refs in question moved. What no requirement of the protocol tells lands: then
// the log takes it for another writer's, and both say the same.
func TestRemoteLateDefinition(t *testing.T) {
	owner := func(o *outside, value string) {
		o.do(o.def.Name, o.id, &record.AlterTable{Set: []schemas.Property{property("owner", value)}})
	}
	between := map[string]func(o *outside){
		"nothing else": func(*outside) {},
		"rows":         func(o *outside) { o.append([]newFile{{rows: 2}}, nil) },
		"a column": func(o *outside) {
			o.do(o.def.Name, o.id, &record.AlterTable{Add: []record.AddColumn{{Name: "note", Type: schemas.Of(schemas.String)}}})
		},
		"a partitioning": func(o *outside) {
			o.partitionBy(record.PartitionTerm{Column: "day", Transform: schemas.Identity, Name: "day"})
		},
		"a tag dropped": func(o *outside) {
			o.do(o.def.Name, o.id, &record.AlterRefs{Drop: []string{"v1"}})
		},
	}
	for name, more := range between {
		for _, exact := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", places are swapped"}[exact], func(t *testing.T) {
				o := newOutside(t, definition())
				o.cat.Exact = exact
				o.append([]newFile{{rows: 9}}, nil)
				o.publish(o.freeze())
				o.do(o.def.Name, o.id, &record.AlterRefs{Set: []record.TableRef{{Name: "v1", Snapshot: o.meta().Current().ID}}})
				o.publish(o.freeze())
				owner(o, "before") // and the log hears of the tag
				o.publish(o.freeze())
				owner(o, "first")
				f := o.freeze()
				late := o.publisher()
				o.cat.Before = func() error {
					o.cat.Before = nil
					o.publish(f)
					owner(o, "second")
					more(o)
					o.publish(o.freeze())
					return nil
				}
				_, err := late.Publish(ctx, f)
				lands := !exact && name != "rows" && name != "a column"
				if lands != (err == nil) || !lands && !errors.Is(err, restclient.ErrConflict) {
					t.Errorf("it ends with: %v", err)
				}
				o.append([]newFile{{rows: 1, spec: o.definition().DefaultSpec, partition: emptyTuple(o.definition().Spec(o.definition().DefaultSpec))}}, nil)
				o.publishAll()
				want := map[bool]string{false: "second", true: "first"}[lands]
				if m, d := o.meta().Property("owner"), o.definition().Property("owner"); m != want || d != want {
					t.Errorf("the owner is %s in the catalog, %s in the log; want %s", m, d, want)
				}
				o.checkAll()
			})
		}
	}
}

// TestRemoteLateRefs: the same of a commit that only sets a tag.
func TestRemoteLateRefs(t *testing.T) {
	for _, exact := range []bool{false, true} {
		o := newOutside(t, definition())
		o.cat.Exact = exact
		o.append([]newFile{{rows: 9}}, nil)
		o.publish(o.freeze())
		first := o.meta().Current().ID
		o.append([]newFile{{rows: 3}}, nil)
		o.publish(o.freeze())
		set := func(snapshot int64) {
			o.do(o.def.Name, o.id, &record.AlterRefs{Set: []record.TableRef{{Name: "v1", Snapshot: snapshot}}})
		}
		set(first)
		f := o.freeze()
		late := o.publisher()
		o.cat.Before = func() error {
			o.cat.Before = nil
			o.publish(f)
			set(o.meta().Current().ID)
			o.publish(o.freeze())
			return nil
		}
		if _, err := late.Publish(ctx, f); !errors.Is(err, restclient.ErrConflict) {
			t.Errorf("exact %t: it ends with: %v", exact, err)
		}
		if at := o.meta().Ref("v1"); at == nil || at.SnapshotID == first {
			t.Errorf("exact %t: the tag is %+v", exact, at)
		}
		o.append([]newFile{{rows: 1}}, nil)
		o.publishAll()
		// Dropped meanwhile it does not come back.
		set(first)
		f = o.freeze()
		o.cat.Before = func() error {
			o.cat.Before = nil
			o.publish(f)
			o.do(o.def.Name, o.id, &record.AlterRefs{Drop: []string{"v1"}})
			o.publish(o.freeze())
			return nil
		}
		if _, err := late.Publish(ctx, f); !errors.Is(err, restclient.ErrConflict) {
			t.Errorf("exact %t: it ends with: %v", exact, err)
		}
		if at := o.meta().Ref("v1"); at != nil {
			t.Errorf("exact %t: the tag that was dropped is back at %d", exact, at.SnapshotID)
		}
		o.append([]newFile{{rows: 1}}, nil)
		o.publishAll()
		o.checkAll()
	}
}

// TestRemoteStaleDefinition: what a state says that was not at the log's end for long is
// not sent to a server, where no requirement would refuse it; a snapshot is, for that
// main has one.
func TestRemoteStaleDefinition(t *testing.T) {
	o := newOutside(t, definition())
	o.append([]newFile{{rows: 9}}, nil)
	o.publish(o.freeze())
	o.do(o.def.Name, o.id, &record.AlterTable{Set: []schemas.Property{property("owner", "varve")}})
	f := o.freeze()
	o.cat.Before = func() error {
		t.Error("a commit was sent")
		return nil
	}
	if _, err := o.pub.PublishAsOf(ctx, f, time.Now().Add(-time.Hour)); !errors.Is(err, restclient.ErrConflict) || publisher.Cause(err) != "conflict" {
		t.Errorf("it ends with: %v", err)
	}
	o.cat.Before = nil
	o.publish(f)
	o.append([]newFile{{rows: 1}}, nil)
	f = o.freeze()
	r, err := o.pub.PublishAsOf(ctx, f, time.Now().Add(-time.Hour))
	o.must(err)
	o.confirm(f, r)
	if o.meta().Property("owner") != "varve" {
		t.Error("the property was not published")
	}
	o.checkAll()
}

package publisher_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/varve-io/varve/processors/publisher"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/restcat"
	"github.com/varve-io/varve/statestore/restclient"
)

// tookSpecs tells the log of another writer's partition specs, where that is why
// a publisher failed.
func (o *outside) tookSpecs(err error) bool {
	o.t.Helper()
	var specs *publisher.SpecsMoved
	var taken *publisher.SpecsTaken
	var given *publisher.SchemasGiven
	switch {
	case errors.As(err, &given):
		o.do(o.def.Name, o.id, &given.Record)
	case errors.As(err, &specs):
		o.do(o.def.Name, o.id, &specs.Record)
	case errors.As(err, &taken):
		before := o.definition()
		o.do(o.def.Name, o.id, &taken.Record)
		after := o.definition()
		for id, f := range o.files {
			if f.spec >= taken.Record.Specs[0].ID {
				f.spec = sameTerms(o.t, after, &before.Specs[f.spec])
				o.files[id] = f
			}
		}
		o.def.Specs = after.Specs
		o.claim() // as the owner does whose epoch was closed
	default:
		return false
	}
	return true
}

func (o *outside) definition() *schemas.Definition {
	o.t.Helper()
	info, err := o.st.Table(o.def.Name)
	o.must(err)
	return info.Definition
}

// sameTerms is the id of the spec that says the same as another.
func sameTerms(t testing.TB, d *schemas.Definition, as *schemas.Spec) int32 {
	t.Helper()
	for i := range d.Specs {
		if slices.EqualFunc(d.Specs[i].Fields, as.Fields, func(f, g schemas.PartitionField) bool { return f.SameTerm(&g) }) {
			return d.Specs[i].ID
		}
	}
	t.Fatalf("no spec says %+v", as.Fields)
	return 0
}

// partitionBy asks for a table to be partitioned by terms such as day_1 of day.
func (o *outside) partitionBy(terms ...record.PartitionTerm) {
	o.t.Helper()
	o.do(o.def.Name, o.id, &record.AlterSpec{Terms: terms})
}

// specs is what the catalog and the log have of specs.
func (o *outside) specs() string {
	o.t.Helper()
	m := o.meta()
	info, err := o.st.Table(o.def.Name)
	o.must(err)
	d := info.Definition
	for i := range d.Specs {
		theirs, err := m.Spec(int64(d.Specs[i].ID))
		o.must(err)
		if fmt.Sprint(theirs.Fields) != fmt.Sprint(d.Specs[i].Fields) {
			o.t.Errorf("spec %d is %v in the catalog, %v in the log", i, theirs.Fields, d.Specs[i].Fields)
		}
	}
	return fmt.Sprintf("%d of %d specs, last field %d; %d of %d, %d", m.DefaultSpec, len(m.Specs), m.LastPartitionID, d.DefaultSpec, len(d.Specs), d.LastPartitionID)
}

func (o *outside) wantSpecs(want string) {
	o.t.Helper()
	if got := o.specs(); got != want {
		o.t.Errorf("%s; want %s", got, want)
	}
}

var dayTuple = schemas.EncodeTuple([][]byte{{7, 0, 0, 0}})

// TestRemoteSpecs: T7 in an outside catalog, whose answers are lost now and then.
func TestRemoteSpecs(t *testing.T) {
	o := newOutside(t, definition())
	ids := o.append([]newFile{{rows: 9}}, nil)
	o.publish(o.freeze())
	o.partitionBy(record.PartitionTerm{Column: "day", Transform: schemas.Identity, Name: "day"})
	ids = append(ids, o.append([]newFile{{rows: 4, spec: 1, partition: dayTuple}}, map[uint64][]uint32{ids[0]: {1}})...)
	lost := true
	o.cat.After = func() error {
		if lost {
			lost = false
			return restclient.ErrUnknown
		}
		return nil
	}
	o.publish(o.freeze())
	o.wantSpecs("1 of 2 specs, last field 1000; 1 of 2, 1000")
	o.append(nil, map[uint64][]uint32{ids[0]: {2}, ids[1]: {3}})
	o.publish(o.freeze())
	// A change of nothing else, there and back.
	o.partitionBy()
	lost = true
	r, _ := o.publish(o.freeze())
	if r.Committed.SnapshotID != 0 {
		t.Errorf("a snapshot without files: %+v", r.Committed)
	}
	o.wantSpecs("0 of 2 specs, last field 1000; 0 of 2, 1000")
	o.partitionBy(record.PartitionTerm{Column: "day", Transform: schemas.Bucket, N: 3, Name: "day_bucket"}, record.PartitionTerm{Column: "day", Transform: schemas.Identity, Name: "day"})
	o.publish(o.freeze())
	o.wantSpecs("2 of 3 specs, last field 1001; 2 of 3, 1001")
	o.checkAll()
}

// TestRemoteForeignSpecs: another writer partitions the table otherwise (T8).
func TestRemoteForeignSpecs(t *testing.T) {
	o := newOutside(t, definition())
	ids := o.append([]newFile{{rows: 9}}, nil)
	o.publish(o.freeze())
	theirs := byDay(1)
	o.must(o.cat.Foreign(o.ident, restcat.AddSpec(&theirs), restcat.SetDefaultSpec(1)))
	o.append([]newFile{{rows: 2}}, map[uint64][]uint32{ids[0]: {1}})
	if _, tries := o.publish(o.freeze()); tries != 2 {
		t.Errorf("%d tries", tries)
	}
	o.wantSpecs("1 of 2 specs, last field 1001; 1 of 2, 1001")
	o.append([]newFile{{rows: 4, spec: 1, partition: dayTuple}}, nil)
	o.publish(o.freeze())

	// Their default and a change of ours that is frozen already: theirs stays.
	o.do(o.def.Name, o.id, &record.AlterTable{Set: []schemas.Property{property("owner", "us")}})
	f := o.freeze()
	o.cat.Before = func() error {
		o.cat.Before = nil
		o.must(o.cat.Foreign(o.ident, restcat.SetDefaultSpec(0)))
		return nil
	}
	o.publish(f)
	o.append([]newFile{{rows: 1}}, nil)
	o.publishAll()
	o.wantSpecs("0 of 2 specs, last field 1001; 0 of 2, 1001")

	// One that we cannot write stops the table while it is the default.
	for _, x := range []struct {
		spec schemas.Spec
		want string
	}{
		{schemas.Spec{ID: 2, Fields: []schemas.PartitionField{{SourceID: 1, FieldID: 1002, Name: "id", Transform: schemas.Identity}}}, `field "id" shows values of the key`},
		{schemas.Spec{ID: 3, Fields: []schemas.PartitionField{{SourceID: 2, FieldID: 1001, Name: "n", Transform: schemas.Identity}}}, "has the id 1001, which was given to another"},
	} {
		o.must(o.cat.Foreign(o.ident, restcat.AddSpec(&x.spec), restcat.SetDefaultSpec(x.spec.ID)))
		o.append([]newFile{{rows: 1}}, nil)
		f = o.freeze()
		if _, err := o.pub.Publish(ctx, f); !errors.Is(err, publisher.ErrForeign) || !strings.Contains(err.Error(), x.want) || !strings.Contains(err.Error(), "so that spec 0 is the default one again") {
			t.Errorf("spec %d: %v", x.spec.ID, err)
		}
		o.must(o.cat.Foreign(o.ident, restcat.SetDefaultSpec(0)))
		o.publish(f)
	}
	o.checkAll()
}

// TestRemoteUnwritableSpecs: specs that varve cannot write and that are not the default
// one (any more) have void ones stand for them: what comes behind keeps its id, of another
// writer or of us. They stop the table while they are the default, and so do files of them.
func TestRemoteUnwritableSpecs(t *testing.T) {
	o := newOutside(t, definition())
	o.append([]newFile{{rows: 9}}, nil)
	o.publish(o.freeze())
	byID := schemas.Spec{Fields: []schemas.PartitionField{{SourceID: 1, FieldID: 1000, Name: "id", Transform: schemas.Identity}, {SourceID: 3, FieldID: 1001, Name: "day", Transform: schemas.Identity}}}
	byDay := schemas.Spec{Fields: []schemas.PartitionField{{SourceID: 3, FieldID: 1001, Name: "day", Transform: schemas.Identity}}}
	o.must(o.cat.Foreign(o.ident, restcat.AddSpec(&byID), restcat.SetDefaultSpec(1)))
	o.append([]newFile{{rows: 1}}, nil)
	f := o.freeze()
	if _, err := o.pub.Publish(ctx, f); !errors.Is(err, publisher.ErrForeign) || !strings.Contains(err.Error(), "shows values of the key") {
		t.Errorf("the default one: %v", err)
	}
	// They take the key out again: another spec, behind that one.
	o.must(o.cat.Foreign(o.ident, restcat.AddSpec(&byDay), restcat.SetDefaultSpec(2)))
	o.publish(f)
	d := o.definition()
	if d.DefaultSpec != 2 || len(d.Specs) != 3 || d.Specs[1].Fields[0].Transform != schemas.Void || d.Specs[1].Fields[1].Transform != schemas.Identity || d.Specs[2].Fields[0].Transform != schemas.Identity || d.LastPartitionID != 1001 {
		t.Errorf("the log has %+v", d.Specs)
	}
	// Ours comes behind both, and theirs behind ours.
	o.partitionBy(record.PartitionTerm{Column: "day", Transform: schemas.Bucket, N: 4, Name: "day_bucket"})
	o.append([]newFile{{rows: 2, spec: 2, partition: dayTuple}, {rows: 3, spec: 3, partition: dayTuple}}, nil)
	o.publish(o.freeze())
	if m := o.meta(); m.DefaultSpec != 3 || len(m.Specs) != 4 {
		t.Errorf("spec %d of %d", m.DefaultSpec, len(m.Specs))
	}
	o.checkAll()
	// The first one again: it stops, as it did.
	o.must(o.cat.Foreign(o.ident, restcat.SetDefaultSpec(1)))
	o.append([]newFile{{rows: 1}}, nil)
	f = o.freeze()
	if _, err := o.pub.Publish(ctx, f); !errors.Is(err, publisher.ErrForeign) || !strings.Contains(err.Error(), "shows values of the key") {
		t.Errorf("the default one again: %v", err)
	}
	o.must(o.cat.Foreign(o.ident, restcat.SetDefaultSpec(3)))
	o.publish(f)
	o.publishAll()
	o.checkAll()
}

// TestRemoteSpecTaken: T8. A change of ours waits for its cut while another writer
// gives its id to another spec: ours gets the next one, with the files that were
// written under it, or becomes theirs where that says the same. Nothing stops, and no
// file is listed under a spec that it was not written under.
func TestRemoteSpecTaken(t *testing.T) {
	day := record.PartitionTerm{Column: "day", Transform: schemas.Identity, Name: "day"}
	bucket := record.PartitionTerm{Column: "day", Transform: schemas.Bucket, N: 8, Name: "day_bucket"}
	field := func(source, id int32, name string, kind schemas.TransformKind, n int32) schemas.PartitionField {
		return schemas.PartitionField{SourceID: source, FieldID: id, Name: name, Transform: kind, N: n}
	}
	for _, x := range []struct {
		name   string
		ours   [][]record.PartitionTerm
		theirs []schemas.PartitionField
		want   string
		names  string
	}{
		{"another", [][]record.PartitionTerm{{day}}, []schemas.PartitionField{field(2, 1000, "name", schemas.Identity, 0)},
			"2 of 3 specs, last field 1001; 2 of 3, 1001", "[] [name] [day]"},
		{"the same", [][]record.PartitionTerm{{day}}, []schemas.PartitionField{field(3, 1000, "day", schemas.Identity, 0)},
			"1 of 2 specs, last field 1000; 1 of 2, 1000", "[] [day]"},
		{"the same by another id and name", [][]record.PartitionTerm{{day}}, []schemas.PartitionField{field(3, 1004, "placed", schemas.Identity, 0)},
			"1 of 2 specs, last field 1004; 1 of 2, 1004", "[] [placed]"},
		{"another of that name", [][]record.PartitionTerm{{day, bucket}}, []schemas.PartitionField{field(3, 1000, "day_bucket", schemas.Bucket, 4)},
			"2 of 3 specs, last field 1002; 2 of 3, 1002", "[] [day_bucket] [day day_bucket_2]"},
		{"the second of two", [][]record.PartitionTerm{{bucket}, {day}}, []schemas.PartitionField{field(3, 1000, "day", schemas.Identity, 0)},
			"1 of 3 specs, last field 1001; 1 of 3, 1001", "[] [day] [day_bucket]"},
		{"a field of two", [][]record.PartitionTerm{{day, bucket}}, []schemas.PartitionField{field(3, 1000, "day", schemas.Identity, 0)},
			"2 of 3 specs, last field 1001; 2 of 3, 1001", "[] [day] [day day_bucket]"},
	} {
		// It waits; its cut is frozen; the commit is on its way.
		for _, when := range []string{"waits", "frozen", "sent"} {
			t.Run(x.name+", "+when, func(t *testing.T) {
				o := newOutside(t, definition())
				ids := o.append([]newFile{{rows: 9}}, nil)
				o.publish(o.freeze())
				for i, terms := range x.ours {
					o.partitionBy(terms...)
					tuple := [][]byte{{7, 0, 0, 0}, {1, 0, 0, 0}}[:len(terms)]
					ids = append(ids, o.append([]newFile{{rows: 4, spec: int32(i + 1), partition: schemas.EncodeTuple(tuple)}}, map[uint64][]uint32{ids[0]: {uint32(i)}})...)
				}
				theirs := func() error {
					o.cat.Before = nil
					next := schemas.Spec{ID: 1, Fields: x.theirs}
					return o.cat.Foreign(o.ident, restcat.AddSpec(&next), restcat.SetDefaultSpec(1))
				}
				if when == "waits" {
					o.must(theirs())
				}
				f := o.freeze()
				switch when {
				case "frozen":
					o.must(theirs())
				case "sent":
					o.cat.Before = theirs
				}
				o.publish(f)
				o.checkAll()
				o.wantSpecs(x.want)
				var names [][]string
				d := o.definition()
				for i := range d.Specs {
					var of []string
					for _, f := range d.Specs[i].Fields {
						of = append(of, f.Name)
					}
					names = append(names, of)
				}
				if got := fmt.Sprint(names); got != "["+x.names+"]" {
					t.Errorf("the specs' fields are %s, want [%s]", got, x.names)
				}
				// Rows die in the files of all of them, and more come.
				kills := map[uint64][]uint32{}
				for _, id := range ids {
					kills[id] = []uint32{3}
				}
				o.append([]newFile{{rows: 1, spec: d.DefaultSpec, partition: emptyTuple(d.Spec(d.DefaultSpec))}}, kills)
				o.publishAll()
				o.checkAll()
				o.wantSpecs(x.want)
			})
		}
	}
}

// TestRemoteSpecTakenUnwritable: the id went to a spec that varve cannot write. A void one
// stands for it; while it is the default the table stops, and then goes on.
func TestRemoteSpecTakenUnwritable(t *testing.T) {
	o := newOutside(t, definition())
	o.append([]newFile{{rows: 9}}, nil)
	o.publish(o.freeze())
	o.partitionBy(record.PartitionTerm{Column: "day", Transform: schemas.Identity, Name: "day"})
	o.append([]newFile{{rows: 4, spec: 1, partition: dayTuple}}, nil)
	theirs := schemas.Spec{ID: 1, Fields: []schemas.PartitionField{{SourceID: 1, FieldID: 1000, Name: "id", Transform: schemas.Identity}}}
	o.must(o.cat.Foreign(o.ident, restcat.AddSpec(&theirs), restcat.SetDefaultSpec(1)))
	f := o.freeze()
	_, err := o.pub.Publish(ctx, f)
	if !errors.Is(err, publisher.ErrForeign) || !strings.Contains(err.Error(), "make another spec the default one again") {
		t.Fatalf("it stops with: %v", err)
	}
	o.must(o.cat.Foreign(o.ident, restcat.SetDefaultSpec(0)))
	o.publish(f)
	if d, m := o.definition(), o.meta(); d.DefaultSpec != 2 || len(d.Specs) != 3 || m.DefaultSpec != 2 || len(m.Specs) != 3 || d.LastPartitionID != 1001 || m.LastPartitionID != 1001 {
		t.Errorf("spec %d of %d in the log, %d of %d in the catalog", d.DefaultSpec, len(d.Specs), m.DefaultSpec, len(m.Specs))
	}
	o.checkAll()
}

// TestRemoteSpecsRandom: we and another writer partition a table in turns, while
// files of all specs come and rows die in them; answers are lost, before and after
// the effect. Every snapshot holds what the model says, and both know the same specs.
func TestRemoteSpecsRandom(t *testing.T) {
	for seed := range uint64(4) {
		rng := rand.New(rand.NewPCG(seed, 21))
		o := newOutside(t, definition(byDay(0)))
		saw := map[string]int{}
		known := func() *schemas.Definition {
			info, err := o.st.Table(o.def.Name)
			o.must(err)
			o.def.Specs = info.Definition.Specs
			return info.Definition
		}
		theirs := func(n int32) {
			m := o.meta()
			if len(known().Specs) > len(m.Specs) {
				saw["ours in the way"]++
			}
			f := schemas.PartitionField{SourceID: 3, FieldID: m.LastPartitionID + 1, Name: fmt.Sprint("day_", n), Transform: schemas.Bucket, N: n}
			for i := range m.Specs {
				x, err := m.Spec(m.Specs[i].ID)
				o.must(err)
				for _, g := range x.Fields {
					if g.Name == f.Name {
						o.must(o.cat.Foreign(o.ident, restcat.SetDefaultSpec(x.ID)))
						saw["theirs again"]++
						return
					}
				}
			}
			next := schemas.Spec{ID: int32(len(m.Specs)), Fields: []schemas.PartitionField{f}}
			o.must(o.cat.Foreign(o.ident, restcat.AddSpec(&next), restcat.SetDefaultSpec(next.ID)))
			saw["theirs"]++
		}
		ours := func(n int32) {
			before := known()
			o.partitionBy(record.PartitionTerm{Column: "day", Transform: schemas.Bucket, N: n, Name: fmt.Sprint("day_", n)})
			if after := known(); after.DefaultSpec != before.DefaultSpec {
				saw["ours"]++
			}
		}
		for range 50 {
			n := 1 + rng.Int32N(25)
			switch rng.IntN(4) {
			case 0:
				ours(n)
			case 1:
				theirs(n)
			}
			o.round(rng)
			f := o.freeze()
			if rng.IntN(3) == 0 {
				theirs(1 + rng.Int32N(25))
			} else if rng.IntN(3) == 0 {
				ours(1 + rng.Int32N(25))
				f = o.frozen()
			}
			lost := rng.IntN(4)
			fault := func(at int) func() error {
				return func() error {
					if lost != at {
						return nil
					}
					lost = -1
					saw[fmt.Sprint("lost ", at)]++
					return restclient.ErrUnknown
				}
			}
			o.cat.Before, o.cat.After = fault(0), fault(1)
			o.publish(f)
			o.checkAll()
		}
		o.cat.Before, o.cat.After = nil, nil
		o.append([]newFile{{rows: 1, partition: emptyTuple(&o.def.Specs[0])}}, nil)
		o.publishAll()
		d, m := known(), o.meta()
		if int64(d.DefaultSpec) != m.DefaultSpec || len(d.Specs) != len(m.Specs) || d.LastPartitionID != m.LastPartitionID {
			t.Errorf("seed %d: default spec %d of %d here, %d of %d there", seed, d.DefaultSpec, len(d.Specs), m.DefaultSpec, len(m.Specs))
		}
		o.specs()
		if i := slices.IndexFunc([]string{"ours", "theirs", "theirs again", "ours in the way", "lost 0", "lost 1"}, func(what string) bool { return saw[what] == 0 }); i >= 0 {
			t.Errorf("seed %d saw only %v", seed, saw)
		}
	}
}

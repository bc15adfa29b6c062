package publisher_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/restcat"
	"github.com/varve-io/varve/statestore/restclient"
)

// TestRemoteRefs: branches and tags that the log makes are set in the outside
// catalog, found there after a lost answer, moved, and dropped; those of others
// are left alone (S11, S12).
func TestRemoteRefs(t *testing.T) {
	o := newOutside(t, definition())
	o.append([]newFile{{rows: 3}}, nil)
	rng := rand.New(rand.NewPCG(1, 2))
	o.round(rng)
	first, _ := o.publish(o.freeze())
	theirs := "theirs"
	o.must(o.cat.Foreign(o.ident, restcat.SetRef(theirs, "tag", first.Committed.SnapshotID, nil)))
	set := func(r *record.AlterRefs) {
		t.Helper()
		if out := o.do(o.def.Name, o.id, r); out.Outcome.Code != record.Accepted {
			t.Fatalf("refs: %+v", out.Outcome)
		}
		o.publish(o.freeze())
	}
	o.cat.After = func() error {
		o.cat.After = nil
		return errors.Join(restclient.ErrUnknown, errors.New("answer lost"))
	}
	set(&record.AlterRefs{Set: []record.TableRef{{Name: "b", Branch: true, Snapshot: first.Committed.SnapshotID}, {Name: "v1", Snapshot: first.Committed.SnapshotID}}})
	o.round(rng)
	second, _ := o.publish(o.freeze())
	set(&record.AlterRefs{Set: []record.TableRef{{Name: "v1", Snapshot: second.Committed.SnapshotID}}, Drop: []string{"b"}})
	want := map[string]int64{"main": second.Committed.SnapshotID, "v1": second.Committed.SnapshotID, theirs: first.Committed.SnapshotID}
	m := o.meta()
	if len(m.Refs) != len(want) {
		t.Errorf("refs: %+v, want %v", m.Refs, want)
	}
	for i := range m.Refs {
		if r := &m.Refs[i]; want[r.Name] != r.SnapshotID {
			t.Errorf("ref %s names snapshot %d, want %d", r.Name, r.SnapshotID, want[r.Name])
		}
	}
	// What both name is not expired on demand.
	if out := o.try(o.def.Name, o.id, &record.ExpireSnapshots{Snapshots: []int64{first.Committed.SnapshotID}}); out.Outcome.Reason != record.SnapshotHeld {
		t.Errorf("expiry of a snapshot that another's tag names: %+v", out.Outcome)
	}
	o.checkAll()
}

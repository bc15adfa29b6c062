package publisher_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/varve-io/varve/processors/publisher"
	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/record"
)

// TestRemoteHeadMoved: another writer's commit to main is told, taken into the log,
// and the given up cut's changes are in the next one, of the same rows (H2, H10).
func TestRemoteHeadMoved(t *testing.T) {
	o := newOutside(t, definition())
	for range 2 {
		o.append([]newFile{{rows: 5}}, nil)
		o.publish(o.freeze())
	}
	o.append([]newFile{{rows: 3}}, nil)
	f := o.freeze()
	o.foreign(iceberg.MainBranch, 0)
	_, err := o.pub.Publish(ctx, f)
	var moved *publisher.HeadMoved
	if !errors.As(err, &moved) || !strings.Contains(err.Error(), "1 snapshots of other writers") {
		t.Fatalf("%v", err)
	}
	// Nobody can publish that cut any more, and looking tells the same.
	if _, err := o.pub.Publish(ctx, f); !errors.As(err, &moved) {
		t.Fatalf("again: %v", err)
	}
	rec, err := o.pub.ForeignSnapshot(ctx, o.st, f, moved)
	if err != nil {
		t.Fatal(err)
	}
	if len(rec.Snapshots) != 1 || len(rec.Files)+len(rec.Removed)+len(rec.Vectors)+len(rec.Gone)+len(rec.Manifests) != 0 || rec.Base != f.Head.SnapshotID {
		t.Errorf("the record is %+v", rec)
	}
	o.do(o.def.Name, o.id, rec)
	if out := o.try(o.def.Name, o.id, rec); out.Outcome.Reason != record.HeadMoved {
		t.Errorf("twice: %+v", out.Outcome)
	}
	if _, err := o.st.Commit(); err != nil {
		t.Fatal(err)
	}
	if f, err := o.st.Frozen(o.id); f != nil || err != nil {
		t.Fatalf("the cut is still pending: %+v, %v", f, err)
	}
	base, err := o.st.Committed(o.id)
	if err != nil || base == nil || base.Head.SnapshotID != rec.Snapshots[0].ID {
		t.Fatalf("the head is %+v, %v", base, err)
	}
	if err := o.pub.Look(ctx, base); err != nil {
		t.Errorf("looking at it: %v", err)
	}
	// On a table without changes the same is found by looking.
	o.publish(o.freeze())
	o.checkAll()
	if _, err := o.st.Commit(); err != nil {
		t.Fatal(err)
	}
	o.foreign(iceberg.MainBranch, 0)
	if base, err = o.st.Committed(o.id); err != nil {
		t.Fatal(err)
	}
	if err := o.pub.Look(ctx, base); !errors.As(err, &moved) {
		t.Errorf("looking finds %v", err)
	}
}

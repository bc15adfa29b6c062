package publisher_test

import (
	"runtime"
	"testing"
	"weak"

	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/objstore"
)

// TestFrozenCutIsForgotten: what a publisher keeps of a table (its metadata,
// with a line for each retained snapshot, and its manifests' entries) holds on
// to nothing of the cuts that it was made from, which are large.
func TestFrozenCutIsForgotten(t *testing.T) {
	def := definition()
	def.RetentionCount = 100
	w := newWorld(t, objstore.NewMem(), def)
	w.cut()
	var cuts []weak.Pointer[statestore.FrozenCut]
	var files []weak.Pointer[statestore.FrozenFile]
	for range 5 {
		ids := sortedIDs(w.files)
		kills := map[uint64][]uint32{}
		if len(ids) > 0 {
			kills[ids[len(ids)-1]] = []uint32{1}
		}
		w.append([]newFile{{rows: 20, partition: emptyTuple(def.Spec(0))}}, kills)
		func() {
			f := w.freeze()
			r, err := w.pub.Publish(t.Context(), f)
			if err != nil {
				t.Fatal(err)
			}
			w.confirm(f, r)
			w.cuts = nil // the test's own
			cuts, files = append(cuts, weak.Make(f)), append(files, weak.Make(&f.Files[0]))
		}()
	}
	runtime.GC()
	for i := range cuts {
		if cuts[i].Value() != nil || files[i].Value() != nil {
			t.Errorf("the cut of commit %d is still held", i)
		}
	}
	runtime.KeepAlive(w)
}

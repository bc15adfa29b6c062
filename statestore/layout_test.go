package statestore_test

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
)

// TestLayout: what the database holds of a fixed log. Where this changes, a
// folder of the build before is read wrongly unless stateLayout rises, by which
// the next start sets it aside and makes it anew. Then the hash here changes too.
func TestLayout(t *testing.T) {
	const layout, want = 7, "6043a334be3082da"
	l := newLog(t, t.TempDir())
	id, first := jobFiles(t, l, 300)
	l.do("t", id, &record.DeletePositions{Deletes: []record.DeleteBlock{{File: first + 2, Bitmap: positions(3, 4)}}})
	p := &record.PlanJobs{Items: []record.PlanItem{{Strategy: "test", Inputs: []record.JobInput{{File: first, Hi: 100}, {File: first + 1, Hi: 100}}}, {Strategy: "test", Inputs: []record.JobInput{{File: first + 2, Hi: 100}}}}}
	l.do("t", id, p)
	box := l.commit()
	l.do("t", id, &record.CompleteJob{Metrics: ref(2), Items: []record.CompletedJob{completion(t, l.st, &box.Jobs[0], 1)}})
	l.do("t", id, &record.AlterTable{Add: []record.AddColumn{{Name: "note", Type: schemas.Of(schemas.String)}}})
	l.do("t", id, &record.AlterRefs{})
	l.do("t", id, &record.Cut{})
	l.commit()
	h := sha256.New()
	if err := l.st.Dump(func(key, value []byte) error {
		h.Write(key)
		h.Write(value)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if got := hex.EncodeToString(h.Sum(nil)[:8]); got != want {
		t.Errorf("the database of layout %d holds %s, not %s", layout, got, want)
	}
}

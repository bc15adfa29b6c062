package statestore

import (
	"slices"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
)

// F22: what is remembered of a reference whose job a rollback forgot, and a reference
// without such is written as it always was.
func TestPartsKeepForgottenJobs(t *testing.T) {
	parts := []part{
		{hi: 4, node: 1, back: true}, {lo: 4, hi: 6, node: 2, back: true, state: partTaken, job: jobID{9, 1}},
		{lo: 6, hi: 7, node: 2, back: true, state: partMoved, job: jobID{8, 0}}, {lo: 7, hi: 9, node: 3},
	}
	parts[2].lose()
	got, err := decodeParts(encodeParts(parts))
	if err != nil || !slices.Equal(got, parts) {
		t.Fatalf("%v\n%+v\n%+v", err, got, parts)
	}
	if !got[2].lost() || got[0].lost() || got[1].lost() || got[3].lost() {
		t.Fatalf("lost: %+v", got)
	}
}

func TestCovers(t *testing.T) {
	set := roaring.BitmapOf(0, 1, 2, 5, 6)
	for _, x := range []struct {
		lo, hi int64
		want   bool
	}{{0, 3, true}, {0, 4, false}, {1, 3, true}, {2, 6, false}, {5, 7, true}, {5, 8, false}, {3, 5, false}} {
		if covers(set, x.lo, x.hi) != x.want {
			t.Errorf("[%d,%d): %t", x.lo, x.hi, !x.want)
		}
	}
}

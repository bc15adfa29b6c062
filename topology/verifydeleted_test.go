package topology

import (
	"math"
	"testing"

	"github.com/varve-io/varve/schemas/record"
)

// TestDeletedRows: a find job counts what all its parts deleted by then; of
// positions nobody knows.
func TestDeletedRows(t *testing.T) {
	found := func(at, find, rows int64) *record.OutcomeMessage {
		return &record.OutcomeMessage{Offset: at, Type: record.TypeRowsFound, Outcome: record.Outcome{Numbers: []int64{record.WhereFind: find, record.WhereRows: rows}}}
	}
	x := deletedRows{finds: map[int64]int64{}}
	for _, m := range []*record.OutcomeMessage{found(11, 10, 2), found(12, 10, 5), found(15, 14, 1)} {
		x.note(m)
	}
	if x.most() != 6 || x.at != 15 {
		t.Errorf("got %d by offset %d", x.most(), x.at)
	}
	x.note(&record.OutcomeMessage{Offset: 17, Type: record.TypeDeletePositions})
	if x.most() != math.MaxInt64 || x.at != 17 {
		t.Errorf("got %d by offset %d", x.most(), x.at)
	}
}

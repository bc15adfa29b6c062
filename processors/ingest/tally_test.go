package ingest

import (
	"errors"
	"testing"

	"github.com/varve-io/varve/schemas/record"
)

func TestTally(t *testing.T) {
	whole := Tally{Records: 10, Applied: 7, Control: 2, Letters: 1, Events: 9, Rows: 4, Superseded: 1, Deletes: 2, AbsentDeletes: 1, Late: 1}
	if err := whole.Check(); err != nil {
		t.Error(err)
	}
	var sum Tally
	sum.Add(&whole)
	sum.Add(&whole)
	if err := sum.Check(); err != nil || sum.Records != 20 || sum.Late != 2 {
		t.Errorf("%+v: %v", sum, err)
	}
	for _, lost := range []func(*Tally){
		func(t *Tally) { t.Records++ }, func(t *Tally) { t.Control-- }, func(t *Tally) { t.Events++ }, func(t *Tally) { t.Superseded++ }, func(t *Tally) { t.Late-- },
	} {
		x := whole
		lost(&x)
		if err := x.Check(); !errors.Is(err, ErrTally) {
			t.Errorf("%+v adds up", x)
		}
	}
	// Answers to requests are no events.
	x := Tally{Records: 1, Applied: 1}
	x.judged(&record.Counts{Events: 1, Deletes: 3, AbsentDeletes: 2, LateIgnored: 1}, &record.Counts{Deletes: 2, AbsentDeletes: 2, LateIgnored: 1}, 0)
	if err := x.Check(); err != nil || x.Deletes != 1 {
		t.Errorf("%+v: %v", x, err)
	}
}

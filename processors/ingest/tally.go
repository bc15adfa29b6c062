package ingest

import (
	"errors"
	"fmt"

	"github.com/varve-io/varve/schemas/record"
)

// Tally says what became of source records. Each is one of four things, and
// each event of them one of five: an append for which that does not add up is
// never made.
type Tally struct {
	Records int64 // read
	Applied int64 // of Records: with events
	Control int64 // of Records: heartbeats, transaction markers and the like
	Letters int64 // of Records: refused
	// Elsewhere: of Records: of other tables of the topic, or of none (route.by).
	Elsewhere int64

	Events        int64 // of the records applied
	Rows          int64 // of Events: a row of the data file
	Superseded    int64 // of Events: a row that a later event of the same append replaced or deleted
	Deletes       int64 // of Events: ended a row
	AbsentDeletes int64 // of Events: named no row
	Late          int64 // of Events: ignored by their ordering value (K2)
}

// ErrTally: an event would have been lost in silence, or counted twice.
var ErrTally = errors.New("the events read and what became of them do not add up")

// Check says whether nothing is left over.
func (t *Tally) Check() error {
	if t.Records == t.Applied+t.Control+t.Letters+t.Elsewhere && t.Events == t.Rows+t.Superseded+t.Deletes+t.AbsentDeletes+t.Late {
		return nil
	}
	return fmt.Errorf("%w: %+v", ErrTally, *t)
}

// Add adds what became of other records.
func (t *Tally) Add(o *Tally) {
	t.Records += o.Records
	t.Applied += o.Applied
	t.Control += o.Control
	t.Letters += o.Letters
	t.Elsewhere += o.Elsewhere
	t.Events += o.Events
	t.Rows += o.Rows
	t.Superseded += o.Superseded
	t.Deletes += o.Deletes
	t.AbsentDeletes += o.AbsentDeletes
	t.Late += o.Late
}

// judged takes what a flush decided. Its counts hold answers to requests, too.
func (t *Tally) judged(all *record.Counts, answers *record.Counts, superseded int64) {
	t.Events, t.Rows, t.Superseded = all.Events, all.Upserts, superseded
	t.Deletes, t.AbsentDeletes, t.Late = all.Deletes-answers.Deletes, all.AbsentDeletes-answers.AbsentDeletes, all.LateIgnored-answers.LateIgnored
}

// Tally is what became of the source records that this owner brought into the
// log, as far as their appends were accepted.
func (s *Shard) Tally() Tally { return s.tally }

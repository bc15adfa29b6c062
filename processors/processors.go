package processors

import (
	"errors"

	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/source"
	"github.com/varve-io/varve/statestore"
)

// ErrNotTaken marks errors of records that a topic does not take, now or later:
// one that is too large, or a producer that must not go on.
var ErrNotTaken = errors.New("not taken by the topic")

// Appender appends to one partition of the transactions topic. It does not
// wait: done is called once, later or at once, on the goroutine that drives
// the processor, with the offset or the reason why the record is not in the
// log. Appends of one Appender are in the log in their order.
type Appender interface {
	Append(m record.Message, done func(offset int64, err error))
}

// DeadLetters sends refused events to <source>.dlq. done is called once on
// the goroutine that drives the processor; nil means that the broker has the
// letter (A4).
type DeadLetters interface {
	Send(l *DeadLetter, done func(error))
}

// DeadLetter is a refused event and why.
type DeadLetter struct {
	Record *source.Record // its bytes are the sender's until done
	Table  string
	Reject *source.Reject
}

// Decided is one record of the transactions log with what apply decided.
// Processors other than state read the log as decided entries, in order.
type Decided struct {
	Record  statestore.Record
	Outcome record.OutcomeMessage
}

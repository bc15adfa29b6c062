package ingest

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/varve-io/varve/schemas/source"
)

// A record that is refused by how the source is read waits until all is decided
// that was in the log when it came; then it is judged once more, and for good.
func TestSettle(t *testing.T) {
	var answer func(int64, error)
	asked := 0
	s := &Shard{log: slog.New(slog.DiscardHandler), stage: Running, decided: 5, cfg: Config{LogEnd: func(done func(int64, error)) { asked, answer = asked+1, done }}}
	rec := &source.Record{Offset: 40}
	bad := source.Rejectf(source.KindUnknown, "malformed", "no JSON")
	if s.unsettled(rec, source.Rejectf(source.KindUpsert, "range", "too large")) || asked != 0 {
		t.Fatal("a value that is too large may fit another format")
	}
	if !s.unsettled(rec, bad) || asked != 1 || s.settled() {
		t.Fatal("a record is given up at once")
	}
	s.parkedTo = 50
	answer(0, errors.New("away"))
	if !s.settled() || s.sourceWait.err == nil {
		t.Fatal("a broker that does not answer is not asked again")
	}
	s.sourceWait = backoff{}
	if !s.unsettled(rec, bad) || asked != 2 {
		t.Fatal("the end is not asked for again")
	}
	answer(10, nil)
	if s.settled() {
		t.Fatal("log offsets 6 to 9 are not decided")
	}
	s.decided = 9
	if !s.settled() || s.unsettled(rec, bad) || s.unsettled(&source.Record{Offset: 49}, bad) {
		t.Fatal("what came before the end was asked for waits on")
	}
	if !s.unsettled(&source.Record{Offset: 50}, bad) {
		t.Fatal("a later record does not wait")
	}
	// An answer of an epoch that is over says nothing of this one.
	s.settle = settle{asks: s.settle.asks + 1}
	answer(100, nil)
	if s.settle.waiting || s.settle.until != 0 {
		t.Fatalf("%+v", s.settle)
	}
}

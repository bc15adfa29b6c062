package statestore_test

import (
	"testing"

	"github.com/varve-io/varve/schemas/record"
)

// TestRequestsAreForgotten: L9. A repeated request gets its first outcome
// within the horizon; below it the sender is too old and the id's memory is gone.
func TestRequestsAreForgotten(t *testing.T) {
	l := newLog(t, t.TempDir())
	l.genesis()
	first := l.raw("t", -1, &record.CreateTable{Definition: definition("t")})
	if out := l.put(first); out.Outcome.Code != record.Accepted {
		t.Fatalf("create: %+v", out.Outcome)
	}
	l.timeMs += 3600_000
	if out := l.put(first); out.Outcome.Code != record.Already || out.Outcome.Numbers[0] != 1 {
		t.Fatalf("repeated within the horizon: %+v", out.Outcome)
	}
	for range 30 {
		l.timeMs += 3600_000
		l.do("t", 1, &record.Cut{})
	}
	if out := l.put(first); out.Outcome.Code != record.Rejected || out.Outcome.Reason != record.TooOld {
		t.Fatalf("repeated below the horizon: %+v", out.Outcome)
	}
	l.do("t", 1, &record.Cut{})
	l.commit()
	kept := 0
	if err := l.st.Dump(func(key, _ []byte) error {
		if key[0] == 'r' {
			kept++
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	// Of 33 requests, those of the last 24 hours or so are remembered.
	if kept < 20 || kept > 28 {
		t.Fatalf("%d request ids are remembered", kept)
	}
}

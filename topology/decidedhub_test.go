package topology

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/schemas/record"
)

// A hub gives every entry from a place on, in order and once, a record's derived
// ones with its own and not before; of what it dropped it says so.
func TestDecidedHub(t *testing.T) {
	h := &decidedHub{from: 0, stop: func() {}, moved: make(chan struct{}), users: 1}
	entry := func(offset int64, derived bool) processors.Decided {
		return processors.Decided{Outcome: record.OutcomeMessage{Offset: offset, Derived: derived}}
	}
	ctx := context.Background()
	next := int64(0)
	take := func(want int) {
		t.Helper()
		got := 0
		for got < want {
			ds, err := h.poll(ctx, next, 10*time.Millisecond)
			if err != nil || len(ds) == 0 {
				t.Fatalf("%d of %d entries from %d on: %v", got, want, next, err)
			}
			for i := range ds {
				if ds[i].Outcome.Offset != next {
					t.Fatalf("offset %d, want %d", ds[i].Outcome.Offset, next)
				}
				if got++; !ds[i].Outcome.Derived {
					next++
				}
			}
		}
		if got != want {
			t.Fatalf("%d entries, want %d", got, want)
		}
	}
	h.take([]processors.Decided{entry(0, false), entry(1, true), entry(1, true), entry(1, false), entry(2, true)})
	take(4)
	if ds, err := h.poll(ctx, next, time.Millisecond); len(ds) != 0 || err != nil {
		t.Fatalf("a derived entry without its record's own: %v %v", ds, err)
	}
	h.take([]processors.Decided{entry(2, false)})
	take(2)
	// One who is behind, and more than is kept.
	for i := int64(3); i < 3*hubEntries; i++ {
		h.take([]processors.Decided{entry(i, true), entry(i, false)})
		if i%100 == 0 {
			take(int(2 * (i + 1 - next)))
		}
		if len(h.entries) > hubEntries+2 || h.entries[0].Outcome.Offset != h.from || len(h.entries) > h.whole {
			t.Fatalf("%d entries from %d on, %d whole, the first is of %d", len(h.entries), h.from, h.whole, h.entries[0].Outcome.Offset)
		}
	}
	if h.from == 0 || h.has(h.from-1) || !h.has(h.from) || !h.has(h.next) || h.has(h.next+1) {
		t.Fatalf("it has what it dropped: from %d, next %d", h.from, h.next)
	}
	if _, err := h.poll(ctx, h.from-1, time.Millisecond); !errors.Is(err, errHubBehind) {
		t.Fatal(err)
	}
	next = h.from
	take(int(2 * (h.next - h.from)))
	h.end()
	if _, err := h.poll(ctx, next, time.Millisecond); !errors.Is(err, errHubBehind) {
		t.Fatal(err)
	}
}

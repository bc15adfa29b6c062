package publisher_test

import (
	"math/rand/v2"
	"testing"

	"github.com/varve-io/varve/statestore/objstore"
)

func TestFirstCutPublishesTheEmptyTable(t *testing.T) {
	w := newWorld(t, objstore.NewMem(), definition())
	r := w.cut()
	m, _, n := w.metadata()
	if n != 1 || r.Committed.SnapshotID != 0 || r.Committed.MetadataPath != "mem://store/shop/orders/metadata/v1.metadata.json" {
		t.Fatalf("version %d: %+v", n, r.Committed)
	}
	if m.CurrentSnapshot != nil || len(m.Snapshots) != 0 || m.LastUpdatedMs != 1_700_000_000_000 || m.Property("gc.enabled") != "false" {
		t.Fatalf("metadata: %+v", m)
	}
}

// TestRandomCuts evolves a table of three specs and holds every snapshot
// against the model.
func TestRandomCuts(t *testing.T) {
	for seed := range uint64(4) {
		rng := rand.New(rand.NewPCG(seed, 1))
		w := newWorld(t, objstore.NewMem(), definition(byDay(0), byDay(1), byDay(2)))
		w.cut()
		for range 40 {
			w.round(rng)
			w.cut()
			w.check()
		}
	}
}

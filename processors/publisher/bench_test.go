package publisher_test

import (
	"math/rand/v2"
	"testing"

	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/objstore"
)

// BenchmarkPublish is one commit of 4 new files and 300 changed vectors of a
// table of 2,000 files, in a local folder and in memory.
func BenchmarkPublish(b *testing.B) {
	for _, name := range []string{"local", "memory"} {
		b.Run(name, func(b *testing.B) {
			var store objstore.Store = objstore.NewMem()
			def := definition()
			if name == "local" {
				var err error
				if store, err = objstore.Open(ctx, b.TempDir()); err != nil {
					b.Fatal(err)
				}
				def.Location = store.Location("shop/orders")
			}
			w := newWorld(b, store, def)
			w.cut()
			rng := rand.New(rand.NewPCG(1, 2))
			var ids []uint64
			for range 20 {
				files := make([]newFile, 100)
				for i := range files {
					files[i].rows = 200_000
				}
				ids = append(ids, w.append(files, nil)...)
			}
			w.cut()
			round := func() *statestore.FrozenCut {
				kills := map[uint64][]uint32{}
				for range 300 {
					id := ids[rng.IntN(len(ids))]
					for range 20 {
						kills[id] = append(kills[id], rng.Uint32N(200_000))
					}
				}
				ids = append(ids, w.append([]newFile{{rows: 200_000}, {rows: 200_000}, {rows: 200_000}, {rows: 200_000}}, kills)...)
				return w.freeze()
			}
			for b.Loop() {
				b.StopTimer()
				f := round()
				b.StartTimer()
				r, err := w.pub.Publish(ctx, f)
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				w.do(def.Name, w.id, &r.Committed)
				if _, err := w.st.Commit(); err != nil {
					b.Fatal(err)
				}
				w.done = append(w.done, r)
				b.ReportMetric(float64(recordBytes(b, &r.Committed)), "record-B")
				b.ReportMetric(float64(r.VectorBytes), "vector-B")
				b.StartTimer()
			}
		})
	}
}

func recordBytes(b *testing.B, c *record.SnapshotCommitted) int {
	body, err := record.EncodeBody(nil, c)
	if err != nil {
		b.Fatal(err)
	}
	return len(body)
}

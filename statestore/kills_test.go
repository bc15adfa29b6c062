package statestore

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// TestKillOrder: delete blocks come by file, those of one file in the order in which
// they were added, whatever their number and length.
func TestKillOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var order []uint64
	for round := range 200 {
		c, want := &chunk{}, map[uint][][]byte{}
		files := 1 + r.IntN(128)
		for range r.IntN(600) {
			id := uint64(round)<<7 | uint64(127-r.IntN(files))
			set := make([]byte, r.IntN(300))
			for i := range set {
				set[i] = byte(r.Uint32())
			}
			c.kill(id, set)
			want[uint(id&127)] = append(want[uint(id&127)], set)
		}
		order = c.killOrder(order[:0])
		last, seen := -1, 0
		for i := 0; i < len(order); {
			var bit uint
			var sets [][]byte
			bit, sets, i = c.killsOf(order, i, nil)
			if int(bit) <= last || len(sets) != len(want[bit]) {
				t.Fatalf("file %d follows %d with %d blocks, want %d", bit, last, len(sets), len(want[bit]))
			}
			for k := range sets {
				if !bytes.Equal(sets[k], want[bit][k]) {
					t.Fatalf("block %d of file %d is another", k, bit)
				}
			}
			last = int(bit)
			seen++
		}
		if seen != len(want) {
			t.Fatalf("%d files, want %d", seen, len(want))
		}
	}
}

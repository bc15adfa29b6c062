package sim

import (
	"testing"

	"github.com/varve-io/varve/processors/ingest"
)

// F14, A7: an append that is in flight covers an entry while a job's completion
// is folded; then the append is lost, and with it the overlay. The entry below
// has moved all the same: it is what a fold of the log gives (K4).
func TestEntryBelowALostOverlayMoves(t *testing.T) {
	keyKinds(t, Options{Keys: 8}, func(t *testing.T, opt Options) {
		for _, gone := range []bool{false, true} {
			p, o := jobWorld(t, opt, []step{ups(0, 10), ups(1, 11), ups(2, 12)}, []step{ups(3, 13)})
			done := p.compact(nil)
			if gone {
				p.del(1)
			} else {
				p.up(1, 21)
			}
			p.read(o)
			p.flush(o)
			p.up(4, 14)
			p.read(o)
			p.flush(o)
			if len(o.net.queue) != 2 {
				t.Fatalf("%d appends are in flight, not 2", len(o.net.queue))
			}
			o.net.queue = o.net.queue[1:] // the first never arrives
			p.complete(done...)
			p.decide(o)
			p.arrive(o) // the second does not begin at the shard's end (A3)
			p.apply()
			p.decide(o)
			if o.shard.Stage() != ingest.Idle {
				t.Fatalf("the owner is in stage %d: %v", o.shard.Stage(), o.shard.Err())
			}
			o.shard.Claim(p.ctx)
			p.running(o)
			p.must(p.checkIndex(o))
			f, at := p.fileOf(11)
			entries, err := entries(o.shard)
			p.must(err)
			found := false
			for i := range entries {
				found = found || entries[i].File == f.ID && entries[i].Pos == at
			}
			if !found {
				t.Fatalf("no entry names row %d of the job's file %d: %+v", at, f.ID, entries)
			}
			want := map[int]int64{0: 10, 2: 12, 3: 13, 4: 14}
			if !gone {
				want[1] = 21
			}
			p.expect(want)
		}
	})
}

// F14, L12: one completion tells of several jobs: the entries of every one of
// them move, also where the fold is made again from the log.
func TestEntriesOfSeveralJobsMove(t *testing.T) {
	keyKinds(t, Options{Keys: 16, Partitioned: true}, func(t *testing.T, opt Options) {
		var first, second []step
		want := map[int]int64{}
		for k := range 16 {
			first = append(first, ups(k, int64(100+k)))
			want[k] = int64(100 + k)
		}
		for k := range 8 {
			second = append(second, ups(k, int64(300+k)))
			want[k] = int64(300 + k)
		}
		p, o := jobWorld(t, opt, first, second)
		done := p.compact(nil)
		if len(done) < 2 {
			t.Fatalf("%d jobs: one completion must tell of several", len(done))
		}
		p.complete(done...)
		p.decide(o)
		live := map[uint64]bool{}
		for _, f := range p.allFiles() {
			if !f.Gone {
				live[f.ID] = true
			}
		}
		moved := func(what string) {
			t.Helper()
			all, err := entries(o.shard)
			p.must(err)
			n := 0
			for i := range all {
				if all[i].Tombstone() {
					continue
				}
				if n++; !live[all[i].File] {
					t.Fatalf("%s: an entry names row %d of file %d, which a job has rewritten", what, all[i].Pos, all[i].File)
				}
			}
			if n != 16 {
				t.Fatalf("%s: %d entries, not 16", what, n)
			}
		}
		moved("folded")
		p.wipe(o)
		p.running(o)
		moved("folded from the log")
		p.expect(want)
	})
}

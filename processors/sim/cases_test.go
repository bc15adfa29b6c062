package sim

import (
	"bytes"
	"errors"
	"maps"
	"testing"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/processors/ingest"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore/objstore"
)

// The cases of merge order, by the rule that each one tries. Each ends with the
// rows that a reader of the newest snapshot must see, as the case gives them;
// beside that the model, the members' hashes and the refolded index must agree.

// Insert, delete, insert of one key: present once, with the later value.
func TestInsertDeleteInsert(t *testing.T) {
	steps := []step{ups(1, 10), dels(1), ups(1, 30)}
	keyKinds(t, Options{Keys: 4}, func(t *testing.T, opt Options) {
		allGaps(t, opt, steps, map[int]int64{1: 30})
	})
}

// K2: of two events with equal ordering values the later position wins.
func TestEqualOrderingValues(t *testing.T) {
	keyKinds(t, Options{Keys: 4, Ordered: true}, func(t *testing.T, opt Options) {
		allGaps(t, opt, []step{ups(1, 10, 5), ups(1, 20, 5)}, map[int]int64{1: 20})
		allGaps(t, opt, []step{ups(1, 10, 5), dels(1, 5)}, map[int]int64{})
		allGaps(t, opt, []step{dels(1, 5), ups(1, 20, 5)}, map[int]int64{1: 20})
		allGaps(t, opt, []step{ups(1, 10, 5), asks(1, 5)}, map[int]int64{})
	})
}

// K2: a row at 10; an upsert at 5 and a delete at 7 are late; a delete at 12
// removes it; an upsert at 11 stays deleted.
func TestLateEvents(t *testing.T) {
	keyKinds(t, Options{Keys: 4, Ordered: true}, func(t *testing.T, opt Options) {
		allGaps(t, opt, []step{ups(1, 10, 10), ups(1, 20, 5), dels(1, 7)}, map[int]int64{1: 10})
		allGaps(t, opt, []step{ups(1, 10, 10), dels(1, 12), ups(1, 40, 11)}, map[int]int64{})
		all := []step{ups(1, 10, 10), ups(1, 20, 5), dels(1, 7), dels(1, 12), ups(1, 40, 11)}
		for b := range betweens {
			playGaps(t, opt, all, []between{b, b, b, b}, map[int]int64{})
			playGaps(t, opt, all, []between{sameFlush, b, inFlight, b}, map[int]int64{})
			playGaps(t, opt, all, []between{b, sameFlush, b, restarted}, map[int]int64{})
		}
	})
}

// 110,000 inserts, then 100 updates, in one commit: 110,000 rows.
func TestManyInsertsFewUpdates(t *testing.T) {
	const keys, updates = 110_000, 100
	keyKinds(t, Options{Keys: keys}, func(t *testing.T, opt Options) {
		p := newPlay(t, opt)
		o := p.running(p.owner(0))
		want := map[int]int64{}
		for k := range keys {
			p.up(k, int64(k))
			want[k] = int64(k)
		}
		for k := range updates {
			p.up(k*1000, -1)
			want[k*1000] = -1
		}
		p.commit(o)
		got := p.rowsOf(p.publish())
		if len(got) != keys {
			t.Fatalf("%d rows, not %d", len(got), keys)
		}
		if !maps.Equal(want, got) {
			t.Fatal("the rows are others")
		}
	})
}

// C5: a second delete on one file: the new vector is the union, and the old
// entry leaves in the same snapshot. A third must not bring rows of the first back.
func TestSuccessiveDeletesOnOneFile(t *testing.T) {
	keyKinds(t, Options{Keys: 10}, func(t *testing.T, opt Options) {
		p := newPlay(t, opt)
		o := p.running(p.owner(0))
		want := map[int]int64{}
		for k := range 8 {
			p.up(k, int64(k))
			want[k] = int64(k)
		}
		p.commit(o)
		p.publish()
		for i, k := range []int{2, 5, 3} {
			p.del(k)
			delete(want, k)
			p.commit(o)
			if i == 1 {
				p.restart(o, 0)
				p.running(o)
			}
			c := p.publish()
			if len(c.Vectors) != 1 || c.Vectors[0].Cardinality != int64(i+1) {
				t.Fatalf("delete %d: vectors %+v", i+1, c.Vectors)
			}
			// readSnapshot refuses two vectors of one file.
			if got := p.rowsOf(c); len(got) != len(want) {
				t.Fatalf("delete %d: %v", i+1, got)
			}
		}
		p.expect(want)
	})
}

// Time travel over 100 rows: delete below 50, then from 80 on: 100, 50, 30 rows
// at the three snapshots, also when all three are read at the end.
func TestTimeTravel(t *testing.T) {
	keyKinds(t, Options{Keys: 100}, func(t *testing.T, opt Options) {
		p := newPlay(t, opt)
		o := p.running(p.owner(0))
		for k := range 100 {
			p.up(k, int64(k))
		}
		p.commit(o)
		var snapshots []*record.SnapshotCommitted
		snapshots = append(snapshots, p.publish())
		for k := range 50 {
			p.del(k)
		}
		p.commit(o)
		snapshots = append(snapshots, p.publish())
		for k := 80; k < 100; k++ {
			p.del(k)
		}
		p.commit(o)
		snapshots = append(snapshots, p.publish())
		for i, n := range []int{100, 50, 30} {
			got := p.rowsOf(snapshots[i])
			if len(got) != n {
				t.Fatalf("snapshot %d has %d rows, not %d", i+1, len(got), n)
			}
			for k := range got {
				if i > 0 && k < 50 || i > 1 && k >= 80 {
					t.Fatalf("snapshot %d has key %d", i+1, k)
				}
			}
		}
	})
}

// A2, A3: owner A appends two ranges and dies; owner B, which started before
// the first was applied, appends three from the same start, all in flight. In
// whatever order they meet in the log, no key lives twice.
func TestTwoBelievers(t *testing.T) {
	keyKinds(t, Options{Keys: 4, Ordered: false}, func(t *testing.T, opt Options) {
		// Each order of A's two appends and B's claim and three appends.
		for mask := range 1 << 6 {
			if popCount(mask) != 2 {
				continue
			}
			p := newPlay(t, opt)
			a := p.running(p.owner(0))
			for i := range 3 {
				p.up(1, int64(10+i))
				p.up(2, int64(20+i))
			}
			p.up(3, 33)
			for i := 2; i <= 4; i += 2 {
				p.read(a, i)
				p.flush(a)
			}
			b := p.owner(0)
			b2 := 0
			for bit := range 6 {
				if mask>>bit&1 == 1 {
					p.arrive(a, 1)
					continue
				}
				// B's claim, then what it makes of it at once.
				p.arrive(b, 1)
				if b2++; b2 == 1 {
					p.apply()
					p.decide(b)
					if b.shard.Stage() == ingest.Running {
						from := int(b.shard.SourceFrom())
						for i := 1; i <= 3; i++ {
							p.read(b, min(from+2*i, 7))
							p.flush(b)
						}
					}
				}
			}
			p.apply()
			p.restart(a, 0) // A is dead; a third owner may come
			p.expect(map[int]int64{1: 12, 2: 22, 3: 33})
		}
	})
}

func popCount(n int) int {
	c := 0
	for ; n > 0; n &= n - 1 {
		c++
	}
	return c
}

// K3: tombstone (k,12), its owner lost before its next checkpoint, a new owner,
// a late upsert (k,11): stays deleted.
func TestTombstoneSurvivesItsOwner(t *testing.T) {
	keyKinds(t, Options{Keys: 4, Ordered: true}, func(t *testing.T, opt Options) {
		allGaps(t, opt, []step{ups(1, 10, 3), dels(1, 12), ups(1, 20, 11)}, map[int]int64{})
		for _, lose := range []string{"memory", "folder", "all"} {
			p := newPlay(t, opt)
			o := p.running(p.owner(0))
			p.up(1, 10, 3)
			p.up(2, 20, 3)
			p.commit(o)
			p.del(1, 12)
			p.del(3, 12) // of a key that never was
			p.commit(o)
			switch lose {
			case "memory":
				p.restart(o, 0)
			case "folder":
				p.wipe(o)
			case "all":
				o = p.owner(0)
			}
			p.running(o)
			p.up(1, 11, 11)
			p.up(3, 11, 11)
			p.commit(o)
			p.expect(map[int]int64{2: 20})
		}
	})
}

// C3, C4: a publisher gives up after a timeout although its commit had landed;
// a second cut follows. Nothing is lost or published twice.
func TestCommitLandedUnheard(t *testing.T) {
	keyKinds(t, Options{Keys: 8}, func(t *testing.T, opt Options) {
		for _, heard := range []string{"never", "late", "twice"} {
			p := newPlay(t, opt)
			o := p.running(p.owner(0))
			p.publish()
			p.up(1, 10)
			p.up(2, 20)
			p.commit(o)
			first := p.cut()
			c1 := p.build() // it landed; the publisher does not know
			p.must(p.request(tableName, p.tableID, &record.SnapshotFailed{Cut: first, Build: first, Attempt: 1, Cause: "unknown"}))
			p.apply()
			// What comes now is in no cut yet: the first is still pending.
			p.up(2, 21)
			p.del(1)
			p.up(3, 30)
			p.commit(o)
			if at := p.cut(); at >= 0 {
				t.Fatalf("a second cut at %d while the first is pending", at)
			}
			// Tried again, the same snapshot is found, not another one made.
			again := p.build()
			if again.SnapshotID != c1.SnapshotID || again.MetadataHash != c1.MetadataHash {
				t.Fatal("the attempt that was repeated made another snapshot")
			}
			if out := p.confirm(again); out.Code != record.Accepted {
				t.Fatalf("confirmed: %+v", out)
			}
			if heard == "late" {
				if out := p.confirm(c1); out.Reason != record.NoCutPending {
					t.Fatalf("confirmed again: %+v", out)
				}
			}
			second := p.cut()
			if second < 0 {
				t.Fatal("the second cut was refused")
			}
			if heard != "never" {
				if out := p.confirm(c1); out.Reason != record.WrongBuild {
					t.Fatalf("an old commit of another cut: %+v", out)
				}
			}
			c2 := p.build()
			if out := p.confirm(c2); out.Code != record.Accepted {
				t.Fatalf("confirmed: %+v", out)
			}
			if c2.Parent != c1.SnapshotID || c2.Sequence != c1.Sequence+1 || c2.FirstRowID != c1.FirstRowID+c1.AddedRows {
				t.Fatalf("the second snapshot stands on another head: %+v after %+v", c2, c1)
			}
			p.expect(map[int]int64{2: 21, 3: 30})
		}
	})
}

// L8: a newer binary appends what older members do not know. No two members
// decide differently about any record, and none stops.
func TestUnknownRecords(t *testing.T) {
	p := newPlay(t, Options{Keys: 4, Requests: true})
	o := p.running(p.owner(0))
	p.up(1, 10)
	p.commit(o)
	for typ := range 40 {
		for _, typeVersion := range []uint16{1, 2} {
			env := record.Envelope{
				Type: record.Type(typ), TypeVersion: typeVersion, ApplyVersion: 1, Request: p.requestID(), OffsetSeen: int64(len(p.log)) - 1,
				Table: tableName, TableID: p.tableID, Body: []byte{1, 2, 3},
			}
			if record.New(env.Type) != nil && typeVersion <= record.BodyVersion(env.Type) {
				continue
			}
			var m record.Message
			record.Encode(&m, &env)
			p.append(m)
			m.Header[0]++ // a newer envelope
			p.append(m)
		}
	}
	p.apply()
	for i := range p.decided {
		d := &p.decided[i].Outcome
		if d.Offset > 5 && (d.Outcome.Code != record.Rejected || d.Outcome.Reason != record.NotActive) {
			t.Fatalf("log offset %d: %+v", d.Offset, d.Outcome)
		}
	}
	p.decide(o)
	p.up(2, 20)
	p.commit(o)
	p.expect(map[int]int64{1: 10, 2: 20}) // and compares every hash
}

// A5: k lives; DeleteKeys(k) is in the log, not yet answered; the owner dies;
// the new owner reads an upsert of k: one live row.
func TestRequestOutlivesOwner(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		keyKinds(t, Options{Keys: 4, Requests: true, Ordered: ordered}, func(t *testing.T, opt Options) {
			allGaps(t, opt, []step{ups(1, 10), asks(1), ups(1, 20)}, map[int]int64{1: 20})
			for _, when := range []string{"unseen", "seen", "answered in flight", "answered"} {
				p := newPlay(t, opt)
				o := p.running(p.owner(0))
				p.up(1, 10)
				p.up(2, 20)
				p.commit(o)
				p.ask(1)
				p.apply()
				if when != "unseen" {
					p.decide(o)
				}
				switch when {
				case "answered in flight":
					p.flush(o)
				case "answered":
					p.flush(o)
					p.arrive(o)
					p.apply()
				}
				p.restart(o, 1<<20)
				p.up(1, 11)
				p.running(o)
				// What the dead owner sent may arrive now, behind the claim.
				for _, n := range p.lost {
					for len(n.queue) > 0 {
						n.deliver()
					}
				}
				p.commit(o)
				p.expect(map[int]int64{1: 11, 2: 20})
			}
		})
	}
}

// K4: one flush holds a delete and an upsert of k; restart; another upsert of
// k: one live row. The same ending in a delete: none.
func TestDeleteThenUpsertInOneFlush(t *testing.T) {
	keyKinds(t, Options{Keys: 4}, func(t *testing.T, opt Options) {
		for b := range betweens {
			playGaps(t, opt, []step{dels(1), ups(1, 10), ups(1, 20)}, []between{sameFlush, b}, map[int]int64{1: 20})
			playGaps(t, opt, []step{dels(1), ups(1, 10), dels(1)}, []between{sameFlush, b}, map[int]int64{})
			playGaps(t, opt, []step{ups(1, 5), dels(1), ups(1, 10), ups(1, 20)}, []between{b, sameFlush, restarted}, map[int]int64{1: 20})
			playGaps(t, opt, []step{ups(1, 5), dels(1), ups(1, 10), dels(1), ups(1, 30)}, []between{b, sameFlush, restarted, handed}, map[int]int64{1: 30})
		}
	})
}

// K2: one flush holds k@2, then k without a value; restart; late k@1: ignored,
// as by the owner that never crashed.
func TestValueThenNone(t *testing.T) {
	keyKinds(t, Options{Keys: 4, Ordered: true}, func(t *testing.T, opt Options) {
		allGaps(t, opt, []step{ups(1, 10, 2), ups(1, 20), ups(1, 30, 1)}, map[int]int64{1: 20})
		allGaps(t, opt, []step{ups(1, 10, 2), dels(1), ups(1, 30, 1)}, map[int]int64{})
		allGaps(t, opt, []step{ups(1, 10, 2), ups(1, 20), dels(1, 1)}, map[int]int64{1: 20})
	})
}

// K2: k@3; DeleteKeys(k) without a value; then k@1, read before or after the
// owner has seen the delete: ignored both times.
func TestLateAfterRequest(t *testing.T) {
	keyKinds(t, Options{Keys: 4, Ordered: true, Requests: true}, func(t *testing.T, opt Options) {
		// The request kills what was accepted below it, so the row must have been.
		for b := decided; b < betweens; b++ {
			for c := range betweens {
				if !*allFlag && (b+c)%3 != 0 {
					continue
				}
				playGaps(t, opt, []step{ups(1, 10, 3), asks(1), ups(1, 20, 1)}, []between{b, c}, map[int]int64{})
				playGaps(t, opt, []step{ups(1, 10, 3), ups(1, 20, 1), asks(1)}, []between{b, c}, map[int]int64{})
				playGaps(t, opt, []step{ups(1, 10, 3), ups(1, 20, 1), asks(1)}, []between{c, b}, map[int]int64{})
			}
		}
		for _, c := range []between{sameFlush, inFlight} {
			playGaps(t, opt, []step{ups(1, 10, 3), asks(1), ups(1, 20, 1)}, []between{c, restarted}, map[int]int64{1: 10})
		}
		allGaps(t, opt, []step{ups(1, 10, 3), asks(1), ups(1, 20, 3)}, map[int]int64{1: 20})
		// A value takes part like an event's.
		allGaps(t, opt, []step{ups(1, 10, 3), asks(1, 5), ups(1, 20, 4)}, map[int]int64{})
		allGaps(t, opt, []step{ups(1, 10, 3), asks(1, 2), ups(1, 20, 2)}, map[int]int64{1: 10})
	})
}

// F9, K3: an index is lost with its checkpoints; k@2 was deleted within the
// tombstone time; rebuilt from the log alone it ignores k@1.
func TestIndexLostWithItsCheckpoints(t *testing.T) {
	keyKinds(t, Options{Keys: 8, Ordered: true, Requests: true}, func(t *testing.T, opt Options) {
		p := newPlay(t, opt)
		o := p.running(p.owner(0))
		p.up(1, 10, 2)
		p.up(2, 20, 2)
		p.up(3, 30, 2)
		p.commit(o)
		p.del(1)
		p.del(4, 9)
		p.commit(o)
		p.ask(2)
		p.apply()
		p.decide(o)
		p.commit(o)
		for i := range 8 { // past a checkpoint
			p.up(5, int64(i), int64(10+i))
			p.commit(o)
		}
		var checkpoints []string
		p.must(p.mem.List(p.ctx, p.bodies.Prefix+"/index/", func(i objstore.Info) error {
			checkpoints = append(checkpoints, i.Key)
			return nil
		}))
		if len(checkpoints) == 0 {
			t.Fatal("no index checkpoint was uploaded")
		}
		p.must(p.mem.Delete(p.ctx, checkpoints...))
		p.wipe(o)
		p.running(o)
		for k := 1; k <= 4; k++ {
			p.up(k, 99, 1)
		}
		p.commit(o)
		p.expect(map[int]int64{3: 30, 5: 7})
	})
}

// L18: the body of an append is lost on its way. The partition waits until that is
// written down; the owner does not know whose it was, claims again and reads its
// events again. What was in flight behind it is rejected; without anything behind
// it the owner would wait for an outcome that never comes.
func TestAppendDeclaredLost(t *testing.T) {
	for _, behind := range []int{0, 1} {
		p := newPlay(t, Options{Seed: 3})
		o := p.running(p.owner(0))
		p.up(1, 10)
		p.up(2, 20)
		p.commit(o)
		p.up(1, 11)
		p.del(2)
		p.read(o)
		p.flush(o)
		for range behind {
			p.up(3, 30)
			p.read(o)
			p.flush(o)
		}
		// As if the append had been large: its body lies beside the log.
		sent := &o.net.queue[0].m
		var env record.Envelope
		p.must(record.DecodeEnvelope(sent.Key, sent.Header[:], sent.Value, &env))
		ref, err := p.bodies.Put(p.ctx, env.Body)
		p.must(err)
		env.Body, env.BodyRef = nil, &ref
		var large record.Message
		record.Encode(&large, &env)
		*sent = record.Message{Key: bytes.Clone(large.Key), Header: large.Header, Value: bytes.Clone(large.Value)}
		p.must(p.mem.Delete(p.ctx, ref.Path))
		p.arrive(o)
		at := p.m.machine.Next()
		if err := p.m.apply(1 << 20); !errors.Is(err, processors.ErrBodyMissing) || p.m.machine.Next() != at || p.m.machine.Err() != nil {
			t.Fatalf("the body is not there: %v at %d, stopped: %v", err, p.m.machine.Next(), p.m.machine.Err())
		}
		p.must(p.bodies.Void(p.ctx, 0, at, &ref))
		p.apply()
		for i := range behind + 1 {
			d := &p.decided[int(at)+i].Outcome
			if want := []record.Reason{record.Undecodable, record.SourceRange}[i]; d.Outcome.Reason != want || d.TableID != p.tableID {
				t.Errorf("offset %d of table %d is %s: %s, want %s", d.Offset, d.TableID, d.Outcome.Code, d.Outcome.Reason, want)
			}
		}
		p.decide(o)
		want := map[int]int64{1: 11}
		if behind > 0 {
			want[3] = 30
		}
		p.expect(want)
	}
}

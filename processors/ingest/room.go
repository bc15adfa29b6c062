package ingest

import (
	"sync/atomic"

	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/statestore/keyindex"
)

// DefaultRoom is what the shards of a process may hold of events in their
// buffers, together and in bytes.
const DefaultRoom = 512 << 20

const (
	// leastRoom is what a shard's buffer may hold however many there are: flushes
	// smaller than that cost more than they free.
	leastRoom = 1 << 20
	// leastDelta likewise, in entries of the key index.
	leastDelta = 20_000
	// deltaBytes is about what an entry of a key index's delta takes.
	deltaBytes = 40
	// restMs is after how long without an event a shard gives its buffers back.
	restMs = 5000
)

// Room is what all shards of a process have together for events that are not in
// the log yet. Each shard whose buffer holds something has an equal part, and
// flushes when it is full; one that is alone has what it is configured to. The
// deltas of key indexes have half as much. The zero Room is DefaultRoom.
type Room struct {
	Limit int64

	open, busy, held atomic.Int64
}

// Held is what buffers take now, in bytes.
func (r *Room) Held() int64 { return r.held.Load() }

func (r *Room) limit() int64 {
	if r.Limit > 0 {
		return r.Limit
	}
	return DefaultRoom
}

// buffer is what one shard's buffer may hold.
func (r *Room) buffer(want int) int {
	return min(want, max(leastRoom, int(r.limit()/max(1, r.busy.Load()))))
}

// delta is how many entries one shard's key index may hold in memory.
func (r *Room) delta(want int) int {
	return min(want, max(leastDelta, int(r.limit()/2/deltaBytes/max(1, r.open.Load()))))
}

// roomOf is what a shard takes of its Room.
type roomOf struct {
	held   int64
	busy   bool
	usedMs int64
}

// flushBytes is how large the buffer may get.
func (s *Shard) flushBytes() int {
	if s.cfg.Room == nil {
		return s.cfg.FlushBytes
	}
	return s.cfg.Room.buffer(s.cfg.FlushBytes)
}

// account tells the Room what the shard holds, and gives back what it does not
// need.
func (s *Shard) account() {
	r := s.cfg.Room
	if r == nil {
		return
	}
	n := s.buf.len()
	if n > 0 {
		s.room.usedMs = s.nowMs
	}
	c := int64(s.buf.capacity())
	if part := int64(s.flushBytes()); n == 0 && c > 64<<10 && (c > 3*part || s.nowMs-s.room.usedMs > restMs) {
		counts, tally := s.buf.counts, s.buf.tally // of records without events
		s.buf = buffer{}
		s.buf.reset(s.def.Schema())
		s.buf.counts, s.buf.tally = counts, tally
		c = int64(s.buf.capacity())
	}
	r.held.Add(c - s.room.held)
	s.room.held = c
	if busy := n > 0; busy != s.room.busy {
		s.room.busy = busy
		if busy {
			r.busy.Add(1)
		} else {
			r.busy.Add(-1)
		}
	}
	if s.index != nil {
		want := s.cfg.IndexDelta
		if want == 0 {
			want = keyindex.DefaultDeltaLimit
		}
		s.index.SetDeltaLimit(r.delta(want))
	}
}

// leaveRoom gives back all that the shard has.
func (s *Shard) leaveRoom() {
	r := s.cfg.Room
	if r == nil || s.left {
		return
	}
	s.left = true
	r.open.Add(-1)
	r.held.Add(-s.room.held)
	if s.room.busy {
		r.busy.Add(-1)
	}
	s.room = roomOf{}
}

// capacity is about what a buffer's arenas and its flushes' scratch take.
func (b *buffer) capacity() int {
	n := 16*(cap(b.items)+cap(b.ranks)+cap(b.spare)) + 8*(cap(b.narrow)+cap(b.low)+cap(b.rowID)+cap(b.order)) + cap(b.bytes) + cap(b.hasOrd) +
		4*(cap(b.ends)+cap(b.sel)+cap(b.pos)) + 16*cap(b.uniq) + 40*(cap(b.verdicts)+cap(b.entries)) + 16*(cap(b.kills)+cap(b.places)) + b.out.Cap() + b.heldBytes
	return n + batchCapacity(b.batch)
}

func batchCapacity(b *rows.Batch) int {
	if b == nil {
		return 0
	}
	n := cap(b.Ops) + 8*(cap(b.Offsets)+cap(b.Order)) + cap(b.HasOrder) + 24*cap(b.Carries) + batchCapacity(b.Was)
	for i := range b.Cols {
		c := &b.Cols[i]
		n += cap(c.Valid) + 8*cap(c.Ints) + 8*cap(c.Floats) + 4*cap(c.Ends) + cap(c.Data)
	}
	return n
}

package keyindex

// chunkEntries is the granule of delta memory: runs are lists of full chunks
// (the last may be short), so that merging two runs gives back the memory of
// the old ones while it goes, and nothing is ever reallocated.
const chunkEntries = 2048

type chunk struct {
	n    int
	lo   *[chunkEntries]uint64 // nil in a narrow index
	hi   [chunkEntries]uint64
	vals [chunkEntries]value
}

func (c *chunk) key(i int) Key {
	k := Key{Hi: c.hi[i]}
	if c.lo != nil {
		k.Lo = c.lo[i]
	}
	return k
}

// seek gives the first place at or after i whose key is not less than k.
func (c *chunk) seek(i int, k Key) int {
	hi := c.hi[:c.n]
	// Sorted batches land a few places on: gallop, then bisect.
	step := 1
	lo := i
	for i < len(hi) && hi[i] < k.Hi {
		lo = i + 1
		i += step
		step <<= 1
	}
	end := min(i, len(hi))
	for lo < end {
		mid := int(uint(lo+end) >> 1)
		if hi[mid] < k.Hi {
			lo = mid + 1
		} else {
			end = mid
		}
	}
	if c.lo != nil {
		for lo < len(hi) && hi[lo] == k.Hi && c.lo[lo] < k.Lo {
			lo++
		}
	}
	return lo
}

// run is a sorted list of distinct keys with their values, immutable once built.
type run struct {
	chunks []*chunk
	n      int
}

// stamp gives tombstones of PendingTime their time, and their offset where they
// have none.
func (r *run) stamp(offset, timeMs int64) {
	for _, c := range r.chunks {
		for j := range c.n {
			if v := &c.vals[j]; v.tombstone() && int64(v.a) == PendingTime {
				v.a = uint64(timeMs)
				if v.b == 0 {
					v.b = offset
				}
			}
		}
	}
}

// arena hands out chunks and takes them back; it belongs to the caller's
// goroutine.
type arena struct {
	wide bool
	keep int // chunks kept for reuse; what is above goes to the collector
	free []*chunk
	out  int // chunks handed out
}

func (a *arena) get() *chunk {
	a.out++
	if n := len(a.free); n > 0 {
		c := a.free[n-1]
		a.free = a.free[:n-1]
		c.n = 0
		return c
	}
	c := new(chunk)
	if a.wide {
		c.lo = new([chunkEntries]uint64)
	}
	return c
}

func (a *arena) put(c *chunk) {
	a.out--
	if len(a.free) < a.keep {
		a.free = append(a.free, c)
	}
}

func (a *arena) release(r *run) {
	for _, c := range r.chunks {
		a.put(c)
	}
	r.chunks, r.n = nil, 0
}

// tail gives a chunk of r with room.
func (a *arena) tail(r *run) *chunk {
	if n := len(r.chunks); n > 0 && r.chunks[n-1].n < chunkEntries {
		return r.chunks[n-1]
	}
	c := a.get()
	r.chunks = append(r.chunks, c)
	return c
}

func (a *arena) build(entries []Entry) *run {
	r := &run{n: len(entries), chunks: make([]*chunk, 0, (len(entries)+chunkEntries-1)/chunkEntries)}
	for len(entries) > 0 {
		c := a.tail(r)
		n := min(chunkEntries, len(entries))
		for i := range entries[:n] {
			e := &entries[i]
			c.hi[i] = e.Key.Hi
			if c.lo != nil {
				c.lo[i] = e.Key.Lo
			}
			c.vals[i] = makeValue(e)
		}
		c.n = n
		entries = entries[n:]
	}
	return r
}

// merge consumes two runs; where both hold a key, the newer wins.
func (a *arena) merge(older, newer *run) *run {
	out := &run{chunks: make([]*chunk, 0, len(older.chunks)+len(newer.chunks))}
	var oc, nc *chunk
	var oi, ni int
	load := func(r *run, c **chunk, i *int) {
		if *c != nil && *i == (*c).n {
			a.put(*c)
			*c = nil
		}
		if *c == nil && len(r.chunks) > 0 {
			*c, *i = r.chunks[0], 0
			r.chunks = r.chunks[1:]
		}
	}
	for {
		load(older, &oc, &oi)
		load(newer, &nc, &ni)
		if oc == nil && nc == nil {
			return out
		}
		t := a.tail(out)
		from := t.n
		switch {
		case oc == nil:
			ni = t.copyFrom(nc, ni)
		case nc == nil:
			oi = t.copyFrom(oc, oi)
		case a.wide:
			oi, ni = t.mergeWide(oc, oi, nc, ni)
		default:
			oi, ni = t.mergeNarrow(oc, oi, nc, ni)
		}
		out.n += t.n - from
	}
}

// copyFrom fills t from c[i:] and gives the next place in c.
func (t *chunk) copyFrom(c *chunk, i int) int {
	n := copy(t.vals[t.n:], c.vals[i:c.n])
	copy(t.hi[t.n:], c.hi[i:i+n])
	if t.lo != nil {
		copy(t.lo[t.n:], c.lo[i:i+n])
	}
	t.n += n
	return i + n
}

// mergeNarrow goes on until t is full or one input is used up.
func (t *chunk) mergeNarrow(oc *chunk, oi int, nc *chunk, ni int) (int, int) {
	n := t.n
	on, nn := oc.n, nc.n
	for n < chunkEntries && oi < on && ni < nn {
		ok, nk := oc.hi[oi], nc.hi[ni]
		if ok < nk {
			t.hi[n] = ok
			t.vals[n] = oc.vals[oi]
			oi++
		} else {
			t.hi[n] = nk
			t.vals[n] = nc.vals[ni]
			ni++
			if ok == nk {
				oi++
			}
		}
		n++
	}
	t.n = n
	return oi, ni
}

func (t *chunk) mergeWide(oc *chunk, oi int, nc *chunk, ni int) (int, int) {
	n := t.n
	for n < chunkEntries && oi < oc.n && ni < nc.n {
		ok, nk := oc.key(oi), nc.key(ni)
		if ok.Less(nk) {
			t.hi[n], t.lo[n] = ok.Hi, ok.Lo
			t.vals[n] = oc.vals[oi]
			oi++
		} else {
			t.hi[n], t.lo[n] = nk.Hi, nk.Lo
			t.vals[n] = nc.vals[ni]
			ni++
			if ok == nk {
				oi++
			}
		}
		n++
	}
	t.n = n
	return oi, ni
}

// lookup answers the keys that r holds and keeps the rest in todo, a sorted
// list of indexes into keys.
func (r *run) lookup(keys []Key, todo []int32, out []Found, horizon int64, pending bool) []int32 {
	kept := todo[:0]
	i, ci := 0, 0
	for i < len(todo) && ci < len(r.chunks) {
		k := keys[todo[i]]
		c := r.chunks[ci]
		if last := c.key(c.n - 1); last.Less(k) {
			ci++
			continue
		}
		p := 0
		for {
			p = c.seek(p, k)
			if p == c.n {
				break
			}
			if at := c.key(p); at == k {
				answer(&out[todo[i]], k, &c.vals[p], horizon, pending)
				i++
			} else {
				// Keep every key below at.
				j := i + 1
				for j < len(todo) && keys[todo[j]].Less(at) {
					j++
				}
				kept = append(kept, todo[i:j]...)
				i = j
			}
			if i == len(todo) {
				return kept
			}
			k = keys[todo[i]]
		}
		ci++
	}
	return append(kept, todo[i:]...)
}

func answer(f *Found, k Key, v *value, horizon int64, pending bool) {
	f.Key = k
	if v.expired(horizon) {
		*f = Found{Entry: Entry{Key: k}}
		return
	}
	v.fill(&f.Entry)
	f.Present, f.Pending = true, pending
}

// cursor walks several runs in key order; runs come newest first, and where
// several hold a key the newest wins.
type cursor struct {
	runs []runPos
	key  Key
	val  *value
	ok   bool
}

type runPos struct {
	chunks []*chunk
	i      int
	key    Key
}

func (p *runPos) load() bool {
	if len(p.chunks) > 0 && p.i == p.chunks[0].n {
		p.chunks, p.i = p.chunks[1:], 0
	}
	if len(p.chunks) == 0 {
		return false
	}
	p.key = p.chunks[0].key(p.i)
	return true
}

func newCursor(newestFirst []*run) *cursor {
	c := &cursor{}
	for _, r := range newestFirst {
		p := runPos{chunks: r.chunks}
		if p.load() {
			c.runs = append(c.runs, p)
		}
	}
	c.pick()
	return c
}

func (c *cursor) pick() {
	if len(c.runs) == 0 {
		c.ok, c.val = false, nil
		return
	}
	best := 0
	for i := 1; i < len(c.runs); i++ {
		if c.runs[i].key.Less(c.runs[best].key) {
			best = i
		}
	}
	p := &c.runs[best]
	c.ok, c.key, c.val = true, p.key, &p.chunks[0].vals[p.i]
}

func (c *cursor) next() {
	for i := 0; i < len(c.runs); {
		p := &c.runs[i]
		if p.key == c.key {
			p.i++
			if !p.load() {
				c.runs = append(c.runs[:i], c.runs[i+1:]...)
				continue
			}
		}
		i++
	}
	c.pick()
}

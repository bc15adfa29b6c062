package ingest

import (
	"context"
	"fmt"
	"slices"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/keyindex"
)

// A row of another writer without an ordering value stands where our version of its
// key is deleted, though that one had a value: so what a shard remembers decides
// between such a row and one with a value, and a shard that remembers nothing decides
// otherwise (H7). What is here keeps them from ending both: between rows that every
// shard has, what every shard knows decides first.

// askedSince finds the requests between the place of the rows that a commit of another
// writer brought and that record (H7).
func (p *passage) askedSince(ctx context.Context, h *heldAdd) error {
	if p.askedAt == h.Offset {
		return nil
	}
	p.asked, p.askedAt = nil, h.Offset
	if h.Place == h.Offset || p.s.def.Order.Kind == schemas.OrderNone {
		return nil // places decide alike everywhere
	}
	answers, err := p.s.answers(ctx, h.Place+1, h.Offset)
	if err != nil {
		return err
	}
	for i := range answers {
		a := &answers[i]
		if a.req.TimeMs < h.TimeMs-p.s.def.TombstoneTTLMs {
			continue // perhaps nobody knows of it any more
		}
		k, err := indexKey(p.s.keys, p.s.cfg.Deployment, a.key)
		if err != nil {
			return err
		}
		if p.asked == nil {
			p.asked = map[keyindex.Key][]*request{}
		}
		p.asked[k] = append(p.asked[k], a.req)
	}
	return nil
}

// deletes says whether a request from after the place of a row ends it.
func (p *passage) deletes(x *step) bool {
	for _, r := range p.asked[x.Key] {
		if !r.HasOrder || !x.HasOrder || x.Order <= r.Order {
			return true
		}
	}
	return false
}

// amongThemselves judges the rows of one key that came with one commit of another
// writer by what that brought alone: one row is left to be judged by what the shard
// knows. A row without a value gives way to one with a value, whatever becomes of that
// one. A row that was dead in that commit ends no other, but for the value that it had.
func (p *passage) amongThemselves(steps []step) []step {
	again := false
	for i := 1; i < len(steps) && !again; i++ {
		again = steps[i].oneCommit(&steps[i-1])
	}
	if !again {
		return steps
	}
	p.one = p.one[:0]
	for i := 0; i < len(steps); {
		n := i + 1
		for n < len(steps) && steps[n].oneCommit(&steps[i]) {
			n++
		}
		p.commit(steps[i:n])
		i = n
	}
	return p.one
}

func (x *step) oneCommit(y *step) bool {
	return x.theirs && y.theirs && x.request == nil && y.request == nil && x.record == y.record
}

func (p *passage) commit(rows []step) {
	best, dead := -1, -1 // of those that were alive in it, and of the values of the others
	for i := range rows {
		x := &rows[i]
		switch {
		case !x.stillborn && (best < 0 || !rows[best].above(x)):
			best = i
		case x.stillborn && x.HasOrder && (dead < 0 || !rows[dead].above(x)):
			dead = i
		}
	}
	if best < 0 {
		p.one = append(p.one, rows...)
		return
	}
	if dead >= 0 && rows[dead].above(&rows[best]) {
		p.one = append(p.one, rows[dead])
		if rows[best].HasOrder {
			best = -1
		}
	}
	for i := range rows {
		switch x := &rows[i]; {
		case i == best:
			p.one = append(p.one, *x)
		case !x.dead:
			p.kills = append(p.kills, killed{x.File, x.Pos})
		}
	}
}

// above says whether a row's ordering value is above that of a later one.
func (x *step) above(later *step) bool {
	return x.HasOrder && (!later.HasOrder || x.Order > later.Order)
}

// givesWay judges a row that loses to what stands. Where that is a row of another writer
// with an ordering value that is not its own, it is ended, and the row is judged by what
// was before; it says whether it was.
func (p *passage) givesWay(ctx context.Context, v *standing, changed *bool) (bool, error) {
	if bare, err := p.bare(ctx, v); err != nil {
		return false, err
	} else if bare {
		p.kills = append(p.kills, killed{v.File, v.Pos})
		if v.judged { // as if it had never come: so it is for who folds this as a fact
			*changed, *v = v.before.changed, v.before.standing
			return true, nil
		}
	} else if !p.gaveWay[v.Key] || !v.present || v.live() || !v.HasOrder || v.judged {
		return false, nil
	} // else it died by another path, which the append's maker had not heard of
	// Whether a job has carried it the maker may not have heard, and who folds the append
	// knows: its end stands beneath all that may still come, either way (H10).
	v.end(p.s.cfg.TableID, p.timeMs)
	*changed = true
	return true, nil
}

// bare says whether what stands is a row of another writer that has no ordering value
// of its own: what it is remembered with, the version had that was deleted before it.
func (p *passage) bare(ctx context.Context, v *standing) (bool, error) {
	switch {
	case !v.live() || !v.HasOrder:
		return false, nil
	case v.judged:
		return v.before != nil, nil
	case !statestore.FromCommit(v.File):
		return false, nil
	}
	c, read := p.own[v.File]
	if !read {
		var err error
		if c, err = p.s.readOrder(ctx, p.s.side.Files[v.File], v.File); err != nil {
			return false, err
		}
		if p.own == nil {
			p.own = map[uint64]*fileColumns{}
		}
		p.own[v.File] = c
	}
	if int(v.Pos) >= c.n {
		return false, fmt.Errorf("the index names row %d of data file %d, which has %d", v.Pos, v.File, c.n)
	}
	has, _ := c.ordering(int(v.Pos))
	return !has, nil
}

// facts notes what an append that took files killed of other writers' rows.
func (p *passage) facts(ctx context.Context, a *record.AppendRows) error {
	for i := range a.Deletes {
		b := &a.Deletes[i]
		if !statestore.IsUnsorted(b.File) {
			continue
		}
		set, err := dv.ReadBitmap(slices.Clone(b.Bitmap))
		if err != nil {
			return fmt.Errorf("delete block of an append: %w", err)
		}
		if p.killed == nil {
			p.killed, p.gaveWay = map[killed]bool{}, map[keyindex.Key]bool{}
		}
		for it := set.Iterator(); it.HasNext(); {
			p.killed[killed{b.File, it.Next()}] = true
		}
		f, known := p.s.side.Files[b.File]
		if !statestore.FromCommit(b.File) || !known || statestore.IsForeign(b.File) && f.Added >= a.RequestFrom || p.s.def.Order.Kind == schemas.OrderNone {
			continue
		}
		c, err := p.s.readColumns(ctx, f, b.File)
		if err != nil {
			return err
		}
		var scratch []byte
		for it := set.Iterator(); it.HasNext(); {
			row := int(it.Next())
			if row >= c.n {
				return fmt.Errorf("delete block names row %d of data file %d, which has %d", row, b.File, c.n)
			}
			var e keyindex.Entry
			if e, scratch, err = p.s.rowEntry(c, b.File, row, scratch); noKey(err) {
				continue // nothing names it
			} else if err != nil {
				return err
			}
			p.gaveWay[e.Key] = p.gaveWay[e.Key] || !e.HasOrder
		}
	}
	return nil
}

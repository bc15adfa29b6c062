package sim

import (
	"fmt"
	"maps"

	"github.com/varve-io/varve/schemas/record"
)

// event is what a source record asks, as the test made it.
type event struct {
	key    int
	del    bool
	value  int64
	order  int64
	hasOrd bool
}

// version is a key's live row in the model.
type version struct {
	value    int64
	accepted int64
}

// model folds the log's accepted records by the rules of §6, from the events
// themselves: no file, no position, no index.
type model struct {
	w       *World
	live    map[int]version
	ord     map[int]int64
	ends    []int64         // source ends
	asked   map[int64]asked // DeleteKeys by offset
	seen    []int64         // every key's events by shard, to find doubles
	cutRows map[int64]map[int]int64
}

type asked struct {
	keys   []int
	order  int64
	hasOrd bool
}

func newModel(w *World) *model {
	return &model{
		w: w, live: map[int]version{}, ord: map[int]int64{}, ends: make([]int64, w.opt.Shards), asked: map[int64]asked{},
		cutRows: map[int64]map[int]int64{},
	}
}

func (m *model) late(k int, order int64, has bool) bool {
	if !has {
		return false
	}
	if o, ok := m.ord[k]; ok && order < o {
		return true
	}
	m.ord[k] = order
	return false
}

// fold takes the decided log up to and including an offset's record.
func (m *model) fold(to int64) error {
	for i := range m.w.decided {
		d := &m.w.decided[i]
		if d.Outcome.Offset > to {
			break
		}
		if d.Outcome.Derived || d.Outcome.Outcome.Code != record.Accepted {
			continue
		}
		switch d.Outcome.Type {
		case record.TypeDeleteKeys:
			m.asked[d.Outcome.Offset] = m.w.asked[d.Outcome.Offset]
		case record.TypeCut:
			m.cutRows[d.Outcome.Offset] = m.rows()
		case record.TypeAppendRows:
			if err := m.append(d.Outcome.Offset, d.Record.Key, d.Record.Header, d.Record.Value); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *model) append(offset int64, key, header, value []byte) error {
	_, body, err := m.w.bodies.Open(m.w.ctx, key, header, value)
	if err != nil {
		return err
	}
	var a record.AppendRows
	if err := a.Decode(body); err != nil {
		return err
	}
	p := a.Shard.Partition
	if a.SourceFrom != m.ends[p] {
		return fmt.Errorf("log offset %d: shard %d goes on at source offset %d, not %d: an event is lost or doubled", offset, p, a.SourceFrom, m.ends[p])
	}
	m.ends[p] = a.SourceTo
	for o := a.SourceFrom; o < a.SourceTo; o++ {
		e := m.w.events[p][o]
		if m.late(e.key, e.order, e.hasOrd && m.w.opt.Ordered) {
			continue
		}
		if e.del {
			delete(m.live, e.key)
		} else {
			m.live[e.key] = version{e.value, offset}
		}
	}
	for o := a.RequestFrom; o < a.RequestTo; o++ {
		q, ok := m.asked[o]
		if !ok {
			continue
		}
		for _, k := range q.keys {
			if k%m.w.opt.Shards != int(p) {
				continue
			}
			if q.hasOrd {
				if !m.late(k, q.order, true) {
					delete(m.live, k)
				}
			} else if v, ok := m.live[k]; ok && v.accepted < o {
				delete(m.live, k)
			}
		}
	}
	return nil
}

func (m *model) rows() map[int]int64 {
	out := make(map[int]int64, len(m.live))
	for k, v := range m.live {
		out[k] = v.value
	}
	return maps.Clone(out)
}

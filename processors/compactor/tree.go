package compactor

import (
	"bytes"
	"math"

	"github.com/varve-io/varve/schemas/rows"
)

// tree is a loser tree over the inputs' windows: node 0 is the winner, each other
// node the loser of the match that was played there.
type tree struct {
	inputs []*input
	wide   bool
	nodes  []int32
	heads  []uint64 // of each input's next key; the largest where it is done

	same     int64 // rows that had the key of the row before
	begun    bool
	lastHead uint64
	lastKey  []byte // wide
}

func (t *tree) init(inputs []*input, wide bool) {
	t.inputs, t.wide = inputs, wide
	t.nodes = make([]int32, len(inputs))
	t.heads = make([]uint64, len(inputs))
	for i := range inputs {
		t.take(i)
	}
	if len(inputs) > 0 {
		t.nodes[0] = t.play(1)
	}
}

// play plays the matches of a node's subtree and gives its winner. The leaves
// are the nodes from len(inputs) on.
func (t *tree) play(node int) int32 {
	k := len(t.inputs)
	if node >= k {
		return int32(node - k)
	}
	a, b := t.play(2*node), t.play(2*node+1)
	if t.before(b, a) {
		a, b = b, a
	}
	t.nodes[node] = b
	return a
}

// take reads an input's next key.
func (t *tree) take(i int) {
	in := t.inputs[i]
	if in.done || len(in.heads) == 0 {
		t.heads[i] = math.MaxUint64
		return
	}
	t.heads[i] = in.heads[in.at]
}

// before says whether input a's next row comes before b's.
func (t *tree) before(a, b int32) bool {
	if t.heads[a] != t.heads[b] {
		return t.heads[a] < t.heads[b]
	}
	return t.tie(a, b)
}

func (t *tree) tie(a, b int32) bool {
	x, y := t.inputs[a], t.inputs[b]
	if x.done || y.done {
		return !x.done || y.done && a < b
	}
	if t.wide {
		if c := bytes.Compare(x.key(x.at), y.key(y.at)); c != 0 {
			return c < 0
		}
	}
	return a < b
}

func (t *tree) empty() bool { return t.inputs[t.nodes[0]].done }

// refilled plays the winner's matches again, after its window was filled.
func (t *tree) refilled(i int) {
	t.take(i)
	t.replay(int32(i))
}

func (t *tree) replay(w int32) {
	for n := (int(w) + len(t.inputs)) / 2; n > 0; n /= 2 {
		if t.before(t.nodes[n], w) {
			w, t.nodes[n] = t.nodes[n], w
		}
	}
	t.nodes[0] = w
}

// merge appends picks until it has limit of them, or the winner's window is
// spent: its input must be loaded and refilled then, else spent is -1.
func (t *tree) merge(picks []uint32, limit int) (_ []uint32, spent int) {
	spent = -1
	k := len(t.inputs)
	nodes, heads := t.nodes, t.heads
	last, same := t.lastHead, t.same
	lastKey := t.lastKey
	if !t.begun && !t.empty() {
		// No key is the one before the first.
		last = ^heads[nodes[0]]
		t.begun = true
	}
	for len(picks) < limit {
		w := nodes[0]
		in := t.inputs[w]
		if in.done {
			break
		}
		h := heads[w]
		if h == last {
			if !t.wide {
				same++
			} else if bytes.Equal(in.key(in.at), lastKey) {
				same++
			}
		}
		last = h
		if t.wide {
			lastKey = in.key(in.at)
		}
		picks = append(picks, rows.Pick(int(w), int(in.rows[in.at])))
		in.at++
		if in.at == len(in.heads) {
			spent = int(w)
			break
		}
		h = in.heads[in.at]
		heads[w] = h
		for n := (int(w) + k) >> 1; n > 0; n >>= 1 {
			l := nodes[n]
			if lh := heads[l]; lh < h || lh == h && t.tie(l, w) {
				nodes[n] = w
				w, h = l, lh
			}
		}
		nodes[0] = w
	}
	t.lastHead, t.same = last, same
	if t.wide {
		// The window that holds it may be filled anew.
		t.lastKey = append([]byte(nil), lastKey...)
	}
	return picks, spent
}

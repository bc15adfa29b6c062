package statestore_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	randv2 "math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/forward"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

// TestTreeHistories: which rows live never depends on when a leaf was split,
// references were brought down, a job was planned or completed: a position kills the
// row that stood there when the file was written, wherever that is now (F7, F8, P1,
// P2, P5). Each row lives once. A state that is built again is equal (F18, F19, F22).
func TestTreeHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		st, err := openMem(vfs.NewMem(), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		h := &treeHistory{logGen: logGen{t: t, st: st, timeMs: startMs}, files: map[uint64][]int{}, alive: map[int]bool{}}
		h.add("", -1, &record.SetApplyVersion{Deployment: testDeployment, Partitions: 1, Version: 1})
		h.add("t", -1, &record.CreateTable{Definition: definition("t")})
		h.add("t", 1, &record.ClaimShard{Shard: shardKey(0), Member: "m"})
		h.publish()
		for range rapid.IntRange(10, 80).Draw(t, "steps") {
			h.step()
			h.check()
		}
		seed := rapid.Uint64().Draw(t, "replay")
		if err := replayEquals(st, h.log, h.chains, randv2.New(randv2.NewPCG(seed, 1))); err != nil {
			t.Fatal(err)
		}
	})
}

// treeHistory knows every row by a number, and where each file has it.
type treeHistory struct {
	logGen
	files map[uint64][]int // rows by file, that was or is
	order []uint64         // of files
	alive map[int]bool
	rows  int
	jobs  []*record.Dispatch
	names uint64
}

func (h *treeHistory) outcome() *record.Outcome { return &h.last.Outcome }

func (h *treeHistory) table() *statestore.TableInfo {
	i, err := h.st.Table("t")
	if err != nil || i == nil {
		h.t.Fatal(i, err)
	}
	return i
}

func (h *treeHistory) publish() {
	h.add("t", 1, &record.Cut{})
	h.published("t", h.table())
}

func (h *treeHistory) pick(label string, n int) int { return h.n(label, 0, n-1) }

func (h *treeHistory) step() {
	switch what := h.n("what", 0, 99); {
	case what < 20:
		h.append()
	case what < 35:
		h.publish()
	case what < 55:
		h.grow()
	case what < 58:
		e := &record.ExtendTree{Children: int32(h.n("children", 2, 3)), Separators: treeBody()}
		e.Place = int32(h.pick("place", int(e.Children)))
		if nodes := h.nodes(); len(nodes) > 0 {
			e.First = nodes[0].First
		}
		h.add("t", 1, e)
	case what < 70:
		h.plan()
	case what < 82:
		h.complete()
	case what < 85 && len(h.jobs) > 0:
		k := h.pick("job", len(h.jobs))
		h.add("t", 1, &record.ReleaseJob{Items: []record.ReleasedJob{{Job: h.jobs[k].Job}}})
		h.jobs = slices.Delete(h.jobs, k, k+1)
	default:
		h.strike()
	}
}

func (h *treeHistory) append() {
	sh := &h.table().Shards[0]
	a := &record.AppendRows{
		Shard: shardKey(0), Epoch: sh.Epoch, Counter: sh.Counter + 1, SourceFrom: sh.SourceEnd, SourceTo: sh.SourceEnd + 1,
		RequestFrom: sh.RequestEnd, RequestTo: sh.RequestEnd, Changes: ref(byte(len(h.log))),
	}
	id := statestore.FileID(sh.Writer, uint64(len(h.log)))
	n := h.n("rows", 1, 12)
	a.Files = []record.DataFile{{ID: id, Rows: int64(n), Bytes: 100}}
	h.add("t", 1, a)
	if h.outcome().Code != record.Accepted {
		h.t.Fatalf("append: %s", h.outcome().Reason)
	}
	var rows []int
	for range n {
		rows = append(rows, h.rows)
		h.alive[h.rows] = true
		h.rows++
	}
	h.know(id, rows)
}

func (h *treeHistory) know(id uint64, rows []int) {
	h.files[id] = rows
	h.order = append(h.order, id)
}

func (h *treeHistory) nodes() (all []statestore.NodeInfo) {
	if err := h.st.Tree(1, func(n *statestore.NodeInfo) error {
		all = append(all, *n)
		return nil
	}); err != nil {
		h.t.Fatal(err)
	}
	return all
}

func (h *treeHistory) references() map[int64][]statestore.Reference {
	refs := map[int64][]statestore.Reference{}
	if err := h.st.References(1, 0, func(r *statestore.Reference) bool {
		refs[r.Node] = append(refs[r.Node], *r)
		return true
	}); err != nil {
		h.t.Fatal(err)
	}
	return refs
}

// grow splits a leaf, or brings references down, cut anywhere.
func (h *treeHistory) grow() {
	nodes := h.nodes()
	if len(nodes) == 0 {
		nodes = []statestore.NodeInfo{{}}
	}
	refs := h.references()
	p := &record.SplitPartition{}
	keys := treeBody()
	p.Separators = &keys
	for range h.n("items", 1, 2) {
		n := &nodes[h.pick("node", len(nodes))]
		item := record.SplitItem{Node: n.Number}
		var to []int64
		if n.Children == 0 {
			item.Children = int32(h.n("children", 2, 3))
			for c := range item.Children {
				to = append(to, int64(c))
			}
		} else {
			to = h.leaves(nodes, n.Number)
		}
		for _, r := range refs[n.Number] {
			if h.n("listed", 0, 4) == 0 {
				continue
			}
			y := record.TreeRef{File: r.File, Lo: r.Lo, Hi: r.Hi}
			left := r.Hi - r.Lo
			for k, t := range to {
				rows := int64(h.n("piece", 0, int(left)))
				if k == len(to)-1 {
					rows = left
				}
				if rows > 0 {
					y.Pieces = append(y.Pieces, record.TreePiece{To: t, Rows: rows})
				}
				left -= rows
			}
			item.Refs = append(item.Refs, y)
		}
		slices.SortFunc(item.Refs, func(a, b record.TreeRef) int {
			if a.File < b.File {
				return -1
			}
			return 1
		})
		p.Items = append(p.Items, item)
	}
	h.add("t", 1, p)
}

// leaves are those below a node, in their order.
func (h *treeHistory) leaves(nodes []statestore.NodeInfo, from int64) (all []int64) {
	n := &nodes[from] // numbers are without gaps
	if n.Children == 0 {
		return []int64{from}
	}
	for k := range n.Children {
		all = append(all, h.leaves(nodes, n.First+k)...)
	}
	return all
}

func (h *treeHistory) plan() {
	var free []statestore.Candidate
	if _, err := h.st.Candidates(1, 0, func(c *statestore.Candidate) bool {
		free = append(free, *c)
		return true
	}); err != nil {
		h.t.Fatal(err)
	}
	if len(free) == 0 {
		return
	}
	first := &free[h.pick("first", len(free))]
	p := &record.PlanJobs{Items: []record.PlanItem{{}}}
	for i := range free {
		c := &free[i]
		if c.Node == first.Node && (c == first || h.n("with", 0, 1) == 0) {
			p.Items[0].Inputs = append(p.Items[0].Inputs, record.JobInput{File: c.ID, Lo: c.Lo, Hi: c.Hi})
		}
	}
	h.add("t", 1, p)
	if h.outcome().Code != record.Accepted {
		h.t.Fatalf("candidates are %s", h.outcome().Reason)
	}
	n := &statestore.JobNotice{Table: "t", TableID: 1, Job: record.JobID{Plan: int64(len(h.log) - 1), Attempt: 1}}
	d, _, err := h.st.Dispatch(n)
	if err != nil || d == nil {
		h.t.Fatal(d, err)
	}
	h.jobs = append(h.jobs, d)
}

// complete ends a job: its inputs' rows take turns, and go to one output or two.
func (h *treeHistory) complete() {
	if len(h.jobs) == 0 {
		return
	}
	k := h.pick("job", len(h.jobs))
	d := h.jobs[k]
	h.jobs = slices.Delete(h.jobs, k, k+1)
	var inputs []forward.Input
	var left [][]int
	total := 0
	for i := range d.Inputs {
		in := &d.Inputs[i]
		x := forward.Input{File: in.File, Lo: uint32(in.Lo), Hi: uint32(in.Hi), Dead: in.Dead}
		var rows []int
		for p := in.Lo; p < in.Hi; p++ {
			if !contains(h.t, in.Dead, uint32(p)) {
				rows = append(rows, h.files[in.File][p])
			}
		}
		x.Rows = uint64(len(rows))
		total += len(rows)
		inputs, left = append(inputs, x), append(left, rows)
	}
	var order []byte
	var rows []int
	for len(order) < total {
		i := h.pick("turn", len(left))
		for len(left[i]) == 0 {
			i = (i + 1) % len(left)
		}
		order, rows, left[i] = append(order, byte(i)), append(rows, left[i][0]), left[i][1:]
	}
	item := record.CompletedJob{Job: d.Job, Sorted: true}
	var text bytes.Buffer
	w, err := forward.NewWriter(&text, inputs)
	if err != nil {
		h.t.Fatal(err)
	}
	cut := h.n("cut", 0, total)
	for _, n := range [...]int{cut, total - cut} {
		if n == 0 {
			continue
		}
		if err := w.Append(order[:n]); err != nil {
			h.t.Fatal(err)
		}
		w.EndOutput()
		order = order[n:]
		o := record.JobOutput{Rows: int64(n), Bytes: 10}
		h.names++
		binary.BigEndian.PutUint64(o.Name[:], h.names)
		item.Outputs = append(item.Outputs, o)
	}
	if err := w.Close(); err != nil {
		h.t.Fatal(err)
	}
	hash := record.Hash(sha256.Sum256(text.Bytes()))
	mapStore.Store(hash, text.Bytes())
	h.st.ProvideMap(hash, text.Bytes())
	item.Map = record.Ref{Path: fmt.Sprintf("_varve/x/maps/%x", hash[:16]), Length: int64(text.Len()), Hash: hash}
	h.add("t", 1, &record.CompleteJob{Items: []record.CompletedJob{item}, Metrics: ref(4)})
	if h.outcome().Code != record.Accepted {
		h.t.Fatalf("completion: %s", h.outcome().Reason)
	}
	first := uint64(h.outcome().Numbers[2])
	for i := range item.Outputs {
		n := int(item.Outputs[i].Rows)
		h.know(first+uint64(i), rows[:n:n])
		rows = rows[n:]
	}
}

func contains(t *rapid.T, set []byte, p uint32) bool {
	if len(set) == 0 {
		return false
	}
	b, err := dv.ReadBitmap(set)
	if err != nil {
		t.Fatal(err)
	}
	return b.Contains(p)
}

// strike kills rows where they stood in some file that was ever there.
func (h *treeHistory) strike() {
	if len(h.order) == 0 {
		return
	}
	id := h.order[h.pick("file", len(h.order))]
	rows := h.files[id]
	var at []uint32
	for range h.n("positions", 1, 3) {
		at = append(at, uint32(h.pick("position", len(rows))))
	}
	h.add("t", 1, &record.DeletePositions{Deletes: []record.DeleteBlock{{File: id, Bitmap: positions(at...)}}})
	if h.outcome().Code != record.Accepted {
		h.t.Fatalf("a block on file %d: %s", id, h.outcome().Reason)
	}
	for _, p := range at {
		delete(h.alive, rows[p])
	}
}

// check holds what lives in the state against what should.
func (h *treeHistory) check() {
	seen := map[int]bool{}
	if err := h.st.Files(1, func(f *statestore.FileInfo) error {
		at := int64(0)
		for _, p := range f.Parts {
			if p.Lo != at || p.Hi <= p.Lo {
				return fmt.Errorf("file %d has a reference [%d,%d) behind row %d", f.ID, p.Lo, p.Hi, at)
			}
			at = p.Hi
		}
		if f.Gone {
			return nil
		}
		for p, row := range h.files[f.ID] {
			if contains(h.t, f.Dead, uint32(p)) {
				continue
			}
			if seen[row] || !h.alive[row] {
				return fmt.Errorf("row %d lives at %d of file %d; alive %t, seen before %t", row, p, f.ID, h.alive[row], seen[row])
			}
			seen[row] = true
		}
		return nil
	}); err != nil {
		h.t.Fatal(err)
	}
	if len(seen) != len(h.alive) {
		h.t.Fatalf("%d rows live, %d should", len(seen), len(h.alive))
	}
}

package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/forward"
)

const (
	rebaseGoal = 20_000_000 // positions per second of processor time, the map loaded
	// mapGoal: a map takes no more than this times the entropy of its ordinals.
	mapGoal = 1.05
	// mapLeast is what a map of no entropy may take, in bits a row: its directory.
	mapLeast = 0.01
	// rebaseRounds is how often both sides answer the same questions, in turns.
	rebaseRounds = 5
)

// rebaseShape is a way in which a job's inputs are interleaved in its output.
type rebaseShape struct {
	name   string
	inputs int
	// next draws the ordinal of the next row, or -1 for the one before.
	next func(rng *rand.Rand, row, rows int64, last int) int
}

func rebaseShapes() []rebaseShape {
	return []rebaseShape{
		{"ten", 10, func(rng *rand.Rand, _, _ int64, _ int) int { return rng.IntN(10) }},
		{"skewed", 2, func(rng *rand.Rand, _, _ int64, _ int) int { return min(rng.IntN(10), 1) }},
		{"runs", 10, func(rng *rand.Rand, _, _ int64, last int) int {
			if last >= 0 && rng.IntN(1000) > 0 {
				return last
			}
			return rng.IntN(10)
		}},
		{"concatenated", 10, func(_ *rand.Rand, row, rows int64, _ int) int { return int(row * 10 / rows) }},
	}
}

// rebaseWork is a job's map and positions of its inputs that died meanwhile.
type rebaseWork struct {
	ordinals []byte
	inputs   []forward.Input
	live     []*roaring.Bitmap // of each input
	asked    [][]uint32        // of each input
	total    int
	text     []byte
	entropy  float64 // bits a row, of the ordinals in blocks of 64 Ki
}

// newRebaseWork draws a job of so many output rows: a tenth of each input was
// dead before it, and a tenth of the positions is asked for.
func newRebaseWork(s *rebaseShape, seed uint64, rows int64) (*rebaseWork, error) {
	rng := rand.New(rand.NewPCG(seed, uint64(len(s.name))))
	w := &rebaseWork{ordinals: make([]byte, rows)}
	carried := make([]uint64, s.inputs)
	last := -1
	for i := range w.ordinals {
		last = s.next(rng, int64(i), rows, last)
		w.ordinals[i] = byte(last)
		carried[last]++
	}
	for i, n := range carried {
		dead, live := roaring.New(), roaring.New()
		p := uint32(0)
		for left := n; left > 0; p++ {
			if rng.IntN(10) == 0 {
				dead.Add(p)
				continue
			}
			live.Add(p)
			left--
		}
		in := forward.Input{File: uint64(i + 1), Hi: p, Rows: n}
		if !dead.IsEmpty() {
			set, err := dv.AppendBitmap(nil, dead)
			if err != nil {
				return nil, err
			}
			in.Dead = set
		}
		var ask []uint32
		for at := rng.Uint32N(19); at < p; at += 1 + rng.Uint32N(19) {
			ask = append(ask, at)
		}
		w.inputs, w.live, w.asked = append(w.inputs, in), append(w.live, live), append(w.asked, ask)
		w.total += len(ask)
	}
	var text bytes.Buffer
	fw, err := forward.NewWriter(&text, w.inputs)
	if err != nil {
		return nil, err
	}
	for from := 0; from < len(w.ordinals); from += forward.BlockRows {
		block := w.ordinals[from:min(from+forward.BlockRows, len(w.ordinals))]
		if err := fw.Append(block); err != nil {
			return nil, err
		}
		w.entropy += entropyOf(block) / float64(rows)
	}
	fw.EndOutput()
	if err := fw.Close(); err != nil {
		return nil, err
	}
	w.text = text.Bytes()
	return w, nil
}

// entropyOf is the entropy of a block's ordinals, each for itself, in bits.
func entropyOf(block []byte) float64 {
	var seen [forward.MaxInputs]int
	for _, o := range block {
		seen[o]++
	}
	bits := 0.0
	for _, n := range seen {
		if n > 0 {
			bits -= float64(n) * math.Log2(float64(n)/float64(len(block)))
		}
	}
	return bits
}

// countingReader counts what is read: a rebase reads its map, and no key.
type countingReader struct {
	r     io.ReaderAt
	bytes int64
}

func (c *countingReader) ReadAt(b []byte, at int64) (int, error) {
	n, err := c.r.ReadAt(b, at)
	c.bytes += int64(n)
	return n, err
}

// runRebase sends positions of a job's inputs through its forwarding map.
func runRebase(ctx context.Context, o *Options) ([]Result, error) {
	var out []Result
	for _, s := range rebaseShapes() {
		w, err := newRebaseWork(&s, o.Seed, o.Rows)
		if err != nil {
			return nil, err
		}
		rs, err := o.rebase(ctx, &s, w)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		out = append(out, rs...)
	}
	return out, nil
}

func (o *Options) rebase(ctx context.Context, s *rebaseShape, w *rebaseWork) ([]Result, error) {
	src := &countingReader{r: bytes.NewReader(w.text)}
	m, err := forward.Open(src, int64(len(w.text)))
	if err != nil {
		return nil, err
	}
	m.CacheBlocks = len(w.ordinals)/forward.BlockRows + 1
	if err := m.Check(); err != nil { // loads all blocks
		return nil, err
	}
	loaded := src.bytes
	from := make([]*roaring.Bitmap, len(w.inputs)) // where an input's rows are in the output
	for i := range from {
		from[i] = roaring.New()
	}
	for g, x := range w.ordinals {
		from[x].Add(uint32(g))
	}
	rounds := rebaseRounds
	if o.Quick {
		rounds = 1
	}
	var ours, theirs float64
	var mine, plain rebaseSum
	var dst []forward.Image
	for range rounds {
		used, err := cpuOf(ctx, func() error {
			for i := range w.asked {
				if dst, err = m.Rebase(dst[:0], i, w.asked[i]); err != nil {
					return err
				}
				for _, x := range dst {
					mine.add(x.Position)
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		ours += used
		used, err = cpuOf(ctx, func() error {
			for i := range w.asked {
				for _, p := range w.asked[i] {
					if !w.live[i].Contains(p) {
						continue
					}
					g, err := from[i].Select(uint32(w.live[i].Rank(p)) - 1)
					if err != nil {
						return err
					}
					plain.add(g)
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		theirs += used
	}
	if mine != plain || mine.n == 0 {
		return nil, fmt.Errorf("the map sends %d positions to places of the sum %d, rank and select send %d to %d", mine.n, mine.sum, plain.n, plain.sum)
	}
	if src.bytes != loaded {
		return nil, fmt.Errorf("%d bytes were read again of a loaded map", src.bytes-loaded)
	}
	asked := float64(rounds * w.total)
	speed := Result{
		Bench: "rebase." + s.name, Figure: asked / ours, Unit: "positions/cpu-s", Better: Higher, Goal: rebaseGoal,
		Beside: Beside{"Rank and Select of roaring", asked / theirs}, CPU: ours, Setup: o.setup(0, "none"),
	}
	// The sets of what was dead before stand in it too: they are no part of the interleave.
	sets := 0
	for i := range w.inputs {
		sets += len(w.inputs[i].Dead)
	}
	bits := 8 * float64(len(w.text)-sets) / float64(len(w.ordinals))
	note := fmt.Sprintf("%d inputs, a tenth of their rows dead before the job, %d positions asked for; %d bytes of map read, %d of them dead positions, no key of any file", len(w.inputs), w.total, loaded, sets)
	size := Result{
		Bench: "rebase." + s.name + ".map", Figure: bits, Unit: "bits a row", Better: Lower, Goal: max(mapGoal*w.entropy, mapLeast),
		Beside: Beside{"entropy of the ordinals, in blocks of 64 Ki", max(w.entropy, mapLeast)}, CPU: ours, Setup: speed.Setup,
	}
	rss, err := rssPeak()
	if err != nil {
		return nil, err
	}
	out := []Result{speed, size}
	for i := range out {
		out[i].RSSPeak, out[i].Setup.Note = rss, note
		out[i].Setup.Broker, out[i].Setup.Threads = "none", 1
	}
	return out, nil
}

// rebaseSum is by which two ways of rebasing are compared.
type rebaseSum struct {
	n   int
	sum uint64
}

func (s *rebaseSum) add(p uint32) {
	s.n++
	s.sum += uint64(p) * 0x9E3779B97F4A7C15 >> 7
}

package forward_test

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"pgregory.net/rapid"

	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/forward"
)

// job is a compaction by its rows: what a map must say of it.
type job struct {
	inputs  []forward.Input
	live    [][]uint32 // positions of L of each input
	ordinal []byte     // of each output row
	outputs []int
}

func set(t testing.TB, positions []uint32) []byte {
	t.Helper()
	b, err := dv.AppendBitmap(nil, roaring.BitmapOf(positions...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// newJob makes inputs of those rows, share of which are dead, and shuffles
// their rows into outputs by pick.
func newJob(t testing.TB, r *rand.Rand, rows []int, share float64, outputs int, pick func(left []int) int) *job {
	t.Helper()
	j := &job{}
	left := make([]int, len(rows))
	for i, n := range rows {
		in := forward.Input{File: uint64(i) + 1<<40, Lo: r.Uint32N(1000)}
		in.Hi = in.Lo + uint32(n)
		var dead, live []uint32
		for p := in.Lo; p < in.Hi; p++ {
			if r.Float64() < share {
				dead = append(dead, p)
			} else {
				live = append(live, p)
			}
		}
		if len(dead) > 0 {
			in.Dead = set(t, dead)
		}
		in.Rows = uint64(len(live))
		left[i] = len(live)
		j.inputs, j.live = append(j.inputs, in), append(j.live, live)
	}
	for slices.Max(left) > 0 {
		i := pick(left)
		left[i]--
		j.ordinal = append(j.ordinal, byte(i))
	}
	rest := len(j.ordinal)
	for k := range outputs {
		n := rest
		if k < outputs-1 {
			n = r.IntN(rest + 1)
		}
		j.outputs = append(j.outputs, n)
		rest -= n
	}
	return j
}

func uniformly(r *rand.Rand) func([]int) int {
	return func(left []int) int {
		for {
			if i := r.IntN(len(left)); left[i] > 0 {
				return i
			}
		}
	}
}

func (j *job) write(t testing.TB) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := forward.NewWriter(&out, j.inputs)
	if err != nil {
		t.Fatal(err)
	}
	at := 0
	for _, n := range j.outputs {
		for n > 0 {
			step := min(n, 7919)
			if err := w.Append(j.ordinal[at : at+step]); err != nil {
				t.Fatal(err)
			}
			at, n = at+step, n-step
		}
		w.EndOutput()
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func open(t testing.TB, b []byte) *forward.Map {
	t.Helper()
	m, err := forward.Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// images is where each row of L went, by walking the outputs.
func (j *job) images() [][]forward.Image {
	out := make([][]forward.Image, len(j.inputs))
	output, pos := 0, 0
	for _, o := range j.ordinal {
		for pos == j.outputs[output] {
			output, pos = output+1, 0
		}
		out[o] = append(out[o], forward.Image{Output: uint32(output), Position: uint32(pos)})
		pos++
	}
	return out
}

// TestRebase (F2, F3): every position goes where its row went, a dead one and
// one outside of the range nowhere; whatever the shape of the job, and however
// few blocks are kept.
func TestRebase(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 2))
		rows := make([]int, rapid.IntRange(1, 12).Draw(rt, "inputs"))
		for i := range rows {
			rows[i] = r.IntN(rapid.SampledFrom([]int{3, 500, 40_000}).Draw(rt, "rows"))
		}
		pick := uniformly(r)
		switch rapid.SampledFrom([]string{"uniform", "skewed", "runs", "concatenated"}).Draw(rt, "mix") {
		case "skewed":
			pick = func(left []int) int {
				for i := range left {
					if left[i] > 0 && r.IntN(10) > 0 {
						return i
					}
				}
				return slices.Index(left, slices.Max(left))
			}
		case "runs":
			at, n := 0, 0
			pick = func(left []int) int {
				for n--; n < 0 || left[at] == 0; n-- {
					at, n = r.IntN(len(left)), r.IntN(3000)
				}
				return at
			}
		case "concatenated":
			pick = func(left []int) int { return slices.IndexFunc(left, func(n int) bool { return n > 0 }) }
		}
		j := newJob(t, r, rows, rapid.SampledFrom([]float64{0, 0.1, 0.9, 1}).Draw(rt, "dead"), rapid.IntRange(1, 5).Draw(rt, "outputs"), pick)
		m := open(t, j.write(t))
		m.CacheBlocks = rapid.IntRange(1, 3).Draw(rt, "cache")
		if err := m.Check(); err != nil {
			t.Fatal(err)
		}
		if len(m.Outputs()) != len(j.outputs) {
			rt.Fatalf("%d outputs, want %d", len(m.Outputs()), len(j.outputs))
		}
		images := j.images()
		for i := range j.inputs {
			in := &m.Inputs()[i]
			if in.File != j.inputs[i].File || in.Lo != j.inputs[i].Lo || in.Hi != j.inputs[i].Hi || in.Rows != j.inputs[i].Rows || !bytes.Equal(in.Dead, j.inputs[i].Dead) {
				rt.Fatalf("input %d is %+v", i, in)
			}
			step := uint32(1 + r.IntN(50))
			var ask []uint32
			var want []forward.Image
			for p := uint32(0); p < in.Hi+100; p += 1 + r.Uint32N(step) {
				ask = append(ask, p)
				if k, ok := slices.BinarySearch(j.live[i], p); ok {
					want = append(want, images[i][k])
				}
			}
			got, err := m.Rebase(nil, i, ask)
			if err != nil {
				rt.Fatal(err)
			}
			if !slices.Equal(got, want) {
				rt.Fatalf("input %d: %d images, want %d", i, len(got), len(want))
			}
		}
	})
}

// TestRebaseOrder: positions that do not ascend are an error, not a wrong image.
func TestRebaseOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	j := newJob(t, r, []int{100, 100}, 0, 1, uniformly(r))
	m := open(t, j.write(t))
	for _, ask := range [][]uint32{{2000, 1}, {7, 7}} {
		if _, err := m.Rebase(nil, 0, ask); err == nil {
			t.Errorf("positions %v: no error", ask)
		}
	}
}

// entropy is what a row's ordinal takes at least, in bits, if rows are drawn.
func entropy(shares ...float64) float64 {
	h := 0.0
	for _, p := range shares {
		h -= p * math.Log2(p)
	}
	return h
}

// TestSize (F3): a map takes at most 1.05 times the entropy of the interleave;
// runs and concatenations nearly nothing.
func TestSize(t *testing.T) {
	const rows = 1_000_000
	r := rand.New(rand.NewPCG(42, 1))
	equal := make([]float64, 10)
	for i := range equal {
		equal[i] = 0.1
	}
	for _, c := range []struct {
		name   string
		shares []float64
	}{{"ten equal", equal}, {"two equal", []float64{0.5, 0.5}}, {"90/10", []float64{0.9, 0.1}}, {"99/1", []float64{0.99, 0.01}}} {
		j := &job{inputs: make([]forward.Input, len(c.shares)), outputs: []int{rows}}
		for range rows {
			x, o := r.Float64(), 0
			for x -= c.shares[0]; x >= 0 && o < len(c.shares)-1; x -= c.shares[o] {
				o++
			}
			j.ordinal = append(j.ordinal, byte(o))
			j.inputs[o].Rows++
			j.inputs[o].Hi++
		}
		bits := 8 * float64(len(j.write(t))) / rows
		if h := entropy(c.shares...); bits > 1.05*h {
			t.Errorf("%s: %.4f bits a row, the entropy is %.4f", c.name, bits, h)
		} else {
			t.Logf("%s: %.4f bits a row, %.3f times the entropy", c.name, bits, bits/h)
		}
	}
	for name, length := range map[string]int{"concatenated": rows / 10, "runs of 1000": 1000} {
		j := &job{inputs: make([]forward.Input, 10), outputs: []int{rows}}
		for i := range rows {
			o := byte(i / length % 10)
			j.ordinal = append(j.ordinal, o)
			j.inputs[o].Rows++
			j.inputs[o].Hi++
		}
		if bits := 8 * float64(len(j.write(t))) / rows; bits > 0.05 {
			t.Errorf("%s: %.4f bits a row", name, bits)
		}
	}
}

// TestCounts (F4): a map whose rows do not add up is not written, and one that
// was is not opened.
func TestCounts(t *testing.T) {
	in := []forward.Input{{File: 1, Hi: 10, Rows: 9, Dead: set(t, []uint32{3})}, {File: 2, Hi: 5, Rows: 5}}
	for name, c := range map[string]struct {
		inputs   []forward.Input
		ordinals []byte
		end      bool
		want     error
	}{
		"a row too few":         {in, []byte{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1}, true, forward.ErrCounts},
		"one of another":        {in, []byte{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1}, true, forward.ErrCounts},
		"an unknown input":      {in, []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2}, true, forward.ErrCounts},
		"rows of no output":     {in, []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1}, false, forward.ErrCounts},
		"dead out of the range": {[]forward.Input{{Lo: 4, Hi: 10, Rows: 5, Dead: set(t, []uint32{3})}}, nil, true, forward.ErrCorrupt},
		"dead past the end":     {[]forward.Input{{Lo: 4, Hi: 10, Rows: 5, Dead: set(t, []uint32{10})}}, nil, true, forward.ErrCorrupt},
		"dead is no set":        {[]forward.Input{{Hi: 10, Rows: 9, Dead: []byte("dead")}}, nil, true, forward.ErrCorrupt},
		"rows of another range": {[]forward.Input{{Hi: 10, Rows: 11}}, nil, true, forward.ErrCounts},
		"a range backwards":     {[]forward.Input{{Lo: 10, Hi: 9}}, nil, true, forward.ErrCorrupt},
	} {
		var out bytes.Buffer
		w, err := forward.NewWriter(&out, c.inputs)
		if err == nil {
			err = w.Append(c.ordinals)
			if c.end {
				w.EndOutput()
			}
			err = errors.Join(err, w.Close())
		}
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if _, err := forward.NewWriter(&bytes.Buffer{}, make([]forward.Input, forward.MaxInputs+1)); err == nil {
		t.Error("too many inputs are taken")
	}
}

// TestEmpty: a job all of whose rows were dead has a map, too.
func TestEmpty(t *testing.T) {
	j := &job{inputs: []forward.Input{{File: 7, Hi: 3, Dead: set(t, []uint32{0, 1, 2})}}, outputs: []int{0}}
	m := open(t, j.write(t))
	if got, err := m.Rebase(nil, 0, []uint32{0, 1, 2, 3}); err != nil || len(got) != 0 {
		t.Errorf("images %v, %v", got, err)
	}
}

// TestDamage: no flipped bit and no cut gives another image: opening or reading says so.
func TestDamage(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	j := newJob(t, r, []int{900, 300, 4000}, 0.2, 3, uniformly(r))
	whole := j.write(t)
	use := func(b []byte) error {
		m, err := forward.Open(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return err
		}
		return m.Check()
	}
	if err := use(whole); err != nil {
		t.Fatal(err)
	}
	for at := range whole {
		b := slices.Clone(whole)
		b[at] ^= 1 << (at % 8)
		if err := use(b); !errors.Is(err, forward.ErrCorrupt) && !errors.Is(err, forward.ErrCounts) {
			t.Fatalf("byte %d of %d flipped: %v", at, len(whole), err)
		}
	}
	for n := range len(whole) {
		if err := use(whole[:n]); err == nil {
			t.Fatalf("the first %d of %d bytes are a map", n, len(whole))
		}
	}
}

func FuzzOpen(f *testing.F) {
	r := rand.New(rand.NewPCG(5, 5))
	for _, mix := range []func([]int) int{uniformly(r), func(left []int) int { return slices.IndexFunc(left, func(n int) bool { return n > 0 }) }} {
		f.Add(newJob(f, r, []int{200, 90, 5}, 0.3, 2, mix).write(f))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := forward.Open(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		m.CacheBlocks = 2
		if m.Check() != nil {
			return
		}
		for i := range m.Inputs() {
			in := &m.Inputs()[i]
			ask := []uint32{in.Lo, in.Lo + 1, in.Lo + (in.Hi-in.Lo)/2, in.Hi}
			slices.Sort(ask)
			if _, err := m.Rebase(nil, i, slices.Compact(ask)); err != nil && !errors.Is(err, forward.ErrCorrupt) {
				t.Fatal(err)
			}
		}
	})
}

// BenchmarkRebase rebases one position in ten of ten inputs through a loaded map
// of a million rows, and does the same with the library's Rank and Select.
func BenchmarkRebase(b *testing.B) {
	r := rand.New(rand.NewPCG(42, 9))
	rows := make([]int, 10)
	for i := range rows {
		rows[i] = 100_000
	}
	j := newJob(b, r, rows, 0.1, 1, uniformly(r))
	ask := make([][]uint32, len(rows))
	total := 0
	for i := range j.inputs {
		for p := j.inputs[i].Lo; p < j.inputs[i].Hi; p += 1 + r.Uint32N(19) {
			ask[i] = append(ask[i], p)
		}
		total += len(ask[i])
	}
	b.Run("map", func(b *testing.B) {
		m := open(b, j.write(b))
		if err := m.Check(); err != nil {
			b.Fatal(err)
		}
		var dst []forward.Image
		for b.Loop() {
			for i := range ask {
				var err error
				if dst, err = m.Rebase(dst[:0], i, ask[i]); err != nil {
					b.Fatal(err)
				}
			}
		}
		b.ReportMetric(float64(total)*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mpositions/s")
	})
	b.Run("roaring", func(b *testing.B) {
		live, from := make([]*roaring.Bitmap, len(rows)), make([]*roaring.Bitmap, len(rows))
		for i := range rows {
			live[i], from[i] = roaring.BitmapOf(j.live[i]...), roaring.New()
		}
		for g, o := range j.ordinal {
			from[o].Add(uint32(g))
		}
		sum := uint32(0)
		for b.Loop() {
			for i := range ask {
				for _, p := range ask[i] {
					if !live[i].Contains(p) {
						continue
					}
					g, err := from[i].Select(uint32(live[i].Rank(p)) - 1)
					if err != nil {
						b.Fatal(err)
					}
					sum += g
				}
			}
		}
		b.ReportMetric(float64(total)*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mpositions/s")
		if sum == 0 {
			b.Fatal("no position was rebased")
		}
	})
	b.Run("load", func(b *testing.B) {
		whole := j.write(b)
		for b.Loop() {
			if err := open(b, whole).Check(); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(j.ordinal)), "ns/row")
	})
}

// TestMemory: an opened map takes about what it says: a state keeps small ones by
// the thousand.
func TestMemory(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	j := newJob(t, r, []int{100, 100, 100, 100}, 0.1, 1, uniformly(r))
	whole := j.write(t)
	maps := make([]*forward.Map, 2000)
	heap := func() int64 {
		runtime.GC()
		runtime.GC() // pools let go of what they hold at the second
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before, said := heap(), int64(0)
	for i := range maps {
		maps[i] = open(t, whole)
		if err := maps[i].Check(); err != nil {
			t.Fatal(err)
		}
		said += maps[i].Memory()
	}
	took := heap() - before
	if took > 2*said || said > 2*took {
		t.Errorf("%d maps of %d bytes take %d bytes, and say %d", len(maps), len(whole), took, said)
	}
	runtime.KeepAlive(maps)
}

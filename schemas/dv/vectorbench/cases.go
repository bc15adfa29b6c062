package vectorbench

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/varve-io/varve/schemas/dv"
)

// Rows of the data file that the vectors of all cases belong to.
const Rows = 1_000_000

// DefaultSeed is the seed of the figures in the documentation.
const DefaultSeed = 42

// lookups of one membership call.
const lookups = 20_000

// samples is how many vectors of one shape a case goes through, one a call. With one
// alone a processor learns its branches by heart, which no real work lets it do.
const samples = 8

// Case is one operation on one shape of vector.
type Case struct {
	Operation string // union, minus, encode, encode-set, decode, contains
	Shape     string
	Positions uint64 // positions of the first vector, or lookups for contains
	Bytes     int    // serialized size of the first vector
	// Each call takes the next of several vectors, in the same order on both sides.
	Ours  func() error
	Plain func() error
}

// Name is operation/shape.
func (c Case) Name() string { return c.Operation + "/" + c.Shape }

type shape struct {
	name   string
	base   func(*rand.Rand) *roaring.Bitmap
	change func(*rand.Rand) *roaring.Bitmap
}

func uniform(n int) func(*rand.Rand) *roaring.Bitmap {
	return func(r *rand.Rand) *roaring.Bitmap {
		b := roaring.New()
		for range n {
			b.Add(r.Uint32N(Rows))
		}
		return b
	}
}

func ranges(n, length int) func(*rand.Rand) *roaring.Bitmap {
	return func(r *rand.Rand) *roaring.Bitmap {
		b := roaring.New()
		for range n {
			first := uint64(r.Uint32N(Rows))
			b.AddRange(first, min(first+uint64(length), Rows))
		}
		return b
	}
}

var shapes = []shape{
	{"0.1%", uniform(1_000), uniform(100)},
	{"1%", uniform(10_000), uniform(1_000)},
	{"1%+1%", uniform(10_000), uniform(10_000)},
	{"10%", uniform(100_000), uniform(1_000)},
	{"50%", uniform(690_000), uniform(100_000)},
	{"runs", ranges(1_000, 100), ranges(100, 100)},
	{"runs+1%", ranges(1_000, 100), uniform(10_000)},
	{"full", ranges(64, 200_000), uniform(1_000)},
}

// Cases makes all cases from a seed: the same seed gives the same vectors.
func Cases(seed uint64) ([]Case, error) {
	var all []Case
	for i, s := range shapes {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		var of [samples][]Case
		for j := range of {
			var err error
			if of[j], err = shapeCases(s, r); err != nil {
				return nil, fmt.Errorf("shape %s: %w", s.name, err)
			}
		}
		for op, c := range of[0] {
			var ours, plain [samples]func() error
			for j := range of {
				ours[j], plain[j] = of[j][op].Ours, of[j][op].Plain
			}
			c.Ours, c.Plain = inTurn(ours), inTurn(plain)
			all = append(all, c)
		}
	}
	return all, nil
}

// inTurn calls one of the functions after the other.
func inTurn(f [samples]func() error) func() error {
	next := -1
	return func() error {
		next = (next + 1) % samples
		return f[next]()
	}
}

func shapeCases(s shape, r *rand.Rand) ([]Case, error) {
	base, change := s.base(r), s.change(r)
	set, err := dv.AppendBitmap(nil, base)
	if err != nil {
		return nil, err
	}
	delta, err := dv.AppendBitmap(nil, change)
	if err != nil {
		return nil, err
	}
	blob, err := dv.AppendBlob(nil, base)
	if err != nil {
		return nil, err
	}
	vector, err := dv.Decode(blob)
	if err != nil {
		return nil, err
	}
	flat, ok := vector.Bitmap32()
	if !ok {
		return nil, errors.New("a vector of few rows does not fit into 32 bits")
	}
	probes := make([]uint32, lookups)
	for i := range probes {
		probes[i] = r.Uint32N(Rows)
	}

	n := base.GetCardinality()
	var ours, plain []byte
	var buf bytes.Buffer
	var hitsOurs, hitsPlain int
	combine := func(op func(x, y *roaring.Bitmap)) func() error {
		return func() (err error) {
			plain, err = plainCombine(&buf, set, delta, op)
			return err
		}
	}
	sameBytes := func() error { return sameSet(ours, plain) }
	cases := []struct {
		Case
		agree func() error
	}{
		{Case{"union", s.name, n, len(set),
			func() (err error) { ours, err = dv.Union(ours[:0], set, delta); return err },
			combine((*roaring.Bitmap).Or)}, sameBytes},
		{Case{"minus", s.name, n, len(set),
			func() (err error) { ours, err = dv.Minus(ours[:0], set, delta); return err },
			combine((*roaring.Bitmap).AndNot)}, sameBytes},
		{Case{"encode", s.name, n, len(set),
			func() (err error) { ours, err = dv.AppendBlob(ours[:0], base); return err },
			func() (err error) { plain, err = plainEncode(&buf, base); return err }},
			func() error {
				return sameSet(ours[headSize:len(ours)-4], plain[headSize:len(plain)-4])
			}},
		{Case{"encode-set", s.name, n, len(set),
			func() (err error) { ours, _, err = dv.AppendBlobFromSet(ours[:0], set); return err },
			func() (err error) { plain, err = plainEncodeSet(&buf, set); return err }},
			func() error {
				return sameSet(ours[headSize:len(ours)-4], plain[headSize:len(plain)-4])
			}},
		{Case{"decode", s.name, n, len(set),
			func() error { v, err := dv.Decode(blob); vector = v; return err },
			func() error { b, err := plainDecode(blob); flat = b; return err }},
			func() error {
				if got, ok := vector.Bitmap32(); !ok || !got.Equals(flat) {
					return errors.New("decoded to different sets")
				}
				return nil
			}},
		{Case{"contains", s.name, lookups, len(set),
			func() error {
				hitsOurs = 0
				for _, p := range probes {
					if vector.Contains(uint64(p)) {
						hitsOurs++
					}
				}
				return nil
			},
			func() error {
				hitsPlain = 0
				for _, p := range probes {
					if flat.Contains(p) {
						hitsPlain++
					}
				}
				return nil
			}},
			func() error {
				if hitsOurs != hitsPlain {
					return fmt.Errorf("%d hits, plain %d", hitsOurs, hitsPlain)
				}
				return nil
			}},
	}
	out := make([]Case, len(cases))
	for i, c := range cases {
		if err := errors.Join(c.Ours(), c.Plain()); err != nil {
			return nil, fmt.Errorf("%s: %w", c.Operation, err)
		}
		if err := c.agree(); err != nil {
			return nil, fmt.Errorf("%s: %w", c.Operation, err)
		}
		out[i] = c.Case
	}
	return out, nil
}

func sameSet(ours, plain []byte) error {
	x, err := dv.ReadBitmap(ours)
	if err != nil {
		return err
	}
	y, err := dv.ReadBitmap(plain)
	if err != nil {
		return err
	}
	if !x.Equals(y) {
		return errors.New("different sets")
	}
	return nil
}

// headSize is what precedes the 32-bit bitmap in a blob: length, magic, count, key.
const headSize = 4 + 4 + 8 + 4

func plainCombine(buf *bytes.Buffer, a, b []byte, op func(x, y *roaring.Bitmap)) ([]byte, error) {
	x, y := roaring.New(), roaring.New()
	if _, err := x.FromBuffer(a); err != nil {
		return nil, err
	}
	if _, err := y.FromBuffer(b); err != nil {
		return nil, err
	}
	op(x, y)
	x.RunOptimize()
	buf.Reset()
	if _, err := x.WriteTo(buf); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

func plainEncode(buf *bytes.Buffer, b *roaring.Bitmap) ([]byte, error) {
	c := b.Clone() // the caller's bitmap stays as it is, as in ours
	return plainFrame(buf, c)
}

func plainEncodeSet(buf *bytes.Buffer, set []byte) ([]byte, error) {
	b := roaring.New()
	if _, err := b.FromBuffer(set); err != nil {
		return nil, err
	}
	return plainFrame(buf, b)
}

func plainFrame(buf *bytes.Buffer, c *roaring.Bitmap) ([]byte, error) {
	c.RunOptimize()
	buf.Reset()
	var head [headSize]byte
	copy(head[4:], "\xd1\xd3\x39\x64")
	head[8] = 1
	buf.Write(head[:])
	if _, err := c.WriteTo(buf); err != nil {
		return nil, err
	}
	out := buf.Bytes()
	binary.BigEndian.PutUint32(out, uint32(len(out)-4))
	return binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(out[4:])), nil
}

func plainDecode(blob []byte) (*roaring.Bitmap, error) {
	body := blob[4 : len(blob)-4]
	if crc32.ChecksumIEEE(body) != binary.BigEndian.Uint32(blob[len(blob)-4:]) {
		return nil, errors.New("checksum")
	}
	b := roaring.New()
	if _, err := b.ReadFrom(bytes.NewReader(blob[headSize : len(blob)-4])); err != nil {
		return nil, err
	}
	// The bytes come from outside: the library's way to be safe from them.
	if err := b.Validate(); err != nil {
		return nil, err
	}
	return b, nil
}

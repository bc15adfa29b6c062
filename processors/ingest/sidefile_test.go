package ingest

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/varve-io/varve/schemas/record"
)

func someSide() *side {
	return &side{
		Offset: 77, IndexAt: 60,
		Files: map[uint64]fileInfo{1: {Record: 5, Epoch: 3, FirstRow: -1}, math.MaxUint64: {Record: math.MaxInt64, Epoch: 4, FirstRow: 1 << 40}},
		Requests: []request{
			{Offset: 50, Keys: record.Ref{Path: "varve/bodies/ab", Length: 9, Hash: record.Hash{1, 31: 2}}, TimeMs: 1_700_000_000_000},
			{Offset: 70, HasOrder: true, Order: math.MinInt64, TimeMs: -1},
		},
	}
}

// TestSide: what is saved is read back; an absent file is empty; a newer one
// takes the place of the older.
func TestSide(t *testing.T) {
	fs := vfs.NewMem()
	if s, err := loadSide(fs, ""); err != nil || !reflect.DeepEqual(s, newSide()) {
		t.Fatalf("absent: %+v, %v", s, err)
	}
	for _, want := range []*side{newSide(), someSide(), newSide()} {
		if err := want.save(fs, ""); err != nil {
			t.Fatal(err)
		}
		if got, err := loadSide(fs, ""); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	}
}

// TestSideDamaged: any byte changed, any end cut off and anything appended is a
// damaged file, never another one.
func TestSideDamaged(t *testing.T) {
	b := someSide().encode()
	for i := range b {
		for bit := range 8 {
			c := append([]byte(nil), b...)
			c[i] ^= 1 << bit
			if _, err := decodeSide(c); !errors.Is(err, errSide) {
				t.Fatalf("byte %d, bit %d: %v", i, bit, err)
			}
		}
		if _, err := decodeSide(b[:i]); !errors.Is(err, errSide) {
			t.Fatalf("cut at %d: %v", i, err)
		}
	}
	if _, err := decodeSide(append(b, 0)); !errors.Is(err, errSide) {
		t.Error("a byte behind the end is passed over")
	}
}

// sealed is a side file of these bytes with the right checksum.
func sealed(body []byte) []byte {
	b := append([]byte{'v', 's', 'd', sideForm}, body...)
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
}

// TestSideLies: counts and lengths that the file cannot hold are refused before
// memory is taken for them, also under a right checksum; so are requests out of
// order, which would not be found.
func TestSideLies(t *testing.T) {
	huge := binary.AppendUvarint(nil, math.MaxUint64)
	request := func(offset int64) []byte {
		b := binary.AppendVarint(nil, offset)
		b = append(b, 0, 0) // path, length
		b = append(b, make([]byte, 32)...)
		return append(b, 0, 0, 0)
	}
	two := func(a, b int64) []byte { return append(append([]byte{0, 0, 0, 2}, request(a)...), request(b)...) }
	for name, body := range map[string][]byte{
		"nothing":            {},
		"files":              append([]byte{0, 0}, huge...),
		"requests":           append([]byte{0, 0, 0}, huge...),
		"a path":             append([]byte{0, 0, 0, 1, 0}, huge...),
		"an endless number":  []byte(strings.Repeat("\xff", 11)),
		"requests backwards": two(5, 4),
		"a request twice":    two(5, 5),
		"a file twice":       {0, 0, 2, 1, 0, 0, 0, 1, 0, 0, 0, 0},
		"half a hash":        append([]byte{0, 0, 0, 1, 0, 0, 0}, make([]byte, 16)...),
		"neither yes nor no": append(append([]byte{0, 0, 0, 1, 0, 0, 0}, make([]byte, 32)...), 2, 0, 0),
	} {
		if s, err := decodeSide(sealed(body)); !errors.Is(err, errSide) {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
	if s, err := decodeSide(sealed(two(4, 5))); err != nil || len(s.Requests) != 2 {
		t.Errorf("two requests: %+v, %v", s, err)
	}
}

func TestSidePendingAndPrune(t *testing.T) {
	s := newSide()
	for i := range int64(10) {
		s.Requests = append(s.Requests, request{Offset: 10 * i, TimeMs: i})
	}
	if p := s.pending(20, 50); len(p) != 3 || p[0].Offset != 20 || p[2].Offset != 40 {
		t.Errorf("pending in [20, 50): %+v", p)
	}
	if p := s.pending(95, 1000); len(p) != 0 {
		t.Errorf("pending at the end: %+v", p)
	}
	// Only what is both answered and old goes (K3).
	if s.prune(50, 3); len(s.Requests) != 7 || s.Requests[0].Offset != 30 {
		t.Errorf("pruned by time to %+v", s.Requests)
	}
	if s.prune(50, 1000); len(s.Requests) != 5 || s.Requests[0].Offset != 50 {
		t.Errorf("pruned by answers to %+v", s.Requests)
	}
}

// FuzzSide: any bytes, under a right checksum, are refused or read, and what
// was read is written and read again alike.
func FuzzSide(f *testing.F) {
	b := someSide().encode()
	f.Add(b[4 : len(b)-4])
	b = newSide().encode()
	f.Add(b[4 : len(b)-4])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, body []byte) {
		s, err := decodeSide(sealed(body))
		if err != nil {
			if !errors.Is(err, errSide) {
				t.Fatal(err)
			}
			return
		}
		again, err := decodeSide(s.encode())
		if err != nil || !reflect.DeepEqual(again, s) {
			t.Fatalf("%+v came back as %+v, %v", s, again, err)
		}
		s.pending(0, math.MaxInt64)
		s.prune(0, 0)
	})
}

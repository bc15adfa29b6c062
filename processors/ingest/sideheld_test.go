package ingest

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"reflect"
	"testing"
)

// H1: what a shard knows of files that it has still to take outlives it; whatever is
// cut off or bent is refused.
func TestSideKeepsHeldFiles(t *testing.T) {
	s := newSide()
	s.Offset, s.IndexAt = 70, 40
	s.Files[7] = fileInfo{Record: 50, Added: 50, Epoch: -1, FirstRow: -1, Name: [16]byte{1, 2}}
	s.Debts = []killed{{7, 3}}
	s.Asked = []asked{{10, true}, {30, false}, {45, true}}
	s.Held = []heldAdd{
		{Offset: 20, Place: 20, TimeMs: 1000, Files: []heldPart{{5, 9}}, Taken: 48},
		{Offset: 50, Place: 50, TimeMs: 2000, Files: []heldPart{{7, 100}, {8, 1}}, Deaths: []heldDeath{{55, 7, []byte{1, 2, 3}}, {60, 8, nil}}, Folded: true},
	}
	s.Held[1].Deaths[1].Set = []byte{}
	b := s.encode()
	back, err := decodeSide(b)
	if err != nil || !reflect.DeepEqual(back, s) {
		t.Fatalf("%v\n%+v\n%+v", err, back, s)
	}
	for i := range b {
		if _, err := decodeSide(b[:i]); err == nil {
			t.Fatalf("%d of %d bytes are read", i, len(b))
		}
	}
	for _, at := range []struct {
		offset int64
		asked  bool
	}{{9, false}, {10, true}, {29, true}, {30, false}, {44, false}, {45, true}, {99, true}} {
		if got := s.askedAt(at.offset); got != at.asked {
			t.Errorf("asked at %d: %t", at.offset, got)
		}
	}
	if h := s.nextHeld(21); h == nil || h.Offset != 50 || s.nextHeld(51) != nil || len(s.held(20, 50)) != 1 || s.holds(5) != nil || s.holds(8) == nil {
		t.Errorf("held files are not found")
	}
}

func FuzzSideHeld(f *testing.F) {
	seal := func(body []byte) []byte {
		b := append([]byte{'v', 's', 'd', takeForm}, body...)
		return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	}
	s := newSide()
	s.Asked = []asked{{4, true}}
	s.Held = []heldAdd{{Offset: 5, Place: 5, Files: []heldPart{{7, 2}}, Deaths: []heldDeath{{6, 7, []byte{1}}}}}
	b := s.encode()
	f.Add(b[4 : len(b)-4])
	f.Fuzz(func(t *testing.T, body []byte) {
		s, err := decodeSide(seal(body))
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
	})
}

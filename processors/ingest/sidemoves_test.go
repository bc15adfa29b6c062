package ingest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"reflect"
	"testing"
	"unsafe"

	"github.com/varve-io/varve/schemas/record"
)

func someMoves(t testing.TB) *side {
	t.Helper()
	one, ok := record.InlineMap(bytes.Repeat([]byte{1}, record.MaxInlineMap))
	two, _ := record.InlineMap([]byte("two"))
	if !ok {
		t.Fatal("a map of the limit is not inline")
	}
	object := record.Ref{Path: "_varve/x/maps/a", Length: 9, Hash: record.Hash{7}}
	s := someSide()
	for i := range uint64(10) {
		s.Files[10+i] = fileInfo{Record: 5, Epoch: 3, FirstRow: -1, Moved: []moved{{Hi: wholeFile, Map: one, First: 100, At: 70, TimeMs: 9}}}
	}
	s.Files[30] = fileInfo{Moved: []moved{{Hi: 5, Map: two, First: 101, At: 71}, {Lo: 5, Hi: 9, Map: object, First: 102, At: 72}, {Lo: 9, Hi: 12, Map: one, First: 103, At: 70}}}
	s.Files[31] = fileInfo{Moved: []moved{{Hi: math.MaxUint32, Map: object, First: 102, At: 72}}}
	return s
}

// TestSideInlineMaps: a map that stands in its reference stands in the side file
// once, however many files its job took, and is in memory once when it is read
// back (F23).
func TestSideInlineMaps(t *testing.T) {
	s := someMoves(t)
	b := s.encode()
	if b[3] != mapsForm {
		t.Errorf("form %d", b[3])
	}
	if n := len(b); n > 4000 {
		t.Errorf("%d bytes", n)
	}
	got, err := decodeSide(b)
	if err != nil || !reflect.DeepEqual(got, s) {
		t.Fatalf("%+v, %v", got, err)
	}
	first := got.Files[10].Moved[0].Map.Path
	for _, f := range []uint64{11, 19} {
		if unsafe.StringData(got.Files[f].Moved[0].Map.Path) != unsafe.StringData(first) {
			t.Errorf("file %d has the map's bytes again", f)
		}
	}
	if !bytes.Equal(got.encode(), b) {
		t.Error("it is written otherwise again")
	}
	// With what the older forms have behind the files.
	s.Debts = []killed{{3, 4}}
	s.Held = []heldAdd{{Offset: 80, Place: 79, TimeMs: 5}}
	if got, err := decodeSide(s.encode()); err != nil || !reflect.DeepEqual(got, s) {
		t.Fatalf("%+v, %v", got, err)
	}
	// Objects alone: what was written before is what is written now.
	for id, f := range s.Files {
		for i := range f.Moved {
			f.Moved[i].Map = record.Ref{Path: "_varve/x/maps/a", Length: 9}
		}
		s.Files[id] = f
	}
	s.Debts, s.Held = nil, nil
	if b := s.encode(); b[3] != sideForm {
		t.Errorf("without inline maps the form is %d", b[3])
	}
}

// TestSideInlineMapsLie: numbers of maps that are not there, and texts that are none.
func TestSideInlineMapsLie(t *testing.T) {
	file := func(path ...byte) []byte {
		b := []byte{0, 0, 1, 1, 0, 0, 0, 0} // offsets, one file
		b = append(b, make([]byte, 16)...)
		b = append(append(b, movesWhole), path...)
		b = append(b, 2) // length
		b = append(b, make([]byte, 32)...)
		return append(b, 1, 0, 0, 0, 0, 0, 0, 0) // first, at, time, requests, debts, asked, held, files of others
	}
	numbered := func(body []byte) []byte {
		b := append([]byte{'v', 's', 'd', mapsForm}, body...)
		return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	}
	if _, err := decodeSide(numbered(file(0, 5, 'd', 'a', 't', 'a', ':'))); err != nil {
		t.Errorf("a sound one: %v", err)
	}
	for name, path := range map[string][]byte{
		"a number that is not there": {1, 5, 'd', 'a', 't', 'a', ':'},
		"an endless number":          {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1},
		"an endless text":            {0, 0xff, 0xff, 0xff, 0xff, 1},
	} {
		if s, err := decodeSide(numbered(file(path...))); !errors.Is(err, errSide) {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
}

func FuzzSideMoves(f *testing.F) {
	b := someMoves(f).encode()
	f.Add(b[4 : len(b)-4])
	f.Fuzz(func(t *testing.T, body []byte) {
		b := append([]byte{'v', 's', 'd', mapsForm}, body...)
		s, err := decodeSide(binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b)))
		if err != nil {
			if !errors.Is(err, errSide) {
				t.Fatal(err)
			}
			return
		}
		if !s.anyInline() {
			for i := range s.Held {
				s.Held[i].Place = s.Held[i].Offset // an older form, which may not tell it
			}
		}
		again, err := decodeSide(s.encode())
		if err != nil || !reflect.DeepEqual(again, s) {
			t.Fatalf("%+v came back as %+v, %v", s, again, err)
		}
	})
}

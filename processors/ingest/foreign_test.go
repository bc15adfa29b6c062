package ingest

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"reflect"
	"testing"

	"github.com/varve-io/varve/statestore"
)

func foreignSide() *side {
	s := newSide()
	s.Offset, s.IndexAt = 70, 40
	id := statestore.FileID(statestore.ForeignWriter, 3)
	s.Files[7] = fileInfo{Record: 50, Added: 50, Epoch: 12, FirstRow: -1}
	s.Files[id] = fileInfo{Record: 30, Added: 60, Epoch: -1, FirstRow: 100, Path: "s3://bucket/t/data/part-0.parquet"}
	s.Asked = []asked{{10, true}}
	s.Held = []heldAdd{
		{Offset: 20, Place: 20, TimeMs: 1000, Files: []heldPart{{5, 9}}, Taken: 48},
		{Offset: 60, Place: 30, TimeMs: 2000, Files: []heldPart{{id, 2}}, Deaths: []heldDeath{{60, id, []byte{1}}}},
	}
	return s
}

// H10: where another writer's files lie, and the place of their rows, outlive the
// owner; whatever is cut off or bent is refused.
func TestSideKeepsForeignFiles(t *testing.T) {
	s := foreignSide()
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
}

func FuzzSideForeign(f *testing.F) {
	b := foreignSide().encode()
	f.Add(b[4 : len(b)-4])
	f.Fuzz(func(t *testing.T, body []byte) {
		b := append([]byte{'v', 's', 'd', pathForm}, body...)
		s, err := decodeSide(binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b)))
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

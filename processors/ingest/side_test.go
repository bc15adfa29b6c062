package ingest

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/varve-io/varve/statestore/keyindex"
)

// TestSideForgetsFiles: the side file holds the files that keys point to, and
// those that the durable index does not have yet; not every file that ever was.
func TestSideForgetsFiles(t *testing.T) {
	fs := vfs.NewMem()
	index, err := keyindex.Open("index", keyindex.Options{FS: fs, Sync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer index.Close()
	s := &Shard{index: index, side: newSide()}
	s.cfg.SideAppends = DefaultSideAppends
	const keys, rounds = 4, 1000
	for r := range int64(rounds) {
		// Each round rewrites the same keys: older files have no live key.
		var es []keyindex.Entry
		for k := range uint64(keys) {
			es = append(es, keyindex.Entry{Key: keyindex.Key{Hi: k + 1}, File: uint64(r + 1), Pos: uint32(k), RowID: keyindex.NoRowID, Offset: r})
		}
		if err := index.Apply(es, r); err != nil {
			t.Fatal(err)
		}
		s.side.Files[uint64(r+1)] = fileInfo{Record: r, Added: r, FirstRow: -1}
		s.side.Offset = r
	}
	s.forgetFiles()
	if len(s.side.Files) != rounds || s.side.IndexAt != keyindex.NoOffset {
		t.Fatalf("%d files left, to offset %d: the durable index has none of them yet", len(s.side.Files), s.side.IndexAt)
	}
	if err := index.Flush(); err != nil {
		t.Fatal(err)
	}
	s.side.Files[rounds+1] = fileInfo{Record: rounds, Added: rounds, FirstRow: -1} // after the durable offset
	s.forgetFiles()
	if _, last := s.side.Files[rounds]; len(s.side.Files) != 2 || !last || s.side.IndexAt != rounds-1 {
		t.Fatalf("left %v, to offset %d", s.side.Files, s.side.IndexAt)
	}
	again, err := decodeSide(s.side.encode())
	if err != nil || again.IndexAt != rounds-1 || len(again.Files) != 2 {
		t.Fatal(again, err)
	}

	// Many live files: the file is written once for a share of them.
	for id := range uint64(1 << 20) {
		s.side.Files[id] = fileInfo{}
	}
	if s.sideAge = DefaultSideAppends; s.sideDue() {
		t.Fatal("written again for few files among many")
	}
	if s.sideAge = 1 << 16; !s.sideDue() {
		t.Fatal("never written")
	}
}

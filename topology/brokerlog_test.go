package topology

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

// testBatch is a record batch of n records as the check sees it: header and checksum, no records in it.
func testBatch(first int64, n int32) []byte {
	b := make([]byte, batchHeaderSize+20)
	binary.BigEndian.PutUint64(b, uint64(first))
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-batchPrefixSize))
	b[16] = batchMagic
	binary.BigEndian.PutUint32(b[23:], uint32(n-1))
	binary.BigEndian.PutUint64(b[27:], 1_700_000_000_000)
	binary.BigEndian.PutUint64(b[35:], 1_700_000_000_000)
	binary.BigEndian.PutUint32(b[57:], uint32(n))
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[batchCRCOffset:], castagnoli))
	return b
}

// FuzzBrokerSegment: whatever bytes lie in a segment, the check refuses them as damage or mends them, and what
// it mended it then takes as it is.
func FuzzBrokerSegment(f *testing.F) {
	good := append(testBatch(0, 3), testBatch(3, 1)...)
	f.Add(good, 2)
	f.Add(good[:len(good)-7], 2)
	f.Add(append(good, 0, 0, 0), 2)
	f.Add(append(testBatch(0, 3), testBatch(9, 1)...), 2)
	f.Add(append(testBatch(0, 1<<30), testBatch(1<<30, 1)...), 1)
	f.Add([]byte{}, 0)
	f.Add(make([]byte, 200), 9)
	f.Fuzz(func(t *testing.T, segment []byte, indexed int) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "0.dat"), segment, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "0.idx"), make([]byte, indexEntrySize*(indexed&0xff)), 0o644); err != nil {
			t.Fatal(err)
		}
		log := slog.New(slog.DiscardHandler)
		first := partitionLog{dir: dir}
		err := first.prepare(log)
		if errors.Is(err, ErrBrokerDamaged) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		again := partitionLog{dir: dir}
		if err := again.prepare(log); err != nil {
			t.Fatalf("mended, and then: %v", err)
		}
		if again.next != first.next || again.next < 0 {
			t.Fatalf("ended at %d, then at %d", first.next, again.next)
		}
		info, err := os.Stat(filepath.Join(dir, "0.dat"))
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() != again.segments[0].Size || info.Size() > int64(len(segment)) {
			t.Fatalf("%d bytes, of %d, snapshot says %d", info.Size(), len(segment), again.segments[0].Size)
		}
	})
}

// TestSegmentOfUnknownOffsets: a first segment may start anywhere, for the head of a log may be deleted.
func TestSegmentOfUnknownOffsets(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "7.dat"), testBatch(7, 2), 0o644); err != nil {
		t.Fatal(err)
	}
	p := partitionLog{dir: dir}
	if err := p.prepare(slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	snap, err := p.readSnapshot()
	if err != nil {
		t.Fatal(err)
	}
	if snap.LogStartOffset != 7 || snap.HighWatermark != 9 || snap.LastStableOffset != 9 || len(snap.Segments) != 1 {
		t.Errorf("snapshot %+v", snap)
	}
}

// TestBrokerKilledBeforeItsTopics: a first start that was killed before it had
// written topics.json left no record, and the next one begins anew.
func TestBrokerKilledBeforeItsTopics(t *testing.T) {
	dir := t.TempDir()
	b, err := OpenBroker(BrokerOptions{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "topics.json")); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	if b, err = OpenBroker(BrokerOptions{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}

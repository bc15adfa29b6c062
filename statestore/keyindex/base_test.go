package keyindex

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// checkpointOf gives the bytes of a base with the entries.
func checkpointOf(t testing.TB, o Options, offset int64, entries []Entry) []byte {
	t.Helper()
	o.FS = vfs.NewMem()
	i, err := Open("/src", o)
	if err != nil {
		t.Fatal(err)
	}
	if err := i.Apply(entries, offset); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := i.Checkpoint(&b); err != nil {
		t.Fatal(err)
	}
	if err := i.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// samples are small bases with every kind of column.
func samples(t testing.TB) map[string][]byte {
	plain := rows(40, 3)
	for i := range plain {
		plain[i].HasOrder, plain[i].Order = false, 0
	}
	mixed := rows(300, 3)
	for i := range mixed {
		e := &mixed[i]
		switch i % 5 {
		case 0:
			e.RowID = int64(i) << 33
		case 1:
			e.HasOrder, e.Order = false, 0
		case 2:
			*e = Entry{Key: e.Key, RowID: NoRowID, Order: math.MinInt64 + int64(i), HasOrder: true, Offset: int64(i), Time: math.MaxInt64 - int64(i)}
		case 3:
			e.File = 1<<40 | uint64(i)
		}
	}
	wide := rows(70, 3)
	for i := range wide {
		wide[i].Key = Key{Hi: uint64(i / 9), Lo: uint64(i) << 50}
	}
	small := Options{BlockEntries: 64}
	return map[string][]byte{
		"empty": checkpointOf(t, Options{}, 0, nil),
		"plain": checkpointOf(t, Options{}, 5, plain),
		"mixed": checkpointOf(t, small, 7, mixed),
		"wide":  checkpointOf(t, Options{Wide: true, BlockEntries: 16, Identity: []byte("x")}, 7, wide),
	}
}

// TestDamage flips each byte of a base, and cuts it anywhere (without
// VARVE_EVERY_BYTE: at both ends and every seventh byte between): what is wrong is
// found, when the base is opened or when its blocks are read, and Restore
// leaves the index that is there.
func TestDamage(t *testing.T) {
	everyByte := os.Getenv("VARVE_EVERY_BYTE") != ""
	for name, good := range samples(t) {
		t.Run(name, func(t *testing.T) {
			o := Options{FS: vfs.NewMem(), Wide: name == "wide"}
			if o.Wide {
				o.Identity = []byte("x")
			}
			must(t, Restore("/index", bytes.NewReader(good), o))
			check := func(what string, at int, b []byte) {
				t.Helper()
				err := Restore("/index", bytes.NewReader(b), o)
				if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
					t.Fatalf("%s at %d of %d: %v", what, at, len(good), err)
				}
			}
			for at := range good {
				if !everyByte && at >= 128 && at < len(good)-128 && at%7 != 0 {
					continue
				}
				b := bytes.Clone(good)
				b[at] ^= 0x10
				check("flipped bit", at, b)
				check("cut", at, good[:at])
			}
			check("longer", len(good), append(bytes.Clone(good), 0))
			i, err := Open("/index", o)
			must(t, err)
			must(t, i.Verify())
			must(t, i.Close())
		})
	}
}

// TestDamagedBlock: a lookup that meets a damaged block says so instead of
// answering, and so does the merge that reads it.
func TestDamagedBlock(t *testing.T) {
	fs := vfs.NewMem()
	o := Options{FS: fs, Sync: true, BlockEntries: 64}
	i, err := Open("/index", o)
	must(t, err)
	must(t, i.Apply(rows(300, 1), 1))
	must(t, i.Flush())
	path := i.base.path
	b, err := fs.UnsafeGetFileDataBuffer(path)
	must(t, err)
	b[i.base.off[2]+70] ^= 1

	if _, err := i.Lookup([]Key{{Hi: 0}, {Hi: 3 * 64}}, nil); err != nil {
		t.Fatalf("keys of whole blocks: %v", err)
	}
	out, err := i.Lookup([]Key{{Hi: 0}, {Hi: 3 * 130}}, make([]Found, 2, 9))
	if !errors.Is(err, ErrCorrupt) || len(out) != 2 {
		t.Fatalf("%d answers, error %v", len(out), err)
	}
	if !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "block 2") {
		t.Fatalf("the error does not name the place: %v", err)
	}
	must(t, i.Apply(rows(300, 2), 2))
	if err := i.Flush(); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("merge over a damaged block: %v", err)
	}
	if err := i.Verify(); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("Verify: %v", err)
	}
	if err := i.Iterate(func(*Entry) error { return nil }); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("Iterate: %v", err)
	}
	if _, err := i.Checkpoint(io.Discard); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("Checkpoint: %v", err)
	}
	must(t, i.Close())

	// The owner's way out.
	must(t, Destroy("/index", fs))
	i, err = Open("/index", o)
	must(t, err)
	if i.Offset() != NoOffset || i.Len() != 0 {
		t.Fatalf("after Destroy: offset %d, %d entries", i.Offset(), i.Len())
	}
	must(t, i.Close())
}

func TestOpenRefuses(t *testing.T) {
	fs := vfs.NewMem()
	o := Options{FS: fs, Identity: []byte("deployment 1, table 2, shard 3")}
	i, err := Open("/index", o)
	must(t, err)
	must(t, i.Apply(rows(10, 1), 1))
	must(t, i.Flush())
	name := i.base.path
	must(t, i.Close())

	other := o
	other.Identity = []byte("deployment 1, table 2, shard 4")
	wide := o
	wide.Wide = true
	for what, o := range map[string]Options{"identity": other, "width": wide} {
		if _, err := Open("/index", o); !errors.Is(err, ErrForeign) {
			t.Errorf("other %s: %v", what, err)
		}
	}
	b, err := fs.UnsafeGetFileDataBuffer(name)
	must(t, err)
	b[8]++
	if _, err := Open("/index", o); !errors.Is(err, ErrVersion) || errors.Is(err, ErrCorrupt) {
		t.Errorf("newer version: %v", err)
	}
	b[8]--
	i, err = Open("/index", o)
	must(t, err)
	must(t, i.Close())

	must(t, fs.Remove(name))
	if _, err := Open("/index", o); !errors.Is(err, ErrCorrupt) {
		t.Errorf("base is missing: %v", err)
	}
	for _, o := range []Options{{DeltaLimit: -1}, {BlockEntries: 15}, {BlockEntries: 4097}, {Identity: make([]byte, 4097)}} {
		if _, err := Open("/x", o); err == nil {
			t.Errorf("options %+v were taken", o)
		}
	}
}

// TestFormat pins the bytes: a base that an older binary wrote stays readable.
func TestFormat(t *testing.T) {
	const want = "" +
		// header
		"7661727665 6b6978 0100 0000 00000000" +
		// block: checksum, 3 entries, order mode mixed, widths, 1 tombstone
		"00000000 0300 02 01 02 08 04 00 00 00 0100" +
		"00000000 00000000 64000000 00000000 ffffffff ffffffff 63000000 00000000 e803000000000000"
	b := checkpointOf(t, Options{}, 100, []Entry{
		{Key: Key{Hi: 1}, File: 7, Pos: 3, RowID: 9, Order: 100, HasOrder: true},
		{Key: Key{Hi: 2}, RowID: NoRowID, Order: 300, HasOrder: true, Offset: 99, Time: 1000},
		{Key: Key{Hi: 300}, File: 7, Pos: 2, RowID: NoRowID},
	})
	got := bytes.Clone(b[:fileHeader+blockHeader])
	clear(got[fileHeader : fileHeader+4])
	if hexOf(got) != strings.ReplaceAll(want, " ", "") {
		t.Errorf("header and block header\n%s, want\n%s", hexOf(got), strings.ReplaceAll(want, " ", ""))
	}
	rest := b[fileHeader+blockHeader:]
	// One group from key 1 on, 9 bits a key: 0, 1, 299.
	wantRest := "0100000000000000" + "00000009" + "0002ac04" +
		// ordinals 1 0 1, positions 3 0 2, order bitmap, 0 200 0, row ids 10 0 0
		"05" + "23" + "03" + "00c800" + "0a00" +
		// padding
		"0000000000000000" +
		// trailer: first key, length, entries, oldest tombstone
		"0100000000000000" + "58000000" + "0300" + "0000" + "e803000000000000" +
		// files: tombstones, 7
		"0000000000000000" + "0100000000000000" + "0700000000000000" + "0200000000000000"
	if got := hexOf(rest[:len(rest)-fileFooter]); got != wantRest {
		t.Errorf("columns and trailer\n%s, want\n%s", got, wantRest)
	}
	if got, want := crc32.Checksum(b, castagnoli), uint32(0xc1037ffc); got != want {
		t.Errorf("whole file %08x, want %08x", got, want)
	}
}

func hexOf(b []byte) string {
	const digits = "0123456789abcdef"
	var s strings.Builder
	for _, c := range b {
		s.WriteByte(digits[c>>4])
		s.WriteByte(digits[c&15])
	}
	return s.String()
}

// reseal puts right checksums on what the fuzzer made, so that it comes past
// them.
func reseal(b []byte) {
	if len(b) < fileHeader+fileFooter {
		return
	}
	le := binary.LittleEndian
	foot := b[len(b)-fileFooter:]
	copy(b, magic[:])
	copy(foot[88:], magic[:])
	off, n := le.Uint64(foot), le.Uint64(foot[8:])
	if room := uint64(len(b) - fileFooter); off <= room && n <= room-off {
		trailer := b[off : off+n]
		le.PutUint32(foot[64:], crc32.Checksum(trailer, castagnoli))
		per := 24
		at := fileHeader
		if foot[82]&flagWide != 0 {
			per += 8
		}
		for t := trailer[min(int(n), int(le.Uint32(foot[60:]))):]; len(t) >= per; t = t[per:] {
			size := int(le.Uint32(t[per-16:]))
			if size < 8 || size > int(off)-at {
				break
			}
			le.PutUint32(b[at:], crc32.Checksum(b[at+4:at+size], castagnoli))
			at += size
		}
	}
	le.PutUint32(foot[84:], crc32.Checksum(foot[:84], castagnoli))
}

// FuzzBase opens any bytes as a base and uses it: an error, or a base that is
// sorted, counted right, and answers for each of its keys.
func FuzzBase(f *testing.F) {
	for _, b := range samples(f) {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		b := bytes.Clone(data)
		reseal(b)
		base, err := readBase(vfs.NewMemFile(b), "fuzz", nil)
		if err != nil {
			return
		}
		var keys []Key
		for i := range base.hi {
			k := base.first(i)
			for _, n := range []Key{{Hi: k.Hi - 1}, k, {Hi: k.Hi, Lo: k.Lo + 1}, {Hi: k.Hi + 1}} {
				if len(keys) == 0 || keys[len(keys)-1].Less(n) {
					keys = append(keys, n)
				}
			}
		}
		todo := make([]int32, len(keys))
		for i := range todo {
			todo[i] = int32(i)
		}
		var s baseScratch
		lookupErr := base.lookup(keys, todo, make([]Found, len(keys)), math.MinInt64, &s)
		m := &merger{}
		_ = m.write(io.Discard, mergeInput{base: base, wide: base.wide, entries: 64, horizon: 5})
		if base.verify() != nil {
			return
		}
		if lookupErr != nil {
			t.Fatalf("lookup in a base without fault: %v", lookupErr)
		}
		checkSound(t, base)
		for _, fresh := range []bool{false, true} {
			var out bytes.Buffer
			if err := m.write(&out, mergeInput{base: base, wide: base.wide, entries: 64, fresh: fresh, horizon: math.MinInt64}); err != nil {
				t.Fatalf("merge of a base without fault: %v", err)
			}
			again, err := readBase(vfs.NewMemFile(out.Bytes()), "again", nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := again.verify(); err != nil {
				t.Fatal(err)
			}
			if again.entries != base.entries || again.tombstones() != base.tombstones() {
				t.Fatalf("%d entries, %d tombstones became %d, %d", base.entries, base.tombstones(), again.entries, again.tombstones())
			}
		}
	})
}

// checkSound compares the two ways to read a base.
func checkSound(t *testing.T, b *base) {
	c := &columns{wide: b.wide}
	s := scan{b: b}
	for i := 0; i < b.blocks(); i++ {
		if err := s.load(i); err != nil {
			t.Fatal(err)
		}
		if err := s.block.decode(c, len(b.files)); err != nil {
			t.Fatal(err)
		}
		seek := s.block.seeker()
		for x := 0; x < c.n; x++ {
			if got := seek.find(c.key(x)); got != x {
				t.Fatalf("key %d of block %d is found at %d", x, i, got)
			}
			var e, want Entry
			c.entry(x, b.files, &want)
			e.Key = want.Key
			ok, err := s.block.entry(x, b.files, math.MinInt64, &e)
			if err != nil || !ok || e != want {
				t.Fatalf("entry %d of block %d: %+v %v %v, want %+v", x, i, e, ok, err, want)
			}
		}
	}
}

// FuzzCurrent: only what we wrote is read, and it is read right.
func FuzzCurrent(f *testing.F) {
	f.Add(current{seq: 3, size: 900, offset: -1, horizon: math.MinInt64}.marshal())
	f.Add([]byte("varve key index 1\nbase 1\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := parseCurrent(b)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		if !bytes.Equal(c.marshal(), b) {
			t.Fatalf("%q was read as %+v", b, c)
		}
	})
}

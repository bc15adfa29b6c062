package logfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"reflect"
	"strings"
	"testing"
)

func sample() (Head, []Record) {
	h := Head{Deployment: [16]byte{1, 2, 3}, Name: "varve", Partition: 1, Partitions: 3, First: 5}
	return h, []Record{
		{Offset: 5, LeaderEpoch: 2, TimeMs: 1700000000000, Key: []byte("k"), Header: []byte{1}, Value: []byte("value")},
		{Offset: 6, TimeMs: -1, Control: true},
		{Offset: 7, Key: []byte{}, Value: bytes.Repeat([]byte{7}, 3<<20)},
	}
}

func written(t testing.TB, h Head, rs []Record) []byte {
	var b bytes.Buffer
	w, err := NewWriter(&b, h)
	if err != nil {
		t.Fatal(err)
	}
	for i := range rs {
		if err := w.Append(&rs[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func read(b []byte) (h Head, rs []Record, err error) {
	x, err := NewReader(bytes.NewReader(b))
	if err != nil {
		return h, nil, err
	}
	for {
		var r Record
		if err := x.Read(&r); err != nil {
			if errors.Is(err, io.EOF) {
				return x.Head(), rs, nil
			}
			return x.Head(), rs, err
		}
		rs = append(rs, r)
	}
}

func TestRoundTrip(t *testing.T) {
	h, rs := sample()
	gotHead, got, err := read(written(t, h, rs))
	if err != nil || gotHead != h || !reflect.DeepEqual(got, rs) {
		t.Fatalf("%v, %+v", err, gotHead)
	}
	if _, got, err = read(written(t, h, nil)); err != nil || len(got) != 0 {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w, err := NewWriter(&b, h)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Append(&rs[1]); !errors.Is(err, ErrHole) {
		t.Fatalf("a hole is written: %v", err)
	}
}

// TestDamage: every cut and every flipped bit is found, and named for what it is.
func TestDamage(t *testing.T) {
	h, rs := sample()
	rs[2].Value = rs[2].Value[:40]
	whole := written(t, h, rs)
	for n := 1; n < len(whole); n++ {
		if _, _, err := read(whole[:n]); !errors.Is(err, ErrTruncated) {
			t.Fatalf("cut to %d of %d bytes: %v", n, len(whole), err)
		}
	}
	for i := range whole {
		for bit := range 8 {
			b := bytes.Clone(whole)
			b[i] ^= 1 << bit
			if _, _, err := read(b); err == nil {
				t.Fatalf("byte %d with another bit %d is read", i, bit)
			}
		}
	}
	if _, _, err := read(append(bytes.Clone(whole), 0)); !errors.Is(err, ErrDamaged) {
		t.Fatalf("bytes behind the tail: %v", err)
	}
	newer := bytes.Clone(whole)
	newer[11] = 2
	if _, _, err := read(newer); !errors.Is(err, ErrNewer) {
		t.Fatalf("a newer form: %v", err)
	}
	if _, _, err := read([]byte("PAR1....")); !errors.Is(err, ErrNotLog) {
		t.Fatalf("another file: %v", err)
	}
	bad := bytes.Clone(whole)
	bad[len(whole)-100] ^= 1
	if _, _, err := read(bad); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "offset 7") {
		t.Fatalf("the message names no offset: %v", err)
	}
}

// TestHole: a record that was taken out is a hole, although each frame is whole.
func TestHole(t *testing.T) {
	h, rs := sample()
	whole := written(t, h, rs)
	first := 12
	length := func(at int) int { return 9 + int(binary.BigEndian.Uint32(whole[at+1:])) }
	first += length(12)
	second := first + length(first)
	third := second + length(second)
	b := append(bytes.Clone(whole[:second]), whole[third:]...)
	if _, _, err := read(b); !errors.Is(err, ErrHole) || !strings.Contains(err.Error(), "7 follows 5") {
		t.Fatal(err)
	}
	// Two frames changed places with their checksums right: a hole too.
	if crc32.Checksum(whole[first:second-4], castagnoli) != binary.BigEndian.Uint32(whole[second-4:]) {
		t.Fatal("the test does not know the frames")
	}
}

func FuzzRead(f *testing.F) {
	h, rs := sample()
	rs[2].Value = rs[2].Value[:9]
	f.Add(written(f, h, rs))
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, rs, err := read(b)
		if err != nil {
			return
		}
		if h2, rs2, err := read(written(t, h, rs)); err != nil || h2 != h || !reflect.DeepEqual(rs, rs2) {
			t.Fatal("it does not come back", err)
		}
	})
}

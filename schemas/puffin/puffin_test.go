package puffin

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/klauspost/compress/zstd"

	"github.com/varve-io/varve/schemas/dv"
)

var rewriteFixtures = flag.Bool("rewrite-fixtures", false, "write testdata/*.puffin anew")

// own are this package's fixtures: the shapes of the golden files, and characters
// that JSON escapes.
var own = map[string][]vector{
	"none.puffin": nil,
	"one.puffin":  {{"s3://bucket/ns/t/data/1.parquet", []uint32{1, 3, 5, 7, 9}}},
	"two.puffin": {
		{"s3://bucket/ns/t/data/1.parquet", []uint32{0, 100, 200}},
		{"s3://bucket/ns/t/data/2.parquet", []uint32{50, 51, 52, 53, 150, 1 << 20}},
	},
	"escapes.puffin": {{"file:///a \"b\"\\c/<d>&'é\u2028🤯\t\x01\x7f.parquet", []uint32{0}}},
}

// TestOwnFixtures: bytes do not change from version to version.
func TestOwnFixtures(t *testing.T) {
	for name, vectors := range own {
		t.Run(name, func(t *testing.T) {
			got, blobs := writeVectors(t, DefaultCreatedBy, vectors...)
			path := filepath.Join("testdata", name)
			if *rewriteFixtures {
				if err := os.WriteFile(path, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Fatalf("got\n%q\nwant\n%q", got, want)
			}
			checkVectors(t, want, blobs, vectors)
			if again := rewrite(t, want); !bytes.Equal(again, want) {
				t.Fatalf("read and written again\n%q\nwant\n%q", again, want)
			}
			refusesDamage(t, want)
		})
	}
}

// TestLayout spells the smallest file and one vector's footer out (V2).
func TestLayout(t *testing.T) {
	got, _ := writeVectors(t, "")
	if want := "PFA1PFA1{\"blobs\":[]}\x0c\x00\x00\x00\x00\x00\x00\x00PFA1"; string(got) != want {
		t.Errorf("empty file: got %q, want %q", got, want)
	}
	got, blobs := writeVectors(t, DefaultCreatedBy, vector{"s3://b/k.parquet", []uint32{1, 3, 5, 7, 9}})
	footer := `{"blobs":[{"type":"deletion-vector-v1","fields":[2147483645],"snapshot-id":-1,"sequence-number":-1,"offset":4,"length":50,` +
		`"properties":{"referenced-data-file":"s3://b/k.parquet","cardinality":"5"}}],"properties":{"created-by":"varve"}}`
	if string(got[54:58]) != "PFA1" || string(got[58:len(got)-12]) != footer {
		t.Errorf("footer: got %q, want %q", got[54:], footer)
	}
	if blobs[0].Offset != 4 || blobs[0].Length != 50 {
		t.Errorf("writer says %d+%d, want 4+50", blobs[0].Offset, blobs[0].Length)
	}
}

// TestWriterRefuses: what must not be published leaves the file usable and unchanged.
func TestWriterRefuses(t *testing.T) {
	var buf bytes.Buffer
	w := NewWriter(&buf, DefaultCreatedBy)
	if _, err := w.AddVector("a", positions(t, 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.AddVector("a", positions(t, 2)); err == nil || !strings.Contains(err.Error(), "second deletion vector") {
		t.Errorf("second vector of a file (V3): %v", err)
	}
	twin := Blob{Type: dv.BlobType, Properties: Properties{{PropertyDataFile, "a"}}}
	if _, err := w.Add(twin, []byte("x")); err == nil || !strings.Contains(err.Error(), "second deletion vector") {
		t.Errorf("second vector of a file by Add (V3): %v", err)
	}
	if _, err := w.AddVector("b", dv.Empty()); !errors.Is(err, dv.ErrEmpty) {
		t.Errorf("empty vector (V1): %v", err)
	}
	if _, err := w.AddVector("b", []byte("no set at all")); !errors.Is(err, dv.ErrCorrupt) {
		t.Errorf("corrupt set: %v", err)
	}
	if _, err := w.AddVector("", positions(t, 1)); err == nil {
		t.Error("a vector without a data file was accepted")
	}
	if _, err := w.AddVector("\xff", positions(t, 1)); err == nil {
		t.Error("a path that is not UTF-8 was accepted")
	}
	if _, err := w.Add(Blob{Type: "t", Properties: Properties{{"k", "1"}, {"k", "2"}}}, nil); err == nil {
		t.Error("a property twice was accepted")
	}
	if _, err := w.Add(Blob{}, nil); err == nil {
		t.Error("a blob without a type was accepted")
	}
	if _, err := w.Close(); err != nil {
		t.Fatal(err)
	}
	want, _ := writeVectors(t, DefaultCreatedBy, vector{"a", []uint32{1}})
	if !bytes.Equal(buf.Bytes(), want) {
		t.Errorf("refused blobs left traces: %q", buf.Bytes())
	}
	if _, err := w.AddVector("c", positions(t, 1)); err == nil {
		t.Error("a closed writer accepted a vector")
	}
	if _, err := w.Close(); err == nil {
		t.Error("a closed writer closed again")
	}
	if w := NewWriter(io.Discard, "\xff"); w.err == nil {
		t.Error("a created-by that is not UTF-8 was accepted")
	}
}

type failAfter struct{ left int }

var errDisk = errors.New("disk full")

func (f *failAfter) Write(p []byte) (int, error) {
	if len(p) > f.left {
		n := f.left
		f.left = 0
		return n, errDisk
	}
	f.left -= len(p)
	return len(p), nil
}

// TestWriterFails: with room for one byte less than the file, wherever the write
// fails, Close reports it.
func TestWriterFails(t *testing.T) {
	whole, _ := writeVectors(t, DefaultCreatedBy, vector{"a", []uint32{1}}, vector{"b", []uint32{2}})
	for room := range whole {
		w := NewWriter(&failAfter{room}, DefaultCreatedBy)
		for _, path := range []string{"a", "b"} {
			if _, err := w.AddVector(path, positions(t, 1)); err != nil && !errors.Is(err, errDisk) {
				t.Fatalf("room for %d: %v", room, err)
			}
		}
		if _, err := w.Close(); !errors.Is(err, errDisk) {
			t.Fatalf("room for %d of %d bytes: Close says %v", room, len(whole), err)
		}
	}
}

// frame puts a footer with the given flags behind blobs.
func frame(blobs, footer string, flags uint32) []byte {
	out := []byte("PFA1" + blobs + "PFA1" + footer)
	out = binary.LittleEndian.AppendUint32(out, uint32(len(footer)))
	out = binary.LittleEndian.AppendUint32(out, flags)
	return append(out, "PFA1"...)
}

func TestReaderRefuses(t *testing.T) {
	blob := func(extra string) string {
		return `{"blobs":[{"type":"t","fields":[1],"snapshot-id":2,"sequence-number":1` + extra + `}]}`
	}
	for _, tc := range []struct {
		name   string
		file   []byte
		target error
		says   string
	}{
		{"lz4 footer", frame("", `{"blobs":[]}`, 1), ErrUnsupported, "lz4"},
		{"unknown flag", frame("", `{"blobs":[]}`, 2), ErrUnsupported, "flags"},
		{"flag of the last byte", frame("", `{"blobs":[]}`, 1<<31), ErrUnsupported, "flags"},
		{"not JSON", frame("", `{"blobs":[]`, 0), ErrCorrupt, "footer at byte 4"},
		{"JSON and more", frame("", `{"blobs":[]} {}`, 0), ErrCorrupt, ""},
		{"not UTF-8", frame("", "{\"blobs\":[],\"x\":\"\xff\"}", 0), ErrCorrupt, "UTF-8"},
		{"a list", frame("", `[]`, 0), ErrCorrupt, ""},
		{"no blobs", frame("", `{}`, 0), ErrCorrupt, `"blobs" is missing`},
		{"blobs null", frame("", `{"blobs":null}`, 0), ErrCorrupt, `"blobs" is missing`},
		{"blob null", frame("", `{"blobs":[null]}`, 0), ErrCorrupt, ""},
		{"other case", frame("", `{"Blobs":[]}`, 0), ErrCorrupt, `"blobs" is missing`},
		{"name twice", frame("", `{"blobs":[],"blobs":[]}`, 0), ErrCorrupt, "twice"},
		{"no offset", frame("", blob(`,"length":0`), 0), ErrCorrupt, `"offset" is missing`},
		{"fraction", frame("", blob(`,"offset":4.5,"length":0`), 0), ErrCorrupt, `"offset"`},
		{"beyond int64", frame("", blob(`,"offset":9223372036854775808,"length":0`), 0), ErrCorrupt, `"offset"`},
		{"before the blobs", frame("x", blob(`,"offset":3,"length":1`), 0), ErrCorrupt, "outside 4..5"},
		{"negative length", frame("x", blob(`,"offset":4,"length":-1`), 0), ErrCorrupt, "outside 4..5"},
		{"into the footer", frame("x", blob(`,"offset":4,"length":2`), 0), ErrCorrupt, "outside 4..5"},
		{"behind the blobs", frame("x", blob(`,"offset":6,"length":0`), 0), ErrCorrupt, "outside 4..5"},
		{"overflow", frame("x", blob(`,"offset":9223372036854775807,"length":9223372036854775807`), 0), ErrCorrupt, "outside 4..5"},
		{"property not a string", frame("", blob(`,"offset":4,"length":0,"properties":{"a":1}`), 0), ErrCorrupt, "not a string"},
		{"property twice", frame("", blob(`,"offset":4,"length":0,"properties":{"a":"1","a":"2"}`), 0), ErrCorrupt, "twice"},
		{"properties a list", frame("", `{"blobs":[],"properties":[]}`, 0), ErrCorrupt, "properties"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Open(bytes.NewReader(tc.file), int64(len(tc.file)))
			if !errors.Is(err, tc.target) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want %v with %q", err, tc.target, tc.says)
			}
		})
	}

	// A footer that claims more than the file, less than nothing, or too much.
	for _, size := range []uint32{13, 1 << 30, 1 << 31, 1<<32 - 1} {
		file := frame("", `{"blobs":[]}`, 0)
		binary.LittleEndian.PutUint32(file[len(file)-12:], size)
		if _, err := Open(bytes.NewReader(file), int64(len(file))); !errors.Is(err, ErrCorrupt) {
			t.Errorf("footer size %d: %v", size, err)
		}
	}
	// The same where the stated file size would hold it: nothing is allocated.
	file := frame("", `{"blobs":[]}`, 0)
	binary.LittleEndian.PutUint32(file[len(file)-12:], MaxFooterSize+1)
	if _, err := Open(&tailAt{file, 1 << 40}, 1<<40); !errors.Is(err, ErrUnsupported) {
		t.Errorf("footer above the limit: %v", err)
	}
	// An unreadable store is not a corrupt file.
	if _, err := Open(errorAt{}, 100); !errors.Is(err, errDisk) || errors.Is(err, ErrCorrupt) {
		t.Errorf("store error: %v", err)
	}
}

// tailAt is a file of size bytes that ends with data and begins with the magic.
type tailAt struct {
	data []byte
	size int64
}

func (f *tailAt) ReadAt(p []byte, at int64) (int, error) {
	if at == 0 {
		return copy(p, f.data), nil
	}
	return copy(p, f.data[at-(f.size-int64(len(f.data))):]), nil
}

type errorAt struct{}

func (errorAt) ReadAt([]byte, int64) (int, error) { return 0, errDisk }

// TestFooterTolerates: unknown names, other order, white space and null optionals are
// read.
func TestFooterTolerates(t *testing.T) {
	r := open(t, frame("xy", "{ \"new\": {\"a\": [1]}, \"properties\": null,\n \"blobs\": [ {\"length\": 1, \"offset\": 5, \"sequence-number\": 7,"+
		"\"snapshot-id\": 8, \"fields\": [], \"type\": \"\\u0074\", \"later\": 1, \"compression-codec\": null} ] }", 0))
	b := r.Metadata().Blobs[0]
	if b.Type != "t" || b.SnapshotID != 8 || b.SequenceNumber != 7 || len(b.Fields) != 0 {
		t.Errorf("%+v", b)
	}
	if data, err := r.ReadBlob(0); err != nil || string(data) != "y" {
		t.Errorf("%q, %v", data, err)
	}
}

func TestCompressedBlobs(t *testing.T) {
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	plain := bytes.Repeat([]byte("sketch"), 1000)
	packed := enc.EncodeAll(plain, nil)
	file := func(codec string, data []byte) *Reader {
		var buf bytes.Buffer
		w := NewWriter(&buf, "")
		if _, err := w.Add(Blob{Type: "t", Fields: []int32{1}, SnapshotID: 1, SequenceNumber: 1, CompressionCodec: codec}, data); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return open(t, buf.Bytes())
	}
	if got, err := file(CodecZstd, packed).ReadBlob(0); err != nil || !bytes.Equal(got, plain) {
		t.Errorf("zstd: %d bytes, %v", len(got), err)
	}
	if _, err := file(CodecZstd, packed[:len(packed)-3]).ReadBlob(0); !errors.Is(err, ErrCorrupt) {
		t.Errorf("short zstd: %v", err)
	}
	bomb := enc.EncodeAll(make([]byte, MaxUnpackedSize+1), nil)
	if _, err := file(CodecZstd, bomb).ReadBlob(0); !errors.Is(err, ErrCorrupt) {
		t.Errorf("zstd above the limit: %v", err)
	}
	for _, codec := range []string{CodecLZ4, "snappy"} {
		if _, err := file(codec, packed).ReadBlob(0); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), codec) {
			t.Errorf("%s: %v", codec, err)
		}
	}
}

// TestVectorCardinality: a vector that holds other than its cardinality is refused.
func TestVectorCardinality(t *testing.T) {
	for _, text := range []string{"2", "-1", "", "1.0"} {
		blob, _, err := dv.AppendBlobFromSet(nil, positions(t, 7))
		if err != nil {
			t.Fatal(err)
		}
		var buf bytes.Buffer
		w := NewWriter(&buf, "")
		if _, err := w.Add(Blob{Type: dv.BlobType, Properties: Properties{{PropertyCardinality, text}}}, blob); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := open(t, buf.Bytes()).ReadVector(0); !errors.Is(err, ErrCorrupt) {
			t.Errorf("cardinality %q of one position: %v", text, err)
		}
	}
}

// TestCompressedVectorRefused: a vector is stored as it is (V2).
func TestCompressedVectorRefused(t *testing.T) {
	var buf bytes.Buffer
	w := NewWriter(&buf, "")
	if _, err := w.Add(Blob{Type: dv.BlobType, CompressionCodec: CodecZstd}, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, buf.Bytes()).ReadVector(0); !errors.Is(err, ErrUnsupported) {
		t.Errorf("got %v", err)
	}
}

// TestReadAtContract: a store may return io.EOF with the last bytes.
func TestReadAtContract(t *testing.T) {
	file, _ := writeVectors(t, DefaultCreatedBy, vector{"a", []uint32{1}})
	r, err := Open(eofAt{file}, int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.ReadVector(0); err != nil {
		t.Fatal(err)
	}
}

type eofAt struct{ data []byte }

func (f eofAt) ReadAt(p []byte, at int64) (int, error) {
	n, err := iotest.DataErrReader(bytes.NewReader(f.data[at:min(at+int64(len(p)), int64(len(f.data)))])).Read(p)
	if err == nil {
		err = io.EOF
	}
	return n, err
}

// FuzzOpen: a file is refused with a sentinel, or everything in it can be read within
// bounds and its footer survives writing.
func FuzzOpen(f *testing.F) {
	for name := range own {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		checkFile(t, data)
	})
}

// FuzzFooter fuzzes the JSON within a right frame.
func FuzzFooter(f *testing.F) {
	for name := range own {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		at := bytes.Index(data, []byte(`{"blobs"`))
		f.Add(string(data[at : len(data)-trailerSize]))
	}
	f.Add(`{"blobs":[{"type":"t","fields":[1],"snapshot-id":2,"sequence-number":1,"offset":4,"length":9,"compression-codec":"zstd"}]}`)
	f.Fuzz(func(t *testing.T, footer string) {
		checkFile(t, frame(strings.Repeat("b", 60), footer, 0))
	})
}

func checkFile(t *testing.T, data []byte) {
	r, err := Open(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrUnsupported) {
			t.Fatalf("%v has no sentinel", err)
		}
		return
	}
	for i := range r.Metadata().Blobs {
		for _, err := range []error{second(r.ReadBlob(i)), second(r.ReadVector(i))} {
			if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrUnsupported) {
				t.Fatalf("%v has no sentinel", err)
			}
		}
	}
	again, err := parseMetadata(r.Metadata().appendJSON(nil))
	if err != nil {
		t.Fatalf("the footer written again is refused: %v", err)
	}
	// Empty and absent lists print alike; they mean the same.
	if got, want := fmt.Sprint(*again), fmt.Sprint(*r.Metadata()); got != want {
		t.Fatalf("the footer written again reads as %s, want %s", got, want)
	}
}

func second[T any](_ T, err error) error { return err }

package puffin

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/varve-io/varve/schemas/dv"
)

func fixture(t testing.TB, name string) []byte {
	t.Helper()
	root := os.Getenv("VARVE_FIXTURES")
	if root == "" {
		t.Skip("VARVE_FIXTURES is unset: no golden files of other implementations")
	}
	data, err := os.ReadFile(filepath.Join(root, "golden", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func open(t testing.TB, data []byte) *Reader {
	t.Helper()
	r, err := Open(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func positions(t testing.TB, p ...uint32) []byte {
	t.Helper()
	set, err := dv.AppendBitmap(nil, roaring.BitmapOf(p...))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

type vector struct {
	path      string
	positions []uint32
}

func writeVectors(t testing.TB, createdBy string, vectors ...vector) ([]byte, []Blob) {
	t.Helper()
	var buf bytes.Buffer
	var blobs []Blob
	w := NewWriter(&buf, createdBy)
	for _, v := range vectors {
		b, err := w.AddVector(v.path, positions(t, v.positions...))
		if err != nil {
			t.Fatal(err)
		}
		blobs = append(blobs, b)
	}
	size, err := w.Close()
	if err != nil {
		t.Fatal(err)
	}
	if size != int64(buf.Len()) {
		t.Fatalf("Close says %d bytes, %d were written", size, buf.Len())
	}
	return buf.Bytes(), blobs
}

const javaFixtures = "iceberg-go DV cross-client fixtures (apache/iceberg)"

// TestGoldenVectors: from the same vectors the writer makes Java's bytes.
func TestGoldenVectors(t *testing.T) {
	for _, tc := range []struct {
		file    string
		vectors []vector
	}{
		{"single-blob-dv.puffin", []vector{
			{"s3://warehouse/db/table/data/00000-0-abc.parquet", []uint32{1, 3, 5, 7, 9}},
		}},
		{"multi-blob-dv.puffin", []vector{
			{"s3://warehouse/db/table/data/file-001.parquet", []uint32{0, 100, 200}},
			{"s3://warehouse/db/table/data/file-002.parquet", []uint32{50, 150}},
		}},
	} {
		t.Run(tc.file, func(t *testing.T) {
			want := fixture(t, tc.file)
			got, blobs := writeVectors(t, javaFixtures, tc.vectors...)
			if !bytes.Equal(got, want) {
				t.Errorf("got\n%q\nwant\n%q", got, want)
			}
			checkVectors(t, want, blobs, tc.vectors)
		})
	}
}

func checkVectors(t *testing.T, file []byte, blobs []Blob, vectors []vector) {
	t.Helper()
	r := open(t, file)
	meta := r.Metadata()
	if len(meta.Blobs) != len(vectors) {
		t.Fatalf("%d blobs, want %d", len(meta.Blobs), len(vectors))
	}
	for i, v := range vectors {
		b := meta.Blobs[i]
		if b.Type != dv.BlobType || !slices.Equal(b.Fields, []int32{2147483645}) || b.SnapshotID != -1 || b.SequenceNumber != -1 || b.CompressionCodec != "" {
			t.Errorf("blob %d: %+v is not what V2 wants", i, b)
		}
		if path, _ := b.Properties.Get(PropertyDataFile); path != v.path {
			t.Errorf("blob %d: data file %q, want %q", i, path, v.path)
		}
		if b.Offset != blobs[i].Offset || b.Length != blobs[i].Length {
			t.Errorf("blob %d: the footer says %d+%d, the writer %d+%d", i, b.Offset, b.Length, blobs[i].Offset, blobs[i].Length)
		}
		got, err := r.ReadVector(i)
		if err != nil {
			t.Fatal(err)
		}
		bm, ok := got.Bitmap32()
		if !ok || !slices.Equal(bm.ToArray(), v.positions) {
			t.Errorf("blob %d: other positions than %v", i, v.positions)
		}
		// A manifest's offset and length alone find the vector (144, 145).
		direct, err := dv.Decode(file[b.Offset : b.Offset+b.Length])
		if err != nil || !direct.Equal(got) {
			t.Errorf("blob %d: read by offset and length: %v, or other positions", i, err)
		}
	}
}

// TestGoldenRewritten: the footer of any golden file, read and written again with the
// same blobs, gives the same bytes.
func TestGoldenRewritten(t *testing.T) {
	for _, name := range []string{
		"single-blob-dv.puffin",
		"multi-blob-dv.puffin",
		"deletion-vector-v1.puffin",
		"puffin-empty-puffin-uncompressed.bin",
		"puffin-sample-metric-data-uncompressed.bin",
	} {
		t.Run(name, func(t *testing.T) {
			want := fixture(t, name)
			if got := rewrite(t, want); !bytes.Equal(got, want) {
				t.Errorf("got\n%q\nwant\n%q", got, want)
			}
			refusesDamage(t, want)
		})
	}
}

// rewrite reads a whole file and writes its blobs and metadata again.
func rewrite(t testing.TB, file []byte) []byte {
	t.Helper()
	r := open(t, file)
	var buf bytes.Buffer
	by, _ := r.Metadata().Properties.Get(PropertyCreatedBy)
	w := NewWriter(&buf, by)
	for i, b := range r.Metadata().Blobs {
		data, err := r.ReadBlob(i)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Add(b, data); err != nil {
			t.Fatal(err)
		}
		if b.Type == dv.BlobType {
			if _, err := r.ReadVector(i); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// TestGoldenContent: what the files of Java that hold no vectors say.
func TestGoldenContent(t *testing.T) {
	r := open(t, fixture(t, "puffin-sample-metric-data-uncompressed.bin"))
	if got, err := r.ReadBlob(0); err != nil || string(got) != "abcdefghi" {
		t.Errorf("blob 0: %q, %v", got, err)
	}
	if got, err := r.ReadBlob(1); err != nil || string(got) != "some blob \x00 binary data 🤯 that is not very very very very very very long, is it?" {
		t.Errorf("blob 1: %q, %v", got, err)
	}
	if _, err := r.ReadVector(0); !errors.Is(err, ErrUnsupported) {
		t.Errorf("a blob that is no vector, read as one: %v", err)
	}
	b := r.Metadata().Blobs[1]
	if b.Type != "some-other-blob" || !slices.Equal(b.Fields, []int32{2}) || b.SnapshotID != 2 || b.SequenceNumber != 1 || b.Offset != 13 || b.Length != 83 {
		t.Errorf("blob 1: %+v", b)
	}
}

// refusesDamage cuts a file at every length, adds bytes at both ends, and flips each
// bit outside the footer's JSON: the frame and every vector notice.
func refusesDamage(t *testing.T, file []byte) {
	t.Helper()
	read := func(data []byte) error {
		r, err := Open(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return err
		}
		for i, b := range r.Metadata().Blobs {
			if b.Type != dv.BlobType {
				continue
			}
			if _, err := r.ReadVector(i); err != nil {
				return err
			}
		}
		return nil
	}
	if err := read(file); err != nil {
		t.Fatalf("undamaged: %v", err)
	}
	check := func(what string, at int, data []byte) {
		if err := read(data); !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrUnsupported) {
			t.Errorf("%s %d: got %v", what, at, err)
		}
	}
	for n := range file {
		check("cut to", n, file[:n])
	}
	check("byte added behind", len(file), append(bytes.Clone(file), 0))
	check("byte added before", 0, append([]byte{0}, file...))

	jsonStart := bytes.Index(file, []byte(`{"blobs"`))
	covered := make([]bool, len(file))
	for i := range file {
		covered[i] = i < magicSize || (i >= jsonStart-magicSize && i < jsonStart) || i >= len(file)-trailerSize
	}
	for _, b := range open(t, file).Metadata().Blobs {
		for i := b.Offset; i < b.Offset+b.Length && b.Type == dv.BlobType; i++ {
			covered[i] = true
		}
	}
	for i := range file {
		for bit := 0; bit < 8 && covered[i]; bit++ {
			damaged := bytes.Clone(file)
			damaged[i] ^= 1 << bit
			check("flipped bit in byte", i, damaged)
		}
	}
}

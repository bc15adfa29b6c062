package puffin

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/varve-io/varve/schemas/dv"
)

// DefaultCreatedBy is the created-by property of our files. It carries no version:
// the same log must give the same bytes after an upgrade (V2).
const DefaultCreatedBy = "varve"

var fileMagic = [4]byte{'P', 'F', 'A', '1'}

const (
	magicSize = 4
	// trailerSize is what follows the footer's JSON: size, flags, magic.
	trailerSize = 4 + 4 + magicSize
	minFileSize = magicSize + magicSize + trailerSize
)

// Writer writes one Puffin. It is not safe for concurrent use. After an error every
// call returns that error: a file that is not whole is never mistaken for one.
type Writer struct {
	w         io.Writer
	at        int64
	meta      Metadata
	dataFiles map[string]bool
	buf       []byte
	err       error
	closed    bool
}

// NewWriter starts a Puffin on w. createdBy becomes the file property created-by;
// DefaultCreatedBy is right for all files that a table publishes, another value is
// for comparing with other writers, and none is written when it is empty.
func NewWriter(w io.Writer, createdBy string) *Writer {
	out := &Writer{w: w, dataFiles: map[string]bool{}}
	if createdBy != "" {
		out.meta.Properties = Properties{{PropertyCreatedBy, createdBy}}
		if !utf8.ValidString(createdBy) {
			out.err = errors.New("puffin: created-by is not valid UTF-8")
			return out
		}
	}
	out.write(fileMagic[:])
	return out
}

func (w *Writer) write(p []byte) {
	if w.err != nil {
		return
	}
	n, err := w.w.Write(p)
	w.at += int64(n)
	if err == nil && n != len(p) {
		err = io.ErrShortWrite
	}
	if err != nil {
		w.err = fmt.Errorf("puffin: write at byte %d: %w", w.at, err)
	}
}

// AddVector appends the deletion vector of one data file. path is the data file's
// location letter by letter as its manifest entry has it, positions the set of
// deleted rows as the state stores it (see package dv). An empty set is refused with
// dv.ErrEmpty, and so is a second vector for the same file (V3). The result holds
// offset, length and cardinality for the manifest entry.
func (w *Writer) AddVector(path string, positions []byte) (Blob, error) {
	if err := w.usable(); err != nil {
		return Blob{}, err
	}
	if path == "" {
		return Blob{}, errors.New("puffin: a deletion vector needs the path of its data file")
	}
	if w.dataFiles[path] {
		return Blob{}, fmt.Errorf("puffin: second deletion vector for data file %s: merge them, a file has one", path)
	}
	blob, count, err := dv.AppendBlobFromSet(w.buf[:0], positions)
	if err != nil {
		return Blob{}, fmt.Errorf("puffin: data file %s: %w", path, err)
	}
	w.buf = blob
	return w.Add(Blob{
		Type:           dv.BlobType,
		Fields:         []int32{FieldRowPosition},
		SnapshotID:     Inherited,
		SequenceNumber: Inherited,
		Properties: Properties{
			{PropertyDataFile, path},
			{PropertyCardinality, strconv.FormatUint(count, 10)},
		},
	}, blob)
}

// Add appends a blob of any type; data is stored as it is, so a compression codec
// named in b is the caller's doing. Offset and Length of b are set in the result. A
// refused blob leaves the file as it was.
func (w *Writer) Add(b Blob, data []byte) (Blob, error) {
	if err := w.usable(); err != nil {
		return Blob{}, err
	}
	if b.Type == "" || !utf8.ValidString(b.Type) || !utf8.ValidString(b.CompressionCodec) {
		return Blob{}, fmt.Errorf("puffin: blob type %q, codec %q: a type is needed, both as UTF-8", b.Type, b.CompressionCodec)
	}
	if err := b.Properties.check(); err != nil {
		return Blob{}, fmt.Errorf("puffin: blob %d of type %s: %w", len(w.meta.Blobs), b.Type, err)
	}
	path, isVector := "", false
	if b.Type == dv.BlobType {
		if path, isVector = b.Properties.Get(PropertyDataFile); isVector && w.dataFiles[path] {
			return Blob{}, fmt.Errorf("puffin: second deletion vector for data file %s: merge them, a file has one", path)
		}
	}
	b.Offset, b.Length = w.at, int64(len(data))
	w.write(data)
	if w.err != nil {
		return Blob{}, w.err
	}
	if isVector {
		w.dataFiles[path] = true
	}
	w.meta.Blobs = append(w.meta.Blobs, b)
	return b, nil
}

func (w *Writer) usable() error {
	if w.closed {
		return errors.New("puffin: the writer is closed")
	}
	return w.err
}

// Close writes the footer and returns the size of the whole file. The underlying
// writer is not closed.
func (w *Writer) Close() (size int64, err error) {
	if err := w.usable(); err != nil {
		return 0, err
	}
	w.closed = true
	w.write(fileMagic[:])
	footer := w.meta.appendJSON(nil)
	if len(footer) > MaxFooterSize {
		w.err = fmt.Errorf("puffin: footer of %d bytes for %d blobs, at most %d are read again: use more files", len(footer), len(w.meta.Blobs), MaxFooterSize)
		return 0, w.err
	}
	w.write(footer)
	var trailer [trailerSize]byte
	binary.LittleEndian.PutUint32(trailer[:], uint32(len(footer)))
	copy(trailer[8:], fileMagic[:])
	w.write(trailer[:])
	return w.at, w.err
}

package puffin

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/klauspost/compress/zstd"

	"github.com/varve-io/varve/schemas/dv"
)

var (
	// ErrCorrupt marks a file that is no valid Puffin.
	ErrCorrupt = errors.New("corrupt Puffin file")
	// ErrUnsupported marks a valid file that uses what this reader does not read.
	ErrUnsupported = errors.New("unsupported Puffin feature")
)

const (
	// MaxFooterSize bounds the footer's JSON, written and read: about 200,000
	// vectors a file.
	MaxFooterSize = 64 << 20
	// MaxBlobSize bounds a blob as stored: the largest vector under one key has
	// 512 MiB and headers.
	MaxBlobSize = 1 << 30
	// MaxUnpackedSize bounds what a zstd blob unpacks to. Vectors are never
	// compressed, statistics are far smaller.
	MaxUnpackedSize = 128 << 20

	flagFooterCompressed = 1
)

// Reader reads one Puffin. Its methods may be called concurrently if the underlying
// io.ReaderAt allows it.
type Reader struct {
	r    io.ReaderAt
	meta Metadata
}

// Open reads and checks the footer of a file of size bytes. It reads the first four
// bytes and the footer, no blob.
func Open(r io.ReaderAt, size int64) (*Reader, error) {
	if size < minFileSize {
		return nil, fmt.Errorf("%w: %d bytes, the smallest has %d", ErrCorrupt, size, minFileSize)
	}
	var head [magicSize]byte
	if err := readAt(r, head[:], 0); err != nil {
		return nil, err
	}
	if head != fileMagic {
		return nil, fmt.Errorf("%w: it begins with % x, want % x", ErrCorrupt, head, fileMagic)
	}
	var trailer [trailerSize]byte
	if err := readAt(r, trailer[:], size-trailerSize); err != nil {
		return nil, err
	}
	if tail := [magicSize]byte(trailer[8:]); tail != fileMagic {
		return nil, fmt.Errorf("%w: it ends with % x, want % x", ErrCorrupt, tail, fileMagic)
	}
	flags := binary.LittleEndian.Uint32(trailer[4:])
	if flags&^flagFooterCompressed != 0 {
		return nil, fmt.Errorf("%w: unknown footer flags %#08x", ErrUnsupported, flags)
	}
	jsonSize := int64(int32(binary.LittleEndian.Uint32(trailer[:])))
	// The blobs end where the footer's own magic begins, behind the file's.
	footerStart := size - trailerSize - jsonSize - magicSize
	if jsonSize < 0 || footerStart < magicSize {
		return nil, fmt.Errorf("%w: footer of %d bytes in a file of %d", ErrCorrupt, jsonSize, size)
	}
	if flags&flagFooterCompressed != 0 {
		return nil, fmt.Errorf("%w: the footer is compressed with lz4: have the file written again with a plain footer", ErrUnsupported)
	}
	if jsonSize > MaxFooterSize {
		return nil, fmt.Errorf("%w: footer of %d bytes, at most %d are read", ErrUnsupported, jsonSize, MaxFooterSize)
	}
	footer := make([]byte, magicSize+jsonSize)
	if err := readAt(r, footer, footerStart); err != nil {
		return nil, err
	}
	if start := [magicSize]byte(footer); start != fileMagic {
		return nil, fmt.Errorf("%w: the footer at byte %d begins with % x, want % x", ErrCorrupt, footerStart, start, fileMagic)
	}
	meta, err := parseMetadata(footer[magicSize:])
	if err != nil {
		return nil, fmt.Errorf("%w: footer at byte %d: %w", ErrCorrupt, footerStart, err)
	}
	for i, b := range meta.Blobs {
		if b.Offset < magicSize || b.Length < 0 || b.Offset > footerStart || b.Length > footerStart-b.Offset {
			return nil, fmt.Errorf("%w: blob %d of %d lies at byte %d with %d bytes, outside %d..%d",
				ErrCorrupt, i+1, len(meta.Blobs), b.Offset, b.Length, magicSize, footerStart)
		}
	}
	return &Reader{r: r, meta: *meta}, nil
}

// readAt fills p from byte at; fewer bytes than the stated size are corruption.
func readAt(r io.ReaderAt, p []byte, at int64) error {
	n, err := r.ReadAt(p, at)
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: it ends %d bytes into the %d at byte %d", ErrCorrupt, n, len(p), at)
	}
	return fmt.Errorf("puffin: read %d bytes at byte %d: %w", len(p), at, err)
}

// Metadata returns the footer, which belongs to the reader.
func (r *Reader) Metadata() *Metadata { return &r.meta }

// ReadBlob returns the content of blob i, decompressed where it is zstd.
func (r *Reader) ReadBlob(i int) ([]byte, error) {
	b := &r.meta.Blobs[i]
	if b.Length > MaxBlobSize {
		return nil, fmt.Errorf("%w: blob at byte %d has %d bytes, at most %d are read", ErrUnsupported, b.Offset, b.Length, MaxBlobSize)
	}
	if b.CompressionCodec != "" && b.CompressionCodec != CodecZstd {
		return nil, fmt.Errorf("%w: blob at byte %d is compressed with %q; none and %s are read", ErrUnsupported, b.Offset, b.CompressionCodec, CodecZstd)
	}
	data := make([]byte, b.Length)
	if err := readAt(r.r, data, b.Offset); err != nil {
		return nil, err
	}
	if b.CompressionCodec == "" {
		return data, nil
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(MaxUnpackedSize))
	if err != nil {
		return nil, fmt.Errorf("puffin: zstd: %w", err)
	}
	defer dec.Close()
	plain, err := dec.DecodeAll(data, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: zstd blob at byte %d: %w", ErrCorrupt, b.Offset, err)
	}
	return plain, nil
}

// ReadVector returns the deletion vector in blob i. The blob must be one, and hold as
// many positions as its cardinality says.
func (r *Reader) ReadVector(i int) (*dv.Vector, error) {
	b := &r.meta.Blobs[i]
	if b.Type != dv.BlobType {
		return nil, fmt.Errorf("%w: blob at byte %d is a %q, not a %s", ErrUnsupported, b.Offset, b.Type, dv.BlobType)
	}
	if b.CompressionCodec != "" {
		return nil, fmt.Errorf("%w: the deletion vector at byte %d is compressed with %q, the format allows none", ErrUnsupported, b.Offset, b.CompressionCodec)
	}
	data, err := r.ReadBlob(i)
	if err != nil {
		return nil, err
	}
	v, err := dv.Decode(data)
	if err != nil {
		return nil, fmt.Errorf("%w: blob at byte %d: %w", ErrCorrupt, b.Offset, err)
	}
	if text, ok := b.Properties.Get(PropertyCardinality); ok {
		if want, err := strconv.ParseUint(text, 10, 64); err != nil || want != v.Cardinality() {
			return nil, fmt.Errorf("%w: blob at byte %d holds %d positions, its cardinality says %q", ErrCorrupt, b.Offset, v.Cardinality(), text)
		}
	}
	return v, nil
}

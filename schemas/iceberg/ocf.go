package iceberg

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
)

// syncMarker parts the blocks of every container that varve writes. Avro wants
// a random one; equal bytes on replay (C7) want a fixed one.
var syncMarker = [16]byte{'v', 'a', 'r', 'v', 'e', ' ', 'a', 'v', 'r', 'o', ' ', 's', 'y', 'n', 'c', '\n'}

var ocfMagic = [4]byte{'O', 'b', 'j', 1}

// ocfBlockBytes closes a block: the entry that reaches it is the block's last.
const ocfBlockBytes = 64 << 10

// MaxDecodedBytes bounds what one manifest or manifest list may hold once its
// blocks are decompressed. Writers aim at 8 MB for a whole manifest.
const MaxDecodedBytes = 512 << 20

type headerKey struct{ key, value string }

// ocfWriter builds an Avro object container with codec null.
type ocfWriter struct {
	out   []byte
	block []byte
	count int64
}

// newOCF begins a container whose header has the schema, the codec and then
// the given keys in their order.
func newOCF(schema string, keys []headerKey) *ocfWriter {
	w := &ocfWriter{out: append([]byte(nil), ocfMagic[:]...)}
	w.out = appendAvroLong(w.out, int64(len(keys)+2))
	w.out = appendAvroString(w.out, "avro.schema")
	w.out = appendAvroString(w.out, schema)
	w.out = appendAvroString(w.out, "avro.codec")
	w.out = appendAvroString(w.out, "null")
	for _, k := range keys {
		w.out = appendAvroString(w.out, k.key)
		w.out = appendAvroString(w.out, k.value)
	}
	w.out = append(w.out, 0)
	w.out = append(w.out, syncMarker[:]...)
	return w
}

// endRecord tells that one more record was appended to w.block.
func (w *ocfWriter) endRecord() {
	w.count++
	if len(w.block) >= ocfBlockBytes {
		w.flush()
	}
}

func (w *ocfWriter) flush() {
	if w.count == 0 {
		return
	}
	w.out = appendAvroLong(w.out, w.count)
	w.out = appendAvroBytes(w.out, w.block)
	w.out = append(w.out, syncMarker[:]...)
	w.block, w.count = w.block[:0], 0
}

func (w *ocfWriter) finish() []byte {
	w.flush()
	return w.out
}

// ocfFile is an opened container: its header and the blocks behind it.
type ocfFile struct {
	keys   []headerKey
	schema *avroType
	codec  string
	sync   [16]byte
	r      avroReader
	budget int64 // decompressed bytes that may still come
	zstd   *zstd.Decoder
}

func (f *ocfFile) key(name string) (string, bool) {
	for _, k := range f.keys {
		if k.key == name {
			return k.value, true
		}
	}
	return "", false
}

const maxHeaderKeys = 1000

func openOCF(b []byte) (*ocfFile, error) {
	if len(b) < 4 || !bytes.Equal(b[:4], ocfMagic[:]) {
		return nil, corrupt("not an Avro object container: it does not begin with Obj1")
	}
	f := &ocfFile{r: avroReader{b: b, off: 4}, budget: MaxDecodedBytes, codec: "null"}
	err := f.r.blocks(func() error {
		if len(f.keys) == maxHeaderKeys {
			return corrupt("header with more than %d keys", maxHeaderKeys)
		}
		k, err := f.r.bytes()
		if err != nil {
			return err
		}
		v, err := f.r.bytes()
		if err != nil {
			return err
		}
		f.keys = append(f.keys, headerKey{string(k), string(v)})
		return nil
	})
	if err != nil {
		return nil, err
	}
	s, err := f.r.take(16)
	if err != nil {
		return nil, err
	}
	copy(f.sync[:], s)
	if c, ok := f.key("avro.codec"); ok && c != "" {
		f.codec = c
	}
	text, ok := f.key("avro.schema")
	if !ok {
		return nil, corrupt("container without avro.schema")
	}
	if f.schema, err = parsedSchemas.parse(text); err != nil {
		return nil, err
	}
	if f.schema.kind != avroRecord {
		return nil, corrupt("the container's schema is a %s, not a record", f.schema.kind)
	}
	if f.schema.min == 0 {
		return nil, corrupt("the container's records take no bytes")
	}
	return f, nil
}

// records calls each once a record, with a reader at the record's first byte;
// it must consume the record.
func (f *ocfFile) records(each func(r *avroReader) error) error {
	defer func() {
		if f.zstd != nil {
			f.zstd.Close()
		}
	}()
	for f.r.left() > 0 {
		n, err := f.r.long()
		if err != nil {
			return err
		}
		raw, err := f.r.bytes()
		if err != nil {
			return err
		}
		sync, err := f.r.take(16)
		if err != nil {
			return err
		}
		if !bytes.Equal(sync, f.sync[:]) {
			return corrupt("wrong sync marker at byte %d", f.r.off-16)
		}
		data, err := f.decompress(raw)
		if err != nil {
			return err
		}
		if n < 0 || n > int64(len(data)) {
			return corrupt("block of %d bytes says that it holds %d records", len(data), n)
		}
		r := avroReader{b: data}
		for ; n > 0; n-- {
			if err := each(&r); err != nil {
				return err
			}
		}
		if r.left() != 0 {
			return corrupt("%d bytes left over behind a block's records", r.left())
		}
	}
	return nil
}

func (f *ocfFile) decompress(raw []byte) ([]byte, error) {
	var out []byte
	switch f.codec {
	case "null":
		return raw, nil
	case "deflate":
		fr := flate.NewReader(bytes.NewReader(raw))
		var err error
		out, err = io.ReadAll(io.LimitReader(fr, f.budget+1))
		if err != nil {
			return nil, corrupt("deflate block: %v", err)
		}
	case "zstandard":
		if f.zstd == nil {
			d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(MaxDecodedBytes),
				zstd.WithDecoderMaxWindow(64<<20))
			if err != nil {
				return nil, err
			}
			f.zstd = d
		}
		if err := f.zstd.Reset(bytes.NewReader(raw)); err != nil {
			return nil, corrupt("zstandard block: %v", err)
		}
		var err error
		out, err = io.ReadAll(io.LimitReader(f.zstd, f.budget+1))
		if err != nil {
			return nil, corrupt("zstandard block: %v", err)
		}
	case "snappy":
		// Avro's snappy block ends with the big-endian CRC-32 of what it holds.
		if len(raw) < 4 {
			return nil, corrupt("snappy block of %d bytes", len(raw))
		}
		body, sum := raw[:len(raw)-4], binary.BigEndian.Uint32(raw[len(raw)-4:])
		n, err := snappy.DecodedLen(body)
		// No snappy element makes more than 64 bytes from 2.
		if err != nil || int64(n) > f.budget || int64(n) > 64*int64(len(body)) {
			return nil, corrupt("snappy block with an impossible length")
		}
		if out, err = snappy.Decode(nil, body); err != nil {
			return nil, corrupt("snappy block: %v", err)
		}
		if crc32.ChecksumIEEE(out) != sum {
			return nil, corrupt("snappy block with a wrong checksum")
		}
	default:
		return nil, corrupt("codec %q is none of null, deflate, zstandard, snappy", f.codec)
	}
	if int64(len(out)) > f.budget {
		return nil, corrupt("more than %d decompressed bytes", int64(MaxDecodedBytes))
	}
	f.budget -= int64(len(out))
	return out, nil
}

// IsCorrupt says whether err means that the bytes given to a decoder are not
// what they should be.
func IsCorrupt(err error) bool { return errors.Is(err, ErrCorrupt) }

package logfile

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
)

// Form is the form that is written, and the newest that is read.
const Form = 1

const (
	magic = "VARVELOG"
	// MaxRecord bounds a record: more than a broker takes.
	MaxRecord = 256 << 20
	maxName   = 4 << 10

	kindHead   = 'H'
	kindRecord = 'R'
	kindTail   = 'T'

	flagControl = 1
	flagKey     = 2
	flagHeader  = 4
	flagValue   = 8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Errors of a Reader.
var (
	// ErrNotLog: the file is no exported log.
	ErrNotLog = errors.New("not an exported log")
	// ErrNewer: it was written by a newer version.
	ErrNewer = errors.New("the exported log was written by a newer version")
	// ErrTruncated: it ends before its end.
	ErrTruncated = errors.New("the exported log is cut off")
	// ErrDamaged: bytes of it are not those that were written.
	ErrDamaged = errors.New("the exported log is damaged")
	// ErrHole: offsets do not follow each other.
	ErrHole = errors.New("the exported log has a hole")
)

// Head is what a file says about itself.
type Head struct {
	Deployment [16]byte
	Name       string // of the deployment
	Partition  int32
	Partitions int32
	First      int64 // offset of the first record
}

// Record is one record of the log.
type Record struct {
	Offset      int64
	LeaderEpoch int32
	TimeMs      int64
	Control     bool
	Key         []byte // nil: none
	Header      []byte
	Value       []byte
}

// Writer writes a file.
type Writer struct {
	w     io.Writer
	sum   hash.Hash
	buf   []byte
	next  int64
	count int64
}

// NewWriter begins a file.
func NewWriter(w io.Writer, h Head) (*Writer, error) {
	if len(h.Name) > maxName {
		return nil, fmt.Errorf("the deployment's name has %d bytes", len(h.Name))
	}
	x := &Writer{w: w, sum: sha256.New(), next: h.First}
	if err := x.write(binary.BigEndian.AppendUint32([]byte(magic), Form)); err != nil {
		return nil, err
	}
	b := append(x.begin(kindHead), h.Deployment[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(h.Partition))
	b = binary.BigEndian.AppendUint32(b, uint32(h.Partitions))
	b = binary.BigEndian.AppendUint64(b, uint64(h.First))
	return x, x.end(append(b, h.Name...))
}

func (x *Writer) write(b []byte) error {
	x.sum.Write(b)
	_, err := x.w.Write(b)
	return err
}

func (x *Writer) begin(kind byte) []byte { return append(x.buf[:0], kind, 0, 0, 0, 0) }

func (x *Writer) end(b []byte) error {
	binary.BigEndian.PutUint32(b[1:], uint32(len(b)-5))
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	x.buf = b
	return x.write(b)
}

// Append writes the next record.
func (x *Writer) Append(r *Record) error {
	if r.Offset != x.next {
		return fmt.Errorf("%w: offset %d follows %d", ErrHole, r.Offset, x.next-1)
	}
	if len(r.Key)+len(r.Header)+len(r.Value) > MaxRecord-64 {
		return fmt.Errorf("the record at offset %d has more than %d bytes", r.Offset, MaxRecord-64)
	}
	b := binary.BigEndian.AppendUint64(x.begin(kindRecord), uint64(r.Offset))
	b = binary.BigEndian.AppendUint32(b, uint32(r.LeaderEpoch))
	b = binary.BigEndian.AppendUint64(b, uint64(r.TimeMs))
	at := len(b)
	b = append(b, 0)
	if r.Control {
		b[at] |= flagControl
	}
	for _, p := range []struct {
		flag byte
		b    []byte
	}{{flagKey, r.Key}, {flagHeader, r.Header}, {flagValue, r.Value}} {
		if p.b == nil {
			continue
		}
		b[at] |= p.flag
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(p.b))), p.b...)
	}
	if err := x.end(b); err != nil {
		return err
	}
	x.next++
	x.count++
	return nil
}

// Close ends the file. It does not close what it writes to.
func (x *Writer) Close() error {
	b := binary.BigEndian.AppendUint64(x.begin(kindTail), uint64(x.count))
	b = binary.BigEndian.AppendUint64(b, uint64(x.next))
	return x.end(x.sum.Sum(b))
}

// Count is how many records were written.
func (x *Writer) Count() int64 { return x.count }

// Reader reads a file. Its errors name the offset of the log.
type Reader struct {
	r     io.Reader
	sum   hash.Hash
	head  Head
	buf   []byte
	next  int64
	count int64
	err   error
}

// NewReader reads the head of a file.
func NewReader(r io.Reader) (*Reader, error) {
	x := &Reader{r: r, sum: sha256.New()}
	b := make([]byte, len(magic)+4)
	if n, err := io.ReadFull(r, b); err != nil {
		if !short(err) {
			return nil, err
		}
		if bytes.HasPrefix([]byte(magic), b[:min(n, len(magic))]) && n > 0 {
			return nil, fmt.Errorf("%w: it ends within its head", ErrTruncated)
		}
		return nil, ErrNotLog
	}
	if string(b[:len(magic)]) != magic {
		return nil, ErrNotLog
	}
	switch form := binary.BigEndian.Uint32(b[len(magic):]); {
	case form > Form:
		return nil, fmt.Errorf("%w: it has form %d, this binary reads up to %d", ErrNewer, form, Form)
	case form == 0:
		return nil, fmt.Errorf("%w: form 0", ErrDamaged)
	}
	x.sum.Write(b)
	kind, p, err := x.frame()
	if err != nil {
		return nil, fmt.Errorf("%w: in its head", err)
	}
	if kind != kindHead || len(p) < 32 || len(p) > 32+maxName {
		return nil, fmt.Errorf("%w: it does not begin with its head", ErrDamaged)
	}
	copy(x.head.Deployment[:], p)
	x.head.Partition = int32(binary.BigEndian.Uint32(p[16:]))
	x.head.Partitions = int32(binary.BigEndian.Uint32(p[20:]))
	x.head.First = int64(binary.BigEndian.Uint64(p[24:]))
	x.head.Name = string(p[32:])
	if x.head.Partition < 0 || x.head.Partition >= x.head.Partitions || x.head.First < 0 {
		return nil, fmt.Errorf("%w: its head makes no sense", ErrDamaged)
	}
	x.next = x.head.First
	return x, nil
}

func short(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

// full reads n bytes onto dst, without trusting n.
func (x *Reader) full(dst []byte, n int) ([]byte, error) {
	const step = 1 << 20
	for n > 0 {
		k := min(n, step)
		at := len(dst)
		dst = append(dst, make([]byte, k)...)
		if _, err := io.ReadFull(x.r, dst[at:]); err != nil {
			if short(err) {
				return nil, ErrTruncated
			}
			return nil, err
		}
		n -= k
	}
	return dst, nil
}

// frame reads a frame; p aliases the reader's memory. The sum takes it only
// once the next one is read, for the tail's sum ends before the tail.
func (x *Reader) frame() (kind byte, p []byte, err error) {
	b, err := x.full(x.buf[:0], 5)
	if err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(b[1:])
	if n > MaxRecord {
		return 0, nil, fmt.Errorf("%w: a frame says it has %d bytes", ErrDamaged, n)
	}
	if b, err = x.full(b, int(n)+4); err != nil {
		return 0, nil, err
	}
	x.buf = b
	end := len(b) - 4
	if crc32.Checksum(b[:end], castagnoli) != binary.BigEndian.Uint32(b[end:]) {
		return 0, nil, fmt.Errorf("%w: a checksum is wrong", ErrDamaged)
	}
	if b[0] != kindTail {
		x.sum.Write(b)
	}
	return b[0], b[5:end], nil
}

// Head is what the file says about itself.
func (x *Reader) Head() Head { return x.head }

// Next is the offset of the next record.
func (x *Reader) Next() int64 { return x.next }

// Read gives the next record, io.EOF behind the last one once the whole file
// was found to be as it was written. The record's bytes are the caller's.
func (x *Reader) Read(r *Record) error {
	if x.err == nil {
		if x.err = x.read(r); x.err != nil && !errors.Is(x.err, io.EOF) {
			x.err = fmt.Errorf("%w, at log offset %d", x.err, x.next)
		}
	}
	return x.err
}

func (x *Reader) read(r *Record) error {
	kind, p, err := x.frame()
	if err != nil {
		return err
	}
	switch kind {
	case kindTail:
		return x.tail(p)
	case kindRecord:
	default:
		return fmt.Errorf("%w: a frame of kind %d", ErrDamaged, kind)
	}
	if len(p) < 21 {
		return fmt.Errorf("%w: a record is too short", ErrDamaged)
	}
	*r = Record{
		Offset: int64(binary.BigEndian.Uint64(p)), LeaderEpoch: int32(binary.BigEndian.Uint32(p[8:])),
		TimeMs: int64(binary.BigEndian.Uint64(p[12:])), Control: p[20]&flagControl != 0,
	}
	flags := p[20]
	p = append([]byte{}, p[21:]...) // the caller's own
	if flags&^(flagControl|flagKey|flagHeader|flagValue) != 0 {
		return fmt.Errorf("%w: a record's flags are unknown", ErrDamaged)
	}
	for _, part := range []struct {
		flag byte
		to   *[]byte
	}{{flagKey, &r.Key}, {flagHeader, &r.Header}, {flagValue, &r.Value}} {
		if flags&part.flag == 0 {
			continue
		}
		if len(p) < 4 || uint64(len(p)-4) < uint64(binary.BigEndian.Uint32(p)) {
			return fmt.Errorf("%w: a record's part is too short", ErrDamaged)
		}
		n := int(binary.BigEndian.Uint32(p))
		*part.to = p[4 : 4+n : 4+n]
		p = p[4+n:]
	}
	if len(p) != 0 {
		return fmt.Errorf("%w: a record is too long", ErrDamaged)
	}
	if r.Offset != x.next {
		return fmt.Errorf("%w: offset %d follows %d", ErrHole, r.Offset, x.next-1)
	}
	x.next++
	x.count++
	return nil
}

func (x *Reader) tail(p []byte) error {
	if len(p) != 16+sha256.Size {
		return fmt.Errorf("%w: its tail has %d bytes", ErrDamaged, len(p))
	}
	if n := int64(binary.BigEndian.Uint64(p)); n != x.count || int64(binary.BigEndian.Uint64(p[8:])) != x.next {
		return fmt.Errorf("%w: its tail counts %d records, it has %d", ErrDamaged, n, x.count)
	}
	if !bytes.Equal(p[16:], x.sum.Sum(nil)) {
		return fmt.Errorf("%w: its SHA-256 is another one", ErrDamaged)
	}
	var one [1]byte
	switch n, err := io.ReadFull(x.r, one[:]); {
	case n > 0:
		return fmt.Errorf("%w: bytes follow its tail", ErrDamaged)
	case !errors.Is(err, io.EOF):
		return err
	}
	return io.EOF
}

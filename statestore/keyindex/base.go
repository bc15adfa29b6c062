package keyindex

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// FORMAT.md describes a base file byte by byte.
const (
	formatVersion = 1
	flagWide      = 1

	fileHeader = 16
	fileFooter = 96

	// readSpan is how much of a base one read takes: small enough to stay in
	// the processor's cache until it is used.
	readSpan = 128 << 10
	// readGap is how many bytes of blocks that nobody asked for a read may take
	// along before a second read is cheaper.
	readGap = 32 << 10
)

var magic = [8]byte{'v', 'a', 'r', 'v', 'e', 'k', 'i', 'x'}

// fences describes the blocks of a base: what a lookup needs in memory.
type fences struct {
	wide bool
	hi   []uint64 // first key of each block
	lo   []uint64 // wide only
	off  []int64  // start of each block, and the end of the last
	n    []uint16
	tomb []int64 // smallest time of a tombstone in the block, MaxInt64 without one
}

func (f *fences) blocks() int { return len(f.hi) }

func (f *fences) first(b int) Key {
	k := Key{Hi: f.hi[b]}
	if f.wide {
		k.Lo = f.lo[b]
	}
	return k
}

// seek gives the last block at or after from whose first key is not above k,
// from-1 where from's is already above it.
func (f *fences) seek(from int, k Key) int {
	lo, i, step := from, from, 1
	for i < len(f.hi) && !k.Less(f.first(i)) {
		lo = i + 1
		i += step
		step <<= 1
	}
	end := min(i, len(f.hi))
	for lo < end {
		mid := int(uint(lo+end) >> 1)
		if k.Less(f.first(mid)) {
			end = mid
		} else {
			lo = mid + 1
		}
	}
	return lo - 1
}

// base is an open base file.
type base struct {
	fences
	file         vfs.File
	path         string
	size         int64
	blockEntries int
	files        []uint64 // by ordinal; ordinal 0 stands for tombstones
	rows         []uint64 // entries that name the ordinal
	entries      int64
	offset       int64
	horizon      int64
	oldestTomb   int64 // smallest tombstone time, MaxInt64 without one
}

func (b *base) tombstones() int64 { return int64(b.rows[0]) }

// openBase opens a base and checks everything but its blocks, which are
// checked as they are read.
func openBase(fs vfs.FS, path string, o *Options) (*base, error) {
	file, err := fs.Open(path, vfs.RandomReadsOption)
	if err != nil {
		return nil, fmt.Errorf("open key index base: %w", err)
	}
	b, err := readBase(file, path, o)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), file.Close())
	}
	return b, nil
}

func readBase(file vfs.File, path string, o *Options) (*base, error) {
	st, err := file.Stat()
	if err != nil {
		return nil, err
	}
	size := st.Size()
	if size < fileHeader+fileFooter {
		return nil, corruptf("base of %d bytes is shorter than its header and footer", size)
	}
	var head [fileHeader]byte
	var foot [fileFooter]byte
	if err := readFull(file, head[:], 0); err != nil {
		return nil, err
	}
	if err := readFull(file, foot[:], size-fileFooter); err != nil {
		return nil, err
	}
	le := binary.LittleEndian
	if !bytes.Equal(head[:8], magic[:]) {
		return nil, corruptf("base does not begin with its magic")
	}
	version, flags := le.Uint16(head[8:]), le.Uint16(head[10:])
	if version != formatVersion {
		return nil, fmt.Errorf("%w: %d, this binary reads %d; use a newer binary or rebuild the index", ErrVersion, version, formatVersion)
	}
	if !bytes.Equal(foot[88:], magic[:]) {
		return nil, corruptf("base does not end with its magic")
	}
	if got, want := crc32.Checksum(foot[:84], castagnoli), le.Uint32(foot[84:]); got != want {
		return nil, corruptf("footer checksum is %08x, the footer says %08x", got, want)
	}
	if le.Uint16(foot[80:]) != version || le.Uint16(foot[82:]) != flags || flags&^flagWide != 0 || le.Uint32(head[12:]) != 0 {
		return nil, corruptf("header and footer disagree")
	}
	b := &base{file: file, path: path, size: size}
	b.wide = flags&flagWide != 0
	trailerOff, trailerLen := le.Uint64(foot[0:]), le.Uint64(foot[8:])
	if trailerLen > uint64(size-fileHeader-fileFooter) || trailerOff != uint64(size)-fileFooter-trailerLen {
		return nil, corruptf("trailer of %d bytes at %d does not fit a file of %d bytes", trailerLen, trailerOff, size)
	}
	b.entries = int64(le.Uint64(foot[16:]))
	tombs := le.Uint64(foot[24:])
	b.offset = int64(le.Uint64(foot[32:]))
	b.horizon = int64(le.Uint64(foot[40:]))
	nblocks, nfiles := uint64(le.Uint32(foot[48:])), uint64(le.Uint32(foot[52:]))
	b.blockEntries = int(le.Uint32(foot[56:]))
	nid := uint64(le.Uint32(foot[60:]))
	perBlock := uint64(24)
	if b.wide {
		perBlock += 8
	}
	if trailerLen != nid+nblocks*perBlock+nfiles*16 || nfiles == 0 {
		return nil, corruptf("trailer of %d bytes for %d blocks and %d files", trailerLen, nblocks, nfiles)
	}
	trailer := make([]byte, trailerLen)
	if err := readFull(file, trailer, int64(trailerOff)); err != nil {
		return nil, err
	}
	if got, want := crc32.Checksum(trailer, castagnoli), le.Uint32(foot[64:]); got != want {
		return nil, corruptf("trailer checksum is %08x, the footer says %08x", got, want)
	}
	if o != nil {
		if !bytes.Equal(trailer[:nid], o.Identity) {
			return nil, fmt.Errorf("%w: its identity of %d bytes is not the %d bytes expected", ErrForeign, nid, len(o.Identity))
		}
		if b.wide != o.Wide {
			return nil, fmt.Errorf("%w: wide keys is %v, expected %v", ErrForeign, b.wide, o.Wide)
		}
	}
	if err := b.readTrailer(trailer[nid:], int(nblocks), int(nfiles)); err != nil {
		return nil, err
	}
	if b.off[nblocks] != int64(trailerOff) {
		return nil, corruptf("blocks end at %d, the trailer begins at %d", b.off[nblocks], trailerOff)
	}
	if tombs != b.rows[0] {
		return nil, corruptf("footer counts %d tombstones, the file table %d", tombs, b.rows[0])
	}
	return b, nil
}

func (b *base) readTrailer(t []byte, nblocks, nfiles int) error {
	le := binary.LittleEndian
	b.hi = make([]uint64, nblocks)
	if b.wide {
		b.lo = make([]uint64, nblocks)
	}
	b.off = make([]int64, nblocks+1)
	b.n = make([]uint16, nblocks)
	b.tomb = make([]int64, nblocks)
	b.oldestTomb = math.MaxInt64
	b.off[0] = fileHeader
	var entries int64
	for i := 0; i < nblocks; i++ {
		b.hi[i] = le.Uint64(t)
		t = t[8:]
		if b.wide {
			b.lo[i] = le.Uint64(t)
			t = t[8:]
		}
		size := le.Uint32(t)
		b.n[i] = le.Uint16(t[4:])
		b.tomb[i] = int64(le.Uint64(t[8:]))
		if le.Uint16(t[6:]) != 0 || b.n[i] == 0 || b.n[i] > maxBlock || size < blockHeader || size > maxBlockBytes {
			return corruptf("block %d of %d: %d bytes, %d entries", i, nblocks, size, b.n[i])
		}
		if i > 0 && !b.first(i-1).Less(b.first(i)) {
			return corruptf("block %d of %d does not sort after the one before it", i, nblocks)
		}
		t = t[16:]
		b.off[i+1] = b.off[i] + int64(size)
		b.oldestTomb = min(b.oldestTomb, b.tomb[i])
		entries += int64(b.n[i])
	}
	b.files = make([]uint64, nfiles)
	b.rows = make([]uint64, nfiles)
	var rows uint64
	for i := range b.files {
		b.files[i], b.rows[i] = le.Uint64(t), le.Uint64(t[8:])
		t = t[16:]
		if (i == 0) != (b.files[i] == 0) || b.rows[i] > uint64(entries) {
			return corruptf("file table entry %d of %d", i, nfiles)
		}
		rows += b.rows[i]
	}
	if entries != b.entries || rows != uint64(entries) {
		return corruptf("footer counts %d entries, the blocks %d, the file table %d", b.entries, entries, rows)
	}
	return nil
}

// readFull reads exactly; a file that ends early is damage, not end of data.
func readFull(r io.ReaderAt, p []byte, off int64) error {
	n, err := r.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return corruptf("%d bytes at %d, the file ends after %d of them", len(p), off, n)
	}
	return fmt.Errorf("read %d bytes at %d: %w", len(p), off, err)
}

// blockAt parses block i out of buf, the file's bytes from off on.
func (b *base) blockAt(i int, buf []byte, off int64, blk *block) error {
	err := blk.parse(buf[b.off[i]-off:b.off[i+1]-off], b.wide)
	if err == nil && (blk.n != int(b.n[i]) || blk.first(0) != b.hi[i] || b.wide && blk.loAt(0) != b.lo[i]) {
		err = corruptf("block differs from its place in the trailer")
	}
	if err != nil {
		return fmt.Errorf("%s: block %d at %d: %w", b.path, i, b.off[i], err)
	}
	return nil
}

// blockKeys says which of the looked-up keys fall into a block.
type blockKeys struct {
	block    int
	from, to int
}

// baseScratch is the memory that lookups use again and again.
type baseScratch struct {
	buf   []byte
	plan  []blockKeys
	block block
}

// lookup answers every key of todo.
func (b *base) lookup(keys []Key, todo []int32, out []Found, horizon int64, s *baseScratch) error {
	i, at := 0, 0
	for i < len(todo) && b.blocks() > 0 && keys[todo[i]].Less(b.first(0)) {
		k := keys[todo[i]]
		out[todo[i]] = Found{Entry: Entry{Key: k}}
		i++
	}
	for i < len(todo) {
		if b.blocks() == 0 {
			out[todo[i]] = Found{Entry: Entry{Key: keys[todo[i]]}}
			i++
			continue
		}
		// Plan one read: neighbouring blocks that hold keys.
		s.plan = s.plan[:0]
		start := int64(0)
		for i < len(todo) {
			at = b.seek(at, keys[todo[i]])
			if len(s.plan) == 0 {
				start = b.off[at]
			} else if last := s.plan[len(s.plan)-1].block; b.off[at+1]-start > readSpan || b.off[at]-b.off[last+1] > readGap {
				break
			}
			from := i
			if at+1 < b.blocks() {
				next := b.first(at + 1)
				for i < len(todo) && keys[todo[i]].Less(next) {
					i++
				}
			} else {
				i = len(todo)
			}
			s.plan = append(s.plan, blockKeys{at, from, i})
		}
		last := s.plan[len(s.plan)-1].block
		buf := sized(&s.buf, int(b.off[last+1]-start))
		if err := readFull(b.file, buf, start); err != nil {
			return fmt.Errorf("%s: %w", b.path, err)
		}
		for _, p := range s.plan {
			blk := &s.block
			if err := b.blockAt(p.block, buf, start, blk); err != nil {
				return err
			}
			seek := blk.seeker()
			for _, x := range todo[p.from:p.to] {
				f := &out[x]
				k := keys[x]
				f.Key, f.Pending, f.Present = k, false, false
				place := seek.find(k)
				if place >= 0 {
					present, err := blk.entry(place, b.files, horizon, &f.Entry)
					if err != nil {
						return fmt.Errorf("%s: block %d at %d: %w", b.path, p.block, b.off[p.block], err)
					}
					f.Present = present
				}
				if !f.Present {
					*f = Found{Entry: Entry{Key: k}}
				}
			}
		}
	}
	return nil
}

// sized gives n bytes of *buf, grown in steps so that it settles.
func sized(buf *[]byte, n int) []byte {
	if cap(*buf) < n {
		*buf = make([]byte, max(n, readSpan+readSpan/4))
	}
	*buf = (*buf)[:cap(*buf)]
	return (*buf)[:n]
}

// scan reads the blocks in order, several with one read. each sees block i's
// bytes, parsed; they are good until it returns.
type scan struct {
	b          *base
	buf        []byte
	start, end int64
	block      block
}

func (s *scan) load(i int) error {
	b := s.b
	if b.off[i+1] > s.end || b.off[i] < s.start {
		last := i
		for last+1 < b.blocks() && b.off[last+2]-b.off[i] <= readSpan {
			last++
		}
		s.start, s.end = b.off[i], b.off[i]
		buf := sized(&s.buf, int(b.off[last+1]-b.off[i]))
		if err := readFull(b.file, buf, b.off[i]); err != nil {
			return fmt.Errorf("%s: %w", b.path, err)
		}
		s.end = b.off[last+1]
	}
	return b.blockAt(i, s.buf[:s.end-s.start], s.start, &s.block)
}

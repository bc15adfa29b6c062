package forward

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/varve-io/varve/schemas/dv"
)

const (
	// MaxInputs of a job: an ordinal is a byte.
	MaxInputs = 256
	// BlockRows is how many output rows a block holds.
	BlockRows = 1 << 16
	// MaxRows bounds the output rows of a job.
	MaxRows = 1 << 40

	magic     = "varveFM1"
	magicEnd  = "1MFevrav"
	footer    = 4 + 4 + len(magicEnd)
	maxHead   = 256 << 20
	maxTail   = 256 << 20
	maxCoding = codingFSE
)

// Errors that callers decide on.
var (
	// ErrCorrupt: the bytes are no forwarding map, or contradict themselves.
	ErrCorrupt = errors.New("corrupt forwarding map")
	// ErrCounts: what the job says of its rows does not add up (F4).
	ErrCounts = errors.New("the job's rows do not add up")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Input is a part of a data file that a job took.
type Input struct {
	File   uint64
	Lo, Hi uint32 // positions [Lo,Hi)
	// Dead is R: the positions of [Lo,Hi) that were dead when the job was
	// planned, a canonical position set; nil: none.
	Dead []byte
	// Rows is |L|, the rows that the job had to carry over.
	Rows uint64
}

// check holds an input against itself and gives its ranker, nil when R is empty.
func (in *Input) check() (*dv.Ranker, error) {
	if in.Lo > in.Hi || in.Hi > math.MaxInt32 {
		return nil, fmt.Errorf("%w: file %d: range [%d,%d)", ErrCorrupt, in.File, in.Lo, in.Hi)
	}
	if len(in.Dead) == 0 {
		if rows := uint64(in.Hi - in.Lo); rows != in.Rows {
			return nil, fmt.Errorf("%w: file %d: [%d,%d) has %d rows, not %d", ErrCounts, in.File, in.Lo, in.Hi, rows, in.Rows)
		}
		return nil, nil
	}
	stat, err := dv.Inspect(in.Dead)
	if err != nil {
		return nil, fmt.Errorf("%w: file %d: dead positions: %w", ErrCorrupt, in.File, err)
	}
	r, err := dv.NewRanker(in.Dead)
	if err != nil {
		return nil, fmt.Errorf("%w: file %d: dead positions: %w", ErrCorrupt, in.File, err)
	}
	if below, _ := r.Rank(in.Lo); below != 0 || stat.Count > 0 && stat.Max >= in.Hi {
		return nil, fmt.Errorf("%w: file %d: dead positions outside of [%d,%d)", ErrCorrupt, in.File, in.Lo, in.Hi)
	}
	if rows := uint64(in.Hi-in.Lo) - stat.Count; rows != in.Rows {
		return nil, fmt.Errorf("%w: file %d: [%d,%d) with %d dead has %d rows, not %d", ErrCounts, in.File, in.Lo, in.Hi, stat.Count, rows, in.Rows)
	}
	return r, nil
}

func appendHead(dst []byte, inputs []Input) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(inputs)))
	for i := range inputs {
		in := &inputs[i]
		dst = binary.LittleEndian.AppendUint64(dst, in.File)
		dst = binary.AppendUvarint(dst, uint64(in.Lo))
		dst = binary.AppendUvarint(dst, uint64(in.Hi))
		dst = binary.AppendUvarint(dst, in.Rows)
		dst = binary.AppendUvarint(dst, uint64(len(in.Dead)))
		dst = append(dst, in.Dead...)
	}
	return dst
}

// scan reads what appendHead and the tail wrote, and remembers the first fault.
type scan struct {
	b   []byte
	bad bool
}

func (s *scan) uv() uint64 {
	v, n := binary.Uvarint(s.b)
	if n <= 0 {
		s.bad, s.b = true, nil
		return 0
	}
	s.b = s.b[n:]
	return v
}

func (s *scan) take(n uint64) []byte {
	if n > uint64(len(s.b)) {
		s.bad, s.b = true, nil
		return nil
	}
	out := s.b[:n:n]
	s.b = s.b[n:]
	return out
}

func (s *scan) u8() byte {
	if b := s.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (s *scan) u32() uint32 {
	if b := s.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (s *scan) u64() uint64 {
	if b := s.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func readHead(b []byte) ([]Input, error) {
	s := scan{b: b}
	n := s.uv()
	if n == 0 || n > MaxInputs {
		return nil, fmt.Errorf("%w: %d inputs, from 1 to %d are possible", ErrCorrupt, n, MaxInputs)
	}
	out := make([]Input, n)
	for i := range out {
		in := &out[i]
		in.File = s.u64()
		lo, hi := s.uv(), s.uv()
		in.Rows = s.uv()
		if size := s.uv(); size > 0 {
			in.Dead = s.take(size)
		}
		if s.bad || lo > math.MaxInt32 || hi > math.MaxInt32 {
			return nil, fmt.Errorf("%w: input %d of %d", ErrCorrupt, i, n)
		}
		in.Lo, in.Hi = uint32(lo), uint32(hi)
	}
	if len(s.b) != 0 {
		return nil, fmt.Errorf("%w: %d bytes follow the inputs", ErrCorrupt, len(s.b))
	}
	return out, nil
}

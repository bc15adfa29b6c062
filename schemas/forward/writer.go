package forward

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
)

// Writer writes a map while the job's outputs are written: memory does not grow
// with their rows beyond a directory of some bytes a block and input.
type Writer struct {
	w       io.Writer
	inputs  []Input
	block   blockWriter
	pending []byte   // ordinals of the block under way
	counts  []uint32 // of one block
	done    []uint64 // rows seen of each input
	outputs []uint64
	rows    uint64 // of the output under way
	blocks  uint64
	dir     []byte
	frame   []byte
	err     error
}

// NewWriter begins a map; the inputs are those of the job, in the order of their
// ordinals. Errors wrap ErrCorrupt or ErrCounts where an input contradicts itself.
func NewWriter(w io.Writer, inputs []Input) (*Writer, error) {
	if len(inputs) == 0 || len(inputs) > MaxInputs {
		return nil, fmt.Errorf("a forwarding map of %d inputs: from 1 to %d are possible", len(inputs), MaxInputs)
	}
	total := uint64(0)
	for i := range inputs {
		if _, err := inputs[i].check(); err != nil {
			return nil, err
		}
		total += inputs[i].Rows
	}
	if total > MaxRows {
		return nil, fmt.Errorf("a forwarding map of %d rows: at most %d are possible", total, uint64(MaxRows))
	}
	head := appendHead(nil, inputs)
	if len(head) > maxHead {
		return nil, fmt.Errorf("a forwarding map with %d bytes of dead positions: at most %d are possible", len(head), maxHead)
	}
	out := append([]byte(magic), make([]byte, 4)...)
	binary.LittleEndian.PutUint32(out[len(magic):], uint32(len(head)))
	out = append(out, head...)
	out = binary.LittleEndian.AppendUint32(out, crc32.Checksum(head, castagnoli))
	if _, err := w.Write(out); err != nil {
		return nil, fmt.Errorf("write a forwarding map: %w", err)
	}
	return &Writer{
		w: w, inputs: inputs, pending: make([]byte, 0, BlockRows), counts: make([]uint32, len(inputs)), done: make([]uint64, len(inputs)),
	}, nil
}

// Append adds the next rows of the output under way: the ordinal of the input
// that each came from.
func (w *Writer) Append(ordinals []byte) error {
	w.rows += uint64(len(ordinals))
	for len(ordinals) > 0 && w.err == nil {
		n := min(len(ordinals), BlockRows-len(w.pending))
		w.pending = append(w.pending, ordinals[:n]...)
		ordinals = ordinals[n:]
		if len(w.pending) == BlockRows {
			w.err = w.flush()
		}
	}
	return w.err
}

// EndOutput ends the output under way; one without rows is possible.
func (w *Writer) EndOutput() {
	w.outputs = append(w.outputs, w.rows)
	w.rows = 0
}

func (w *Writer) flush() error {
	for _, o := range w.pending {
		if int(o) >= len(w.inputs) {
			return fmt.Errorf("%w: ordinal %d of %d inputs", ErrCounts, o, len(w.inputs))
		}
	}
	coding, payload, err := w.block.encode(w.pending, w.counts)
	if err != nil {
		return err
	}
	w.frame = append(append(w.frame[:0], coding), payload...)
	w.dir = append(w.dir, coding)
	w.dir = binary.AppendUvarint(w.dir, uint64(len(payload)))
	w.dir = binary.LittleEndian.AppendUint32(w.dir, crc32.Checksum(w.frame, castagnoli))
	for i, n := range w.counts {
		w.dir = binary.AppendUvarint(w.dir, uint64(n))
		w.done[i] += uint64(n)
	}
	w.blocks++
	w.pending = w.pending[:0]
	if _, err := w.w.Write(payload); err != nil {
		return fmt.Errorf("write a forwarding map: %w", err)
	}
	return nil
}

// Close ends the map. ErrCounts says that an input's rows were not all carried
// over, or more than it has (F4).
func (w *Writer) Close() error {
	if w.err != nil {
		return w.err
	}
	if w.rows > 0 {
		return fmt.Errorf("%w: %d rows belong to no output", ErrCounts, w.rows)
	}
	if len(w.pending) > 0 {
		if w.err = w.flush(); w.err != nil {
			return w.err
		}
	}
	for i := range w.inputs {
		if w.done[i] != w.inputs[i].Rows {
			return fmt.Errorf("%w: %d of the %d rows of input %d (file %d) were written", ErrCounts, w.done[i], w.inputs[i].Rows, i, w.inputs[i].File)
		}
	}
	tail := binary.AppendUvarint(nil, uint64(len(w.outputs)))
	for _, n := range w.outputs {
		tail = binary.AppendUvarint(tail, n)
	}
	tail = binary.AppendUvarint(tail, w.blocks)
	tail = append(tail, w.dir...)
	if len(tail) > maxTail {
		return fmt.Errorf("a forwarding map with a directory of %d bytes: at most %d are possible", len(tail), maxTail)
	}
	sum := crc32.Checksum(tail, castagnoli)
	tail = binary.LittleEndian.AppendUint32(tail, uint32(len(tail)))
	tail = binary.LittleEndian.AppendUint32(tail, sum)
	tail = append(tail, magicEnd...)
	if _, err := w.w.Write(tail); err != nil {
		return fmt.Errorf("write a forwarding map: %w", err)
	}
	return nil
}

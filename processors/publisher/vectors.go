package publisher

import (
	"bytes"
	"context"
	"fmt"
	"strconv"

	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/puffin"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

// published is where the vectors of a cut lie.
type published struct {
	puffins []record.PuffinInfo
	vectors []record.VectorInfo         // ascending by file; Manifest is not set yet
	files   map[uint64]iceberg.DataFile // by data file
	bytes   int64
}

// vectorsPerPuffin is the table's own limit, or the default.
func vectorsPerPuffin(f *statestore.FrozenCut) int {
	n, err := strconv.Atoi(f.Definition.Property(PropertyVectorsPerPuffin))
	if err != nil || n < 1 {
		return DefaultVectorsPerPuffin
	}
	return min(n, DefaultVectorsPerPuffin)
}

// writePuffins writes every changed vector (V1–V3). A vector holds all dead
// positions of its file, so it is a superset of the one it replaces (V5).
func (p *Publisher) writePuffins(ctx context.Context, f *statestore.FrozenCut, n *next) (*published, error) {
	out := &published{files: map[uint64]iceberg.DataFile{}}
	limit := vectorsPerPuffin(f)
	var buf bytes.Buffer
	var w *puffin.Writer
	var open []uint64 // data files of the Puffin being written
	finish := func() error {
		if w == nil {
			return nil
		}
		size, err := w.Close()
		if err != nil {
			return err
		}
		path := n.path(n.attempt.PuffinName(n.id, len(out.puffins)))
		if err := p.create(ctx, path, buf.Bytes()); err != nil {
			return err
		}
		for _, id := range open {
			d := out.files[id]
			d.Path, d.Bytes = path, size
			out.files[id] = d
		}
		out.puffins = append(out.puffins, record.PuffinInfo{Path: path, Bytes: size})
		out.bytes += size
		buf.Reset()
		w, open = nil, open[:0]
		return nil
	}
	for i := range f.Files {
		x := &f.Files[i]
		if x.Dead == nil {
			continue
		}
		if err := checkVector(n, x); err != nil {
			return nil, err
		}
		if len(open) >= limit || buf.Len() >= MaxPuffinBytes {
			if err := finish(); err != nil {
				return nil, err
			}
		}
		if w == nil {
			w = puffin.NewWriter(&buf, puffin.DefaultCreatedBy)
		}
		path := dataPath(f, x)
		blob, err := w.AddVector(path, x.Dead)
		if err != nil {
			return nil, fmt.Errorf("%w: file %d: %w", ErrInconsistent, x.ID, err)
		}
		open = append(open, x.ID)
		offset, length := blob.Offset, blob.Length // copies: a cached entry must not hold on to the blob
		out.files[x.ID] = iceberg.DataFile{
			Content: iceberg.PositionDeletes, Format: iceberg.FormatPuffin, SpecID: x.SpecID, Partition: x.Partition,
			Records: x.DeadCount, ReferencedDataFile: &path, ContentOffset: &offset, ContentSize: &length,
		}
		out.vectors = append(out.vectors, record.VectorInfo{
			File: x.ID, Puffin: int32(len(out.puffins)), Offset: blob.Offset, Length: blob.Length, Cardinality: x.DeadCount,
		})
	}
	return out, finish()
}

// checkVector asserts what readers rely on (V1, V5, V7).
func checkVector(n *next, x *statestore.FrozenFile) error {
	count, err := dv.Count(x.Dead)
	switch {
	case err != nil:
		return fmt.Errorf("%w: dead positions of file %d: %w", ErrInconsistent, x.ID, err)
	case count == 0 || int64(count) != x.DeadCount:
		return fmt.Errorf("%w: the vector of file %d has %d positions, the state counts %d", ErrInconsistent, x.ID, count, x.DeadCount)
	case x.DeadCount >= x.Rows:
		return fmt.Errorf("%w: all %d rows of file %d are dead, but it stays (V7)", ErrInconsistent, x.Rows, x.ID)
	case !x.Added && x.Sequence > n.sequence:
		return fmt.Errorf("%w: file %d has sequence number %d, its vector would have %d (V5)", ErrInconsistent, x.ID, x.Sequence, n.sequence)
	case x.Vector != nil && x.Vector.Cardinality >= x.DeadCount:
		return fmt.Errorf("%w: the vector of file %d would shrink from %d to %d positions (V5)", ErrInconsistent, x.ID, x.Vector.Cardinality, x.DeadCount)
	}
	return nil
}

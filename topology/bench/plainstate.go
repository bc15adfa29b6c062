package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/cockroachdb/pebble/v2"

	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

// plainState keeps references in the way that comes to mind first: a key per
// file, one per file in an index by partition, one per outcome, and a vector
// per file that is read, changed and written. It checks nothing.
type plainState struct {
	db  *pebble.DB
	b   *pebble.Batch
	rec record.AppendRows
}

func openPlainState(dir string, wal bool, log *slog.Logger) (*plainState, error) {
	db, err := pebble.Open(dir, &pebble.Options{DisableWAL: !wal, MemTableSize: 16 << 20, MemTableStopWritesThreshold: 4, Logger: quietPebble{log}})
	if err != nil {
		return nil, fmt.Errorf("open the plain state: %w", err)
	}
	return &plainState{db: db}, nil
}

func (p *plainState) close() error {
	var err error
	if p.b != nil {
		err = p.b.Close()
	}
	return errors.Join(err, p.db.Close())
}

func plainKey(space byte, numbers ...uint64) []byte {
	k := []byte{space}
	for _, n := range numbers {
		k = binary.BigEndian.AppendUint64(k, n)
	}
	return k
}

// apply adds a record to the batch, and returns its outcome.
func (p *plainState) apply(r *statestore.Record) ([]byte, error) {
	if p.b == nil {
		p.b = p.db.NewIndexedBatch()
	}
	var env record.Envelope
	if err := record.DecodeEnvelope(r.Key, r.Header, r.Value, &env); err != nil {
		return nil, err
	}
	if err := p.rec.Decode(env.Body); err != nil {
		return nil, err
	}
	table := uint64(env.TableID)
	for i := range p.rec.Files {
		f := &p.rec.Files[i]
		v := binary.AppendVarint(nil, f.Rows)
		v = binary.AppendVarint(v, f.Bytes)
		v = binary.AppendVarint(v, r.Offset)
		err := errors.Join(p.b.Set(plainKey('f', table, f.ID), v, nil), p.b.Set(plainKey('p', table, uint64(f.SpecID), f.ID), nil, nil))
		if err != nil {
			return nil, fmt.Errorf("write the plain state: %w", err)
		}
	}
	for i := range p.rec.Deletes {
		if err := p.kill(table, &p.rec.Deletes[i]); err != nil {
			return nil, err
		}
	}
	outcome := binary.AppendVarint([]byte{1}, r.Offset)
	if err := p.b.Set(plainKey('o', uint64(r.Offset)), outcome, nil); err != nil {
		return nil, fmt.Errorf("write the plain state: %w", err)
	}
	return outcome, nil
}

func (p *plainState) kill(table uint64, d *record.DeleteBlock) error {
	k := plainKey('d', table, d.File)
	dead, more := roaring.New(), roaring.New()
	old, closer, err := p.b.Get(k)
	switch {
	case err == nil:
		err = errors.Join(dead.UnmarshalBinary(old), closer.Close())
	case errors.Is(err, pebble.ErrNotFound):
		err = nil
	}
	if err == nil {
		err = more.UnmarshalBinary(d.Bitmap)
	}
	if err != nil {
		return fmt.Errorf("read the plain state: %w", err)
	}
	dead.Or(more)
	dead.RunOptimize()
	b, err := dead.ToBytes()
	if err == nil {
		err = p.b.Set(k, b, nil)
	}
	if err != nil {
		return fmt.Errorf("write the plain state: %w", err)
	}
	return nil
}

func (p *plainState) commit(o *pebble.WriteOptions) error {
	if p.b == nil {
		return nil
	}
	b := p.b
	p.b = nil
	if err := b.Commit(o); err != nil {
		return fmt.Errorf("write the plain state: %w", err)
	}
	return nil
}

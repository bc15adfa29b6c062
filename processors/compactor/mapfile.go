package compactor

import (
	"context"
	"fmt"

	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore/objstore"
)

// mapFile takes a forwarding map. One of up to limit bytes is for the completion
// itself (F23); a larger one becomes an object as it grows.
type mapFile struct {
	ctx   context.Context
	store objstore.Store
	path  func() string
	limit int

	small  []byte
	key    string
	object objstore.Writer // nil: all of it is in small
}

func (f *mapFile) Write(b []byte) (int, error) {
	if f.object == nil {
		if len(f.small)+len(b) <= f.limit {
			f.small = append(f.small, b...)
			return len(b), nil
		}
		f.key = f.path()
		var err error
		if f.object, err = f.store.Writer(f.ctx, f.key); err != nil {
			return 0, fmt.Errorf("write a forwarding map: %w", err)
		}
		if _, err := f.object.Write(f.small); err != nil {
			return 0, fmt.Errorf("write a forwarding map: %w", err)
		}
	}
	return f.object.Write(b)
}

// commit makes the map durable, or finds that the completion will be that.
func (f *mapFile) commit(length int64, hash record.Hash) (record.Ref, error) {
	if f.object == nil {
		ref, ok := record.InlineMap(f.small)
		if !ok || ref.Length != length || ref.Hash != hash {
			return ref, fmt.Errorf("a forwarding map of %d bytes has %d", length, len(f.small))
		}
		return ref, nil
	}
	if err := f.object.Commit(); err != nil {
		return record.Ref{}, fmt.Errorf("write a forwarding map: %w", err)
	}
	return record.Ref{Path: f.key, Length: length, Hash: hash}, nil
}

func (f *mapFile) abort() error {
	if f.object == nil {
		return nil
	}
	return f.object.Abort()
}

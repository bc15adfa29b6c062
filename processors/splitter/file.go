package splitter

import (
	"bytes"
	"context"
	"fmt"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/statestore/objstore"
)

// keyReadAhead is how much of a key column is read at a time: about a page.
const keyReadAhead = 64 << 10

// sorted is a data file whose rows ascend by key.
type sorted struct {
	ref    *Ref
	object objstore.Object
	file   *rows.File
	keys   *rows.KeyEncoder
	fields []schemas.Field

	// The rows at hand, from row first on.
	first int64
	data  []byte
	ends  []int
}

func (x *Splitter) open(ctx context.Context, ref *Ref) (*sorted, error) {
	key, ok := x.Store.Key(ref.Path)
	if !ok {
		return nil, fmt.Errorf("data file %s is not in the warehouse %s", ref.Path, x.Store.Location(""))
	}
	object, err := x.Store.Open(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("read data file %s: %w", ref.Path, err)
	}
	f := &sorted{ref: ref, object: object, keys: x.keys, fields: x.fields}
	if f.file, err = rows.Open(object, object.Size()); err == nil && (f.file.NumRows() != ref.Rows || ref.Lo < 0 || ref.Lo >= ref.Hi || ref.Hi > ref.Rows) {
		err = fmt.Errorf("it has %d rows, the state knows [%d,%d) of %d", f.file.NumRows(), ref.Lo, ref.Hi, ref.Rows)
	}
	if err != nil {
		_ = object.Close() // the file was only read
		return nil, fmt.Errorf("data file %s: %w", ref.Path, err)
	}
	return f, nil
}

func (f *sorted) close() error { return f.object.Close() }

// at is the key of a row. It is good until the next call.
func (f *sorted) at(row int64) ([]byte, error) {
	if row < f.first || row >= f.first+int64(len(f.ends)) {
		if err := f.load(row); err != nil {
			return nil, fmt.Errorf("data file %s: %w", f.ref.Path, err)
		}
	}
	i, from := int(row-f.first), 0
	if i > 0 {
		from = f.ends[i-1]
	}
	return f.data[from:f.ends[i]], nil
}

// load reads some rows' keys: those of a page from row on.
func (f *sorted) load(row int64) error {
	scan, err := f.file.Scan(f.fields, row, f.ref.Hi, keyReadAhead)
	if err != nil {
		return err
	}
	parts := make([]*rows.Part, len(f.fields))
	for i := range parts {
		parts[i] = scan.Part(i)
	}
	n, err := scan.Next(maxLoad)
	if err != nil {
		return err
	}
	f.first, f.data, f.ends = row, f.data[:0], f.ends[:0]
	for i := range n {
		if f.data, err = f.keys.AppendParts(f.data, parts, i); err != nil {
			return err
		}
		f.ends = append(f.ends, len(f.data))
	}
	return nil
}

// maxLoad bounds how many keys are made at a time: a search asks for few of them.
const maxLoad = 256

// below is the first row from lo on whose key is not below a key.
func (f *sorted) below(key []byte, lo int64) (int64, error) {
	hi := f.ref.Hi
	for lo < hi {
		mid := lo + (hi-lo)/2
		k, err := f.at(mid)
		if err != nil {
			return 0, err
		}
		if bytes.Compare(k, key) < 0 {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, nil
}

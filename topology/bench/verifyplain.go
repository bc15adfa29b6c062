package bench

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/varve-io/varve/statestore/objstore"
)

// countPlainly counts rows by the footers of data files, then distinct values of
// their first column.
func countPlainly(ctx context.Context, lake string) (*countReport, error) {
	store, err := objstore.Open(ctx, lake)
	if err != nil {
		return nil, err
	}
	var keys []string
	if err := store.List(ctx, "", func(i objstore.Info) error {
		if strings.HasSuffix(i.Key, ".parquet") {
			keys = append(keys, i.Key)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	c := &countReport{}
	began := time.Now()
	if err := eachParquet(ctx, store, keys, func(f *parquet.File) error {
		c.Rows += f.NumRows()
		return nil
	}); err != nil {
		return nil, err
	}
	c.Count = time.Since(began).Seconds()
	began = time.Now()
	seen := map[int64]struct{}{}
	values := make([]parquet.Value, 4096)
	if err := eachParquet(ctx, store, keys, func(f *parquet.File) error {
		for _, g := range f.RowGroups() {
			if err := firstColumn(g, values, seen); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	c.Keys = time.Since(began).Seconds()
	if c.RSSPeak, err = rssPeak(); err != nil {
		return nil, err
	}
	return c, nil
}

func eachParquet(ctx context.Context, store objstore.Store, keys []string, fn func(*parquet.File) error) error {
	for _, k := range keys {
		obj, err := store.Open(ctx, k)
		if err != nil {
			return err
		}
		f, err := parquet.OpenFile(obj, obj.Size())
		if err == nil {
			err = fn(f)
		}
		if closed := obj.Close(); err == nil {
			err = closed
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", k, err)
		}
	}
	return nil
}

func firstColumn(g parquet.RowGroup, values []parquet.Value, seen map[int64]struct{}) (err error) {
	pages := g.ColumnChunks()[0].Pages()
	defer func() {
		if closed := pages.Close(); err == nil {
			err = closed
		}
	}()
	for left := g.ColumnChunks()[0].NumValues(); left > 0; {
		p, err := pages.ReadPage()
		if err != nil {
			return err
		}
		in := p.Values()
		for n := p.NumValues(); n > 0; {
			k, err := in.ReadValues(values)
			for i := range k {
				seen[values[i].Int64()] = struct{}{}
			}
			n -= int64(k)
			if err != nil && n > 0 {
				return err
			}
		}
		left -= p.NumValues()
	}
	return nil
}

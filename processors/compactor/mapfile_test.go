package compactor

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"testing"

	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore/objstore"
)

// TestMapFile: a map of up to the limit needs no object; one byte more makes it one,
// of all its bytes, however it was written (F23).
func TestMapFile(t *testing.T) {
	const key = "_varve/x/maps/one"
	for _, limit := range []int{-1, 1, 100, record.MaxInlineMap} {
		for _, size := range []int{1, 99, 100, 101, record.MaxInlineMap, record.MaxInlineMap + 1} {
			for _, step := range []int{1, 7, size} {
				mem, ctx := objstore.NewMem(), context.Background()
				f := &mapFile{ctx: ctx, store: mem, path: func() string { return key }, limit: limit}
				b := bytes.Repeat([]byte("map"), size)[:size]
				for at := 0; at < size; at += step {
					if n, err := f.Write(b[at:min(at+step, size)]); err != nil || n != min(step, size-at) {
						t.Fatal(n, err)
					}
				}
				ref, err := f.commit(int64(size), sha256.Sum256(b))
				if err != nil {
					t.Fatal(err)
				}
				if ref.Inline() != (size <= limit) || ref.Length != int64(size) || ref.Hash != sha256.Sum256(b) {
					t.Fatalf("%d bytes under a limit of %d: %+v", size, limit, ref)
				}
				got, err := mem.ReadAll(ctx, key, 1<<20)
				if ref.Inline() {
					if !errors.Is(err, objstore.ErrNotFound) {
						t.Fatalf("there is an object beside an inline map: %v", err)
					}
					got, err = ref.OpenInline()
				} else if ref.Path != key {
					t.Fatal(ref.Path)
				}
				if err != nil || !bytes.Equal(got, b) {
					t.Fatalf("%d bytes under a limit of %d come back as %d: %v", size, limit, len(got), err)
				}
				if err := f.abort(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// TestMapFileFails: a store that takes no object is told, and nothing is left.
func TestMapFileFails(t *testing.T) {
	mem, away := objstore.NewMem(), errors.New("away")
	mem.SetHook(func(objstore.Call) error { return away })
	f := &mapFile{ctx: context.Background(), store: mem, path: func() string { return "_varve/x/maps/one" }, limit: 10}
	_, err := f.Write(make([]byte, 11))
	if err == nil {
		_, err = f.commit(11, sha256.Sum256(make([]byte, 11)))
	}
	if !errors.Is(err, away) {
		t.Error(err)
	}
	if err := f.abort(); err != nil {
		t.Error(err)
	}
	small := &mapFile{limit: 10}
	if _, err := small.Write([]byte("map")); err != nil {
		t.Fatal(err)
	}
	if _, err := small.commit(4, sha256.Sum256([]byte("map"))); err == nil {
		t.Error("a map of another length than was counted is told of")
	}
}

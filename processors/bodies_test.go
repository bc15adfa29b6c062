package processors_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore/objstore"
)

// L10: what is there is never void, what is void stays so, and each entry is of
// one record alone.
func TestVoid(t *testing.T) {
	ctx := context.Background()
	s, err := objstore.Open(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b := processors.NewBodies(s, "d")
	ref, err := b.Put(ctx, []byte("a body"))
	if err != nil {
		t.Fatal(err)
	}
	voided := func(partition int32, offset int64, hash record.Hash, want bool) {
		t.Helper()
		if got, err := b.Voided(ctx, partition, offset, hash); err != nil || got != want {
			t.Errorf("voided(%d, %d): %v %v, want %v", partition, offset, got, err, want)
		}
	}
	if err := b.Void(ctx, 1, 7, &ref); !errors.Is(err, processors.ErrNotLost) {
		t.Errorf("a body that is there: %v", err)
	}
	altered := ref
	altered.Length++
	if err := b.Void(ctx, 1, 7, &altered); !errors.Is(err, processors.ErrNotLost) {
		t.Errorf("a body of other bytes: %v", err)
	}
	voided(1, 7, ref.Hash, false)
	if err := s.Delete(ctx, ref.Path); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := b.Void(ctx, 1, 7, &ref); err != nil {
			t.Error(err)
		}
	}
	voided(1, 7, ref.Hash, true)
	voided(1, 8, ref.Hash, false)
	voided(0, 7, ref.Hash, false)
	voided(1, 7, record.Hash{1}, false)
	if _, err := b.Put(ctx, []byte("a body")); err != nil {
		t.Fatal(err)
	}
	voided(1, 7, ref.Hash, true)

	inline, _ := record.InlineMap([]byte("a map"))
	if err := b.Void(ctx, 1, 7, &inline); !errors.Is(err, processors.ErrNotLost) {
		t.Errorf("what stands in the record: %v", err)
	}
	if m, err := b.Map(ctx, &inline); err != nil || string(m) != "a map" {
		t.Errorf("what stands in the record is %q, %v", m, err)
	}
	if m, err := b.Map(ctx, &ref); err != nil || string(m) != "a body" {
		t.Errorf("an object is %q, %v", m, err)
	}

	var keys []string
	if err := s.List(ctx, "_varve/d/void/", func(i objstore.Info) error { keys = append(keys, i.Key); return nil }); err != nil || len(keys) != 1 {
		t.Fatalf("%v %v", keys, err)
	}
	if err := s.Replace(ctx, keys[0], []byte(strings.Repeat("x", 5000))); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Voided(ctx, 1, 7, ref.Hash); !errors.Is(err, processors.ErrBodyAltered) {
		t.Errorf("an entry of other bytes: %v", err)
	}
}

package collector

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/objstore"
)

type catalogOf []int64

func (c catalogOf) Snapshots(context.Context, *statestore.TableInfo) ([]int64, error) { return c, nil }

// Nothing is deleted while the catalog has a snapshot that the log does not know,
// and not before the grace has passed (G2, G7).
func TestDeletion(t *testing.T) {
	ctx := context.Background()
	mem := objstore.NewMem()
	table := &statestore.TableInfo{Name: "t", Snapshots: []statestore.SnapshotRef{{ID: 7}, {ID: 9}}}
	c := New(Config{Store: mem, Catalog: catalogOf{7, 9, 8}})
	if err := c.CheckCatalog(ctx, table); !errors.Is(err, ErrCatalogAhead) || !strings.Contains(err.Error(), "snapshot 8") {
		t.Errorf("a snapshot of somebody else: %v", err)
	}
	c = New(Config{Store: mem, Catalog: catalogOf{9}})
	if err := c.CheckCatalog(ctx, table); err != nil {
		t.Error(err)
	}
	x := &statestore.Collection{Offset: 5, TimeMs: 1000, Objects: []string{mem.Location("t/data/a.parquet"), mem.Location("t/data/gone.parquet")}}
	if at := time.UnixMilli(1000).Add(DefaultGrace); c.Due(x, at.Add(-time.Millisecond)) || !c.Due(x, at) {
		t.Error("the grace is not an hour")
	}
	if c := New(Config{Grace: -1}); !c.Due(x, time.UnixMilli(1000)) {
		t.Error("without a grace it is due at once")
	}
	for _, key := range []string{"t/data/a.parquet", "t/data/b.parquet"} {
		if err := mem.Create(ctx, key, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // what is not there is no error
		done, err := c.Delete(ctx, table, x)
		if err != nil || done.Collect != 5 {
			t.Fatalf("%+v, %v", done, err)
		}
	}
	var left []string
	if err := mem.List(ctx, "", func(i objstore.Info) error {
		left = append(left, i.Key)
		return nil
	}); err != nil || len(left) != 1 || left[0] != "t/data/b.parquet" {
		t.Errorf("left: %v, %v", left, err)
	}
	x.Objects = append(x.Objects, "s3://elsewhere/t/data/b.parquet")
	if _, err := c.Delete(ctx, table, x); err == nil || !strings.Contains(err.Error(), "does not lie in the store") {
		t.Errorf("an object of another store: %v", err)
	}
}

// A table's folder is not listed at once, and then once in so long; a property
// leaves a table alone.
func TestWhen(t *testing.T) {
	c, now := New(Config{}), time.UnixMilli(0)
	for _, s := range []struct {
		after time.Duration
		want  bool
	}{{0, false}, {time.Hour, false}, {6 * time.Hour, true}, {7 * time.Hour, false}, {12 * time.Hour, true}} {
		if got := c.SweepDue(1, now.Add(s.after), 6*time.Hour); got != s.want {
			t.Errorf("after %s: %t", s.after, got)
		}
	}
	table := &statestore.TableInfo{Definition: &schemas.Definition{}}
	if Paused(table) {
		t.Error("paused by nothing")
	}
	table.Definition.Properties = []schemas.Property{{Key: PropertyPaused, Value: "true"}}
	if !Paused(table) {
		t.Error("not paused")
	}
}

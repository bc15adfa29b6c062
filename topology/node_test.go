package topology

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/varve-io/varve/schemas"
)

func testDefinition(name string) schemas.Definition {
	return schemas.Definition{
		Name: name, FormatVersion: 3, Mode: schemas.ModeDV,
		Schemas: []schemas.Schema{{ID: 0, Identifier: []int32{1}, Fields: []schemas.Field{
			{ID: 1, Name: "id", Type: schemas.Of(schemas.Long), Required: true},
			{ID: 2, Name: "v", Type: schemas.Of(schemas.Long)},
		}}},
		LastColumnID: 2, Specs: []schemas.Spec{{}}, LastPartitionID: 999, Key: []int32{1},
		SourceTopic: name, Format: "rows-json", CommitIntervalMs: 100, TombstoneTTLMs: 1 << 40,
		RetentionMs: schemas.DefaultRetentionMs, RetentionCount: schemas.DefaultRetentionCount,
	}
}

// rowEvents gives n upserts of id i mod keys with value i.
func rowEvents(n, keys int) func() (*SourceEvent, error) {
	i := 0
	return func() (*SourceEvent, error) {
		if i == n {
			return nil, io.EOF
		}
		k := fmt.Appendf(nil, `{"id":%d}`, i%keys)
		v := fmt.Appendf(nil, `{"id":%d,"v":%d}`, i%keys, i)
		i++
		return &SourceEvent{Key: k, Value: v, Partition: -1}, nil
	}
}

func TestNodeLoads(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	dir := t.TempDir()
	log := slog.New(slog.NewTextHandler(testWriter{t}, nil))
	n, err := OpenNode(ctx, NodeOptions{Data: dir, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Produce(ctx, "t", 2, rowEvents(1000, 100), nil); err != nil {
		t.Fatal(err)
	}
	info, created, err := n.EnsureTable(ctx, testDefinition("t"))
	if err != nil || !created {
		t.Fatalf("created %v: %v", created, err)
	}
	if err := n.Ingest(ctx, info); err != nil {
		t.Fatal(err)
	}
	if err := n.WaitLoaded(ctx, "t", nil); err != nil {
		t.Fatal(err)
	}
	info, err = n.Table(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	if live := info.Rows - info.Dead; live != 100 {
		t.Fatalf("%d live rows, want 100", live)
	}
	t.Logf("head %+v, files %d", info.Head, info.Files)
	if err := n.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("%s", p)
	return len(p), nil
}

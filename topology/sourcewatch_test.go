package topology

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
)

// startNode starts a node on the embedded broker of a folder.
func startNode(ctx context.Context, t *testing.T, dir string) *Node {
	t.Helper()
	n, err := OpenNode(ctx, NodeOptions{Data: dir, Logger: slog.New(slog.NewTextHandler(testWriter{t}, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(ctx); err != nil {
		t.Fatal(errors.Join(err, n.Close(ctx)))
	}
	return n
}

func ingestTable(ctx context.Context, t *testing.T, n *Node, d schemas.Definition) {
	t.Helper()
	info, _, err := n.EnsureTable(ctx, d)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Ingest(ctx, info); err != nil {
		t.Fatal(err)
	}
	if err := n.WaitLoaded(ctx, d.Name, nil); err != nil {
		t.Fatal(err)
	}
}

// TestSourceGrows: a keyed table's topic that gained partitions is refused
// while the node runs and at a start (A6): keys of old partitions would get
// second rows. A table without a key takes the new partitions.
func TestSourceGrows(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	dir := t.TempDir()
	n := startNode(ctx, t, dir)
	keyless := testDefinition("log")
	keyless.Key, keyless.Schemas[0].Identifier = nil, nil
	keyless.Schemas[0].Fields[0].Required = false
	for _, d := range []schemas.Definition{testDefinition("t"), keyless} {
		if _, err := n.Produce(ctx, d.Name, 2, rowEvents(100, 10), nil); err != nil {
			t.Fatal(err)
		}
		ingestTable(ctx, t, n, d)
	}
	grow := func(topic string) {
		t.Helper()
		res, err := n.admin.adm.UpdatePartitions(ctx, 3, topic)
		if err == nil {
			err = res.Error()
		}
		if err != nil {
			t.Fatal(err)
		}
	}

	grow("log")
	watched := make(chan error, 1)
	go func() { watched <- n.watchSources(ctx, 20*time.Millisecond) }()
	p := newProducer(t, n.client, ProducerOptions{}) // the node's own may still know two partitions
	if _, err := p.AppendSync(ctx, "log", 2, Entry{Value: []byte(`{"id":77,"v":1}`)}); err != nil {
		t.Fatal(err)
	}
	if err := n.WaitLoaded(ctx, "log", nil); err != nil {
		t.Fatal(err)
	}
	if info, err := n.Table(ctx, "log"); err != nil || info.Rows != 101 {
		t.Fatalf("%d rows of the table without a key, want 101: %v", info.Rows, err)
	}

	grow("t")
	refused := func(err error) {
		t.Helper()
		if !errors.Is(err, ErrSourceGrew) || !strings.Contains(err.Error(), "table t: topic t has 3 partitions, the table's shards were made for 2") {
			t.Fatalf("error %v, want one of a topic that grew", err)
		}
	}
	select {
	case err := <-watched:
		refused(err)
	case <-ctx.Done():
		t.Fatal("new partitions of a keyed table's topic went unseen")
	}
	if err := n.Close(ctx); err != nil {
		t.Fatal(err)
	}
	n, err := OpenNode(ctx, NodeOptions{Data: dir})
	if err != nil {
		t.Fatal(err)
	}
	refused(n.Start(ctx))
	if err := n.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestSourceGone: a source topic that is made again under its name, or deleted,
// stops the node with an error that says so (A1).
func TestSourceGone(t *testing.T) {
	for _, again := range []bool{true, false} {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		n := startNode(ctx, t, t.TempDir())
		if _, err := n.Produce(ctx, "t", 1, rowEvents(100, 10), nil); err != nil {
			t.Fatal(err)
		}
		ingestTable(ctx, t, n, testDefinition("t"))
		if _, err := n.admin.adm.DeleteTopics(ctx, "t"); err != nil {
			t.Fatal(err)
		}
		want := ErrNoTopic
		if again {
			want = ErrTopicRecreated
			if _, err := n.admin.EnsureSourceTopic(ctx, "t", 1); err != nil {
				t.Fatal(err)
			}
		}
		err := n.watchSources(ctx, 20*time.Millisecond)
		if !errors.Is(err, want) || !strings.Contains(err.Error(), "table t") || !strings.Contains(err.Error(), "varve table retire t") {
			t.Errorf("again %v: error %v, want %v", again, err, want)
		}
		n.cancel() // nothing can be drained
		if err := n.Close(ctx); err != nil {
			t.Log(err)
		}
	}
}

// TestSourceTrimmed: records deleted below what was read change nothing; those
// deleted above it stop a start, with table, offsets and the way out.
func TestSourceTrimmed(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dir := t.TempDir()
	n := startNode(ctx, t, dir)
	if _, err := n.Produce(ctx, "t", 1, rowEvents(100, 10), nil); err != nil {
		t.Fatal(err)
	}
	ingestTable(ctx, t, n, testDefinition("t"))
	if err := n.admin.DeleteRecords(ctx, "t", 0, 50); err != nil {
		t.Fatal(err)
	}
	if err := n.Close(ctx); err != nil {
		t.Fatal(err)
	}
	n = startNode(ctx, t, dir)
	if err := n.WaitLoaded(ctx, "t", nil); err != nil {
		t.Fatal(err)
	}
	if err := n.Close(ctx); err != nil {
		t.Fatal(err)
	}

	// Without its owner the topic goes on and loses what was not read.
	n, err := OpenNode(ctx, NodeOptions{Data: dir, Roles: []string{RoleState}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Produce(ctx, "t", 1, rowEvents(100, 10), nil); err != nil {
		t.Fatal(err)
	}
	if err := n.admin.DeleteRecords(ctx, "t", 0, 150); err != nil {
		t.Fatal(err)
	}
	if err := n.Close(ctx); err != nil {
		t.Fatal(err)
	}
	_, err = OpenNode(ctx, NodeOptions{Data: dir})
	if !errors.Is(err, ErrLogTrimmed) || !strings.Contains(err.Error(), "table t still needs offset 100, so 50 records were deleted") {
		t.Fatalf("error %v, want one of records deleted before they were read", err)
	}
	if !strings.Contains(err.Error(), "varve table skip t --partition 0 --to 150 --cause") {
		t.Errorf("error %q does not say how to go on", err)
	}
	// The way out works on the stopped folder.
	n, err = OpenNode(ctx, NodeOptions{Data: dir, Roles: []string{RoleState}})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(ctx); err != nil {
		t.Fatal(err)
	}
	info, err := n.Table(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	sh := info.Shards[0]
	out, err := n.Request(ctx, "t", info.ID, &record.SkipSource{
		Shard: record.ShardKey{TopicID: sh.TopicID, Topic: "t", Partition: 0}, From: sh.SourceEnd, To: 150, Cause: "retention",
	})
	if err != nil || out.Outcome.Code != record.Accepted {
		t.Fatalf("skip: %v %v", out.Outcome, err)
	}
	if err := n.Close(ctx); err != nil {
		t.Fatal(err)
	}
	n = startNode(ctx, t, dir)
	if err := n.WaitLoaded(ctx, "t", nil); err != nil {
		t.Fatal(err)
	}
	if err := n.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

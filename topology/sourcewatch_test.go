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

// TestSourceGrows: a keyed table whose topic gained partitions stops while the
// node runs and at a start (A6): keys of old partitions would get second rows.
// The other tables go on, and so does this one once its topic is divided anew. A
// table without a key takes the new partitions.
func TestSourceGrows(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	patience := loadPatience
	t.Cleanup(func() { loadPatience = patience })
	loadPatience = time.Second
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
	watch := func(n *Node) (stop func()) {
		wctx, cancel := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- n.watchSources(wctx, 20*time.Millisecond) }()
		return func() {
			t.Helper()
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	stop := watch(n)
	p := newProducer(t, n.client, ProducerOptions{}) // the node's own may still know two partitions
	more := func(partition int32, text string) {
		t.Helper()
		if _, err := p.AppendSync(ctx, "log", partition, Entry{Value: []byte(text)}); err != nil {
			t.Fatal(err)
		}
		if err := n.WaitLoaded(ctx, "log", nil); err != nil {
			t.Fatal(err)
		}
	}
	more(2, `{"id":77,"v":1}`)
	if info, err := n.Table(ctx, "log"); err != nil || info.Rows != 101 {
		t.Fatalf("%d rows of the table without a key, want 101: %v", info.Rows, err)
	}

	grow("t")
	stopped := func(what string) {
		t.Helper()
		eventually(ctx, t, what, func() bool {
			n.mu.Lock()
			defer n.mu.Unlock()
			return strings.Contains(n.refused["t"], "table t: topic t has 3 partitions, the table's shards were made for 2") && strings.Contains(n.refused["t"], "varve table reshard t")
		})
		if err := n.WaitLoaded(ctx, "t", nil); err == nil || !strings.Contains(err.Error(), "varve table reshard t") {
			t.Errorf("waiting for the table: %v", err)
		}
		more(0, `{"id":78,"v":1}`)
		select {
		case err := <-n.Fatal():
			t.Fatal("the node failed: ", err)
		default:
		}
	}
	stopped("the table stops")
	stop()
	if err := n.Close(ctx); err != nil {
		t.Fatal(err)
	}
	n = startNode(ctx, t, dir)
	p = newProducer(t, n.client, ProducerOptions{})
	stop = watch(n)
	stopped("the table stays stopped at a start")
	info, err := n.Table(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Ingest(ctx, info); !errors.Is(err, ErrSourceGrew) {
		t.Errorf("taking its shards: %v", err)
	}
	if out, err := n.Reshard(ctx, "t", true); err != nil || out.Outcome.Code != record.Accepted {
		t.Fatalf("%+v, %v", out, err)
	}
	if info, err = n.Resharded(ctx, "t"); err != nil || info.Base == nil || info.Base.Partitions != 3 {
		t.Fatalf("%+v, %v", info, err)
	}
	eventually(ctx, t, "the table's three shards run", func() bool {
		running := 0
		for _, s := range n.Shards() {
			if s.Table == "t" && s.Err == "" {
				running++
			}
		}
		return running == 3
	})
	if err := n.WaitLoaded(ctx, "t", nil); err != nil {
		t.Fatal(err)
	}
	stop()
	if err := n.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestSourceGone: a source topic that is made again under its name, or deleted,
// stops its table with an error that says so (A1), and not the node.
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
		wctx, stop := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- n.watchSources(wctx, 20*time.Millisecond) }()
		eventually(ctx, t, "the table stops: "+want.Error(), func() bool {
			n.mu.Lock()
			defer n.mu.Unlock()
			why := n.refused["t"]
			return strings.Contains(why, want.Error()) && strings.Contains(why, "table t") && strings.Contains(why, "varve table retire t")
		})
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		select {
		case err := <-n.Fatal():
			t.Error("the node failed: ", err)
		default:
		}
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

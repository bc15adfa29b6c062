package topology

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/varve-io/varve/processors/ingest"
)

// TestBrokerForm: an address that nobody can dial is refused at once, as wrong
// configuration.
func TestBrokerForm(t *testing.T) {
	for _, good := range []string{"localhost", "localhost:9092", "10.0.0.1:1", "[::1]:9092", "::1", "kafka-1.example:65535"} {
		if err := checkBrokers([]string{good}); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"", " ", "host:", "host:0", "host:65536", "host:kafka", ":9092", "http://host:9092", "user@host:9092", "a b:9092", "[::1"} {
		err := checkBrokers([]string{"localhost:9092", bad})
		if !errors.Is(err, ErrConfig) {
			t.Errorf("%q: %v, want a configuration error", bad, err)
		}
	}
	_, err := OpenNode(context.Background(), NodeOptions{Data: t.TempDir(), Brokers: []string{"host:kafka"}})
	if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "host:port") {
		t.Errorf("a node: %v", err)
	}
}

// TestReadyStoppedShard: a shard that stopped makes the node not ready, and it
// says why.
func TestReadyStoppedShard(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	n := startNode(ctx, t, t.TempDir())
	defer n.Close(ctx)
	if _, err := n.Produce(ctx, "t", 1, rowEvents(10, 10), nil); err != nil {
		t.Fatal(err)
	}
	ingestTable(ctx, t, n, testDefinition("t"))
	if err := n.checkReady(ctx); err != nil {
		t.Fatal(err)
	}
	n.mu.Lock()
	n.shards["gone/0"] = &shardWorker{status: ShardStatus{Stage: ingest.Stopped, Err: "an event was refused"}, done: make(chan struct{})}
	n.mu.Unlock()
	err := n.checkReady(ctx)
	n.mu.Lock()
	delete(n.shards, "gone/0")
	n.mu.Unlock()
	if err == nil || !strings.Contains(err.Error(), "a shard has stopped: an event was refused") {
		t.Errorf("ready with a stopped shard: %v", err)
	}
}

// TestCheckpointsNowhere: a folder that is none has no checkpoints to list.
func TestCheckpointsNowhere(t *testing.T) {
	if _, err := OpenCheckpoints(context.Background(), NodeOptions{Data: t.TempDir() + "/none"}); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "no deployment") {
		t.Errorf("error %v, want one of a folder without a deployment", err)
	}
}

package topology

import (
	"math"
	"os"
	"runtime/debug"
	"testing"
)

// TestMemoryLimit: a node's limit follows what it owns and ends with it; one
// that somebody set stays.
func TestMemoryLimit(t *testing.T) {
	if os.Getenv("GOMEMLIMIT") != "" {
		t.Skip("GOMEMLIMIT is set: nodes leave it alone")
	}
	// A process has some 100 MiB beside what the runtime counts: the database's
	// cache and tables, mapped files, the program.
	if leastMemory > 400<<20 {
		t.Errorf("a node with one shard wants %d MiB, and would pass 512 MiB", leastMemory>>20)
	}
	limit := func() int64 { return debug.SetMemoryLimit(-1) }
	if limit() != math.MaxInt64 {
		t.Fatalf("a limit of %d before any node", limit())
	}
	n := &Node{shards: map[string]*shardWorker{}, states: []*stateWorker{{}, {}, nil}}
	m := &Node{shards: map[string]*shardWorker{}, broker: &Broker{}}
	n.sizeMemory(false)
	n.shards["a"], n.shards["b"], n.shards["c"] = nil, nil, nil // more than the least
	n.sizeMemory(false)
	m.sizeMemory(false)
	if got, want := limit(), int64(nodeMemory+2*stateMemory+3*shardMemory+leastMemory); got != want {
		t.Errorf("limit %d, want %d", got, want)
	}
	n.sizeMemory(true)
	if got, want := limit(), int64(leastMemory); got != want {
		t.Errorf("limit %d, want %d", got, want)
	}
	m.sizeMemory(true)
	m.sizeMemory(true)
	if limit() != math.MaxInt64 {
		t.Errorf("a limit of %d after all nodes", limit())
	}
	debug.SetMemoryLimit(1 << 40)
	defer debug.SetMemoryLimit(math.MaxInt64)
	n.sizeMemory(false)
	if limit() != 1<<40 {
		t.Errorf("the program's own limit became %d", limit())
	}
	n.sizeMemory(true)
}

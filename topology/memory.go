package topology

import (
	"math"
	"os"
	"runtime/debug"
	"sync"
)

// What a node means to take of memory: the runtime's collector runs more often
// as it comes near, instead of letting the heap grow to twice what lives. It is
// no bound: whoever needs more gets it, at the price of processor time.
const (
	nodeMemory   = 128 << 20 // the process, its clients, what is being published
	brokerMemory = 128 << 20 // the embedded broker
	stateMemory  = 32 << 20  // a partition's state, mostly idle
	// shardMemory: index delta and its merge, a buffer of events with what a
	// flush makes of it, events read ahead.
	shardMemory = 224 << 20
	// moreMemory is what each shard beyond fullShards takes: buffers and deltas
	// share what there is for all (ingest.Room).
	moreMemory = 8 << 20
	fullShards = 4
	// leastMemory is what any node may take: below it a state that applies at
	// full speed would collect a third of its time. The process stays under 512 MiB
	// with what the runtime does not count: the program, and Pebble's caches.
	leastMemory = 320 << 20
)

// memory is the limit of this process, for all nodes in it. A user's GOMEMLIMIT
// is left alone.
var memory struct {
	sync.Mutex
	wanted int64
	held   bool // the limit is ours
}

// wantMemory changes what the nodes of this process want by so many bytes;
// false: the limit is not ours to set.
func wantMemory(change int64) bool {
	if os.Getenv("GOMEMLIMIT") != "" {
		return false
	}
	memory.Lock()
	defer memory.Unlock()
	if !memory.held && debug.SetMemoryLimit(-1) != math.MaxInt64 {
		return false // the program has a limit of its own
	}
	memory.wanted += change
	memory.held = memory.wanted > 0
	limit := int64(math.MaxInt64)
	if memory.held {
		limit = memory.wanted
	}
	debug.SetMemoryLimit(limit)
	return true
}

// sizeMemory tells the runtime what the node has to do now. closing: nothing any more.
func (n *Node) sizeMemory(closing bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	want, states := int64(0), int64(0)
	for _, w := range n.states {
		if w != nil {
			states++
		}
	}
	if !closing {
		want = nodeMemory + states*stateMemory + int64(min(len(n.shards), fullShards))*shardMemory + int64(max(0, len(n.shards)-fullShards))*moreMemory
		if n.broker != nil {
			want += brokerMemory
		}
		want = max(want, leastMemory)
	}
	if want != n.memory && wantMemory(want-n.memory) {
		n.memory = want
	}
}

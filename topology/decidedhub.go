package topology

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/varve-io/varve/processors"
)

const (
	// hubEntries and hubBytes bound what a hub keeps for shards that are a little
	// behind; who is further behind reads by itself. Above them half is dropped.
	hubEntries = 16 << 10
	hubBytes   = 16 << 20
	// hubTake is how many entries a shard takes at a time.
	hubTake = 4096
	// hubWait is how long a broker holds a hub's fetch that has nothing to bring.
	hubWait = 500 * time.Millisecond
)

// decidedHub reads the decided end of a partition of the log once for all shards
// of the node: hundreds of tables would else read it hundreds of times.
type decidedHub struct {
	n         *Node
	partition int32

	mu      sync.Mutex
	users   int
	stop    context.CancelFunc // nil: it does not read
	run     int64              // to tell an ended reader from the present one
	entries []processors.Decided
	whole   int // of entries: those up to the newest record's own
	bytes   int
	from    int64 // first log offset whose entries are all here, -1: none
	next    int64 // log offset of the next record
	moved   chan struct{}
}

// hub is the node's hub of a partition.
func (n *Node) hub(partition int32) *decidedHub {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.hubs == nil {
		n.hubs = map[int32]*decidedHub{}
	}
	if n.hubs[partition] == nil {
		n.hubs[partition] = &decidedHub{n: n, partition: partition, from: -1, moved: make(chan struct{})}
	}
	return n.hubs[partition]
}

// enter begins to read, with the first user.
func (h *decidedHub) enter() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.users++
	if h.stop == nil {
		h.begin()
	}
}

func (h *decidedHub) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.users--; h.users == 0 && h.stop != nil {
		h.stop()
		h.end()
	}
}

// begin and end: the lock is held.
func (h *decidedHub) begin() {
	ctx, stop := context.WithCancel(h.n.ctx)
	h.run++
	h.stop, h.from = stop, -1
	run := h.run
	h.n.wg.Go(func() {
		err := h.read(ctx, run)
		stop()
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.run == run && h.stop != nil {
			h.end() // shards read by themselves, and hear what is wrong
			if err != nil && h.n.ctx.Err() == nil {
				h.n.log.Debug("the decided log is not read for all shards together", "partition", h.partition, "error", err)
			}
		}
	})
}

func (h *decidedHub) end() {
	h.stop, h.from, h.entries, h.whole, h.bytes = nil, -1, nil, 0, 0
	h.tell()
}

func (h *decidedHub) tell() {
	close(h.moved)
	h.moved = make(chan struct{})
}

func (h *decidedHub) read(ctx context.Context, run int64) error {
	ends, err := h.n.admin.Offsets(ctx, h.n.topics.Transactions)
	if err != nil {
		return err
	}
	from := ends[h.partition].High
	r, err := openDecidedWait(ctx, h.n.client, h.n.topics, h.partition, from, hubWait)
	if err != nil {
		return err
	}
	defer r.close()
	h.mu.Lock()
	if h.run == run && h.stop != nil {
		h.from, h.next = from, from
		h.tell()
	}
	h.mu.Unlock()
	for {
		ds, err := r.poll(ctx, hubWait)
		if err != nil || ctx.Err() != nil {
			return err
		}
		if len(ds) == 0 {
			continue
		}
		h.mu.Lock()
		if h.run == run && h.stop != nil {
			h.take(ds)
		}
		h.mu.Unlock()
	}
}

func sizeOfDecided(d *processors.Decided) int {
	return len(d.Record.Key) + len(d.Record.Header) + len(d.Record.Value) + 512
}

// take keeps entries, and drops the oldest ones, a whole log offset at a time.
func (h *decidedHub) take(ds []processors.Decided) {
	for i := range ds {
		h.entries = append(h.entries, ds[i])
		h.bytes += sizeOfDecided(&ds[i])
		if !ds[i].Outcome.Derived {
			h.next, h.whole = ds[i].Outcome.Offset+1, len(h.entries)
		}
	}
	drop := 0
	if len(h.entries) > hubEntries || h.bytes > hubBytes {
		// The last one dropped is a record's own.
		for drop < h.whole && (len(h.entries)-drop > hubEntries/2 || h.bytes > hubBytes/2 || h.entries[drop-1].Outcome.Derived) {
			d := &h.entries[drop]
			h.bytes -= sizeOfDecided(d)
			if drop++; !d.Outcome.Derived {
				h.from = d.Outcome.Offset + 1
			}
		}
		n := copy(h.entries, h.entries[drop:])
		clear(h.entries[n:])
		h.entries, h.whole = h.entries[:n], h.whole-drop
	}
	h.tell()
}

// has says whether everything from a log offset on is, or will be, here.
func (h *decidedHub) has(offset int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stop == nil && h.users > 0 && h.n.ctx.Err() == nil {
		h.begin() // it ended with an error
	}
	return h.from >= 0 && offset >= h.from && offset <= h.next
}

// errHubBehind: the hub does not have the offset any more.
var errHubBehind = errors.New("the shared reader has gone on")

// poll gives entries from a log offset on, of each all: derived ones stand before
// a record's own.
func (h *decidedHub) poll(ctx context.Context, offset int64, wait time.Duration) ([]processors.Decided, error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		h.mu.Lock()
		if h.from < 0 || offset < h.from {
			h.mu.Unlock()
			return nil, errHubBehind
		}
		// The newest are at the end, and most shards have all before them.
		i := h.whole
		for i > 0 && h.entries[i-1].Outcome.Offset >= offset {
			i--
		}
		j := min(h.whole, i+hubTake)
		for j > i && h.entries[j-1].Outcome.Derived {
			j++
		}
		out := append([]processors.Decided(nil), h.entries[i:j]...)
		moved := h.moved
		h.mu.Unlock()
		if len(out) > 0 {
			return out, nil
		}
		select {
		case <-moved:
		case <-timer.C:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// decidedFeed gives a shard the decided log from where it stands: by a reader of
// its own, and from the node's hub once it is as far as that.
type decidedFeed struct {
	hub  *decidedHub
	open func(ctx context.Context, from int64) (*decidedReader, error)
	own  *decidedReader // nil: the hub has what comes next
	next int64          // log offset of the next record
	at   int            // derived entries of that offset that own has given
}

func (n *Node) openFeed(ctx context.Context, partition int32, from int64) (*decidedFeed, error) {
	f := &decidedFeed{hub: n.hub(partition), next: from, open: func(ctx context.Context, from int64) (*decidedReader, error) {
		return openDecided(ctx, n.client, n.topics, partition, from)
	}}
	f.hub.enter()
	if f.hub.has(from) {
		return f, nil
	}
	var err error
	if f.own, err = f.open(ctx, from); err != nil {
		f.hub.leave()
		return nil, err
	}
	return f, nil
}

func (f *decidedFeed) close() {
	if f.own != nil {
		f.own.close()
		f.own = nil
	}
	f.hub.leave()
}

// poll is decidedReader's.
func (f *decidedFeed) poll(ctx context.Context, wait time.Duration) ([]processors.Decided, error) {
	if f.own != nil && f.at == 0 && f.hub.has(f.next) {
		f.own.close()
		f.own = nil
	}
	var ds []processors.Decided
	var err error
	if f.own != nil {
		ds, err = f.own.poll(ctx, wait)
	} else if ds, err = f.hub.poll(ctx, f.next, wait); errors.Is(err, errHubBehind) {
		if f.own, err = f.open(ctx, f.next); err != nil {
			return nil, err
		}
		return nil, nil
	}
	for i := range ds {
		if f.at++; !ds[i].Outcome.Derived {
			f.next, f.at = ds[i].Outcome.Offset+1, 0
		}
	}
	return ds, err
}

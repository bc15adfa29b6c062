package topology

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/processors/ingest"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/source"
	"github.com/varve-io/varve/statestore"
)

const (
	shardTick = 10 * time.Millisecond
	// idleTick is that of a shard that waits for nothing: what comes wakes it.
	idleTick = 100 * time.Millisecond
	// sourcePoll is the most records that one hand-over to a shard holds.
	sourcePoll = 8192
	// sourceQueue and decidedQueue bound what was read and not yet taken.
	sourceQueue = 4
	// sourceAhead is about how many bytes of events may be read and not yet
	// taken: one batch is, however large.
	sourceAhead = 16 << 20
	// sourceFetch is what one fetch brings, as it is on the wire: batches may
	// be many times as large when they are unpacked.
	sourceFetch  = 4 << 20
	decidedQueue = 8
	// sourceWait is how long a broker holds a fetch that has nothing to bring; new
	// records end it at once.
	sourceWait = time.Second
	// feedWait is how long a shard's readers wait at a time for what may come.
	feedWait = time.Second
	// fetchRoom is what the fetches of all sources may bring together, but for
	// leastFetch each.
	fetchRoom  = 64 << 20
	leastFetch = 128 << 10
)

// fetchBytes is what one fetch of a source that is opened now may bring.
func (n *Node) fetchBytes() int32 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return int32(min(sourceFetch, max(leastFetch, fetchRoom/max(1, len(n.shards)))))
}

// ShardStatus is where one owned shard stands.
type ShardStatus struct {
	Table      string
	TableID    int64
	Topic      string
	Partition  int32
	Stage      ingest.Stage
	Err        string // why it stopped
	Waiting    string // what it waits for: a store, a disk, a broker that is away
	ReadFrom   int64  // log offset from which it read at its start: what its index and side file had not kept
	Position   int64  // next source offset to read
	SourceEnd  int64  // end of what was accepted; -1 while appends are in flight
	SourceHigh int64  // high watermark of the source as last heard
	Decided    int64  // newest log offset whose outcome was read
	Idle       bool
	Tally      ingest.Tally // what became of the records that this owner read
}

// shardWorker drives one shard: it reads the decided log and the source, and
// gives both to the shard on one goroutine.
type shardWorker struct {
	n       *Node
	shard   *ingest.Shard
	cfg     ingest.Config
	keyed   bool
	box     *mailbox
	decided *decidedFeed
	// readFrom is where that reader began.
	readFrom int64

	mu       sync.Mutex
	status   ShardStatus
	noSource bool  // draining: read no more of the source
	flush    bool  // flush at once whatever waits
	accepted int64 // source end of what was accepted; -1: no epoch is open
	done     chan struct{}
	halt     context.CancelCauseFunc // stops the shard, and not the node
	halted   bool                    // it was called; under the node's mutex
}

// ErrFenced: another owner claimed the shard (A3).
var ErrFenced = errors.New("another owner claimed the shard")

// sourceBatch is what one poll of the source brought.
type sourceBatch struct {
	generation int64
	recs       []source.Record
	next       int64
	high       int64
	bytes      int64 // about what the records take
	ahead      *ahead
	err        error
}

// ahead bounds the bytes that were read and not yet taken.
type ahead struct {
	bytes atomic.Int64
	freed chan struct{}
}

// take waits until n bytes more may be read ahead, or nothing is.
func (a *ahead) take(ctx context.Context, n int64) {
	for {
		held := a.bytes.Load()
		if held == 0 || held+n <= sourceAhead {
			a.bytes.Add(n)
			return
		}
		select {
		case <-a.freed:
		case <-ctx.Done():
			return
		}
	}
}

func (a *ahead) give(n int64) {
	a.bytes.Add(-n)
	select {
	case a.freed <- struct{}{}:
	default:
	}
}

func shardName(table string, partition int32) string { return fmt.Sprintf("%s/%d", table, partition) }

// Ingest takes every shard of a table's source topic into this node. A node in
// groups has its part of them, by itself; Ingest only makes it look at once.
func (n *Node) Ingest(ctx context.Context, t *statestore.TableInfo) error {
	if n.opt.Groups {
		n.mu.Lock()
		g := n.ingestGroup
		n.mu.Unlock()
		if g != nil {
			g.wakeUp()
		}
		return nil
	}
	err := n.ingest(ctx, t)
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.refused, t.Name)
	if err != nil {
		n.refused[t.Name] = err.Error()
	}
	return err
}

func (n *Node) ingest(ctx context.Context, t *statestore.TableInfo) error {
	// Two claims of one shard by one node would close each other's epochs.
	n.ingesting.Lock()
	defer n.ingesting.Unlock()
	if t.Definition.Rekeyed() {
		if err := n.makeRekeyTopic(ctx, t.Definition); err != nil {
			return err
		}
		n.moveSources([]*statestore.TableInfo{t})
	}
	topic, err := n.admin.Topic(ctx, n.shardTopic(t.Definition))
	if err != nil {
		return fmt.Errorf("table %s: its source: %w", t.Name, err)
	}
	starts, err := n.admin.Offsets(ctx, topic.Name)
	if err != nil {
		return err
	}
	if err := checkSource(t, topic); err != nil {
		return err
	}
	// All claims go before any shard reads (checkSource).
	var taken []*shardWorker
	for p := range starts {
		if waitsForReshard(t, topic, int32(p)) {
			continue
		}
		w, err := n.takeShard(ctx, t, topic, int32(p), starts[p].Start)
		if err != nil {
			return errors.Join(err, n.giveBack(taken))
		}
		if w != nil {
			taken = append(taken, w)
		}
	}
	for _, w := range taken {
		w.shard.Claim(ctx)
	}
	for _, w := range taken {
		ctx, halt := context.WithCancelCause(n.ctx)
		n.mu.Lock()
		w.halt = halt
		n.mu.Unlock()
		n.spawn(func(context.Context) error { return n.runAlone(ctx, w) })
	}
	return nil
}

// giveBack ends shards that were taken and never ran.
func (n *Node) giveBack(ws []*shardWorker) error {
	var err error
	for _, w := range ws {
		w.forget()
		w.decided.close()
		close(w.done)
		err = errors.Join(err, w.shard.Abandon())
	}
	return err
}

// takeShard opens a shard for this node; nil: the node has it already.
func (n *Node) takeShard(ctx context.Context, t *statestore.TableInfo, topic TopicInfo, p int32, start int64) (*shardWorker, error) {
	name := shardName(t.Name, p)
	n.mu.Lock()
	old := n.shards[name]
	n.mu.Unlock()
	if old != nil && old.cfg.TableID == t.ID {
		return nil, nil
	}
	if old != nil {
		// A table of this name was dropped: its owner ends once it reads that.
		select {
		case <-old.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	w := &shardWorker{n: n, keyed: t.Definition.Keyed(), box: newMailbox(), accepted: -1, done: make(chan struct{})}
	part := schemas.PartitionOf(t.Name, int32(n.topics.Partitions))
	head, err := n.views.head(ctx, part)
	if err != nil {
		return nil, err
	}
	w.cfg = ingest.Config{
		Table: t.Name, TableID: t.ID, LogStart: start, LogSeen: head.Offset, Partitions: int32(partitionsOf(t, topic)), Rekeyed: t.Definition.Rekeyed(), Deployment: n.id,
		Shard:  record.ShardKey{TopicID: topic.ID, Topic: topic.Name, Partition: p},
		Member: claimMember(n.opt.NodeID, partitionsOf(t, topic)),
		Dir:    n.indexDir(t.ID, topic.ID, p, 0),
		Store:  n.store, Bodies: n.bodies, StopOnError: n.opt.StopOnError, Registry: n.opt.Registry, CheckpointAppends: n.opt.Checkpoints.IndexAppends, CheckpointEveryMs: n.opt.Checkpoints.IndexEvery.Milliseconds(),
		ApplyVersion: statestore.ApplyVersion, Logger: n.log,
		Tallied: n.metrics.tallied(t.Name, p),
		Log:     &logAppender{ctx: n.ctx, producer: n.producer, topic: n.topics.Transactions, partition: part, box: w.box},
		LogEnd:  n.logEnd(part, w.box), Room: &n.room,
		Letters: &letterSender{
			ctx: n.ctx, producer: n.letters, source: t.Definition.SourceTopic, topic: LettersTopic(t.Definition.SourceTopic), box: w.box, count: n.metrics.letter,
			ensure: func(ctx context.Context, topic string) error {
				_, err := n.admin.EnsureSourceTopic(ctx, topic, 1)
				return err
			},
		},
	}
	for i := range t.Shards {
		if x := &t.Shards[i]; x.TopicID == topic.ID && x.Partition == p && x.Index.Path != "" {
			w.cfg.Checkpoint = &x.Index
		}
	}
	if w.shard, err = n.openShard(ctx, &w.cfg, t); err != nil {
		return nil, err
	}
	if w.readFrom, err = n.firstRead(ctx, t, topic.ID, p, w.shard.LogFrom()); err != nil {
		return nil, errors.Join(err, w.shard.Abandon())
	}
	if w.decided, err = n.openFeed(ctx, part, w.readFrom); err != nil {
		return nil, errors.Join(err, w.shard.Abandon())
	}
	w.publish(-1)
	n.mu.Lock()
	n.shards[name] = w
	n.mu.Unlock()
	n.sizeMemory(false)
	return w, nil
}

// Shards is where every owned shard stands, by table and partition.
func (n *Node) Shards() []ShardStatus {
	n.mu.Lock()
	ws := make([]*shardWorker, 0, len(n.shards))
	for _, w := range n.shards {
		ws = append(ws, w)
	}
	n.mu.Unlock()
	out := make([]ShardStatus, 0, len(ws))
	for _, w := range ws {
		w.mu.Lock()
		out = append(out, w.status)
		w.mu.Unlock()
	}
	sortShards(out)
	return out
}

// publish makes the shard's state visible to others.
func (w *shardWorker) publish(high int64) {
	s := w.shard
	w.mu.Lock()
	defer w.mu.Unlock()
	if high < 0 {
		high = w.status.SourceHigh
	}
	w.accepted = s.AcceptedEnd()
	waited := w.status.Waiting != ""
	w.status = ShardStatus{
		Table: w.cfg.Table, TableID: w.cfg.TableID, Topic: w.cfg.Shard.Topic, Partition: w.cfg.Shard.Partition,
		Stage: s.Stage(), Position: s.SourceFrom(), SourceEnd: s.SourceEnd(), SourceHigh: high,
		Decided: s.Decided(), Idle: s.Idle(), ReadFrom: w.readFrom, Tally: s.Tally(),
	}
	switch err := s.Err(); {
	case errors.Is(err, ingest.ErrDivided):
		w.status.Stage = ingest.Idle // it begins again
	case err != nil:
		w.status.Err = err.Error()
	}
	if err := s.Waiting(); err != nil {
		w.status.Waiting = err.Error()
	} else {
		w.status.Waiting = w.n.disk.full()
	}
	if !waited && w.status.Waiting != "" {
		w.n.metrics.paused(w.cfg.Table, w.cfg.Shard.Partition)
	}
}

// forget takes a shard of a dropped table, or a retired one, out of the node.
func (w *shardWorker) forget() {
	name := shardName(w.cfg.Table, w.cfg.Shard.Partition)
	w.n.mu.Lock()
	if w.n.shards[name] == w {
		delete(w.n.shards, name)
	}
	w.n.mu.Unlock()
	w.n.sizeMemory(false)
}

func (w *shardWorker) stopReading() {
	w.mu.Lock()
	w.noSource, w.flush = true, true
	w.mu.Unlock()
	w.box.post(func() {})
}

func (w *shardWorker) flushSoon() {
	w.mu.Lock()
	w.flush = true
	w.mu.Unlock()
	w.box.post(func() {})
}

// waitDrained waits until the shard holds nothing that is not in the log, or
// cannot bring it there.
func (w *shardWorker) waitDrained(ctx context.Context) error {
	partition := w.n.stateOf(w.cfg.Table)
	for {
		w.mu.Lock()
		st := w.status
		w.mu.Unlock()
		if st.Idle || st.Stage == ingest.Stopped || st.Stage == ingest.Fenced || st.Waiting != "" || partition != nil && partition.stopped.Load() {
			return nil
		}
		select {
		case <-w.done:
			return nil
		default:
		}
		if err := sleep(ctx, shardTick); err != nil {
			return fmt.Errorf("table %s, %s/%d did not drain in time: what it held is read again at the next start", st.Table, st.Topic, st.Partition)
		}
	}
}

func (w *shardWorker) run(ctx context.Context) (err error) {
	defer close(w.done)
	readCtx, stop := context.WithCancel(ctx)
	defer stop()
	decided := make(chan []processors.Decided, decidedQueue)
	decidedErr := make(chan error, 1)
	var readers sync.WaitGroup
	readers.Add(1)
	go func() {
		defer readers.Done()
		defer w.decided.close()
		for readCtx.Err() == nil {
			ds, err := w.decided.poll(readCtx, feedWait)
			if err != nil {
				decidedErr <- err
				return
			}
			if len(ds) == 0 {
				continue
			}
			select {
			case decided <- ds:
			case <-readCtx.Done():
				return
			}
		}
	}()
	src := newSourceFeed(w)
	ended, divided := false, false
	defer func() {
		if divided {
			w.n.spawn(func(ctx context.Context) error { return w.n.ingestGrown(ctx, w.cfg.Table) })
		}
	}()
	defer func() {
		stop()
		src.stop()
		readers.Wait()
		err = errors.Join(err, w.shard.Close())
		if ended {
			w.forget()
		}
	}()
	tick := time.NewTicker(shardTick)
	defer tick.Stop()
	idle := false
	for {
		if now := w.shard.Idle(); now != idle {
			if idle = now; idle {
				tick.Reset(idleTick)
			} else {
				tick.Reset(shardTick)
			}
		}
		w.box.run()
		w.mu.Lock()
		noSource := w.noSource
		if w.flush {
			w.shard.FlushSoon()
			w.flush = noSource
		}
		w.mu.Unlock()
		switch w.shard.Stage() {
		case ingest.Stopped:
			err := w.shard.Err()
			if errors.Is(err, ingest.ErrDivided) {
				ended = true // it begins again, and nobody need hear of a shard that stopped
				if w.n.opt.Groups {
					return err
				}
				divided = true
				return nil
			}
			w.publish(-1)
			if errors.Is(err, ingest.ErrDropped) || errors.Is(err, ingest.ErrRetired) {
				ended = true // as someone asked
				return nil
			}
			return err
		case ingest.Idle:
			w.shard.Claim(ctx)
		case ingest.Fenced:
			w.publish(-1)
			return fmt.Errorf("table %s, %s/%d: %w; this node gives it up: stop one of them, then start this one again", w.cfg.Table, w.cfg.Shard.Topic, w.cfg.Shard.Partition, ErrFenced)
		}
		news := decided
		if !w.shard.WantsDecided() {
			news = nil
		}
		var batches <-chan sourceBatch
		if w.shard.WantsSource() && !noSource && w.n.disk.full() == "" {
			batches = src.feed(readCtx, w.shard.Generation(), w.shard.SourceFrom())
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-decidedErr:
			if ctx.Err() != nil {
				return nil
			}
			return err
		case ds := <-news:
			w.shard.OnDecided(ctx, ds)
			w.shard.Tick(ctx, nowMs())
		case b := <-batches:
			if b.err != nil {
				if ctx.Err() != nil {
					return nil
				}
				return b.err
			}
			taken := b.generation == w.shard.Generation()
			if taken {
				w.shard.OnSource(ctx, nowMs(), b.recs, b.next)
			}
			b.ahead.give(b.bytes)
			if taken {
				w.publish(b.high)
				continue
			}
		case <-w.box.signal:
			w.box.run()
			w.shard.Tick(ctx, nowMs())
		case <-tick.C:
			w.shard.Tick(ctx, nowMs())
		}
		w.publish(-1)
	}
}

// recordRoom is about what a record takes beside its key and value.
const recordRoom = 256

func nowMs() int64 { return time.Now().UnixMilli() }

// sourceFeed reads the shard's source partition ahead of it, from wherever the
// shard's generation starts.
type sourceFeed struct {
	w          *shardWorker
	generation int64
	batches    chan sourceBatch
	cancel     context.CancelFunc
	finished   chan struct{}
}

func newSourceFeed(w *shardWorker) *sourceFeed { return &sourceFeed{w: w} }

func (f *sourceFeed) stop() {
	if f.cancel != nil {
		f.cancel()
		<-f.finished
		f.cancel = nil
	}
}

func (f *sourceFeed) feed(ctx context.Context, generation, from int64) <-chan sourceBatch {
	if f.cancel != nil && f.generation == generation {
		return f.batches
	}
	f.stop()
	ctx, f.cancel = context.WithCancel(ctx)
	f.generation, f.batches, f.finished = generation, make(chan sourceBatch, sourceQueue), make(chan struct{})
	go f.read(ctx, from, f.batches, f.finished, generation)
	return f.batches
}

// open opens the source at an offset. Brokers that do not answer are waited
// for; a source that does not hold the offset is an error.
func (f *sourceFeed) open(ctx context.Context, from int64) (*LogReader, error) {
	c := &f.w.cfg
	for wait := retryMin; ; wait = min(2*wait, retryMax) {
		r, err := OpenLogReader(ctx, f.w.n.client, ReaderOptions{
			Topic: c.Shard.Topic, Partition: c.Shard.Partition, Offset: from, Committed: true, MaxWait: sourceWait,
			MaxBytes: f.w.n.fetchBytes(), admin: f.w.n.admin,
		})
		switch {
		case err == nil:
			return r, nil
		case errors.Is(err, ErrOffsetOutOfRange):
			return nil, f.lost(err)
		case errors.Is(err, ErrNoTopic):
			return nil, fmt.Errorf("table %s: its source: %w", c.Table, err)
		}
		f.w.n.log.Warn("a source cannot be opened; it is tried again", "table", c.Table, "topic", c.Shard.Topic, "partition", c.Shard.Partition, "error", err)
		if err := sleep(ctx, wait); err != nil {
			return nil, err
		}
	}
}

// lost is the error of a source that does not hold what is to be read next.
func (f *sourceFeed) lost(err error) error {
	return fmt.Errorf("table %s: its source: %w: retention or somebody deleted records before they were read, or the topic lost its end; restore them, or go on without them with `varve table skip %s --partition %d --to OFFSET`",
		f.w.cfg.Table, err, f.w.cfg.Table, f.w.cfg.Shard.Partition)
}

func (f *sourceFeed) read(ctx context.Context, from int64, out chan<- sourceBatch, finished chan<- struct{}, generation int64) {
	defer close(finished)
	r, err := f.open(ctx, from)
	if err != nil {
		select {
		case out <- sourceBatch{generation: generation, err: err}:
		case <-ctx.Done():
		}
		return
	}
	defer r.Close()
	high := int64(-1)
	held := &ahead{freed: make(chan struct{}, 1)}
	for ctx.Err() == nil {
		rs, err := r.Poll(ctx, feedWait, sourcePoll)
		switch {
		case errors.Is(err, ErrOffsetOutOfRange):
			err = f.lost(err)
		case err != nil:
			err = fmt.Errorf("table %s: its source: %w", f.w.cfg.Table, err)
		}
		b := sourceBatch{generation: generation, next: r.Next(), high: r.HighWatermark(), ahead: held, err: err}
		if err == nil && len(rs) == 0 && b.high == high {
			continue
		}
		high = b.high
		b.recs = make([]source.Record, 0, len(rs))
		for i := range rs {
			x := &rs[i]
			if x.Control {
				continue
			}
			s := source.Record{
				Topic: f.w.cfg.Shard.Topic, Partition: f.w.cfg.Shard.Partition, Offset: x.Offset, TimeMs: x.TimeMs, Key: x.Key, Value: x.Value,
			}
			s.Headers = sourceHeaders(nil, x.Headers)
			b.recs = append(b.recs, s)
			b.bytes += int64(len(s.Key)+len(s.Value)) + recordRoom
		}
		held.take(ctx, b.bytes)
		select {
		case out <- b:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// BufferBytes is what the shards' buffers take now.
func (n *Node) BufferBytes() int64 { return n.room.Held() }

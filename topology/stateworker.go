package topology

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/processors/collector"
	"github.com/varve-io/varve/processors/publisher"
	"github.com/varve-io/varve/processors/state"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

const (
	statePoll = 20 * time.Millisecond
	// catchUpReport is how often catching up says how far it is.
	catchUpReport = 5 * time.Second
	// collectEvery is how often metadata files beyond the metadata log are looked for.
	collectEvery = time.Minute
	// retryMin and retryMax bound the waits between attempts at what is away.
	retryMin = 100 * time.Millisecond
	retryMax = 10 * time.Second
	// maxMoves bounds how often a catalog that moves again and again is followed without a wait.
	maxMoves = 16
	// minFresh is the least time that a definition's commit has.
	minFresh = 5 * time.Second
	// maxPublishers publish a partition's tables side by side.
	maxPublishers = 4
)

// stateWorker drives one transactions partition and publishes its tables.
type stateWorker struct {
	n         *Node
	partition int32
	store     *statestore.Store
	machine   *state.Machine
	reader    *LogReader
	box       *mailbox
	appender  *logAppender
	pub       *publisher.Publisher
	keeper    *keeper
	desk      *jobDesk // nil: the node plans and sends no jobs
	outputs   *outputChecker
	gcMu      sync.Mutex
	gc        *collector.Collector // under gcMu
	log       *slog.Logger

	mu       sync.Mutex
	cond     *sync.Cond
	applied  int64            // newest committed log offset
	building map[int64]bool   // tables that a publisher works on; true: it was told of another cut since
	waiting  map[int64]string // why a table's cut is not published yet
	stuck    map[int64]error  // tables whose publishing waits for a person
	slots    chan struct{}
	bodyWait string         // what the partition waits for before it applies on
	released map[int64]bool // tables with jobs that were given up
	stopped  atomic.Bool    // the partition is not applied any more

	use    sync.RWMutex // held for reading the store by others than its goroutine
	closed bool

	stopRun context.CancelCauseFunc // ends run with an error
}

// close ends what an opened worker holds; its goroutine has ended.
func (w *stateWorker) close() error {
	if w.reader != nil {
		w.reader.Close()
	}
	w.n.metrics.left(w.partition)
	return w.store.Close()
}

func (n *Node) openState(ctx context.Context, p int32, high int64) (out *stateWorker, err error) {
	dir := stateDir(n.opt.Data, p)
	st, keeper, err := n.openStore(ctx, p, dir)
	if err != nil {
		return nil, err
	}
	w := &stateWorker{
		n: n, partition: p, store: st, keeper: keeper, box: newMailbox(), log: n.log.With("partition", p),
		building: map[int64]bool{}, waiting: map[int64]string{}, stuck: map[int64]error{}, released: map[int64]bool{}, slots: make(chan struct{}, maxPublishers),
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	w.cond = sync.NewCond(&w.mu)
	w.outputs = newOutputChecker(w, n.opt.Jobs.CheckOutputs)
	w.appender = &logAppender{ctx: n.ctx, producer: n.producer, topic: n.topics.Transactions, partition: p, box: w.box}
	w.machine = state.New(state.Config{
		Store: st, Bodies: n.bodies, Log: w.appender, Logger: w.log,
		Applied: func(o *record.OutcomeMessage) {
			n.metrics.applied(p, o)
			w.sawOutcome(o)
			w.outputs.applied(o)
		},
		Outcomes: &outcomeSender{ctx: n.ctx, producer: n.producer, topic: n.topics.Outcomes, partition: p, box: w.box},
	})
	if n.has(RolePlanner) {
		w.desk = newJobDesk(w)
	}
	config := publisher.Config{Store: n.store, Bodies: n.bodies, Logger: w.log}
	if n.remote != nil {
		config.Remote = n.remote
		config.Fresh = max(n.opt.SessionTimeout/2, minFresh)
	}
	if g := n.opt.Garbage.Grace; g != 0 {
		config.Grace = max(g, time.Nanosecond)
	}
	w.pub = publisher.New(config)
	w.gc = collector.New(collector.Config{State: st, Store: n.store, Catalog: w.pub, Grace: n.opt.Garbage.Grace})
	h := st.Head()
	if h.Offset >= 0 {
		if h.Deployment != n.id || h.Partition != p {
			return nil, fmt.Errorf("%w: %s; remove the folder, it is rebuilt from the log", statestore.ErrIdentity, dir)
		}
		if err := n.admin.CheckHighWatermark(ctx, []UsedOffset{{
			Topic: n.topics.Transactions, Partition: p, Next: h.Offset + 1, Since: h.Offset, By: fmt.Sprintf("the state of partition %d", p),
		}}); err != nil {
			return nil, err
		}
		last, err := n.readOne(ctx, n.topics.Transactions, p, h.Offset)
		if err != nil {
			return nil, err
		}
		r := stateRecord(last)
		if last.Offset != h.Offset {
			return nil, w.machine.CheckLast(nil)
		}
		if err := w.machine.CheckLast(&r); err != nil {
			return nil, err
		}
	}
	last, err := w.lastOutcome(ctx, high)
	if err != nil {
		return nil, err
	}
	if err := w.checkOutcomes(ctx, last, dir); err != nil {
		return nil, err
	}
	if w.reader, err = OpenLogReader(ctx, n.client, ReaderOptions{Topic: n.topics.Transactions, Partition: p, Offset: h.Offset + 1, MaxWait: 100 * time.Millisecond}); err != nil {
		return nil, err
	}
	if err := w.machine.Resume(last); err != nil {
		return nil, err
	}
	return w, w.catchUp(ctx, high)
}

// lastOutcome is the newest log offset that the outcomes topic has, -1: none
// (L11). What varve did not write is passed over; high is the log's end.
func (w *stateWorker) lastOutcome(ctx context.Context, high int64) (int64, error) {
	offsets, err := w.n.admin.Offsets(ctx, w.n.topics.Outcomes)
	if err != nil {
		return -1, err
	}
	for at := offsets[w.partition].High - 1; at >= offsets[w.partition].Start; at-- {
		r, err := w.n.readOne(ctx, w.n.topics.Outcomes, w.partition, at)
		if err != nil {
			return -1, err
		}
		var m record.OutcomeMessage
		if !isOutcome(r, &m) || m.Offset >= high {
			w.log.Warn("the outcomes topic holds a message that varve did not write; it is passed over", "offset", at)
			continue
		}
		if m.Derived {
			return m.Offset - 1, nil
		}
		return m.Offset, nil
	}
	return -1, nil
}

// ErrOutcomesLost marks errors of an outcomes topic that no longer has what was
// sent to it. The log has all: a state that is built again sends it again.
var ErrOutcomesLost = errors.New("outcomes are lost")

// checkOutcomes makes sure that the outcomes topic begins with the log's own
// beginning: its readers look for the outcome of log offset o at o or above.
func (w *stateWorker) checkOutcomes(ctx context.Context, last int64, dir string) error {
	topic := w.n.topics.Outcomes
	if last >= 0 {
		r, err := w.n.readOne(ctx, topic, w.partition, 0)
		if err != nil {
			return err
		}
		var m record.OutcomeMessage
		if err := record.DecodeOutcomeMessage(r.Key, r.Value, &m); err != nil {
			return fmt.Errorf("topic %s partition %d, offset 0: %w", topic, w.partition, err)
		}
		if m.Offset != 0 {
			return fmt.Errorf("%w: topic %s partition %d begins with the outcome of log offset %d; delete the topic and the folder %s: both are made again from the log", ErrOutcomesLost, topic, w.partition, m.Offset, dir)
		}
		return nil
	}
	head, first := w.store.Head().Offset, int64(-1)
	if err := w.store.Unsent(-1, func(x statestore.Message) error {
		if first < 0 {
			first = x.Offset
		}
		return nil
	}); err != nil {
		return err
	}
	if head >= 0 && first != 0 {
		return fmt.Errorf("%w: topic %s partition %d is empty, but the state at log offset %d had sent to it; remove the folder %s: it is built again from the log, and sends them again", ErrOutcomesLost, topic, w.partition, head, dir)
	}
	return nil
}

// catchUp applies the log up to where it ended at the start.
func (w *stateWorker) catchUp(ctx context.Context, high int64) error {
	from := w.machine.Next()
	last := time.Now()
	for w.machine.Next() < high {
		if err := w.step(ctx, time.Second); err != nil {
			return err
		}
		if time.Since(last) > catchUpReport {
			last = time.Now()
			w.log.Info("catching up with the log", "applied", w.machine.Next()-from, "of", high-from)
		}
	}
	w.machine.Ready()
	return nil
}

// step reads once and applies what came.
func (w *stateWorker) step(ctx context.Context, wait time.Duration) error {
	w.box.run()
	if err := w.machine.Err(); err != nil {
		return err
	}
	rs, err := w.reader.Poll(ctx, wait, 8192)
	if err != nil {
		return err
	}
	recs := make([]statestore.Record, len(rs))
	for i := range rs {
		recs[i] = stateRecord(&rs[i])
	}
	wait = retryMin
	for {
		now := time.Now().UnixMilli()
		err := w.machine.OnLog(ctx, now, recs, w.reader.Next() >= w.reader.HighWatermark())
		if err == nil {
			break
		}
		if w.machine.Err() != nil {
			return err
		}
		w.log.Warn("a record waits for its body", "offset", w.machine.Next(), "error", err)
		w.setBodyWait(err.Error())
		if err := sleep(ctx, wait); err != nil {
			return err
		}
		wait = min(2*wait, retryMax)
	}
	w.setBodyWait("")
	w.n.metrics.logRead(w.partition, w.machine.Next(), w.reader.HighWatermark())
	w.mu.Lock()
	if o := w.machine.Next() - 1; o != w.applied {
		w.applied = o
		w.cond.Broadcast()
	}
	w.mu.Unlock()
	return nil
}

func (w *stateWorker) setBodyWait(why string) {
	w.mu.Lock()
	w.bodyWait = why
	w.mu.Unlock()
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

func (w *stateWorker) run(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			w.stopped.Store(true)
			w.markDamaged(err)
		}
	}()
	var pubs sync.WaitGroup
	defer pubs.Wait()
	// Publishers wait for what only this goroutine applies: when it ends, they end.
	given := ctx
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	w.stopRun = stop
	pubs.Go(func() { w.keepCheckpoints(ctx) })
	if w.n.has(RolePublisher) {
		pubs.Go(func() { w.collectMetadata(ctx) })
		pubs.Go(func() { w.collecting(ctx) })
		if w.n.remote != nil {
			pubs.Go(func() { w.lookAround(ctx, &pubs) })
		}
	}
	if w.outputs != nil {
		pubs.Go(func() { w.outputs.run(ctx) })
	}
	if w.desk != nil {
		pubs.Go(func() { w.desk.run(ctx) })
		pubs.Go(func() { w.planning(ctx) })
	}
	held := map[int64]bool{}
	for ctx.Err() == nil {
		if err := w.step(ctx, statePoll); err != nil {
			if ctx.Err() != nil && given.Err() == nil {
				return context.Cause(ctx)
			}
			return err
		}
		if jobs := w.machine.Jobs(); w.desk != nil {
			w.desk.add(jobs)
		}
		if !w.n.has(RolePublisher) {
			continue
		}
		w.machine.Tick(ctx, nowMs())
		held = w.tellHeld(held)
		for _, c := range w.machine.Pending() {
			if w.beginPublish(c.TableID) {
				pubs.Go(func() { w.publishTable(ctx, c) })
			}
		}
	}
	if given.Err() == nil {
		return context.Cause(ctx)
	}
	return nil
}

// fail stops the partition for something that one of its publishers met.
func (w *stateWorker) fail(ctx context.Context, err error) {
	if ctx.Err() == nil {
		w.stopRun(err)
	}
}

// waitPublished asks for the cuts of what was accepted and waits until they are
// published. Tables whose publishing fails are passed over; so is what others
// append meanwhile.
func (w *stateWorker) waitPublished(ctx context.Context) error {
	w.box.post(w.machine.CutSoon)
	through := map[int64]int64{}
	for {
		var waits string
		_, tables, err := w.tables()
		for _, t := range tables {
			if _, seen := through[t.ID]; !seen {
				through[t.ID] = t.LastChange
			}
			w.mu.Lock()
			_, stuck := w.waiting[t.ID]
			w.mu.Unlock()
			if !stuck && (t.Pending != nil || t.Changes) && t.Head.Through < through[t.ID] {
				waits = t.Name
			}
		}
		if errors.Is(err, errMoved) {
			return nil
		}
		if err != nil || waits == "" || w.stopped.Load() {
			return err
		}
		if err := sleep(ctx, shardTick); err != nil {
			return fmt.Errorf("table %s: its last changes were not published in time: they are at the next start", waits)
		}
	}
}

// beginPublish says whether a publisher must be started for a table; one that
// is at work is told to look again.
func (w *stateWorker) beginPublish(table int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, busy := w.building[table]
	w.building[table] = busy
	return !busy
}

// endPublish ends a table's publisher unless it was told of another cut since
// it last looked.
func (w *stateWorker) endPublish(table int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.building[table] {
		w.building[table] = false
		return false
	}
	delete(w.building, table)
	return true
}

func (w *stateWorker) publishTable(ctx context.Context, c statestore.CutNotice) {
	for {
		w.publish(ctx, c)
		if w.endPublish(c.TableID) || ctx.Err() != nil {
			return
		}
	}
}

// collectMetadata removes metadata files that no reader needs any more.
func (w *stateWorker) collectMetadata(ctx context.Context) {
	for sleep(ctx, collectEvery) == nil {
		n, err := w.pub.CollectMetadata(ctx, time.Now())
		if err != nil && ctx.Err() == nil {
			w.log.Warn("old metadata files could not be removed; they are tried again", "error", err)
		}
		if n > 0 {
			w.log.Info("old metadata files removed", "files", n)
		}
	}
}

// publish builds and commits a table's pending cut, with retries, until a
// SnapshotCommitted of it was accepted.
func (w *stateWorker) publish(ctx context.Context, c statestore.CutNotice) {
	wait := retryMin
	cause := ""
	var told any // what the log was told last of the catalog
	for attempt := int64(1); ctx.Err() == nil; attempt++ {
		build, err := w.pendingBuild(c)
		if err == nil && build < 0 {
			w.setWaiting(c.TableID, "")
			w.setStuck(c.TableID, nil)
			return // confirmed meanwhile, or dropped
		}
		var frozen *statestore.FrozenCut
		if err == nil {
			frozen, err = w.store.Frozen(c.TableID)
		}
		asOf := time.Now()
		if err == nil && frozen != nil && len(frozen.Files) == 0 && w.n.remote != nil {
			// No requirement of a catalog refuses such a commit of a node that stood still
			// and is about to hear that others publish: it hears first (S16).
			if w.reachEnd(ctx) != nil {
				return // the node stops
			}
			frozen, err = w.store.Frozen(c.TableID)
		}
		if err != nil {
			w.fail(ctx, fmt.Errorf("table %s: %w", c.Table, err))
			return
		}
		if frozen == nil {
			return // its commit brings the notice again
		}
		// Only the work takes a slot: a table that waits must not hold up the others.
		select {
		case w.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		begun := time.Now()
		tracing, end := w.n.opt.Traces.span(ctx, "publish", attribute.String("varve.table", c.Table), attribute.Int64("varve.build", frozen.Build), attribute.Int64("varve.attempt", attempt))
		res, err := w.pub.PublishAsOf(tracing, frozen, asOf)
		end(err)
		<-w.slots
		if err == nil {
			w.n.metrics.publishedIn(c.Table, time.Since(begun))
			w.box.post(func() { w.machine.Published(c.TableID, res.VectorBytes) })
			if err = w.confirm(ctx, c, &res.Committed); err == nil {
				wait = retryMin
				continue
			}
		}
		if ctx.Err() != nil {
			return
		}
		fact, by := catalogFact(err)
		if fact != nil {
			// The log takes the catalog's facts, and the cut a new build offset where
			// a number rises (H5, C4). Facts that it did not take wait.
			w.log.Info("the table moved in the catalog", "table", c.Table, "build", frozen.Build, "by", by)
			off := w.append(ctx, c, fact)
			w.waitApplied(ctx, off)
			again := reflect.DeepEqual(fact, told)
			if told = fact; !again && attempt < maxMoves {
				continue
			}
		}
		var head *publisher.HeadMoved
		if errors.As(err, &head) {
			// The log takes what others committed, and gives the cut up (H2).
			w.log.Info("other writers committed to the table", "table", c.Table, "build", frozen.Build, "what", head.Why)
			if err = w.takeForeign(ctx, c, frozen, head); err == nil {
				wait = retryMin
				continue
			}
			if ctx.Err() != nil {
				return
			}
		}
		w.n.metrics.publishFailed(c.Table, err)
		w.setWaiting(c.TableID, err.Error())
		if errors.Is(err, publisher.ErrForeign) || errors.Is(err, publisher.ErrInconsistent) {
			// A person must act, and need not start the node again for it.
			if w.setStuck(c.TableID, err) {
				w.log.Error("a table cannot be published until somebody acts; it is looked at again now and then", "table", c.Table, "build", frozen.Build, "error", err)
			}
			if sleep(ctx, stuckRetry) != nil {
				return
			}
			continue
		}
		w.setStuck(c.TableID, nil)
		w.log.Error("a cut could not be published", "table", c.Table, "build", frozen.Build, "attempt", attempt, "error", err)
		// Each cause is recorded when it begins, and a long wait now and then.
		if now := publisher.Cause(err); fact == nil && head == nil && (now != cause || attempt&(attempt-1) == 0) {
			cause = now
			w.append(ctx, c, &record.SnapshotFailed{Cut: frozen.Cut, Build: frozen.Build, Attempt: attempt, Cause: cause})
		}
		if sleep(ctx, wait) != nil {
			return
		}
		wait = min(2*wait, retryMax)
	}
}

// reachEnd waits until the state has what the log has now. An error: ctx ended.
func (w *stateWorker) reachEnd(ctx context.Context) error {
	for wait := retryMin; ; wait = min(2*wait, retryMax) {
		ends, err := w.n.admin.Offsets(ctx, w.n.topics.Transactions)
		if err == nil {
			w.waitApplied(ctx, ends[w.partition].High-1)
			return ctx.Err()
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		w.log.Warn("the log's end could not be asked for; it is tried again", "error", err)
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// catalogFact is the record that tells the log what a publisher found the catalog
// to know of a table, nil where that is not why it failed.
func catalogFact(err error) (fact any, by string) {
	var moved *publisher.BaseMoved
	var specs *publisher.SpecsMoved
	var taken *publisher.SpecsTaken
	var given *publisher.SchemasGiven
	switch {
	case errors.As(err, &moved):
		return &moved.Record, moved.Why
	case errors.As(err, &specs):
		return &specs.Record, "its partition specs"
	case errors.As(err, &taken):
		return &taken.Record, "its partition specs, which have ids of ours"
	case errors.As(err, &given):
		return &given.Record, "columns that came and went"
	}
	return nil, ""
}

func (w *stateWorker) setWaiting(table int64, why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if why == "" {
		delete(w.waiting, table)
	} else {
		w.waiting[table] = why
	}
}

// tellHeld makes known which tables' cuts are held back, and that others' are
// not any more: before are those of the last time.
func (w *stateWorker) tellHeld(before map[int64]bool) map[int64]bool {
	held := w.machine.Held()
	if len(held)+len(before) == 0 {
		return before
	}
	now := make(map[int64]bool, len(held))
	for _, h := range held {
		now[h.TableID] = true
		w.setWaiting(h.TableID, fmt.Sprintf("another writer's clock was ahead: the catalog takes a change without a snapshot from %s on, or with the next rows", time.UnixMilli(h.UntilMs).UTC().Format(time.RFC3339)))
	}
	for id := range before {
		if !now[id] {
			w.setWaiting(id, "")
		}
	}
	return now
}

// stuckRetry is how often a table is looked at that waits for a person.
const stuckRetry = 10 * time.Second

// setStuck notes why a table waits for a person, nil: it does not any more. It
// says whether that is news.
func (w *stateWorker) setStuck(table int64, why error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.stuck[table]
	if why == nil {
		delete(w.stuck, table)
		return was != nil
	}
	w.stuck[table] = why
	return was == nil || was.Error() != why.Error()
}

func (w *stateWorker) append(ctx context.Context, c statestore.CutNotice, v any) int64 {
	h := w.store.Head()
	m, err := w.n.bodies.Message(ctx, record.Envelope{
		ApplyVersion: h.ApplyVersion, Request: record.NewRequestID(), OffsetSeen: h.Offset, Table: c.Table, TableID: c.TableID,
	}, v)
	if err != nil {
		w.log.Error("a record could not be made", "table", c.Table, "error", err)
		return -1
	}
	off, err := w.n.producer.AppendSync(ctx, w.n.topics.Transactions, w.partition, logEntry(m))
	if err != nil {
		w.log.Error("a record could not be appended", "table", c.Table, "error", err)
		return -1
	}
	return off
}

// confirm appends the SnapshotCommitted and waits until the state took it.
func (w *stateWorker) confirm(ctx context.Context, c statestore.CutNotice, s *record.SnapshotCommitted) error {
	off := w.append(ctx, c, s)
	if off < 0 {
		return errors.New("the snapshot is in the catalog, but its record could not be appended")
	}
	w.waitApplied(ctx, off)
	build, err := w.pendingBuild(c)
	if err == nil && build == s.Build && ctx.Err() == nil {
		err = fmt.Errorf("the snapshot is in the catalog, but the state rejected its record at log offset %d", off)
	}
	return err
}

// pendingBuild is the build offset of a table's pending cut, -1: there is none.
func (w *stateWorker) pendingBuild(c statestore.CutNotice) (int64, error) {
	t, err := w.store.Table(c.Table)
	if err != nil || t == nil || t.ID != c.TableID || t.Pending == nil {
		return -1, err
	}
	return t.Pending.Build, nil
}

// waitApplied waits until the state has applied a log offset.
func (w *stateWorker) waitApplied(ctx context.Context, offset int64) {
	stop := context.AfterFunc(ctx, func() {
		w.mu.Lock()
		w.cond.Broadcast()
		w.mu.Unlock()
	})
	defer stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.applied < offset && ctx.Err() == nil {
		w.cond.Wait()
	}
}

var _ processors.Appender = (*logAppender)(nil)

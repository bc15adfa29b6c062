package topology

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"go.opentelemetry.io/otel/attribute"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/processors/compactor"
	"github.com/varve-io/varve/processors/finder"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/statestore/objstore"
)

const (
	// jobsAtATime is how many messages of the jobs topic a worker takes at once.
	jobsAtATime = 16
	// jobTries is how often a worker tries a job that failed for a reason that
	// may pass, before it gives the attempt up.
	jobTries = 3
	// jobCommit is how often the group's offsets are set to what is done.
	jobCommit = time.Second
	// maxCompletions is how many jobs one CompleteJob tells of, completionWait how
	// long a finished one waits for company while others are under way.
	maxCompletions = 256
	completionWait = 10 * time.Millisecond
)

// CompactorGroup is the name of the group over the jobs topic.
func CompactorGroup(deployment string) string { return deployment + ".compactors" }

// compactors execute jobs of the jobs topic as a member of the group over it.
// They have no state: a message is done once the log has the completion, and only
// then does the group's offset pass it, so what a worker leaves when it dies is
// given to another.
type compactors struct {
	n      *Node
	exec   *compactor.Executor
	finder *finder.Executor
	tasks  chan *jobTask
	done   chan *jobTask
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu   sync.Mutex
	cl   *kgo.Client
	held map[int32]*jobPartition
}

// jobPartition is a partition of the jobs topic for as long as this node has it.
type jobPartition struct {
	ctx    context.Context
	cancel context.CancelFunc
	tasks  []*jobTask // those that are not done, and those behind them
	next   int64      // offset after the newest one taken
	told   int64      // committed to the group
	busy   sync.WaitGroup
	closed bool
}

// jobTask is a message of the jobs topic.
type jobTask struct {
	part   *jobPartition
	offset int64
	over   bool
	d      *record.Dispatch     // of a part of a find job what both kinds have
	find   *record.FindDispatch // nil: a compaction
	result *compactor.Done
	found  *record.RowsFound
	ack    chan error
}

func (n *Node) startCompactors() error {
	c := &compactors{
		n: n, exec: &compactor.Executor{Store: n.store, Bodies: n.bodies}, finder: &finder.Executor{Store: n.store, Bodies: n.bodies}, tasks: make(chan *jobTask), done: make(chan *jobTask),
		held: map[int32]*jobPartition{},
	}
	c.ctx, c.cancel = context.WithCancel(n.ctx)
	var err error
	if c.cl, err = c.join(); err != nil {
		c.cancel()
		return err
	}
	workers := n.opt.Jobs.Workers
	if workers <= 0 {
		workers = max(1, runtime.GOMAXPROCS(0)/2)
	}
	for range workers {
		c.wg.Go(c.work)
	}
	c.wg.Go(c.complete)
	c.wg.Go(c.read)
	c.wg.Go(func() {
		for sleep(c.ctx, jobCommit) == nil {
			c.commit(c.ctx, nil)
		}
	})
	n.compactors = c
	return nil
}

// join makes the client that takes part in the group.
func (c *compactors) join() (*kgo.Client, error) {
	n := c.n
	return newClient(n.client,
		kgo.ConsumerGroup(CompactorGroup(n.deployment)), kgo.ConsumeTopics(n.topics.Jobs),
		kgo.InstanceID(n.deployment+"."+n.opt.NodeID), kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.SessionTimeout(n.opt.SessionTimeout), kgo.HeartbeatInterval(min(n.opt.SessionTimeout/4, 3*time.Second)), kgo.RebalanceTimeout(n.opt.RebalanceTimeout),
		kgo.DisableAutoCommit(),
		// A message that is read again costs work, one that is passed over a job: in
		// doubt it is read again.
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxBytes(DefaultReadBytes), kgo.FetchMaxWait(500*time.Millisecond), kgo.MaxConcurrentFetches(1),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, added map[string][]int32) { c.assigned(added[n.topics.Jobs]) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, gone map[string][]int32) { c.revoked(gone[n.topics.Jobs]) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, gone map[string][]int32) { c.lost(gone[n.topics.Jobs]) }),
	)
}

func (c *compactors) client() *kgo.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cl
}

// joinAgain takes part with a new client after the group took another process
// for this node (mostFenced): it refuses the old one's member for ever. Nothing
// is lost by two that throw each other out, so it is tried for ever.
func (c *compactors) joinAgain(times int) {
	wait := fencedWait << min(times-1, 6)
	c.n.log.Warn("the group took another process for this node: one that was killed, whose last request came late, or one that runs with the same id; the node joins again",
		"group", CompactorGroup(c.n.deployment), "node", c.n.opt.NodeID, "in", wait)
	c.client().Close()
	if sleep(c.ctx, wait) != nil {
		return
	}
	cl, err := c.join()
	if err != nil { // of options that were good before
		c.n.fail(fmt.Errorf("group %s: join again: %w", CompactorGroup(c.n.deployment), err))
		return
	}
	c.mu.Lock()
	c.cl = cl
	c.mu.Unlock()
}

// stop ends the work: jobs under way are given up, their outputs aborted, and the
// group gives their messages to others at once. A worker has nothing to lose by
// leaving.
func (c *compactors) stop(ctx context.Context) {
	c.cancel()
	c.wg.Wait()
	c.commit(ctx, nil)
	m := c.member()
	m.close()
	if err := m.leave(ctx); err != nil && ctx.Err() == nil {
		c.n.log.Debug("the group of compactors is left later", "error", err)
	}
}

func (c *compactors) member() *member {
	return &member{o: memberOptions{client: c.n.client, group: CompactorGroup(c.n.deployment)}, instance: c.n.deployment + "." + c.n.opt.NodeID, cl: c.client(), ended: make(chan struct{})}
}

func (c *compactors) assigned(ps []int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range ps {
		x := &jobPartition{next: -1, told: -1}
		x.ctx, x.cancel = context.WithCancel(c.ctx)
		c.held[p] = x
	}
}

// revoked lets jobs under way end, for a while, and gives the rest up.
func (c *compactors) revoked(ps []int32) {
	ctx, cancel := context.WithTimeout(c.ctx, c.n.opt.RebalanceTimeout/2)
	defer cancel()
	var gone []*jobPartition
	c.mu.Lock()
	for _, p := range ps {
		if x := c.held[p]; x != nil {
			x.closed = true
			gone = append(gone, x)
		}
	}
	c.mu.Unlock()
	over := make(chan struct{})
	go func() {
		defer close(over)
		for _, x := range gone {
			x.busy.Wait()
		}
	}()
	select {
	case <-over:
	case <-ctx.Done():
	}
	for _, x := range gone {
		x.cancel()
	}
	<-over
	c.commit(context.WithoutCancel(ctx), ps)
	c.drop(ps)
}

func (c *compactors) lost(ps []int32) {
	c.mu.Lock()
	for _, p := range ps {
		if x := c.held[p]; x != nil {
			x.closed = true
			x.cancel()
		}
	}
	c.mu.Unlock()
	c.drop(ps)
}

func (c *compactors) drop(ps []int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range ps {
		delete(c.held, p)
	}
}

// commit tells the group what is done of these partitions; nil: of all.
func (c *compactors) commit(ctx context.Context, ps []int32) {
	at := map[int32]int64{}
	c.mu.Lock()
	for p, x := range c.held {
		for len(x.tasks) > 0 && x.tasks[0].over {
			x.tasks = x.tasks[1:]
		}
		to := x.next
		if len(x.tasks) > 0 {
			to = x.tasks[0].offset
		}
		if to <= x.told || ps != nil && !slices.Contains(ps, p) {
			continue
		}
		at[p] = to
	}
	c.mu.Unlock()
	if len(at) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, groupTimeout)
	defer cancel()
	if err := c.member().commit(ctx, c.n.topics.Jobs, at); err != nil {
		c.n.log.Debug("offsets of jobs are set later", "error", err)
		return
	}
	c.mu.Lock()
	for p, to := range at {
		if x := c.held[p]; x != nil {
			x.told = to
		}
	}
	c.mu.Unlock()
}

// read takes messages for as long as workers are free.
func (c *compactors) read() {
	times := 0
	for c.ctx.Err() == nil {
		if c.n.wait != nil {
			if c.n.wait(c.ctx) != nil {
				return
			}
		}
		fetches := c.client().PollRecords(c.ctx, jobsAtATime)
		fenced := false
		fetches.EachError(func(_ string, p int32, err error) {
			fenced = fenced || errors.Is(err, kerr.FencedInstanceID)
			if c.ctx.Err() == nil && !errors.Is(err, context.Canceled) {
				c.n.log.Warn("jobs cannot be read; it is tried again", "partition", p, "error", err)
			}
		})
		if fenced {
			times++
			c.joinAgain(times)
			continue
		}
		if fetches.NumRecords() == 0 && len(fetches.Errors()) > 0 {
			if sleep(c.ctx, retryMin) != nil {
				return
			}
		}
		fetches.EachRecord(func(r *kgo.Record) {
			t := c.take(r)
			if t == nil {
				return
			}
			select {
			case c.tasks <- t:
			case <-t.part.ctx.Done():
				t.part.busy.Done()
			}
		})
	}
}

// take makes a task of a message. What is no job, or of a partition that was
// given back, is nil.
func (c *compactors) take(r *kgo.Record) *jobTask {
	t := &jobTask{offset: r.Offset, ack: make(chan error, 1)}
	if !record.IsHeartbeat(r.Value) {
		if err := t.decode(r.Value); err != nil {
			c.n.log.Warn("a message of the jobs topic cannot be read; it is passed over", "partition", r.Partition, "offset", r.Offset, "error", err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.held[r.Partition]
	if x == nil || x.closed || r.Offset < x.next {
		return nil
	}
	t.part, t.over, x.next = x, t.d == nil, r.Offset+1
	if t.over && len(x.tasks) == 0 {
		return nil
	}
	x.tasks = append(x.tasks, t)
	if t.over {
		return nil
	}
	x.busy.Add(1)
	return t
}

func (c *compactors) work() {
	for {
		select {
		case <-c.ctx.Done():
			return
		case t := <-c.tasks:
			if c.execute(t.part.ctx, t) {
				c.mu.Lock()
				t.over = true
				c.mu.Unlock()
			}
			t.part.busy.Done()
		}
	}
}

// execute does a job and brings its end into the log: true when it is there.
func (c *compactors) execute(ctx context.Context, t *jobTask) bool {
	c.mu.Lock()
	closed := t.part.closed
	c.mu.Unlock()
	if closed || ctx.Err() != nil {
		return false
	}
	var rows, total atomic.Int64
	for i := range t.d.Inputs {
		total.Add(t.d.Inputs[i].Hi - t.d.Inputs[i].Lo)
	}
	beats, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.beat(beats, t.d, &rows, &total)
	}()
	defer func() {
		stop()
		<-ended
	}()
	began := time.Now()
	var err error
	for try, wait := 1, retryMin; ; try, wait = try+1, min(4*wait, retryMax) {
		tracing, end := c.n.opt.Traces.span(ctx, t.kind(), attribute.String("varve.table", t.d.Table), attribute.Int64("varve.plan", t.d.Job.Plan),
			attribute.Int64("varve.item", int64(t.d.Job.Item)), attribute.Int64("varve.rows", total.Load()))
		err = c.once(tracing, t, &rows, &total)
		end(err)
		if err == nil || ctx.Err() != nil || forGood(err) || try == jobTries {
			break
		}
		c.n.log.Warn("a job failed; it is tried again", "table", t.d.Table, "plan", t.d.Job.Plan, "item", t.d.Job.Item, "error", err)
		if sleep(ctx, wait) != nil {
			return false
		}
	}
	if ctx.Err() != nil {
		return false
	}
	if err != nil {
		again := !forGood(err) && int(t.d.Job.Attempt) < c.n.opt.Jobs.Attempts
		c.n.log.Error("a job is given up", "table", t.d.Table, "plan", t.d.Job.Plan, "item", t.d.Job.Item, "attempt", t.d.Job.Attempt, "again", again, "error", err)
		c.n.metrics.jobDone(t.d.Table, "failed", nil, 0)
		return c.release(ctx, t.d, again) == nil
	}
	if t.find != nil {
		return c.tellFound(ctx, t, began)
	}
	select {
	case c.done <- t:
	case <-ctx.Done():
		return false
	}
	select {
	case err = <-t.ack:
	case <-ctx.Done():
		return false // perhaps it is there: whoever does it again is rejected
	}
	if err != nil {
		c.n.log.Error("a completed job could not be told; it is done again", "table", t.d.Table, "plan", t.d.Job.Plan, "item", t.d.Job.Item, "error", err)
		return false
	}
	r := t.result.Result
	c.n.metrics.jobDone(t.d.Table, "executed", r, time.Since(began))
	c.n.log.Info("a job is done", "table", t.d.Table, "plan", t.d.Job.Plan, "item", t.d.Job.Item, "inputs", len(t.d.Inputs), "outputs", len(r.Outputs),
		"rows", r.Rows, "dropped", r.Dropped, "bytes_in", r.BytesIn, "bytes_out", r.BytesOut, "took", time.Since(began).Round(time.Millisecond))
	if r.SameKey > 0 {
		c.n.log.Error("a table has two live rows of one key", "table", t.d.Table, "rows", r.SameKey)
	}
	return true
}

// forGood says whether trying a job again cannot help.
func forGood(err error) bool {
	for _, is := range []error{compactor.ErrDispatch, finder.ErrDispatch, compactor.ErrNotSorted, compactor.ErrClaim, compactor.ErrJob, rows.ErrUnsupported, objstore.ErrNotFound, processors.ErrBodyAltered} {
		if errors.Is(err, is) {
			return true
		}
	}
	return false
}

// beat tells that the job is in hand, at once and then and again.
func (c *compactors) beat(ctx context.Context, d *record.Dispatch, rows, total *atomic.Int64) {
	every := max(min(c.n.opt.Jobs.Timeout/10, 5*time.Second), 100*time.Millisecond)
	for {
		h := record.Heartbeat{Job: d.Job, TableID: d.TableID, Partition: d.Partition, Worker: c.n.opt.NodeID, Rows: rows.Load(), TotalRows: total.Load()}
		value, err := record.EncodeHeartbeat(nil, &h)
		if err != nil {
			c.n.log.Error("a heartbeat could not be made", "error", err)
			return
		}
		c.n.sendJob(ctx, d.TableID, &d.Job, value, func(error) {}) // the next one tells more
		if sleep(ctx, every) != nil {
			return
		}
	}
}

// release gives an attempt up (F6).
func (c *compactors) release(ctx context.Context, d *record.Dispatch, again bool) error {
	m, err := c.n.bodies.Message(ctx, record.Envelope{
		ApplyVersion: d.ApplyVersion, Request: record.NewRequestID(), OffsetSeen: d.Job.Plan, Table: d.Table, TableID: d.TableID,
	}, &record.ReleaseJob{Items: []record.ReleasedJob{{Job: d.Job, Again: again}}, Cause: "the worker could not execute it"})
	if err != nil {
		return err
	}
	_, err = c.n.producer.AppendSync(ctx, c.n.topics.Transactions, d.Partition, logEntry(m))
	return err
}

// complete brings completions into the log, those that are there together in one record.
func (c *compactors) complete() {
	for {
		var all []*jobTask
		select {
		case <-c.ctx.Done():
			return
		case t := <-c.done:
			all = append(all, t)
		}
		timer := time.NewTimer(completionWait)
	gather:
		for len(all) < maxCompletions {
			select {
			case t := <-c.done:
				all = append(all, t)
			case <-timer.C:
				break gather
			case <-c.ctx.Done():
				break gather
			}
		}
		timer.Stop()
		type group struct {
			partition int32
			table     int64
			version   uint32
		}
		groups := map[group][]*jobTask{}
		for _, t := range all {
			g := group{t.d.Partition, t.d.TableID, t.d.ApplyVersion}
			groups[g] = append(groups[g], t)
		}
		for _, ts := range groups {
			c.wg.Go(func() { // one table's slow store is not the others'
				err := c.tell(ts)
				for _, t := range ts {
					t.ack <- err
				}
			})
		}
	}
}

// tell appends a CompleteJob, with retries for as long as the node runs.
func (c *compactors) tell(ts []*jobTask) error {
	d := ts[0].d
	var done []*compactor.Done
	for _, t := range ts {
		done = append(done, t.result)
	}
	for wait := retryMin; ; wait = min(2*wait, retryMax) {
		body, err := compactor.Complete(c.ctx, c.n.bodies, done)
		var m record.Message
		if err == nil {
			// Its attempt is what decides: a CompleteJob needs no request id (L9).
			m, err = c.n.bodies.Message(c.ctx, record.Envelope{ApplyVersion: d.ApplyVersion, OffsetSeen: d.Job.Plan, Table: d.Table, TableID: d.TableID}, body)
		}
		if err == nil {
			_, err = c.n.producer.AppendSync(c.ctx, c.n.topics.Transactions, d.Partition, logEntry(m))
		}
		if err == nil || c.ctx.Err() != nil || errors.Is(notTaken(err), processors.ErrNotTaken) {
			return err
		}
		c.n.log.Warn("completed jobs wait", "table", d.Table, "jobs", len(ts), "error", err)
		if err := sleep(c.ctx, wait); err != nil {
			return fmt.Errorf("tell of completed jobs: %w", err)
		}
	}
}

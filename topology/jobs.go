package topology

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varve-io/varve/processors/state"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

// Defaults of JobOptions.
const (
	DefaultPlanEvery  = 10 * time.Second
	DefaultJobTimeout = 5 * time.Minute
	// DefaultJobAttempts is how often a job is tried before its files are free again.
	DefaultJobAttempts = 5
	// DefaultMaxJobs bounds the open jobs of a deployment.
	DefaultMaxJobs = 100_000
)

const (
	// jobPoll is how long the desk waits for messages before it looks for jobs to send.
	jobPoll = 50 * time.Millisecond
	// jobGlance is jobPoll while jobs are to be sent.
	jobGlance = time.Millisecond
	// jobSweep is how often open jobs are held against what was sent and heard.
	jobSweep = 30 * time.Second
	// resendAfter is when a job that no worker has begun is sent again: the topic
	// keeps messages for longer, so only one whose message was deleted is lost.
	resendAfter = 24 * time.Hour
	// maxReleases is how many attempts one ReleaseJob gives up.
	maxReleases = 1000
)

// JobOptions say how compaction jobs are planned, followed and executed.
type JobOptions struct {
	// PlanEvery is how often a table is looked at for files to compact. Default: DefaultPlanEvery.
	PlanEvery time.Duration
	// Timeout is how long a worker may be silent before its job is given to
	// another. Default: DefaultJobTimeout.
	Timeout time.Duration
	// Attempts at a job before its files are free again. Default: DefaultJobAttempts.
	Attempts int
	// MaxJobs bounds the open jobs of the deployment; each partition of the log
	// has its share. Default: DefaultMaxJobs.
	MaxJobs int64
	// Workers is how many jobs a compactor executes at a time. Default: half the
	// processors, at least one.
	Workers int
	// Partitions of the jobs topic where it is made. Default: DefaultJobPartitions
	// on a cluster, one embedded.
	Partitions int
	// CheckOutputs: of so many completed jobs the outputs of one have their ends read
	// once they were accepted; negative: of none. Default: DefaultCheckOutputs.
	CheckOutputs int
}

// jobID is one attempt at a job of a partition of the log: plans are offsets in it.
type jobWatch struct {
	notice statestore.JobNotice
	sent   bool      // the jobs topic has it
	sentAt time.Time // or since when it is on its way
	heard  time.Time // zero: no worker has begun
	beat   record.Heartbeat
	first  record.Heartbeat // the first one of the worker that has it
	begun  time.Time        // when that was heard
	freed  time.Time        // when it was asked to be released
}

// hear takes a heartbeat. The first that is heard may be from the middle of the
// work, as after a restart.
func (x *jobWatch) hear(h record.Heartbeat, now time.Time) {
	if x.begun.IsZero() || x.first.Worker != h.Worker || h.Rows < x.beat.Rows {
		x.first, x.begun = h, now
	}
	x.beat, x.heard, x.sent = h, now, true
}

// speed is rows written a second since the first heartbeat, 0: not known yet.
func (x *jobWatch) speed() float64 {
	if s := x.heard.Sub(x.begun).Seconds(); s > 0 {
		return float64(x.beat.Rows-x.first.Rows) / s
	}
	return 0
}

// jobDesk sends the jobs of a partition of the log to workers, and follows them.
type jobDesk struct {
	w          *stateWorker
	dispatcher state.Dispatcher // of the goroutine that sends
	room       int              // how much the last message took

	mu      sync.Mutex
	watched map[record.JobID]*jobWatch
	due     jobTurns
}

func newJobDesk(w *stateWorker) *jobDesk {
	return &jobDesk{
		w: w, dispatcher: state.Dispatcher{Store: w.store, Bodies: w.n.bodies}, watched: map[record.JobID]*jobWatch{},
	}
}

// add takes attempts that can be dispatched, perhaps again (L11).
func (k *jobDesk) add(ns []statestore.JobNotice) {
	if len(ns) == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, n := range ns {
		if k.watched[n.Job] == nil {
			k.watched[n.Job] = &jobWatch{notice: n}
			k.due.add(n)
		}
	}
}

// run sends and follows jobs until ctx ends. What goes wrong is tried again.
func (k *jobDesk) run(ctx context.Context) {
	for wait := retryMin; ctx.Err() == nil; wait = min(2*wait, retryMax) {
		began := time.Now()
		err := k.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > retryMax {
			wait = retryMin
		}
		k.w.log.Warn("jobs are not sent; it is tried again", "after", wait, "error", err)
		if sleep(ctx, wait) != nil {
			return
		}
	}
}

// follow reads what the jobs topic holds, sends what it lacks, and goes on so.
func (k *jobDesk) follow(ctx context.Context) error {
	r, err := k.open(ctx)
	if err != nil {
		return err
	}
	defer r.close()
	for !r.caughtUp() {
		if err := k.read(ctx, r, time.Second); err != nil {
			return err
		}
	}
	timeout := k.w.n.opt.Jobs.Timeout
	swept := time.Now()
	wait := jobPoll
	for {
		if err := k.read(ctx, r, wait); err != nil {
			return err
		}
		more, err := k.send(ctx)
		if err != nil {
			return err
		}
		if wait = jobPoll; more {
			wait = jobGlance
		}
		if now := time.Now(); now.Sub(swept) >= min(jobSweep, timeout/4) {
			swept = now
			if err := k.sweep(ctx, now); err != nil {
				return err
			}
		}
	}
}

// open begins to read the jobs topic: at its start when jobs are open, for their
// messages may be there, else at its end. All that is open is to be sent unless
// it is found there.
func (k *jobDesk) open(ctx context.Context) (*jobReader, error) {
	open, err := k.openJobs()
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	clear(k.watched)
	k.due.clear()
	k.mu.Unlock()
	k.add(open)
	return openJobReader(ctx, k.w.n, len(open) > 0)
}

func (k *jobDesk) openJobs() (out []statestore.JobNotice, err error) {
	_, tables, err := k.w.tables()
	for _, t := range tables {
		if err != nil {
			return nil, err
		}
		if t.OpenJobs > 0 {
			err = k.w.store.OpenJobs(t.ID, func(j *statestore.JobInfo) error {
				out = append(out, j.JobNotice)
				return nil
			})
		}
	}
	return out, err
}

func (k *jobDesk) read(ctx context.Context, r *jobReader, wait time.Duration) error {
	return r.poll(ctx, wait, func(value []byte, timeMs int64) {
		if record.IsHeartbeat(value) {
			var h record.Heartbeat
			if record.DecodeHeartbeat(value, &h) != nil || h.Partition != k.w.partition {
				return // another's, or of a newer build: silence is told by time
			}
			k.mu.Lock()
			if x := k.watched[h.Job]; x != nil && x.notice.TableID == h.TableID {
				x.hear(h, time.Now())
			}
			k.mu.Unlock()
			return
		}
		var d record.JobHead
		if record.DecodeJobHead(value, &d) != nil || d.Partition != k.w.partition {
			return
		}
		k.mu.Lock()
		if x := k.watched[d.Job]; x != nil && x.notice.TableID == d.TableID && !x.sent {
			x.sent, x.sentAt = true, time.UnixMilli(timeMs)
		}
		k.mu.Unlock()
	})
}

// send dispatches what is due and not in the topic: a turn of each table. More
// says that one of them may have more.
func (k *jobDesk) send(ctx context.Context) (more bool, err error) {
	k.mu.Lock()
	turns := len(k.due.tables)
	k.mu.Unlock()
	for range turns {
		k.mu.Lock()
		due := k.due.take()
		k.mu.Unlock()
		if err := k.sendTurn(ctx, due); err != nil {
			return false, err
		}
		more = more || len(due) == jobTurn
	}
	return more, nil
}

// sendTurn dispatches a turn. What it leaves on an error is found again by open.
func (k *jobDesk) sendTurn(ctx context.Context, due []statestore.JobNotice) error {
	for i := range due {
		n := &due[i]
		k.mu.Lock()
		x := k.watched[n.Job]
		again := x == nil || x.sent || !x.sentAt.IsZero()
		k.mu.Unlock()
		if again {
			continue
		}
		value, err := k.message(ctx, n)
		if err != nil {
			return fmt.Errorf("dispatch job %d.%d of table %s: %w", n.Job.Plan, n.Job.Item, n.Table, err)
		}
		if value == nil { // done, or released, meanwhile
			k.mu.Lock()
			delete(k.watched, n.Job)
			k.mu.Unlock()
			continue
		}
		k.mu.Lock()
		x.sentAt = time.Now()
		k.mu.Unlock()
		k.w.n.sendJob(ctx, n.TableID, &n.Job, value, func(err error) {
			k.mu.Lock()
			defer k.mu.Unlock()
			if err == nil {
				x.sent = true
				return
			}
			// Perhaps it is there; a second one does no harm (L11).
			x.sentAt = time.Time{}
			k.due.add(x.notice)
		})
	}
	return nil
}

// message is what the jobs topic is told of an attempt, nil when it is not open
// any more.
func (k *jobDesk) message(ctx context.Context, n *statestore.JobNotice) ([]byte, error) {
	if n.Find {
		d, err := k.dispatcher.Find(ctx, n)
		if err != nil || d == nil {
			return nil, err
		}
		return record.EncodeFind(nil, d)
	}
	d, err := k.dispatcher.Dispatch(ctx, n)
	if err != nil || d == nil {
		return nil, err
	}
	value, err := record.EncodeDispatch(make([]byte, 0, k.room), d)
	k.room = len(value) + len(value)/8 // the next one mostly fits too
	return value, err
}

// jobKey names a job in the jobs topic.
func jobKey(tableID int64, j *record.JobID) []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(tableID))
	b = binary.BigEndian.AppendUint64(b, uint64(j.Plan))
	return binary.BigEndian.AppendUint32(b, uint32(j.Item))
}

// sendJob appends a message about a job to the jobs topic.
func (n *Node) sendJob(ctx context.Context, tableID int64, j *record.JobID, value []byte, done func(error)) {
	key := jobKey(tableID, j)
	p := int32(schemas.Murmur2(key)&0x7fffffff) % n.jobPartitions
	n.producer.Append(ctx, n.topics.Jobs, p, Entry{Key: key, Value: value}, func(_ int64, err error) { done(err) })
}

// sweep holds what is open against what was sent and heard: attempts whose
// worker is silent are given up, those that nobody knows of are sent.
func (k *jobDesk) sweep(ctx context.Context, now time.Time) error {
	open, err := k.openJobs()
	if err != nil {
		return err
	}
	k.add(open)
	is := make(map[record.JobID]bool, len(open))
	for i := range open {
		is[open[i].Job] = true
	}
	timeout := k.w.n.opt.Jobs.Timeout
	silent := map[int64][]*jobWatch{}
	k.mu.Lock()
	for id, x := range k.watched {
		switch {
		case !is[id]:
			delete(k.watched, id)
		case x.heard.IsZero() && x.sent && now.Sub(x.sentAt) > resendAfter:
			x.sent, x.sentAt = false, time.Time{}
			k.due.add(x.notice)
		case !x.heard.IsZero() && now.Sub(x.heard) > timeout && now.Sub(x.freed) > timeout:
			x.freed = now
			silent[x.notice.TableID] = append(silent[x.notice.TableID], x)
		}
	}
	k.mu.Unlock()
	for id, xs := range silent {
		for part := range slices.Chunk(xs, maxReleases) {
			rel := &record.ReleaseJob{Cause: fmt.Sprintf("no sign of a worker for %s", timeout)}
			for _, x := range part {
				rel.Items = append(rel.Items, record.ReleasedJob{Job: x.notice.Job, Again: int(x.notice.Job.Attempt) < k.w.n.opt.Jobs.Attempts})
			}
			k.w.log.Warn("workers are silent; their jobs are given to others", "table", part[0].notice.Table, "jobs", len(part))
			k.w.append(ctx, statestore.CutNotice{Table: part[0].notice.Table, TableID: id}, rel)
		}
	}
	return nil
}

// JobStatus is an open job and what is known of its newest attempt.
type JobStatus struct {
	Table    string       `json:"table"`
	TableID  int64        `json:"table_id"`
	Job      record.JobID `json:"job"`
	Strategy string       `json:"strategy"`
	Inputs   int          `json:"inputs"`
	Rows     int64        `json:"rows"` // to be carried over
	Sent     bool         `json:"sent"`
	Worker   string       `json:"worker,omitempty"`
	Done     int64        `json:"done"`     // rows written
	Speed    float64      `json:"speed"`    // rows written a second; 0: not known
	HeardMs  int64        `json:"heard_ms"` // when the worker was heard last; 0: never
}

// status lists the open jobs of a table, of all tables when it is empty.
func (k *jobDesk) status(table string) (out []JobStatus, err error) {
	_, tables, err := k.w.tables()
	if err != nil {
		return nil, err
	}
	for _, t := range tables {
		if t.OpenJobs == 0 || table != "" && t.Name != table {
			continue
		}
		if err := k.w.read(func() error {
			return k.w.store.OpenJobs(t.ID, func(j *statestore.JobInfo) error {
				out = append(out, JobStatus{Table: t.Name, TableID: t.ID, Job: j.Job, Strategy: j.Strategy, Inputs: j.Inputs, Rows: j.Rows})
				return nil
			})
		}); err != nil {
			return nil, err
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range out {
		x := k.watched[out[i].Job]
		if x == nil {
			continue
		}
		out[i].Sent, out[i].Worker, out[i].Done = x.sent, x.beat.Worker, x.beat.Rows
		out[i].Speed = x.speed()
		if !x.heard.IsZero() {
			out[i].HeardMs = x.heard.UnixMilli()
		}
	}
	return out, nil
}

// jobReader reads the jobs topic, all partitions. Messages that retention
// deleted are passed over: what is not there is sent again.
type jobReader struct {
	cl    *kgo.Client
	topic string
	ends  map[int32]int64 // of partitions that are not read to where they ended at the start
}

func openJobReader(ctx context.Context, n *Node, fromStart bool) (*jobReader, error) {
	offsets, err := n.admin.Offsets(ctx, n.topics.Jobs)
	if err != nil {
		return nil, err
	}
	r := &jobReader{topic: n.topics.Jobs, ends: map[int32]int64{}}
	at := map[int32]kgo.Offset{}
	for p := range offsets {
		from := offsets[p].High
		if fromStart && offsets[p].Start < offsets[p].High {
			from = offsets[p].Start
			r.ends[int32(p)] = offsets[p].High
		}
		at[int32(p)] = kgo.NewOffset().At(from)
	}
	r.cl, err = newClient(n.client,
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{n.topics.Jobs: at}),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxBytes(DefaultReadBytes), kgo.FetchMaxWait(500*time.Millisecond),
	)
	return r, err
}

func (r *jobReader) caughtUp() bool { return len(r.ends) == 0 }

func (r *jobReader) poll(ctx context.Context, wait time.Duration, fn func(value []byte, timeMs int64)) error {
	pctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	fetches := r.cl.PollRecords(pctx, 0)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var failed error
	fetches.EachError(func(_ string, p int32, err error) {
		if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
			failed = fmt.Errorf("read topic %s partition %d: %w", r.topic, p, err)
		}
	})
	fetches.EachRecord(func(x *kgo.Record) {
		if end, ok := r.ends[x.Partition]; ok && x.Offset >= end-1 {
			delete(r.ends, x.Partition)
		}
		fn(x.Value, x.Timestamp.UnixMilli())
	})
	return failed
}

func (r *jobReader) close() { r.cl.Close() }

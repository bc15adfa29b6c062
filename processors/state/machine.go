package state

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"golang.org/x/sync/errgroup"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

// Limits of a batch, with foundations.md's defaults.
const (
	CommitEveryMs    = 200
	CommitEveryBytes = 16 << 20
	// VectorBudget is how many bytes of vectors a table may rewrite a second
	// on average; a cut that rewrote more puts the next one off (S6).
	VectorBudget = 64 << 20
	// MaxCutDelayMs bounds that.
	MaxCutDelayMs = 60_000
	// resendMinMs and resendMaxMs bound the wait before outcomes that did not
	// reach their topic are sent again.
	resendMinMs = 100
	resendMaxMs = 10_000
	// cutSoonMs is the interval of cuts after CutSoon.
	cutSoonMs = 50
	// cutRetryMs is how long a Cut that got no outcome is waited for.
	cutRetryMs = 10_000
	// clockSkewMs is how far the catalog's time may be ahead of ours while
	// commits without a snapshot are asked for.
	clockSkewMs = 30_000
)

// Outcomes sends messages to the outcomes topic, in order. done is called on
// the goroutine that drives the machine.
type Outcomes interface {
	Send(m statestore.Message, done func(error))
}

// Config of a machine.
type Config struct {
	Store    *statestore.Store
	Bodies   *processors.Bodies
	Log      processors.Appender
	Outcomes Outcomes
	Logger   *slog.Logger
	// Applied, if set, is told each outcome, to count it.
	Applied func(*record.OutcomeMessage)
}

// Machine drives one partition's state. One goroutine uses it.
type Machine struct {
	cfg       Config
	nowMs     int64 // of the newest OnLog
	bytes     int64 // applied since the last commit
	lastMs    int64 // of the last commit
	sent      int64 // newest outcome offset that the topic has
	sending   int   // outcomes on their way
	unsent    error // why outcomes wait in the outbox, nil: they do not
	resendMs  int64 // when they are sent again
	backoffMs int64
	err       error
	ready     bool // the log was applied up to where it ended at the start
	soon      bool // cuts do not wait for their interval
	cuts      map[int64]*clock
	pending   []statestore.CutNotice
	held      []HeldCut
	jobs      []statestore.JobNotice
}

// clock is a table's cut timing.
type clock struct {
	lastMs  int64 // of the last Cut asked for
	askedAt int64 // 0: none in flight
	delayMs int64
}

// New makes a machine over an open store.
func New(cfg Config) *Machine {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	return &Machine{cfg: cfg, cuts: map[int64]*clock{}, sent: -1}
}

// Err is why the machine stopped, nil otherwise.
func (m *Machine) Err() error { return m.err }

// Next is the next log offset to apply.
func (m *Machine) Next() int64 { return m.cfg.Store.Head().Offset + 1 }

// CheckLast holds the log's record at the state's own offset against what the
// state remembers of it (L5): r is nil when the log has none there.
func (m *Machine) CheckLast(r *statestore.Record) error {
	h := m.cfg.Store.Head()
	if h.Offset < 0 {
		return nil
	}
	if r == nil {
		return fmt.Errorf("%w: partition %d has no record at offset %d, which the state has applied; the topic was truncated or made again: restore the topic, or remove the state folder to rebuild from it", statestore.ErrFork, h.Partition, h.Offset)
	}
	if r.Checksum() != h.Checksum {
		return fmt.Errorf("%w: partition %d: the record at offset %d differs; the topic was made again or lost its tail: remove the state folder to rebuild from it", statestore.ErrFork, h.Partition, h.Offset)
	}
	return nil
}

// Resume sends the outcomes that the topic lacks; last is the newest offset
// found in it, -1 when it is empty (L11).
func (m *Machine) Resume(last int64) error {
	m.sent = last
	if err := m.cfg.Store.Unsent(last, func(x statestore.Message) error {
		m.send(x)
		return nil
	}); err != nil {
		return err
	}
	return m.cfg.Store.Tables(func(i *statestore.TableInfo) error {
		if i.Pending != nil {
			m.pending = append(m.pending, statestore.CutNotice{Table: i.Name, TableID: i.ID, Build: i.Pending.Build})
		}
		if i.OpenJobs == 0 {
			return nil
		}
		return m.cfg.Store.OpenJobs(i.ID, func(j *statestore.JobInfo) error {
			m.jobs = append(m.jobs, j.JobNotice)
			return nil
		})
	})
}

func (m *Machine) send(x statestore.Message) {
	if x.Offset <= m.sent || m.unsent != nil {
		return // there, or in the outbox until resend
	}
	m.sending++
	m.cfg.Outcomes.Send(x, func(err error) {
		m.sending--
		switch {
		case errors.Is(err, processors.ErrNotTaken):
			m.fail(fmt.Errorf("send the outcome of log offset %d: %w", x.Offset, err))
		case err != nil && m.unsent == nil:
			m.cfg.Logger.Warn("outcomes wait", "offset", x.Offset, "error", err)
			m.unsent = err
			m.backoffMs = min(max(2*m.backoffMs, resendMinMs), resendMaxMs)
			m.resendMs = m.nowMs + m.backoffMs
		case err == nil && !x.Derived && m.unsent == nil:
			// Behind one that failed nothing counts: the topic's end says what it has (L11).
			m.sent = max(m.sent, x.Offset)
			m.backoffMs = 0
		}
	})
}

// resend sends the outbox again after an outcome did not reach the topic. All
// that was on its way has been answered: so the order stays.
func (m *Machine) resend() error {
	if m.unsent == nil || m.sending > 0 || m.nowMs < m.resendMs {
		return nil
	}
	m.unsent = nil
	return m.cfg.Store.Unsent(m.sent, func(x statestore.Message) error {
		m.send(x)
		return nil
	})
}

func (m *Machine) fail(err error) {
	if m.err == nil {
		m.err = err
		m.cfg.Logger.Error("state machine stopped", "error", err)
	}
}

// Ready tells that the log was applied up to the high watermark read at the
// start: cuts and jobs go out from now on (L11).
func (m *Machine) Ready() { m.ready = true }

// OnLog applies records, which follow Next. atEnd says that the poll left
// nothing behind. An error wrapping processors.ErrBodyMissing means that the
// record at Next waits for its body: call again later. Any other stops the
// partition.
func (m *Machine) OnLog(ctx context.Context, nowMs int64, recs []statestore.Record, atEnd bool) error {
	m.nowMs = nowMs
	if m.err != nil {
		return m.err
	}
	if err := m.resend(); err != nil {
		m.fail(err)
		return m.err
	}
	next := m.Next()
	for i := range recs {
		r := &recs[i]
		if r.Offset < next {
			continue
		}
		o, err := Apply(ctx, m.cfg.Store, m.cfg.Bodies, r)
		if errors.Is(err, ErrFetch) && !errors.Is(err, processors.ErrBodyAltered) {
			return errors.Join(err, m.commit(nowMs))
		}
		if err != nil {
			m.fail(err)
			return m.err
		}
		if m.cfg.Applied != nil {
			m.cfg.Applied(&o)
		}
		next = r.Offset + 1
		m.bytes += int64(len(r.Value) + len(r.Key) + 64)
		if m.bytes >= CommitEveryBytes {
			if err := m.commit(nowMs); err != nil {
				return err
			}
		}
	}
	if m.bytes > 0 && (atEnd || nowMs-m.lastMs >= CommitEveryMs) {
		return m.commit(nowMs)
	}
	return nil
}

// ErrFetch marks errors of Apply's fetch stage: nothing was applied. One that
// wraps processors.ErrBodyAltered is for good, any other may pass.
var ErrFetch = errors.New("fetch what a record names")

// Apply applies a record, with what lies in the object store and counts as its
// bytes (L3): its body (L10), and the forwarding maps that it needs. What an
// operator has declared void counts as lost for everyone who applies the record.
func Apply(ctx context.Context, store *statestore.Store, bodies *processors.Bodies, r *statestore.Record) (record.OutcomeMessage, error) {
	if err := fetchBody(ctx, store, bodies, r); err != nil {
		return record.OutcomeMessage{}, fmt.Errorf("%w: %w", ErrFetch, err)
	}
	for {
		o, err := store.Apply(r)
		var wait *statestore.NeedsMap
		if !errors.As(err, &wait) {
			return o, err
		}
		if err := fetchMaps(ctx, store, bodies, r, wait.Refs); err != nil {
			return o, fmt.Errorf("%w: %w", ErrFetch, err)
		}
	}
}

// fetchMaps gives the store the maps that a record asks for.
func fetchMaps(ctx context.Context, store *statestore.Store, bodies *processors.Bodies, r *statestore.Record, refs []record.Ref) error {
	lost, partition := make([]bool, len(refs)), store.Partition()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(max(1, bodies.AtOnce))
	for i := range refs {
		g.Go(func() error {
			b, gone, err := fetch(ctx, bodies, partition, r.Offset, &refs[i])
			if lost[i] = gone; err == nil && !gone {
				store.ProvideMap(refs[i].Hash, b)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i := range refs {
		if lost[i] {
			r.LostMaps = append(r.LostMaps, refs[i].Hash)
		}
	}
	return nil
}

func fetchBody(ctx context.Context, store *statestore.Store, bodies *processors.Bodies, r *statestore.Record) (err error) {
	if r.Body != nil || r.BodyLost {
		return nil
	}
	ref := statestore.NeedsBody(r)
	if ref == nil {
		return nil
	}
	r.Body, r.BodyLost, err = fetch(ctx, bodies, store.Partition(), r.Offset, ref)
	return err
}

// fetch is what the record at an offset names, or that it is void.
func fetch(ctx context.Context, bodies *processors.Bodies, partition int32, offset int64, ref *record.Ref) (b []byte, lost bool, err error) {
	if lost, err = bodies.Voided(ctx, partition, offset, ref.Hash); err == nil && !lost {
		b, err = bodies.Get(ctx, ref)
	}
	how := ""
	switch {
	case errors.Is(err, processors.ErrBodyMissing):
		how = "if it is lost for good"
	case errors.Is(err, processors.ErrBodyAltered):
		how = "if the bytes that it names are lost, or never were, delete the object and run"
	}
	switch {
	case how != "":
		return nil, false, fmt.Errorf("log offset %d: %w; %s: varve transaction void --partition %d --offset %d --object %s --length %d --hash %s",
			offset, err, how, partition, offset, ref.Path, ref.Length, ref.Hash)
	case err != nil:
		return nil, false, fmt.Errorf("log offset %d: %w", offset, err)
	}
	return b, lost, nil
}

func (m *Machine) commit(nowMs int64) error {
	out, err := m.cfg.Store.Commit()
	if err != nil {
		m.fail(err)
		return m.err
	}
	m.bytes, m.lastMs = 0, nowMs
	for _, x := range out.Outcomes {
		m.send(x)
	}
	m.pending = append(m.pending, out.Cuts...)
	m.jobs = append(m.jobs, out.Jobs...)
	if m.sent >= 0 {
		m.cfg.Store.Sent(m.sent)
	}
	return m.err
}

// Pending are the cuts that became ready to publish since the last call.
// They are perhaps again (L11).
func (m *Machine) Pending() []statestore.CutNotice {
	if !m.ready {
		return nil
	}
	p := m.pending
	m.pending = nil
	return p
}

// Jobs are the attempts at jobs that can be dispatched since the last call, in
// the order in which the log asked for them. They are perhaps again (L11): after
// a start it is every job that is open.
func (m *Machine) Jobs() []statestore.JobNotice {
	if !m.ready {
		return nil
	}
	j := m.jobs
	m.jobs = nil
	return j
}

// Published tells what a cut cost, so that the next one waits its share (S6).
func (m *Machine) Published(tableID, vectorBytes int64) {
	c := m.clock(tableID)
	c.delayMs = min(vectorBytes*1000/VectorBudget, MaxCutDelayMs)
}

func (m *Machine) clock(id int64) *clock {
	c := m.cuts[id]
	if c == nil {
		c = &clock{}
		m.cuts[id] = c
	}
	return c
}

// CutSoon makes all cuts due that have something to publish, from now on: a
// node that stops leaves nothing unpublished.
func (m *Machine) CutSoon() { m.soon = true }

// HeldCut is a table with nothing but a definition, or branches and tags, to
// publish, in an outside catalog where another writer's clock was ahead. That
// catalog dates such a commit by its own clock and refuses what is older than
// main's newest snapshot. Frozen now, it would keep back all data until then;
// the next snapshot takes it along.
type HeldCut struct {
	TableID int64
	UntilMs int64 // the catalog's time of its newest commit
}

// Held are the cuts that the last Tick held back.
func (m *Machine) Held() []HeldCut { return m.held }

// Tick asks for the cuts that are due.
func (m *Machine) Tick(ctx context.Context, nowMs int64) {
	m.held = m.held[:0]
	if m.err != nil || !m.ready {
		return
	}
	for _, t := range m.cfg.Store.ToCut() {
		if !t.Files && t.OutsideMs > nowMs+clockSkewMs {
			m.held = append(m.held, HeldCut{t.ID, t.OutsideMs})
			continue
		}
		c := m.clock(t.ID)
		interval := max(t.CommitIntervalMs, c.delayMs)
		if m.soon {
			interval = min(interval, cutSoonMs)
		}
		if c.askedAt > 0 && nowMs-c.askedAt < cutRetryMs || nowMs-c.lastMs < interval {
			continue
		}
		h := m.cfg.Store.Head()
		msg, err := m.cfg.Bodies.Message(ctx, record.Envelope{
			ApplyVersion: h.ApplyVersion, Request: record.NewRequestID(), OffsetSeen: h.Offset, Table: t.Name, TableID: t.ID,
		}, &record.Cut{})
		if err != nil {
			m.fail(err)
			return
		}
		c.askedAt, c.lastMs = nowMs, nowMs
		m.cfg.Log.Append(msg, func(_ int64, err error) {
			if err != nil {
				m.cfg.Logger.Warn("a cut could not be appended; it is asked for again", "table", t.Name, "error", err)
			}
			c.askedAt = 0
		})
	}
}

package topology

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/varve-io/varve/processors/planner"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

const (
	// maxPlanItems is how many jobs one PlanJobs asks for.
	maxPlanItems = 10_000
	// planShare bounds the part of the time that goes into looking for jobs: one of so many.
	planShare = 20
	// planHoldMin and planHoldMax bound how long a table is not planned for after
	// one of its jobs was given up.
	planHoldMin = time.Minute
	planHoldMax = time.Hour
)

// planTable is what the planning of a table remembers.
type planTable struct {
	sequence int64 // the table's when all its files were looked at last
	next     time.Time
	from     uint64 // where a look that was cut off goes on
	short    bool   // the last plan was cut off by a limit
	warned   string
	hold     time.Duration
	until    time.Time // held until then
	failed   failedInputs
}

// planning looks for files to compact and asks for jobs. It holds the state for
// moments only and appends beside the cuts: these never wait for it.
func (w *stateWorker) planning(ctx context.Context) {
	every := w.n.opt.Jobs.PlanEvery
	tables := map[int64]*planTable{}
	for sleep(ctx, min(every, time.Second)) == nil {
		_, all, err := w.tables()
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, errMoved) {
				w.log.Warn("jobs are not planned; it is tried again", "error", err)
			}
			continue
		}
		open := int64(0)
		for _, t := range all {
			open += t.OpenJobs
		}
		room := max(1, w.n.opt.Jobs.MaxJobs/int64(w.n.topics.Partitions)) - open
		seen := map[int64]bool{}
		for _, t := range all {
			seen[t.ID] = true
			p := tables[t.ID]
			if p == nil {
				p = &planTable{sequence: -1}
				tables[t.ID] = p
			}
			n, err := w.planDue(ctx, t, p, room)
			if err != nil && ctx.Err() == nil && !errors.Is(err, errMoved) {
				w.log.Warn("a table's jobs are not planned; it is tried again", "table", t.Name, "error", err)
				p.next = time.Now().Add(every)
			}
			room -= n
		}
		for id := range tables {
			if !seen[id] {
				delete(tables, id)
			}
		}
	}
}

// planDue plans a table's jobs when it is time to, and says how many it asked for.
func (w *stateWorker) planDue(ctx context.Context, t *statestore.TableInfo, p *planTable, room int64) (int64, error) {
	now := time.Now()
	if gave := w.givenUp(t.ID); gave {
		p.hold = min(max(2*p.hold, planHoldMin), planHoldMax)
		p.until = now.Add(p.hold)
	}
	if now.Before(p.next) || now.Before(p.until) || room <= 0 || t.Head.Sequence == p.sequence && p.from == 0 && !p.short {
		return 0, nil
	}
	policy, err := planner.PolicyOf(t.Definition)
	if err != nil && p.warned != err.Error() {
		p.warned = err.Error()
		w.log.Warn("a compaction property is not understood", "table", t.Name, "error", err)
	}
	if room = min(room, policy.MaxJobs-t.OpenJobs); policy.Paused || len(policy.Strategies) == 0 || room <= 0 {
		return 0, nil
	}
	if !policy.Open(now) {
		return 0, nil
	}
	if len(t.Requests)+len(t.Held) > 0 { // its files are free once they are settled, and taken (F1, H9)
		return 0, nil
	}
	waits, err := w.growTree(ctx, t, &policy)
	if err != nil && ctx.Err() == nil {
		w.log.Warn("the table's tree of key ranges is not grown; it is tried again", "table", t.Name, "error", err)
	}
	if err := w.noteEnded(t.ID, &p.failed, now); err != nil {
		return 0, err
	}
	items, next, err := w.planTable(t, policy, p.from, room, waits, p.failed.leave)
	if err != nil {
		return 0, err
	}
	p.next = time.Now().Add(max(w.n.opt.Jobs.PlanEvery, planShare*time.Since(now)))
	p.from, p.sequence, p.short = next, t.Head.Sequence, int64(len(items)) >= room
	for part := range slices.Chunk(items, maxPlanItems) {
		off := w.append(ctx, statestore.CutNotice{Table: t.Name, TableID: t.ID}, &record.PlanJobs{Items: part})
		if off < 0 {
			return 0, errors.New("the plan could not be appended")
		}
		w.log.Info("jobs planned", "table", t.Name, "jobs", len(part), "offset", off)
		w.waitApplied(ctx, off) // the next look sees these files taken
		if err := w.notePlanned(t.ID, &p.failed, off, part); err != nil {
			return 0, err
		}
	}
	return int64(len(items)), nil
}

// planTable looks at a table's files from an id on and chooses jobs, but none on the
// leaves that wait to be split, nor of files that it is to leave alone.
func (w *stateWorker) planTable(t *statestore.TableInfo, policy planner.Policy, from uint64, limit int64, waits map[int64]bool, without func(file uint64) bool) (items []record.PlanItem, next uint64, err error) {
	p := planner.New(policy)
	keyed := t.Definition.Keyed()
	err = w.read(func() (err error) {
		next, err = w.store.Candidates(t.ID, from, func(c *statestore.Candidate) bool {
			if waits[c.Node] || without(c.ID) {
				return true
			}
			return p.Add(planner.File{
				ID: c.ID, Lo: c.Lo, Hi: c.Hi, Rows: c.Rows, Bytes: c.Bytes, Dead: c.Dead, Tuple: c.Tuple, Node: c.Node, Record: c.Record,
				Unsorted: keyed && statestore.IsUnsorted(c.ID),
			})
		})
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	return p.Plan(limit), next, nil
}

// givenUp says whether a job of a table was released since it was asked last.
func (w *stateWorker) givenUp(table int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	gave := w.released[table]
	delete(w.released, table)
	return gave
}

// sawOutcome notes what outcomes tell of jobs.
func (w *stateWorker) sawOutcome(o *record.OutcomeMessage) {
	if o.Type != record.TypeReleaseJob || o.Outcome.Code == record.Rejected {
		return
	}
	w.mu.Lock()
	w.released[o.TableID] = true
	w.mu.Unlock()
}

// Planned is what came of a request to compact a table.
type Planned struct {
	Table    string  `json:"table"`
	Jobs     int64   `json:"jobs"`     // accepted
	Rejected int64   `json:"rejected"` // by reason of what changed meanwhile
	Files    int64   `json:"files"`    // inputs of all items
	Plans    []int64 `json:"plans"`    // log offsets of the PlanJobs
	Reason   string  `json:"reason,omitempty"`
}

// ErrNotHere: another node has the state of a table.
var ErrNotHere = errors.New("another node has the table's state")

// Compact plans jobs for a table now, whatever its properties say of pauses and
// limits. No strategies: those of the table.
func (n *Node) Compact(ctx context.Context, table string, strategies []planner.Strategy) (*Planned, error) {
	w := n.stateOf(table)
	if w == nil {
		return nil, fmt.Errorf("%w: %s is in transactions partition %d; ask the node that has it (varve status shows which)", ErrNotHere, table, n.partition(table))
	}
	if w.desk == nil {
		return nil, fmt.Errorf("%w: this node has the state of table %s, but not the role planner, which sends its jobs", ErrConfig, table)
	}
	t, err := n.Table(ctx, table)
	if err != nil {
		return nil, err
	}
	policy, err := planner.PolicyOf(t.Definition)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if len(strategies) > 0 {
		policy.Strategies = strategies
	}
	if _, err := w.growTree(ctx, t, &policy); err != nil {
		return nil, err
	}
	out := &Planned{Table: table, Plans: []int64{}}
	for from := uint64(0); ; {
		items, next, err := w.planTable(t, policy, from, 1<<40, nil, func(uint64) bool { return false })
		if err != nil {
			return nil, err
		}
		for part := range slices.Chunk(items, maxPlanItems) {
			m, err := n.Request(ctx, table, t.ID, &record.PlanJobs{Items: part})
			if err != nil {
				return nil, err
			}
			out.Plans = append(out.Plans, m.Offset)
			bad := int64(0)
			if m.Outcome.Code == record.Rejected {
				bad, out.Reason = int64(len(part)), m.Outcome.Reason.String()
			} else if err := m.Outcome.RejectedItems(len(part), func(_ int, why record.Reason) { bad, out.Reason = bad+1, why.String() }); err != nil {
				return nil, err
			}
			out.Jobs, out.Rejected = out.Jobs+int64(len(part))-bad, out.Rejected+bad
			for i := range part {
				out.Files += int64(len(part[i].Inputs))
			}
		}
		if next == 0 {
			return out, nil
		}
		from = next
	}
}

// Jobs lists the open jobs of a table, or of all tables, as far as this node has
// their state.
func (n *Node) Jobs(table string) ([]JobStatus, error) {
	out := []JobStatus{}
	for _, w := range n.openStateList() {
		k := w.desk
		if k == nil {
			k = newJobDesk(w)
		}
		js, err := k.status(table)
		if err != nil && !errors.Is(err, errMoved) {
			return nil, err
		}
		out = append(out, js...)
	}
	return out, nil
}

package topology

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/processors/compactor"
	"github.com/varve-io/varve/processors/finder"
	"github.com/varve-io/varve/schemas/record"
)

// decode reads a message of the jobs topic that is no heartbeat.
func (t *jobTask) decode(value []byte) error {
	if !record.IsFind(value) {
		d := new(record.Dispatch)
		err := record.DecodeDispatch(value, d)
		if err == nil {
			t.d = d
		}
		return err
	}
	f := new(record.FindDispatch)
	if err := record.DecodeFind(value, f); err != nil {
		return err
	}
	t.find = f
	t.d = &record.Dispatch{Job: f.Job, Table: f.Table, TableID: f.TableID, Partition: f.Partition, ApplyVersion: f.ApplyVersion, Inputs: f.Inputs}
	return nil
}

// kind names what a task does, for traces.
func (t *jobTask) kind() string {
	if t.find != nil {
		return "find"
	}
	return "compact"
}

// once does the work of a task.
func (c *compactors) once(ctx context.Context, t *jobTask, rows, total *atomic.Int64) (err error) {
	if t.find == nil {
		t.result, err = c.exec.Execute(ctx, t.d, func(p compactor.Progress) {
			rows.Store(p.Rows)
			total.Store(p.TotalRows)
		})
		return err
	}
	t.found, err = c.finder.Execute(ctx, t.find, func(p finder.Progress) {
		rows.Store(p.Rows)
		total.Store(p.TotalRows)
	})
	return err
}

// tellFound brings what a part of a find job found into the log: true when it is
// there, or whoever does the part again will bring the same.
func (c *compactors) tellFound(ctx context.Context, t *jobTask, began time.Time) bool {
	d := t.d
	for wait := retryMin; ; wait = min(2*wait, retryMax) {
		// Its attempt is what decides: it needs no request id (L9).
		m, err := c.n.bodies.Message(ctx, record.Envelope{ApplyVersion: d.ApplyVersion, OffsetSeen: d.Job.Plan, Table: d.Table, TableID: d.TableID}, t.found)
		if err == nil {
			_, err = c.n.producer.AppendSync(ctx, c.n.topics.Transactions, d.Partition, logEntry(m))
		}
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return false
		}
		if errors.Is(notTaken(err), processors.ErrNotTaken) {
			c.n.log.Error("what a part of a find job found could not be told; it is read again", "table", d.Table, "find", d.Job.Plan, "part", d.Job.Item, "error", err)
			return false
		}
		c.n.log.Warn("what a part of a find job found waits", "table", d.Table, "find", d.Job.Plan, "part", d.Job.Item, "error", err)
		if sleep(ctx, wait) != nil {
			return false
		}
	}
	c.n.metrics.jobDone(d.Table, "searched", nil, time.Since(began))
	c.n.log.Info("a part of a find job is done", "table", d.Table, "find", d.Job.Plan, "part", d.Job.Item, "files", len(d.Inputs), "with_rows", len(t.found.Deletes),
		"rows", t.found.Rows, "took", time.Since(began).Round(time.Millisecond))
	return true
}

package topology

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/processors/finder"
	"github.com/varve-io/varve/schemas/predicate"
	"github.com/varve-io/varve/schemas/record"
)

// schemaTries is how often a request is made anew whose table got another schema
// on its way.
const schemaTries = 5

// ErrPredicate marks a predicate that cannot be read, or not on the table's schema.
var ErrPredicate = errors.New("the predicate")

// ErrGivenUp marks a find job that ended before it had read all files.
var ErrGivenUp = errors.New("the find job was given up")

// Found is what a find job has done by now, or at its end (C10).
type Found struct {
	Rows    int64 // that died
	Files   int64 // that were read
	Scanned int64 // rows that were looked at
	Offset  int64 // of the log, up to which this is so
}

// DeleteWhere opens a find job: the rows that the table has now, and of which the
// predicate holds, are deleted. It returns the request's log offset and how many
// files the table has.
func (n *Conn) DeleteWhere(ctx context.Context, table, where string) (offset, files int64, err error) {
	for try := 1; ; try++ {
		t, err := n.Table(ctx, table)
		if err != nil {
			return 0, 0, err
		}
		if _, err := predicate.Parse(where, t.Definition.Schema()); err != nil {
			return 0, 0, fmt.Errorf("%w: %w", ErrPredicate, err)
		}
		b, err := record.EncodeWhereBody(nil, &record.WhereBody{Predicate: where})
		if err != nil {
			return 0, 0, err
		}
		ref, err := n.bodies.Put(ctx, b)
		if err != nil {
			return 0, 0, err
		}
		out, err := n.Request(ctx, table, t.ID, &record.DeleteWhere{Where: ref, SchemaID: t.Definition.CurrentSchema})
		switch {
		case err != nil:
			return 0, 0, err
		case out.Outcome.Code == record.Accepted && len(out.Outcome.Numbers) > 0:
			return out.Offset, out.Outcome.Numbers[0], nil
		case out.Outcome.Reason != record.SchemaUnknown || try == schemaTries:
			return 0, 0, fmt.Errorf("delete from %s: %w: %s", table, ErrRejected, out.Outcome.Reason)
		}
	}
}

// WaitFound waits until a find job is over. progress may be nil. ErrGivenUp: rows
// that it deleted by then stay deleted.
func (n *Conn) WaitFound(ctx context.Context, table string, offset int64, progress func(*Found)) (*Found, error) {
	var out *Found
	var ended error
	err := n.follow(ctx, n.partition(table), offset, func(d *processors.Decided) bool {
		m := &d.Outcome
		o := &m.Outcome
		if m.Type != record.TypeDeleteWhere && m.Type != record.TypeRowsFound && m.Type != record.TypeDropTable || m.Table != table {
			return false
		}
		if m.Type == record.TypeDropTable {
			if o.Code == record.Accepted {
				ended = fmt.Errorf("table %s was dropped: %w", table, ErrGivenUp)
			}
			return ended != nil
		}
		if len(o.Numbers) <= record.WhereScanned || o.Numbers[record.WhereFind] != offset || m.Type == record.TypeDeleteWhere && !m.Derived {
			return false
		}
		f := &Found{Rows: o.Numbers[record.WhereRows], Files: o.Numbers[record.WhereFiles], Scanned: o.Numbers[record.WhereScanned], Offset: m.Offset}
		if !m.Derived {
			if o.Code == record.Accepted && progress != nil {
				progress(f)
			}
			return false
		}
		if out = f; o.Reason == record.GivenUp {
			ended = fmt.Errorf("%w: %d rows of table %s are deleted, what was not read is as it was; ask again once the node's log shows no cause any more", ErrGivenUp, f.Rows, table)
		}
		return true
	})
	return out, errors.Join(err, ended)
}

// Counted is what a find job would do.
type Counted struct {
	Table   string `json:"table"`
	Rows    int64  `json:"rows"`    // that match
	Files   int64  `json:"files"`   // that hold them
	Scanned int64  `json:"scanned"` // rows that were looked at
}

// CountWhere counts the rows that DeleteWhere would delete now. Nothing is asked
// of the log. The node must have the table's state.
func (n *Node) CountWhere(ctx context.Context, table, where string) (*Counted, error) {
	w := n.stateOf(table)
	if w == nil {
		return nil, fmt.Errorf("%w: %s is in transactions partition %d; ask the node that has it (varve status shows which)", ErrNotHere, table, n.partition(table))
	}
	t, err := n.Table(ctx, table)
	if err != nil {
		return nil, err
	}
	var look *record.FindDispatch
	var p *predicate.Predicate
	if err := w.read(func() error {
		d, def, err := w.store.Look(t.ID)
		if err != nil || d == nil {
			return err
		}
		look = d
		if p, err = predicate.Parse(where, def.Schema()); err != nil {
			return fmt.Errorf("%w: %w", ErrPredicate, err)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	out := &Counted{Table: table}
	if look == nil {
		return out, nil
	}
	e := finder.Executor{Store: n.store, Bodies: n.bodies}
	for i := range look.Inputs {
		d := record.FindDispatch{Inputs: look.Inputs[i : i+1]}
		found, err := e.Find(ctx, p, &d, nil)
		if err != nil {
			return nil, err
		}
		out.Scanned += found.Rows
		for k := range found.Deletes {
			rows, err := finder.Rows(&found.Deletes[k])
			if err != nil {
				return nil, err
			}
			out.Rows, out.Files = out.Rows+rows, out.Files+1
		}
	}
	return out, nil
}

// maxPredicate bounds what is read of a request.
const maxPredicate = predicate.MaxText + 4096

// countRequest is the body of a request to count.
type countRequest struct {
	Table string `json:"table"`
	Where string `json:"where"`
}

func (n *Node) serveCountWhere(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get(commandHeader) == "" {
		http.Error(w, "not a request of a varve command", http.StatusForbidden)
		return
	}
	var q countRequest
	if err := json.NewDecoder(io.LimitReader(r.Body, 6*maxPredicate)).Decode(&q); err != nil {
		http.Error(w, "the request cannot be read", http.StatusBadRequest)
		return
	}
	c, err := n.CountWhere(r.Context(), q.Table, q.Where)
	if errors.Is(err, ErrPredicate) {
		err = fmt.Errorf("%w: %w", ErrConfig, err)
	}
	n.answer(w, c, err)
}

// RequestCountWhere asks the node that runs on a data folder to count the rows
// that a predicate holds of. The predicate is in the request's body: it is user
// data, and URLs stand in logs and errors.
func RequestCountWhere(ctx context.Context, data, table, where string) (*Counted, error) {
	out := new(Counted)
	return out, askNodeWith(ctx, data, http.MethodPost, "/count-where", nil, &countRequest{table, where}, out)
}

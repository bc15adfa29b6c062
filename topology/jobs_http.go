package topology

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/varve-io/varve/processors/planner"
)

func (n *Node) serveCompact(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get(commandHeader) == "" {
		http.Error(w, "not a request of a varve command", http.StatusForbidden)
		return
	}
	q := r.URL.Query()
	var strategies []planner.Strategy
	if s := q.Get("strategy"); s != "" {
		var err error
		if strategies, err = planner.ParseStrategies(s); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	planned, err := n.Compact(r.Context(), q.Get("table"), strategies)
	n.answer(w, planned, err)
}

func (n *Node) serveRollback(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get(commandHeader) == "" {
		http.Error(w, "not a request of a varve command", http.StatusForbidden)
		return
	}
	q := r.URL.Query()
	snapshot, err := strconv.ParseInt(q.Get("snapshot"), 10, 64)
	if err != nil {
		http.Error(w, "snapshot: "+err.Error(), http.StatusBadRequest)
		return
	}
	var plan *RollbackPlan
	if q.Get("drill") != "" {
		_, plan, err = n.PlanRollback(r.Context(), q.Get("table"), snapshot)
	} else {
		plan, err = n.Rollback(r.Context(), q.Get("table"), snapshot, q.Get("cause"))
	}
	n.answer(w, plan, err)
}

// RequestRollback asks the node that runs on a data folder to roll a table back,
// or with drill only whether it could.
func RequestRollback(ctx context.Context, data, table string, snapshot int64, cause string, drill bool) (*RollbackPlan, error) {
	q := url.Values{"table": {table}, "snapshot": {strconv.FormatInt(snapshot, 10)}, "cause": {cause}}
	if drill {
		q.Set("drill", "1")
	}
	out := new(RollbackPlan)
	return out, askNode(ctx, data, http.MethodPost, "/rollback", q, out)
}

func (n *Node) serveTruncate(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get(commandHeader) == "" {
		http.Error(w, "not a request of a varve command", http.StatusForbidden)
		return
	}
	q := r.URL.Query()
	t, err := n.Truncate(r.Context(), q.Get("table"), q.Get("before"), q.Get("dry") != "")
	n.answer(w, t, err)
}

// RequestTruncate asks the node that runs on a data folder to cut off the
// beginning of a table's log.
func RequestTruncate(ctx context.Context, data, table, before string, dry bool) (*Truncation, error) {
	q := url.Values{"table": {table}, "before": {before}}
	if dry {
		q.Set("dry", "1")
	}
	out := new(Truncation)
	return out, askNode(ctx, data, http.MethodPost, "/truncate", q, out)
}

func (n *Node) serveJobs(w http.ResponseWriter, r *http.Request) {
	jobs, err := n.Jobs(r.URL.Query().Get("table"))
	n.answer(w, jobs, err)
}

func (n *Node) answer(w http.ResponseWriter, v any, err error) {
	switch {
	case errors.Is(err, ErrConfig), errors.Is(err, ErrNotHere), errors.Is(err, ErrNoTable), errors.Is(err, ErrNoRollback), errors.Is(err, ErrNoTruncate):
		http.Error(w, err.Error(), http.StatusConflict)
		return
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(v); err != nil {
		n.log.Debug("answer not written", "error", err)
	}
}

// RequestCompact asks the node that runs on a data folder to plan jobs for a
// table now; an error wrapping ErrNotRunning when none does. An empty strategy is
// the table's.
func RequestCompact(ctx context.Context, data, table, strategy string) (*Planned, error) {
	out := new(Planned)
	return out, askNode(ctx, data, http.MethodPost, "/compact", url.Values{"table": {table}, "strategy": {strategy}}, out)
}

// RequestJobs asks the node that runs on a data folder for the open jobs of a
// table, of all tables when it is empty.
func RequestJobs(ctx context.Context, data, table string) ([]JobStatus, error) {
	var out []JobStatus
	return out, askNode(ctx, data, http.MethodGet, "/jobs", url.Values{"table": {table}}, &out)
}

// maxAnswer bounds what is read of a node's answer.
const maxAnswer = 256 << 20

func askNode(ctx context.Context, data, method, path string, q url.Values, into any) error {
	return askNodeWith(ctx, data, method, path, q, nil, into)
}

// askNodeWith is askNode with a body, as JSON.
func askNodeWith(ctx context.Context, data, method, path string, q url.Values, body, into any) error {
	c, _, err := Dial(ctx, data, ClientOptions{})
	if err != nil {
		return err
	}
	if err := c.CloseConn(); err != nil {
		return err
	}
	f, err := readNodeFile(data)
	if err != nil {
		return err
	}
	if f == nil {
		return fmt.Errorf("%w: %s", ErrNotRunning, data)
	}
	var content io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("ask the node: %w", err)
		}
		content = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, f.Admin+path+"?"+q.Encode(), content)
	if err != nil {
		return fmt.Errorf("ask the node: %w", err)
	}
	req.Header.Set(commandHeader, "1")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("ask the node: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
		if err == nil {
			err = errors.New(strings.TrimSpace(string(b)))
		}
		if resp.StatusCode == http.StatusBadRequest || resp.StatusCode == http.StatusConflict {
			return fmt.Errorf("%w: %w", ErrConfig, err)
		}
		return fmt.Errorf("the node could not: %w", err)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(into); err != nil {
		return fmt.Errorf("read the node's answer: %w", err)
	}
	return nil
}

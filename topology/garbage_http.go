package topology

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// maxGarbage bounds the objects of one answer.
const maxGarbage = 1 << 20

var errEnough = errors.New("the answer is full")

func (n *Node) serveCollect(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get(commandHeader) == "" {
		http.Error(w, "not a request of a varve command", http.StatusForbidden)
		return
	}
	q := r.URL.Query()
	grace := time.Duration(-1)
	if s := q.Get("grace"); s != "" {
		var err error
		if grace, err = time.ParseDuration(s); err != nil || grace < 0 {
			http.Error(w, "grace: not a time of zero or more", http.StatusBadRequest)
			return
		}
	}
	sweep, _ := strconv.ParseBool(q.Get("sweep")) // anything else: no
	out, err := n.CollectGarbage(r.Context(), q.Get("table"), sweep, grace)
	n.answer(w, out, err)
}

func (n *Node) serveGarbage(w http.ResponseWriter, r *http.Request) {
	out := []Garbage{}
	err := n.Garbage(r.Context(), r.URL.Query().Get("table"), func(g *Garbage) error {
		if out = append(out, *g); len(out) == maxGarbage {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	n.answer(w, out, err)
}

// RequestCollect asks the node that runs on a data folder to collect a table's
// garbage now; an error wrapping ErrNotRunning when none does.
func RequestCollect(ctx context.Context, data, table string, sweep bool, grace time.Duration) (*Collected, error) {
	q := url.Values{"table": {table}, "sweep": {strconv.FormatBool(sweep)}}
	if grace >= 0 {
		q.Set("grace", grace.String())
	}
	out := new(Collected)
	return out, askNode(ctx, data, http.MethodPost, "/gc", q, out)
}

// RequestGarbage asks it what a table may do without, and what keeps it.
func RequestGarbage(ctx context.Context, data, table string) ([]Garbage, error) {
	var out []Garbage
	return out, askNode(ctx, data, http.MethodGet, "/gc", url.Values{"table": {table}}, &out)
}

package topology

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/varve-io/varve/processors/ingest"
	"github.com/varve-io/varve/schemas/restcat"
	"github.com/varve-io/varve/statestore/objstore"
	"github.com/varve-io/varve/statestore/restclient"
	"github.com/varve-io/varve/topology/restcatalog"
)

// MonitorOptions say where a node can be watched, beside its own loopback port.
type MonitorOptions struct {
	// Address to listen on, from the node's start on. Default: none; the
	// node's loopback port serves the same once it has caught up.
	Address string
	// Token that /metrics, /status and /debug ask for. An address beyond
	// loopback needs one. Probes need none.
	Token string
	// Profiles serves Go's profiles under /debug/pprof/. Default: not.
	Profiles bool
}

const (
	// readyBehind is how long a state may be behind its log's end.
	readyBehind = 15 * time.Second
	// readyAgain is how long an answer of /readyz is used again: however many
	// ask, brokers and store are asked once.
	readyAgain   = time.Second
	readyTimeout = 3 * time.Second
)

// watched is what a node has to be watched by.
type watched struct {
	monitor *adminServer // nil: none beside the loopback port
	metrics *metrics
	opened  atomic.Bool // it has caught up at its start

	probe    sync.Mutex
	probed   time.Time
	notReady error // as of probed
}

// Ready is nil when the node does what it is for: its brokers and its store
// answer, its states are at their log's end, its roles run. Else it says why not.
func (n *Node) Ready(ctx context.Context) error {
	n.probe.Lock()
	defer n.probe.Unlock()
	if time.Since(n.probed) < readyAgain {
		return n.notReady
	}
	n.notReady = n.checkReady(ctx)
	n.probed = time.Now()
	return n.notReady
}

func (n *Node) checkReady(ctx context.Context) error {
	if !n.opened.Load() {
		return errors.New("it is starting: it catches up with its log")
	}
	n.mu.Lock()
	failed := n.failed
	for p, why := range n.halted {
		failed = errors.Join(failed, fmt.Errorf("the state of partition %d: %s", p, why))
	}
	n.mu.Unlock()
	if failed != nil {
		return fmt.Errorf("a role has stopped: %w", failed)
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	var broker, store, catalog error
	var all sync.WaitGroup
	if n.remote != nil {
		all.Go(func() {
			// A table that nobody has: the answer that it is not there is an answer.
			_, err := n.remote.Load(ctx, restcat.Identifier{Namespace: []string{"varve-readiness"}, Name: "probe"})
			if err != nil && !errors.Is(err, restclient.ErrNotFound) {
				catalog = err
			}
		})
	}
	all.Go(func() { broker = n.admin.Ping(ctx, readyTimeout) })
	all.Go(func() {
		_, err := n.store.ReadAll(ctx, markKey(n.deployment), maxMarkBytes)
		if err != nil && !errors.Is(err, objstore.ErrTooLarge) {
			store = fmt.Errorf("the warehouse: %w", err)
		}
	})
	all.Wait()
	var behind error
	if ps := n.metrics.longBehind(readyBehind); len(ps) > 0 {
		slices.Sort(ps)
		behind = fmt.Errorf("the states of partitions %v have been behind their log for more than %s", ps, readyBehind)
	}
	var waiting error
	for _, s := range n.Shards() {
		if s.Stage == ingest.Stopped {
			waiting = fmt.Errorf("a shard has stopped: %s", s.Err)
			break
		}
		if s.Waiting != "" {
			waiting = fmt.Errorf("table %s, %s/%d waits: %s", s.Table, s.Topic, s.Partition, s.Waiting)
			break
		}
	}
	return errors.Join(broker, store, catalog, behind, waiting)
}

// monitorHandler serves what a node can be watched by. /status is there once
// the node has opened.
func (n *Node) monitorHandler(o MonitorOptions) *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := n.Ready(r.Context()); err != nil {
			why := "not ready"
			if o.Token == "" || bearer(r, o.Token) {
				why = err.Error()
			}
			http.Error(w, why, http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	guarded := func(pattern string, h http.Handler) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if o.Token != "" && !bearer(r, o.Token) {
				w.Header().Set("WWW-Authenticate", "Bearer")
				http.Error(w, "the node's token is missing or wrong", http.StatusUnauthorized)
				return
			}
			h.ServeHTTP(w, r)
		})
	}
	guarded("GET /metrics", promhttp.HandlerFor(n.metrics.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	guarded("GET /status", http.HandlerFunc(n.serveStatus))
	if o.Profiles {
		guarded("GET /debug/pprof/", http.HandlerFunc(pprof.Index))
		guarded("GET /debug/pprof/cmdline", http.HandlerFunc(pprof.Cmdline))
		guarded("GET /debug/pprof/profile", http.HandlerFunc(pprof.Profile))
		guarded("GET /debug/pprof/symbol", http.HandlerFunc(pprof.Symbol))
		guarded("GET /debug/pprof/trace", http.HandlerFunc(pprof.Trace))
	}
	return mux
}

func (n *Node) serveStatus(w http.ResponseWriter, r *http.Request) {
	if !n.opened.Load() {
		http.Error(w, "the node is starting", http.StatusServiceUnavailable)
		return
	}
	s, err := n.Status(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(s); err != nil {
		n.log.Debug("status not written", "error", err)
	}
}

// bearer tells whether a request brings the token, in a time that does not
// depend on how much of it is right.
func bearer(r *http.Request, token string) bool {
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(token))
	return ok && subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// serveMonitor listens where the options say.
func (n *Node) serveMonitor() (*adminServer, error) {
	o := n.opt.Monitor
	if o.Address == "" {
		return nil, nil
	}
	if err := restcatalog.CheckAddress(o.Address, o.Token); err != nil {
		return nil, fmt.Errorf("%w: --admin-listen: %w", ErrConfig, err)
	}
	return listenHTTP(o.Address, n.monitorHandler(o))
}

// Monitor is the URL at which the node can be watched, or empty.
func (n *Node) Monitor() string {
	return cmp.Or(n.monitor.url(), n.http.url())
}

func (s *adminServer) url() string {
	if s == nil {
		return ""
	}
	return s.addr
}

func listenHTTP(address string, h http.Handler) (*adminServer, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for commands and monitors: %w; give another address with --admin-listen", err)
	}
	s := &adminServer{
		addr: "http://" + l.Addr().String(), done: make(chan error, 1),
		srv: &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 32 << 10},
	}
	go func() { s.done <- s.srv.Serve(l) }()
	return s, nil
}

package endtoend

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/varve-io/varve/topology"
	"github.com/varve-io/varve/topology/testcluster"
)

// longTime bounds what only ends when something is wrong: tests run on slow
// and busy machines.
const longTime = 10 * time.Minute

func longContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), longTime)
	t.Cleanup(cancel)
	return ctx
}

// backend is where a test's deployment has its topics.
type backend struct {
	name    string
	brokers []string // none: the embedded broker
}

// onBackends runs a test on the embedded broker and on a real Apache Kafka.
func onBackends(t *testing.T, body func(t *testing.T, b backend)) {
	t.Run("embedded", func(t *testing.T) { body(t, backend{name: "embedded"}) })
	t.Run("kafka", func(t *testing.T) {
		c := testcluster.Start(t, 1)
		body(t, backend{name: "kafka", brokers: c.Brokers()})
	})
}

// kafkaBackend is a real Apache Kafka.
func kafkaBackend(t *testing.T) backend {
	return backend{name: "kafka", brokers: testcluster.Start(t, 1).Brokers()}
}

// seed is VARVE_SEED; without it one that is the test's own, so that a change is
// judged by the same events as the one before it; with "random" one of the clock.
// It is shown by a test that fails.
func seed(t testing.TB) uint64 {
	t.Helper()
	var s uint64
	switch v := os.Getenv("VARVE_SEED"); v {
	case "":
		h := fnv.New64a()
		h.Write([]byte(t.Name()))
		s = h.Sum64()
	case "random":
		s = uint64(time.Now().UnixNano())
	default:
		var err error
		if s, err = strconv.ParseUint(v, 10, 64); err != nil {
			t.Fatalf("VARVE_SEED: %v", err)
		}
	}
	t.Logf("VARVE_SEED=%d", s)
	return s
}

// count is a number from the environment, with one default for -short and one for all else.
func count(t testing.TB, env string, short, full int) int {
	t.Helper()
	v := os.Getenv(env)
	if v == "" {
		if testing.Short() {
			return short
		}
		return full
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 {
		t.Fatalf("%s=%s is no count", env, v)
	}
	return n
}

func rng(parts ...uint64) *rand.Rand {
	var a, b uint64 = 0x9e3779b97f4a7c15, 0xd1b54a32d192ed03
	for _, p := range parts {
		a = (a ^ p) * 0xbf58476d1ce4e5b9
		a ^= a >> 29
		b = (b ^ a) * 0x94d049bb133111eb
		b ^= b >> 31
	}
	return rand.New(rand.NewPCG(a, b))
}

// logWriter writes a node's log into the test's, until the test is over.
type logWriter struct {
	mu sync.Mutex
	t  testing.TB
}

func (w *logWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.t != nil {
		w.t.Log(strings.TrimRight(string(p), "\n"))
	}
	return len(p), nil
}

func testLog(t testing.TB, level slog.Level) *slog.Logger {
	w := &logWriter{t: t}
	t.Cleanup(func() {
		w.mu.Lock()
		w.t = nil
		w.mu.Unlock()
	})
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}

// withoutJobs are the roles of a node under test, unless the test is about jobs:
// files and snapshots are then those that events make.
var withoutJobs = []string{topology.RoleIngest, topology.RoleState, topology.RolePublisher}

// start opens and starts a node.
func start(t testing.TB, o topology.NodeOptions) *topology.Node {
	t.Helper()
	if o.Roles == nil {
		o.Roles = withoutJobs
	}
	if o.Logger == nil {
		o.Logger = testLog(t, slog.LevelWarn)
	}
	ctx := longContext(t)
	n, err := topology.OpenNode(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(ctx); err != nil {
		t.Fatal(err, n.Close(ctx))
	}
	return n
}

// stop closes a node, which must not have failed.
func stop(t testing.TB, n *topology.Node) {
	t.Helper()
	select {
	case err := <-n.Fatal():
		t.Fatal("the node failed: ", err)
	default:
	}
	if err := n.Close(longContext(t)); err != nil {
		t.Fatal("close: ", err)
	}
}

// dataDir is a folder for a deployment's data. VARVE_KEEP names a folder in
// which it is kept, to be looked at.
func dataDir(t testing.TB) string {
	t.Helper()
	keep := os.Getenv("VARVE_KEEP")
	if keep == "" {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(keep, "data-")
	if err != nil {
		t.Fatal(err)
	}
	t.Log("data in ", dir)
	return dir
}

func str(format string, args ...any) *string {
	s := fmt.Sprintf(format, args...)
	return &s
}

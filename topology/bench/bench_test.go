package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"testing"
	"time"
)

// nodeEnv makes this test binary a node's process.
const nodeEnv = "VARVE_BENCH_NODE"

func TestMain(m *testing.M) {
	if os.Getenv(nodeEnv) == "" {
		os.Exit(m.Run())
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if err := RunNode(context.Background(), os.Stdin, os.Stdout, log); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func quick(t testing.TB) Options {
	return Options{
		Quick: true, Dir: t.TempDir(), Logger: slog.New(slog.NewTextHandler(testWriter{t}, nil)),
		Command: func(ctx context.Context) *exec.Cmd {
			cmd := exec.CommandContext(ctx, os.Args[0])
			cmd.Env = append(os.Environ(), nodeEnv+"=1")
			return cmd
		},
	}
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("%s", p)
	return len(p), nil
}

// TestWorks: each work runs in its quick form, and its figures are whole. The
// works check what they did themselves: rows of tables, outcomes of records.
func TestWorks(t *testing.T) {
	for _, w := range Works() {
		t.Run(w.Name, func(t *testing.T) {
			if testing.Short() && w.kafka {
				t.Skip("skipped with -short: it starts nodes")
			}
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
			defer cancel()
			o := quick(t)
			rs, err := Run(ctx, w.Name, o)
			if err != nil {
				t.Fatal(err)
			}
			if len(rs) == 0 {
				t.Fatal("no figures")
			}
			for _, r := range rs {
				// With so few jobs one completion is all that a table has: the slowest may have none yet.
				none := r.Bench == "jobs.tables" && r.Figure == 0
				if r.Figure <= 0 && !none || r.Goal <= 0 || r.Unit == "" || r.CPU <= 0 || r.Better != Higher && r.Better != Lower {
					t.Errorf("%+v", r)
				}
				if r.Beside.Name == "" || r.Beside.Figure <= 0 || r.Ratio != r.Figure/r.Beside.Figure {
					t.Errorf("nothing beside it: %+v", r)
				}
				if r.Setup.Seed != DefaultSeed || r.Setup.Threads < 1 || r.Setup.Broker == "" || r.Setup.Rows <= 0 {
					t.Errorf("%s: setup %+v", r.Bench, r.Setup)
				}
				t.Logf("%s: %.0f %s, %.2f × %s", r.Bench, r.Figure, r.Unit, r.Ratio, r.Beside.Name)
			}
			left, err := os.ReadDir(o.Dir)
			if err != nil || len(left) > 0 {
				t.Errorf("left behind: %v %v", left, err)
			}
		})
	}
}

func TestUnknownWork(t *testing.T) {
	if _, err := Run(t.Context(), "comit", Options{}); !errors.Is(err, ErrUnknown) {
		t.Errorf("got %v", err)
	}
	if _, err := Run(t.Context(), "vector", Options{Rows: -1}); err == nil {
		t.Error("a negative number of rows was taken")
	}
}

// TestNodeTask: a node's process says what is wrong when nobody gave it a task.
func TestNodeTask(t *testing.T) {
	if err := RunNode(t.Context(), eofReader{}, io.Discard, slog.Default()); !errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
}

type eofReader struct{}

func (eofReader) Read([]byte) (int, error) { return 0, io.EOF }

// TestScattered: a first load has every id once.
func TestScattered(t *testing.T) {
	for _, n := range []int64{1, 2, 7, 618, 1000} {
		s := newScattered(n)
		seen := map[int64]bool{}
		for i := range n {
			seen[s.at(i)] = true
		}
		if int64(len(seen)) != n {
			t.Errorf("%d ids of %d", len(seen), n)
		}
	}
}

// BenchmarkApply is commit.apply: a record an operation, and the ratio to the
// plain way, which runs in turns with ours.
func BenchmarkApply(b *testing.B) {
	o := quick(b)
	o.dir, o.Seed, o.Rows = b.TempDir(), DefaultSeed, int64(b.N)
	o.Logger = slog.New(slog.DiscardHandler)
	log, err := newCommitLog(o.dir, o.Seed, o.Rows, appendBlocks)
	if err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	r, err := o.commitAlone(b.Context(), log)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(1e9/r.Figure, "cpu-ns/record")
	b.ReportMetric(r.Figure/r.Beside.Figure, "x-plain")
}

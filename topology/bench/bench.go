package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/varve-io/varve/topology"
)

var (
	// ErrUnknown: there is no work of that name.
	ErrUnknown = errors.New("unknown bench")
	// ErrMissed: a work that judges itself did not come to what it must. The
	// figures are given beside the error.
	ErrMissed = errors.New("the goal is missed")
)

// Directions of Result.Better.
const (
	Higher = "higher"
	Lower  = "lower"
)

// Result is one figure. The JSON names are the command's output and stable.
type Result struct {
	Bench   string  `json:"bench"`
	Figure  float64 `json:"figure"`
	Unit    string  `json:"unit"`
	Better  string  `json:"better"`
	Goal    float64 `json:"goal"`
	Beside  Beside  `json:"beside"`
	Ratio   float64 `json:"ratio"` // Figure ÷ Beside.Figure
	CPU     float64 `json:"cpu_s"`
	RSSPeak int64   `json:"rss_peak_bytes"` // 0: not measured on this system
	Setup   Setup   `json:"setup"`
}

// Beside is what was run beside the work, in the work's unit.
type Beside struct {
	Name   string  `json:"name"`
	Figure float64 `json:"figure"`
}

// Setup is what a figure was measured on.
type Setup struct {
	Rows       int64  `json:"rows"`
	Partitions int    `json:"partitions"`
	Broker     string `json:"broker"` // embedded, kafka, none
	Store      string `json:"store"`
	Threads    int    `json:"threads"`
	Seed       uint64 `json:"seed"`
	Note       string `json:"note,omitempty"` // what else the figure depends on
}

// Options of a run.
type Options struct {
	// Rows is the size of the work; 0: its own.
	Rows int64
	// Quick is a form of some seconds, for tests. Its figures mean nothing.
	Quick bool
	// Brokers of a Kafka cluster; none: an embedded broker in this process.
	Brokers []string
	// Warehouse is a store URL or folder for the lakes of nodes; each run has a
	// folder of its own in it, which it removes. Default: below Dir.
	Warehouse string
	// Duration of the works that go by the clock; 0: their own.
	Duration time.Duration
	// Dir is where the run keeps its files; default: the system's folder for
	// temporary files. What the run made there is removed at its end.
	Dir string
	// Seed of everything that is drawn. Default: DefaultSeed.
	Seed uint64
	// CPUProfile is a file for the profile of the measured side.
	CPUProfile string
	// Command starts this program's node process, which must call RunNode
	// with its standard input and output. Default: this executable with the
	// argument NodeCommand.
	Command func(ctx context.Context) *exec.Cmd
	// Logger receives progress. Default: none.
	Logger *slog.Logger

	dir    string // this run's own folder
	lakes  string // this run's own folder of Warehouse; empty: below dir
	broker string
	client topology.ClientOptions
}

// DefaultSeed is the seed of the figures in the documentation.
const DefaultSeed = 42

// NodeCommand is the hidden command whose process is a node under measurement.
const NodeCommand = "bench-node"

// Work is a named work.
type Work struct {
	Name  string
	Short string
	rows  int64 // by default
	quick int64
	kafka bool // it needs a broker
	run   func(ctx context.Context, o *Options) ([]Result, error)
}

// Works are all works by name.
func Works() []Work {
	return []Work{
		{"commit", "records applied by the state machine, through the log and alone", 500_000, 5_000, true, runCommit},
		{"replay", "a log from the broker into an empty state, beside reading it", 500_000, 5_000, true, runReplay},
		{"verify", "a deep verification of a table, beside counting its files", 10_000_000, 20_000, true, runVerify},
		{"upsert", "upserts of uniform keys into a table of so many rows", 10_000_000, 20_000, true, runUpsert},
		{"visible", "from a delete's event to the first fresh read that shows it", 100_000, 2_000, true, runVisible},
		{"scale", "processor time of one shard, and of four in processes of their own", 4_000_000, 20_000, true, runScale},
		{"move", "a killed owner's shard of so many keys, until another node has it and has caught up", 10_000_000, 20_000, true, runMove},
		{"steady", "two hours of updates: memory and files of a table must stay flat", 100_000, 2_000, true, runSteady},
		{"compact", "a merge of ten sorted files with a tenth of their rows dead", 5_000_000, 20_000, false, runCompact},
		{"jobs", "compaction jobs through the log, without the work on data", 100_000, 2_000, true, runJobs},
		{"conflict", "compactions whose files lose rows before, during and after them", 10_000, 200, false, runConflict},
		{"state", "a table of so many references: memory, opening, listing, and the speed of one with a tenth of them", 10_000_000, 100_000, false, runState},
		{"read", "a table after 10,000 small changes with compaction on, beside the same rows written once", 1_000_000, 2_000, true, runRead},
		{"rebase", "positions of a job's inputs through its forwarding map, and the map's size", 10_000_000, 200_000, false, runRebase},
		{"decode", "events of each format of source topics, decoded on one core", 1_000_000, 2_000, false, runDecode},
		{"vector", "operations on deletion vectors", 0, 0, false, runVector},
	}
}

// Run runs a work.
func Run(ctx context.Context, name string, o Options) (_ []Result, err error) {
	works := Works()
	i := slices.IndexFunc(works, func(w Work) bool { return w.Name == name })
	if i < 0 {
		var names []string
		for _, w := range works {
			names = append(names, w.Name)
		}
		return nil, fmt.Errorf("%w %q: there are %s", ErrUnknown, name, strings.Join(names, ", "))
	}
	w := &works[i]
	if o.Rows < 0 {
		return nil, fmt.Errorf("bench %s: %d rows: give a positive number", name, o.Rows)
	}
	if o.Rows == 0 {
		o.Rows = w.rows
		if o.Quick {
			o.Rows = w.quick
		}
	}
	if o.Seed == 0 {
		o.Seed = DefaultSeed
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Command == nil {
		exe, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("find this program, to start a node with: %w", err)
		}
		o.Command = func(ctx context.Context) *exec.Cmd { return exec.CommandContext(ctx, exe, NodeCommand) }
	}
	if o.dir, err = os.MkdirTemp(o.Dir, "varve-bench-"); err != nil {
		return nil, fmt.Errorf("make the bench's folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(o.dir)) }()
	if w.kafka {
		closeBroker, err := o.openBroker(ctx)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, closeBroker()) }()
	}
	removeLakes, err := o.openLakes(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, removeLakes()) }()
	out, err := w.run(ctx, &o)
	if err != nil {
		err = fmt.Errorf("bench %s: %w", name, err)
		if !errors.Is(err, ErrMissed) {
			return nil, err
		}
	}
	for i := range out {
		if out[i].Beside.Figure != 0 {
			out[i].Ratio = out[i].Figure / out[i].Beside.Figure
		}
	}
	return out, err
}

func (o *Options) setup(partitions int, store string) Setup {
	if scheme, _, ok := strings.Cut(o.lakes, "://"); ok && store == "local" {
		store = scheme
	}
	return Setup{
		Rows: o.Rows, Partitions: partitions, Broker: o.broker, Store: store,
		Threads: runtime.GOMAXPROCS(0), Seed: o.Seed,
	}
}

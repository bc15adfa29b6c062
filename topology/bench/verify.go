package bench

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/varve-io/varve/schemas/source"
	"github.com/varve-io/varve/statestore/objstore"
	"github.com/varve-io/varve/topology"
)

const (
	verifyGoal = 1_000_000 // rows per second
	// verifyMemory is what a deep verification may have resident, whatever the
	// table's size.
	verifyMemory = 1 << 30
	// verifyUpdates is the share of rows that are updated after the load, so that
	// vectors and dead rows are met: one in so many.
	verifyUpdates = 10
)

// verifyDuckDB counts the same files in DuckDB.
//
//go:embed verify.py
var verifyDuckDB string

// runVerify verifies a table of so many rows deeply, in a process of its own:
// every live row against the key index. Beside it DuckDB counts the rows of the
// same files, and their keys.
func runVerify(ctx context.Context, o *Options) (_ []Result, err error) {
	r := rand.New(rand.NewPCG(o.Seed, 11))
	commitMs := int64(upsertCommitMs)
	if o.Quick {
		commitMs = 500
	}
	t, err := o.openTable(ctx, source.VarveAvro, commitMs, 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.drop()) }()
	if err := t.feed(ctx, o.Rows, r, newScattered(o.Rows).at); err != nil {
		return nil, err
	}
	spec, err := t.spec(filepath.Join(o.dir, "node"))
	if err != nil {
		return nil, err
	}
	lake, err := o.lake(spec.Data)
	if err != nil {
		return nil, err
	}
	spec.Warehouse, spec.Load = lake, true
	if _, err := o.node(ctx, spec); err != nil {
		return nil, err
	}
	// A load of its own: what came before is in files already.
	updates := o.Rows / verifyUpdates
	uniform := func(int64) int64 { return r.Int64N(o.Rows) }
	if err := t.feed(ctx, updates, r, uniform); err != nil {
		return nil, err
	}
	n, err := o.node(ctx, spec)
	if err != nil {
		return nil, err
	}
	if n.Rows != o.Rows {
		return nil, fmt.Errorf("the table has %d rows, not %d", n.Rows, o.Rows)
	}
	o.Logger.Info("table loaded", "rows", n.Rows, "files", n.Files, "vectors", n.Vectors, "cpu_s", n.CPU)
	v, err := o.verifyInProcess(ctx, &verifyTask{
		Brokers: o.client.Brokers, Deployment: t.deployment, Data: spec.Data, Warehouse: lake, Dir: o.dir, CPUProfile: o.CPUProfile,
	})
	if err != nil {
		return nil, err
	}
	if v.Rows != o.Rows || v.Entries != o.Rows {
		return nil, fmt.Errorf("%d rows and %d index entries were looked at, not %d", v.Rows, v.Entries, o.Rows)
	}
	c, err := o.countBeside(ctx, lake)
	if err != nil {
		return nil, err
	}
	setup := o.setup(1, "local")
	setup.Note = fmt.Sprintf("%d updates after the load, %d data files, %d vectors; %d log records applied; %.1f s by the clock; beside: %d rows in the files, %.0f MB of memory",
		updates, n.Files, n.Vectors, v.Records, v.Wall, c.Rows, float64(c.RSSPeak)/1e6)
	out := []Result{
		{Bench: "verify.deep", Figure: float64(v.Rows) / v.Wall, Unit: "rows/s", Better: Higher, Goal: verifyGoal, Beside: Beside{c.Name + "count of rows, by footers", float64(c.Rows) / c.Count}},
		{Bench: "verify.keys", Figure: float64(v.Rows) / v.Wall, Unit: "rows/s", Better: Higher, Goal: verifyGoal, Beside: Beside{c.Name + "count of distinct keys", float64(c.Rows) / c.Keys}},
		{Bench: "verify.memory", Figure: float64(v.RSSPeak), Unit: "bytes", Better: Lower, Goal: verifyMemory, Beside: Beside{"the data files", float64(v.Bytes)}},
	}
	for i := range out {
		out[i].CPU, out[i].RSSPeak, out[i].Setup = v.CPU, v.RSSPeak, setup
	}
	if v.RSSPeak > verifyMemory {
		return out, fmt.Errorf("%w: %d bytes were resident, more than %d", ErrMissed, v.RSSPeak, int64(verifyMemory))
	}
	return out, nil
}

// verifyTask is one verification in a process of its own.
type verifyTask struct {
	Brokers                          []string
	Deployment, Data, Warehouse, Dir string
	CPUProfile                       string
}

type verifyReport struct {
	CPU, Wall              float64
	RSSPeak                int64
	Rows, Entries, Records int64
	Bytes                  int64 // of data files
}

func (t *verifyTask) run(ctx context.Context, out *json.Encoder, log *slog.Logger) (err error) {
	store, err := objstore.Open(ctx, t.Warehouse)
	if err != nil {
		return err
	}
	id, err := deploymentOf(t.Data)
	if err != nil {
		return err
	}
	scratch := filepath.Join(t.Dir, "verify")
	if err := os.Mkdir(scratch, 0o755); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	stop, err := startProfile(t.CPUProfile)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	began := time.Now()
	var r verifyReport
	var got *topology.Verified
	r.CPU, err = cpuOf(ctx, func() error {
		got, err = topology.Verify(ctx, topology.VerifyOptions{
			Brokers: t.Brokers, Client: topology.ClientOptions{Brokers: t.Brokers}, Data: t.Data, Stopped: true, Deployment: t.Deployment,
			Expect: id, Store: store, Scratch: scratch, Full: true, Deep: true, Logger: log,
		})
		r.Wall = time.Since(began).Seconds()
		return err
	})
	if err != nil {
		return err
	}
	if len(got.Findings) > 0 {
		return fmt.Errorf("the verification of a sound table found %d differences; the first: %s", len(got.Findings), got.Findings[0].What)
	}
	if len(got.Skipped) > 0 {
		return fmt.Errorf("not all was looked at: %s", got.Skipped[0])
	}
	r.Rows, r.Entries, r.Records = got.Rows, got.Entries, got.Records
	if r.RSSPeak, err = rssPeak(); err != nil {
		return err
	}
	if err := store.List(ctx, "", func(i objstore.Info) error {
		if strings.HasSuffix(i.Key, ".parquet") {
			r.Bytes += i.Size
		}
		return nil
	}); err != nil {
		return err
	}
	return out.Encode(r)
}

// deploymentOf is the id of the deployment that a data folder is of.
func deploymentOf(data string) (id [16]byte, err error) {
	b, err := os.ReadFile(filepath.Join(data, "node.json"))
	if err != nil {
		return id, err
	}
	var facts struct {
		ID string `json:"deployment_id"`
	}
	if err := json.Unmarshal(b, &facts); err != nil {
		return id, fmt.Errorf("read the node's facts: %w", err)
	}
	x, err := hex.DecodeString(strings.ReplaceAll(facts.ID, "-", ""))
	if err != nil || len(x) != len(id) {
		return id, fmt.Errorf("the node's deployment id %q is none", facts.ID)
	}
	return [16]byte(x), nil
}

func (o *Options) verifyInProcess(ctx context.Context, task *verifyTask) (*verifyReport, error) {
	cmd := o.Command(ctx)
	in, err := json.Marshal(nodeSpec{Verify: task})
	if err != nil {
		return nil, err
	}
	cmd.Stdin = bytes.NewReader(in)
	var r verifyReport
	return &r, reportOf(cmd, &r)
}

// reportOf runs a process to its end and decodes what it says.
func reportOf(cmd *exec.Cmd, to any) error {
	words := &tailWriter{}
	cmd.Stderr = words
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%w; its last words: %s", err, words)
	}
	if err := json.Unmarshal(out, to); err != nil {
		return fmt.Errorf("its report: %w", err)
	}
	return nil
}

// countReport is what counting the files took, in seconds.
type countReport struct {
	Name    string
	Count   float64 `json:"count"`
	Keys    float64 `json:"keys"`
	Rows    int64   `json:"rows"`
	RSSPeak int64   `json:"rss"`
}

// countBeside counts the rows of a lake's data files in DuckDB, or where that is
// not at hand with the Parquet library alone.
func (o *Options) countBeside(ctx context.Context, lake string) (*countReport, error) {
	python := duckDBPython()
	if python == "" || strings.Contains(lake, "://") {
		why := "DuckDB is not installed (topology/readers/install.sh)"
		if python != "" {
			why = "DuckDB is given files of a folder only"
		}
		o.Logger.Info("there is no DuckDB beside it", "because", why)
		c, err := countPlainly(ctx, lake)
		if err != nil {
			return nil, err
		}
		c.Name = why + "; parquet-go, "
		return c, nil
	}
	in, err := json.Marshal(map[string]any{"files": filepath.Join(lake, "**", "*.parquet"), "key": "id"})
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, python, "-c", verifyDuckDB)
	cmd.Stdin = bytes.NewReader(in)
	c := &countReport{}
	if err := reportOf(cmd, c); err != nil {
		return nil, fmt.Errorf("DuckDB: %w", err)
	}
	c.Name = "DuckDB, "
	return c, nil
}

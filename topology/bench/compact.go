package bench

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/rows"
)

const (
	compactFiles = 10
	compactGoal  = 1_500_000 // rows per second of one core
	disjointGoal = 30_000_000
	// compactRounds is how often each side runs; its best run counts, for other
	// processes can only slow one down.
	compactRounds = 3
)

// compactDuckDB does the same job in DuckDB.
//
//go:embed compact.py
var compactDuckDB string

// runCompact merges ten sorted files with a tenth of their rows dead: the named
// data set. Each run is a process of its own, on one core.
func runCompact(ctx context.Context, o *Options) ([]Result, error) {
	rounds := compactRounds
	if o.Quick {
		rounds = 1
	}
	python := duckDBPython()
	name := "DuckDB, 1 thread, zstd 1, anti join and ORDER BY"
	if python == "" {
		name = "parquet-go, row by row"
	}
	merged := []compactWork{{"rows", compactTask{}, compactGoal}, {"lineage", compactTask{Lineage: true}, compactGoal}, {"plain", compactTask{PlainIntegers: true}, compactGoal}}
	out, err := o.compactBeside(ctx, false, rounds, python, name, merged)
	if err != nil {
		return nil, err
	}
	// The files have no key range in common and no dead row: row groups are copied.
	apart, err := o.compactBeside(ctx, true, 1, python, name, []compactWork{{"disjoint", compactTask{Lineage: true}, disjointGoal}})
	return append(out, apart...), err
}

// compactWork is a variant of the work.
type compactWork struct {
	name string
	task compactTask
	goal float64
}

// compactBeside runs variants over one data set in turns with the plain way.
func (o *Options) compactBeside(ctx context.Context, disjoint bool, rounds int, python, name string, works []compactWork) ([]Result, error) {
	set, err := drawCompactSet(ctx, o.dir, o.Seed, o.Rows, disjoint)
	if err != nil {
		return nil, err
	}
	best := make([]compactReport, len(works))
	var beside compactReport
	for range rounds {
		for i := range works {
			w := works[i]
			w.task.Set = *set
			if i == 0 && !disjoint {
				w.task.CPUProfile = o.CPUProfile
			}
			r, err := o.compactInProcess(ctx, &w.task)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", w.name, err)
			}
			best[i].better(r)
		}
		var r *compactReport
		if python != "" {
			r, err = o.compactInDuckDB(ctx, python, set)
		} else {
			r, err = o.compactInProcess(ctx, &compactTask{Set: *set, Plain: true})
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		beside.better(r)
	}
	var out []Result
	for i, w := range works {
		x := Result{
			Bench: "compact." + w.name, Figure: float64(set.Rows) / best[i].CPU, Unit: "rows per cpu-s", Better: Higher, Goal: w.goal,
			Beside: Beside{name, float64(set.Rows) / beside.CPU}, CPU: best[i].CPU, RSSPeak: best[i].RSSPeak, Setup: o.setup(0, "files"),
		}
		x.Setup.Threads, x.Setup.Broker = 1, "none"
		x.Setup.Note = fmt.Sprintf("%d sorted files, %d of %d rows dead, %.0f MB in; out: %.0f MB, beside %.0f MB in %.0f MB of memory",
			len(set.Files), set.Rows-set.Live, set.Rows, float64(set.Bytes)/1e6, float64(best[i].Bytes)/1e6, float64(beside.Bytes)/1e6, float64(beside.RSSPeak)/1e6)
		out = append(out, x)
	}
	return out, nil
}

// compactSet is the named data set on disk.
type compactSet struct {
	Files     []string
	PerFile   []int64 // rows
	Dead      []string
	DeadTable string // all dead positions as one Parquet file: file << 32 + position
	Rows      int64
	Live      int64
	Bytes     int64
	Sum       uint64 // of live rows
}

func compactSchema() *schemas.Schema {
	of := schemas.Of
	return &schemas.Schema{Identifier: []int32{1}, Fields: []schemas.Field{
		{ID: 1, Name: "k", Type: of(schemas.Long), Required: true},
		{ID: 2, Name: "a", Type: of(schemas.Long)},
		{ID: 3, Name: "b", Type: of(schemas.Long)},
		{ID: 4, Name: "d", Type: of(schemas.Double)},
		{ID: 5, Name: "s1", Type: of(schemas.String)},
		{ID: 6, Name: "s2", Type: of(schemas.String)},
	}}
}

// rowSum is a row's part in the sum that shows that no row was lost or mixed up.
func rowSum(k, a int64, s2 []byte) uint64 {
	h := uint64(k)*0x9E3779B97F4A7C15 ^ uint64(a)
	for _, c := range s2 {
		h = (h ^ uint64(c)) * 0x100000001B3
	}
	return h
}

func drawCompactSet(ctx context.Context, dir string, seed uint64, total int64, disjoint bool) (*compactSet, error) {
	s := &compactSet{Rows: total / compactFiles * compactFiles}
	n := int(total / compactFiles)
	if n < 1 {
		return nil, fmt.Errorf("%d rows: give at least %d", total, compactFiles)
	}
	rng := rand.New(rand.NewPCG(seed, seed))
	words := make([][]byte, 1000)
	for i := range words {
		words[i] = fmt.Appendf(nil, "word%x", rng.Uint32N(1<<20))
	}
	deadAll := rows.NewBatch(&schemas.Schema{Fields: []schemas.Field{{ID: 1, Name: "p", Type: schemas.Of(schemas.Long)}}})
	for f := range compactFiles {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		keys := make([]int64, n)
		for i := range keys {
			keys[i] = rng.Int64N(1 << 40)
			if disjoint {
				keys[i] = int64(f)<<40 + keys[i]
			}
		}
		slices.Sort(keys)
		b := rows.NewBatch(compactSchema())
		dead := roaring.New()
		for i, k := range keys {
			a := 1_700_000_000_000_000 + (int64(f)*int64(n)+int64(i))*1000 + rng.Int64N(1000)
			s2 := fmt.Appendf(nil, "%016x", rng.Uint64())
			b.Cols[0].AppendInt(k)
			b.Cols[1].AppendInt(a)
			b.Cols[2].AppendInt(rng.Int64N(1000))
			b.Cols[3].AppendFloat(float64(rng.Int64N(1_000_000)) / 100)
			b.Cols[4].AppendBytes(words[rng.IntN(len(words))])
			b.Cols[5].AppendBytes(s2)
			b.AppendEvent(rows.Upsert, 0, 0, false)
			if !disjoint && rng.IntN(10) == 0 {
				dead.Add(uint32(i))
				deadAll.Cols[0].AppendInt(int64(f)<<32 + int64(i))
				deadAll.AppendEvent(rows.Upsert, 0, 0, false)
			} else {
				s.Live++
				s.Sum += rowSum(k, a, s2)
			}
		}
		path := filepath.Join(dir, fmt.Sprintf("in-%d.parquet", f))
		size, err := writeBatch(path, b)
		if err != nil {
			return nil, err
		}
		set, err := dv.AppendBitmap(nil, dead)
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(path+".dead", set, 0o600); err != nil {
			return nil, err
		}
		s.Files, s.PerFile, s.Dead = append(s.Files, path), append(s.PerFile, int64(n)), append(s.Dead, path+".dead")
		s.Bytes += size
	}
	s.DeadTable = filepath.Join(dir, "dead.parquet")
	_, err := writeBatch(s.DeadTable, deadAll)
	return s, err
}

func writeBatch(path string, b *rows.Batch) (int64, error) {
	var out bytes.Buffer
	if _, err := rows.Write(&out, rows.WriteOptions{Schema: b.Schema}, b, nil, rows.Extra{}); err != nil {
		return 0, err
	}
	return int64(out.Len()), os.WriteFile(path, out.Bytes(), 0o600)
}

// compactReport is what one run took.
type compactReport struct {
	CPU     float64 `json:"cpu"`
	RSSPeak int64   `json:"rss"`
	Rows    int64   `json:"rows"`
	Bytes   int64   `json:"bytes"`
}

func (b *compactReport) better(r *compactReport) {
	peak := max(b.RSSPeak, r.RSSPeak)
	if b.CPU == 0 || r.CPU < b.CPU {
		*b = *r
	}
	b.RSSPeak = peak
}

// compactInProcess runs the task in a process of NodeCommand.
func (o *Options) compactInProcess(ctx context.Context, task *compactTask) (*compactReport, error) {
	task.Dir = o.dir
	cmd := o.Command(ctx)
	in, err := json.Marshal(nodeSpec{Compact: task})
	if err != nil {
		return nil, err
	}
	cmd.Stdin = bytes.NewReader(in)
	return compactReportOf(cmd, task.Set.Live)
}

func compactReportOf(cmd *exec.Cmd, rows int64) (*compactReport, error) {
	var r compactReport
	if err := reportOf(cmd, &r); err != nil {
		return nil, err
	}
	if r.Rows != rows {
		return nil, fmt.Errorf("%d rows were written, not %d", r.Rows, rows)
	}
	return &r, nil
}

func (o *Options) compactInDuckDB(ctx context.Context, python string, set *compactSet) (*compactReport, error) {
	out := filepath.Join(o.dir, "duckdb.parquet")
	in, err := json.Marshal(map[string]any{"files": set.Files, "dead": set.DeadTable, "out": out, "tmp": o.dir})
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, python, "-c", compactDuckDB)
	cmd.Stdin = bytes.NewReader(in)
	r, err := compactReportOf(cmd, set.Live)
	if err != nil {
		return nil, err
	}
	return r, os.Remove(out)
}

// duckDBPython is a Python that has DuckDB, where topology/readers/install.sh
// puts it; empty: there is none.
func duckDBPython() string {
	dir := os.Getenv("VARVE_TEST_TOOLS")
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return ""
		}
		dir = filepath.Join(cache, "varve-test")
	}
	path := filepath.Join(dir, "readers", "bin", "python")
	if _, err := os.Stat(path); err != nil {
		return "" // it cannot be started, whatever the reason
	}
	return path
}

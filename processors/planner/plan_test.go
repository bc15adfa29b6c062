package planner

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
)

const mib = 1 << 20

func policy(s ...Strategy) Policy {
	return Policy{Strategies: s, TargetBytes: 100 * mib, Ratio: 3, Batch: 12, Reads: 5}
}

// plan gives files ids from 1 in their order.
func plan(p Policy, limit int64, files ...File) []record.PlanItem {
	x := New(p)
	for i, f := range files {
		f.ID, f.Record = uint64(i+1), int64(i)
		if f.Rows == 0 {
			f.Rows = 1000
		}
		x.Add(f)
	}
	return x.Plan(limit)
}

func ids(items []record.PlanItem) string {
	var out [][]uint64
	for _, it := range items {
		var in []uint64
		for _, i := range it.Inputs {
			in = append(in, i.File)
		}
		out = append(out, in)
	}
	return fmt.Sprint(out)
}

func TestStrategies(t *testing.T) {
	sized := func(mibs ...int64) []File {
		var out []File
		for _, m := range mibs {
			out = append(out, File{Bytes: m * mib})
		}
		return out
	}
	many := make([]File, 30)
	for i := range many {
		many[i] = File{Bytes: mib}
	}
	for _, c := range []struct {
		name  string
		p     Policy
		files []File
		want  string
	}{
		{"three equal files meet the ratio", policy(SizeRatio), sized(4, 4, 4), "[[1 2 3]]"},
		{"two do not", policy(SizeRatio), sized(4, 4), "[]"},
		{"a large one waits", policy(SizeRatio), sized(40, 4, 4, 4), "[[2 3 4]]"},
		{"until the small ones are enough", policy(SizeRatio), sized(10, 7, 7, 7), "[[1 2 3 4]]"},
		{"half of the target is large enough", policy(SizeRatio), sized(50, 50, 50, 50), "[]"},
		{"at most twelve", policy(SizeRatio), many, "[[1 2 3 4 5 6 7 8 9 10 11 12] [13 14 15 16 17 18 19 20 21 22 23 24] [25 26 27 28 29 30]]"},
		{"small files fill an output", policy(SmallFiles), sized(60, 40, 60, 10, 10), "[[1 2] [3 4 5]]"},
		{"four small ones wait", policy(SmallFiles), sized(1, 1, 1, 1), "[]"},
		{"five go", policy(SmallFiles), sized(1, 1, 1, 1, 1), "[[1 2 3 4 5]]"},
		{"large ones stay out", policy(SmallFiles), sized(80, 80, 80, 80, 80, 80), "[]"},
		{"a quarter dead does not pay, a third does", policy(Deletes), []File{{Bytes: 80 * mib, Dead: 250}, {Bytes: 80 * mib, Dead: 333}}, "[[2]]"},
		{"files with deaths go together", policy(Deletes), []File{{Bytes: mib, Dead: 500}, {Bytes: mib}, {Bytes: mib, Dead: 900}}, "[[1 3]]"},
		{"partitions are apart", policy(SizeRatio), []File{{Bytes: 9, Tuple: 1}, {Bytes: 9, Tuple: 2}, {Bytes: 9, Tuple: 1}, {Bytes: 9, Tuple: 1}}, "[[1 3 4]]"},
		{"full takes all", policy(Full), sized(60, 60, 30), "[[2 3]]"},
		{"but a file that has nothing to gain", policy(Full), sized(60), "[]"},
		{"full of one with deaths", policy(Full), []File{{Bytes: mib, Dead: 1}}, "[[1]]"},
		{"one file is taken once", policy(Deletes, SizeRatio), []File{{Bytes: mib, Dead: 900}, {Bytes: mib}, {Bytes: mib}, {Bytes: mib}}, "[[1] [2 3 4]]"},
		{"none", policy(), sized(1, 1, 1), "[]"},
	} {
		if got := ids(plan(c.p, 1000, c.files...)); got != c.want {
			t.Errorf("%s: %s, wanted %s", c.name, got, c.want)
		}
	}
	if got := ids(plan(policy(SizeRatio), 1, many...)); got != "[[1 2 3 4 5 6 7 8 9 10 11 12]]" {
		t.Errorf("more jobs than asked for: %s", got)
	}
	if got := plan(policy(SizeRatio), 0, many...); got != nil {
		t.Errorf("jobs beyond the limit: %v", got)
	}
}

// A second run, with the files of the first one taken, never plans one of them;
// each item has files of one partition, its own order, and no file twice.
func TestNoFileTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := policy(rapid.Permutation([]Strategy{Deletes, SizeRatio, SmallFiles}).Draw(t, "strategies")...)
		if rapid.Bool().Draw(t, "full") {
			p.Strategies = append(p.Strategies, Full)
		}
		n := rapid.IntRange(0, 80).Draw(t, "files")
		files := make([]File, n)
		for i := range files {
			rows := rapid.Int64Range(1, 5000).Draw(t, "rows")
			files[i] = File{ID: uint64(i + 1), Rows: rows, Bytes: rapid.Int64Range(1, 150*mib).Draw(t, "bytes"),
				Dead: rapid.Int64Range(0, rows-1).Draw(t, "dead"), Tuple: uint32(rapid.IntRange(0, 2).Draw(t, "tuple")), Record: int64(i / 2)}
		}
		taken := map[uint64]bool{}
		for run := 0; ; run++ {
			x := New(p)
			for _, f := range files {
				if !taken[f.ID] {
					x.Add(f)
				}
			}
			items := x.Plan(rapid.Int64Range(1, 5).Draw(t, "limit"))
			if len(items) == 0 {
				break
			}
			for _, it := range items {
				if len(it.Inputs) == 0 || len(it.Inputs) > MaxInputs {
					t.Fatalf("a job of %d files", len(it.Inputs))
				}
				last := uint64(0)
				for _, in := range it.Inputs {
					f := files[in.File-1]
					if taken[in.File] {
						t.Fatalf("run %d plans file %d again", run, in.File)
					}
					taken[in.File] = true
					if in.Lo != 0 || in.Hi != f.Rows {
						t.Fatalf("file %d has %d rows, the job takes [%d,%d)", in.File, f.Rows, in.Lo, in.Hi)
					}
					if f.Tuple != files[it.Inputs[0].File-1].Tuple {
						t.Fatal("files of two partitions in one job")
					}
					if in.File < last {
						t.Fatal("files are not in the order in which they came")
					}
					last = in.File
				}
			}
		}
	})
}

// What comes of jobs is not planned for ever: with sizes added up, planning ends.
func TestEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := policy(SizeRatio)
		var files []File
		next := uint64(1)
		written, given := int64(0), int64(0)
		for range rapid.IntRange(1, 300).Draw(t, "flushes") {
			files = append(files, File{ID: next, Rows: 10, Bytes: mib, Record: int64(next)})
			next, given = next+1, given+mib
			for round := 0; ; round++ {
				if round > 20 {
					t.Fatal("planning does not end")
				}
				x := New(p)
				for _, f := range files {
					x.Add(f)
				}
				items := x.Plan(100)
				if len(items) == 0 {
					break
				}
				for _, it := range items {
					out := File{ID: next, Rows: 10, Record: int64(next)}
					for _, in := range it.Inputs {
						i := slices.IndexFunc(files, func(f File) bool { return f.ID == in.File })
						out.Bytes += files[i].Bytes
						files = slices.Delete(files, i, i+1)
					}
					written += out.Bytes
					files = append(files, out)
					next++
				}
			}
		}
		if written > 6*given {
			t.Fatalf("%d bytes were written for %d", written, given)
		}
	})
}

func TestPolicy(t *testing.T) {
	d := schemas.Definition{Name: "t", Properties: []schemas.Property{
		{Key: PropertyBatch, Value: "20"}, {Key: PropertyPaused, Value: "true"}, {Key: PropertyRatio, Value: "4"},
		{Key: PropertyStrategy, Value: "full, deletes"}, {Key: PropertyTargetIceberg, Value: "1000"},
	}}
	p, err := PolicyOf(&d)
	if err != nil || p.Batch != 20 || !p.Paused || p.Ratio != 4 || p.TargetBytes != 1000 || !slices.Equal(p.Strategies, []Strategy{Full, Deletes}) || p.MaxJobs != DefaultMaxJobs {
		t.Errorf("%+v, %v", p, err)
	}
	d.Properties = []schemas.Property{{Key: PropertyTarget, Value: "77"}, {Key: PropertyTargetIceberg, Value: "1000"}}
	if p, err = PolicyOf(&d); err != nil || p.TargetBytes != 77 || len(p.Strategies) != 2 {
		t.Errorf("%+v, %v", p, err)
	}
	for _, x := range []schemas.Property{
		{Key: PropertyBatch, Value: "1"}, {Key: PropertyRatio, Value: "x"}, {Key: PropertyStrategy, Value: "fast"}, {Key: PropertyPaused, Value: "perhaps"},
	} {
		d.Properties = []schemas.Property{x}
		if p, err := PolicyOf(&d); err == nil || p.Batch != DefaultBatch || p.Ratio != DefaultRatio || p.Paused || len(p.Strategies) != 2 {
			t.Errorf("%s=%s: %+v, %v", x.Key, x.Value, p, err)
		}
	}
	d.Properties = []schemas.Property{{Key: PropertyStrategy, Value: "none"}}
	if p, err := PolicyOf(&d); err != nil || len(p.Strategies) != 0 {
		t.Errorf("%+v, %v", p, err)
	}
}

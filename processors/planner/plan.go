package planner

import (
	"cmp"
	"slices"

	"github.com/varve-io/varve/schemas/record"
)

// File is a data file that a job may take, or the part of one that is on a leaf of
// the table's tree (F7).
type File struct {
	ID     uint64
	Lo, Hi int64 // the part's rows; Hi 0: the whole file
	Rows   int64
	Bytes  int64
	Dead   int64  // of Rows; below it
	Tuple  uint32 // equal for the files of one partition
	Node   int64  // the leaf
	Record int64  // offset of the record that added it
	// Unsorted: its rows need not ascend by the table's key, nor what a job makes of it.
	Unsorted bool
}

// apart compares what must be equal for the files of one job.
func (f *File) apart(o *File) int {
	return cmp.Or(cmp.Compare(f.Node, o.Node), cmp.Compare(f.Tuple, o.Tuple), cmp.Compare(f.order(), o.order()))
}

func (f *File) order() int {
	if f.Unsorted {
		return 1
	}
	return 0
}

// live is about how many bytes are left of a file once its dead rows are gone.
func (f *File) live() int64 {
	if f.Dead <= 0 || f.Rows <= 0 {
		return max(f.Bytes, 1)
	}
	return max(int64(float64(f.Bytes)*float64(f.Rows-f.Dead)/float64(f.Rows)), 1)
}

// vectorBytes is about how large a vector of so many positions is at most:
// two bytes a position, or a bit a row.
func (f *File) vectorBytes() int64 { return min(2*f.Dead, f.Rows/8+8) }

// MaxFiles is how many files a Planner holds at a time.
const MaxFiles = 1 << 20

// Planner gathers files of a table and makes jobs of them.
type Planner struct {
	policy Policy
	files  []File
}

// New makes a planner.
func New(p Policy) *Planner {
	if p.TargetBytes <= 0 {
		p.TargetBytes = DefaultTargetBytes
	}
	p.Batch = min(max(p.Batch, 2), MaxInputs)
	return &Planner{policy: p}
}

// Add tells of a file; one that no strategy would take is not kept. It returns
// false when the planner is full: Plan, and go on with the files behind it later.
func (p *Planner) Add(f File) bool {
	if slices.ContainsFunc(p.policy.Strategies, func(s Strategy) bool { return p.wants(s, &f) }) {
		p.files = append(p.files, f)
	}
	return len(p.files) < MaxFiles
}

func (p *Planner) wants(s Strategy, f *File) bool {
	switch s {
	case Deletes:
		return p.pays(f)
	case SizeRatio:
		return f.live() < (p.policy.TargetBytes+1)/2
	case SmallFiles:
		return f.live() < p.policy.TargetBytes-p.policy.TargetBytes/4
	case Full:
		return true
	}
	return false
}

// pays says whether writing a file anew pays for its dead rows.
func (p *Planner) pays(f *File) bool {
	if f.Dead <= 0 {
		return false
	}
	saved := float64(f.Bytes-f.live()+f.vectorBytes()) * float64(p.policy.Reads)
	return saved >= 2*float64(f.live())
}

// Plan makes at most limit jobs of the files, each file in one of them at most,
// and forgets them all.
func (p *Planner) Plan(limit int64) []record.PlanItem {
	files := p.files
	p.files = nil
	slices.SortFunc(files, func(a, b File) int {
		return cmp.Or(a.apart(&b), cmp.Compare(a.Record, b.Record), cmp.Compare(a.ID, b.ID))
	})
	var items []record.PlanItem
	for len(files) > 0 {
		n := 1
		for n < len(files) && files[n].apart(&files[0]) == 0 {
			n++
		}
		left := files[:n]
		files = files[n:]
		for _, s := range p.policy.Strategies {
			var groups [][]File
			groups, left = p.choose(s, left)
			for _, g := range groups {
				if int64(len(items)) >= limit {
					return items
				}
				items = append(items, p.item(s, g))
			}
		}
	}
	return items
}

// choose divides the files of one partition into jobs and those that are left.
// Both are in the order in which they came.
func (p *Planner) choose(s Strategy, files []File) (groups [][]File, left []File) {
	var mine []File
	for i := range files {
		if p.wants(s, &files[i]) {
			mine = append(mine, files[i])
		} else {
			left = append(left, files[i])
		}
	}
	var rest []File
	switch s {
	case Deletes:
		groups = p.pack(mine, p.policy.Batch)
	case Full:
		for _, g := range p.pack(mine, MaxInputs) {
			if len(g) > 1 || g[0].Dead > 0 {
				groups = append(groups, g)
			} else {
				rest = append(rest, g...) // it is what a job would make of it
			}
		}
	case SmallFiles:
		for _, g := range p.pack(mine, MaxInputs) {
			if size := total(g); len(g) >= minSmall || len(g) > 1 && size >= p.policy.TargetBytes-p.policy.TargetBytes/4 {
				groups = append(groups, g)
			} else {
				rest = append(rest, g...)
			}
		}
	case SizeRatio:
		groups, rest = p.bySize(mine)
	}
	if len(rest) > 0 {
		left = append(left, rest...)
		slices.SortFunc(left, func(a, b File) int { return cmp.Or(cmp.Compare(a.Record, b.Record), cmp.Compare(a.ID, b.ID)) })
	}
	return groups, left
}

func total(files []File) (n int64) {
	for i := range files {
		n += files[i].live()
	}
	return n
}

// pack puts files together as they come, so many or as long as they fit into an output.
func (p *Planner) pack(files []File, most int) [][]File {
	var out [][]File
	for len(files) > 0 {
		n, size := 1, files[0].live()
		for n < len(files) && n < most && size+files[n].live() <= p.policy.TargetBytes {
			size += files[n].live()
			n++
		}
		out = append(out, files[:n:n])
		files = files[n:]
	}
	return out
}

// bySize takes the files from the smallest: as many as a job may have, for as
// long as they have ratio times the bytes of the largest of them.
func (p *Planner) bySize(files []File) (groups [][]File, rest []File) {
	slices.SortFunc(files, func(a, b File) int { return cmp.Or(cmp.Compare(a.live(), b.live()), cmp.Compare(a.ID, b.ID)) })
	for len(files) > 0 {
		take := 0
		sum := int64(0)
		for k := 0; k < len(files) && k < p.policy.Batch; k++ {
			size := files[k].live()
			if sum += size; k > 0 && float64(sum) >= float64(p.policy.Ratio)*float64(size) {
				take = k + 1
			}
		}
		if take == 0 {
			rest = append(rest, files[0])
			files = files[1:]
			continue
		}
		groups = append(groups, files[:take:take])
		files = files[take:]
	}
	return groups, rest
}

// item is a job of these files. A table without key has its rows in their order.
func (p *Planner) item(s Strategy, files []File) record.PlanItem {
	files = slices.Clone(files)
	slices.SortFunc(files, func(a, b File) int { return cmp.Or(cmp.Compare(a.Record, b.Record), cmp.Compare(a.ID, b.ID)) })
	item := record.PlanItem{TargetBytes: p.policy.TargetBytes, Strategy: string(s)}
	for i := range files {
		f := &files[i]
		in := record.JobInput{File: f.ID, Lo: f.Lo, Hi: f.Hi}
		if f.Hi == 0 {
			in.Hi = f.Rows
		}
		item.Inputs = append(item.Inputs, in)
	}
	return item
}

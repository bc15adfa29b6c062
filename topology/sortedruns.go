package topology

import (
	"bufio"
	"cmp"
	"container/heap"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// item is what sortedRuns sort: a key of 128 bits and five numbers.
type item struct{ hi, lo, a, b, c, d, e uint64 }

const itemBytes = 56

func (x *item) compare(y *item) int {
	if c := cmp.Compare(x.hi, y.hi); c != 0 {
		return c
	}
	if c := cmp.Compare(x.lo, y.lo); c != 0 {
		return c
	}
	if c := cmp.Compare(x.a, y.a); c != 0 {
		return c
	}
	return cmp.Compare(x.b, y.b)
}

// runItems is how many items are sorted in memory: 28 MiB.
const runItems = 1 << 19

// sortedRuns sorts any number of items in bounded memory: sorted runs lie in
// files of dir. Items come back by key, a and b.
type sortedRuns struct {
	dir  string
	buf  []item
	runs []*os.File
	max  int
}

func newSortedRuns(dir string) *sortedRuns { return &sortedRuns{dir: dir, max: runItems} }

func (s *sortedRuns) add(x item) error {
	s.buf = append(s.buf, x)
	if len(s.buf) < s.max {
		return nil
	}
	return s.spill()
}

func sortItems(b []item) { slices.SortFunc(b, func(x, y item) int { return x.compare(&y) }) }

func (s *sortedRuns) spill() error {
	sortItems(s.buf)
	f, err := os.CreateTemp(s.dir, "run-*")
	if err != nil {
		return fmt.Errorf("sort on disk: %w", err)
	}
	s.runs = append(s.runs, f)
	w := bufio.NewWriterSize(f, 256<<10)
	var b [itemBytes]byte
	for i := range s.buf {
		for j, v := range [...]uint64{s.buf[i].hi, s.buf[i].lo, s.buf[i].a, s.buf[i].b, s.buf[i].c, s.buf[i].d, s.buf[i].e} {
			binary.BigEndian.PutUint64(b[8*j:], v)
		}
		if _, err := w.Write(b[:]); err != nil {
			return fmt.Errorf("sort on disk: %w", err)
		}
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("sort on disk: %w", err)
	}
	s.buf = s.buf[:0]
	return nil
}

// close removes the runs.
func (s *sortedRuns) close() error {
	var err error
	for _, f := range s.runs {
		err = errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	s.runs, s.buf = nil, nil
	return err
}

// runReader is one run that is read.
type runReader struct {
	r    *bufio.Reader // nil: mem
	mem  []item
	head item
}

func (r *runReader) next() (bool, error) {
	if r.r == nil {
		if len(r.mem) == 0 {
			return false, nil
		}
		r.head, r.mem = r.mem[0], r.mem[1:]
		return true, nil
	}
	var b [itemBytes]byte
	if _, err := io.ReadFull(r.r, b[:]); err != nil {
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		return false, fmt.Errorf("sort on disk: %w", err)
	}
	u := func(i int) uint64 { return binary.BigEndian.Uint64(b[8*i:]) }
	r.head = item{u(0), u(1), u(2), u(3), u(4), u(5), u(6)}
	return true, nil
}

// sortedItems gives the items in order.
type sortedItems []*runReader

func (s sortedItems) Len() int           { return len(s) }
func (s sortedItems) Less(i, j int) bool { return s[i].head.compare(&s[j].head) < 0 }
func (s sortedItems) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }
func (s *sortedItems) Push(x any)        { *s = append(*s, x.(*runReader)) }
func (s *sortedItems) Pop() any {
	old := *s
	x := old[len(old)-1]
	*s = old[:len(old)-1]
	return x
}

// sorted ends the adding.
func (s *sortedRuns) sorted() (*sortedItems, error) {
	sortItems(s.buf)
	rs := []*runReader{{mem: s.buf}}
	for _, f := range s.runs {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return nil, fmt.Errorf("sort on disk: %w", err)
		}
		rs = append(rs, &runReader{r: bufio.NewReaderSize(f, 256<<10)})
	}
	out := &sortedItems{}
	for _, r := range rs {
		ok, err := r.next()
		if err != nil {
			return nil, err
		}
		if ok {
			*out = append(*out, r)
		}
	}
	heap.Init(out)
	return out, nil
}

// next is the next item, nil at the end.
func (s *sortedItems) next() (*item, error) {
	if len(*s) == 0 {
		return nil, nil
	}
	r := (*s)[0]
	x := r.head
	ok, err := r.next()
	if err != nil {
		return nil, err
	}
	if ok {
		heap.Fix(s, 0)
	} else {
		heap.Pop(s)
	}
	return &x, nil
}

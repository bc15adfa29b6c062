package keyindex

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

var errInjected = errors.New("injected fault")

func rows(n int, file uint64) []Entry {
	out := make([]Entry, n)
	for i := range out {
		out[i] = Entry{Key: Key{Hi: uint64(i) * 3}, File: file, Pos: uint32(i), RowID: NoRowID, Order: int64(i), HasOrder: true}
	}
	return out
}

func stateOf(offset int64, batches ...[]Entry) *state {
	s := &state{offset: offset, entries: map[Key]Entry{}}
	for _, b := range batches {
		s.fold(b)
	}
	return s
}

// swap is the scenario of the crash tests: an index with a base at offset 10,
// and a change at 20 that a Flush makes durable.
type swap struct {
	mem      *vfs.MemFS
	old, new *state
	change   []Entry
}

func newSwap(t *testing.T) *swap {
	s := &swap{mem: vfs.NewCrashableMem()}
	first := rows(3000, 1)
	s.change = append(rows(500, 2), Entry{Key: Key{Hi: 1 << 40}, Offset: 20, Time: 5, RowID: NoRowID})
	s.old, s.new = stateOf(10, first), stateOf(20, first, s.change)
	i := s.open(t, s.mem)
	must(t, i.Apply(first, 10))
	must(t, i.Flush())
	must(t, i.Close())
	return s
}

func (s *swap) open(t *testing.T, fs vfs.FS) *Index {
	t.Helper()
	i, err := Open("/index", Options{FS: fs, Sync: true, BlockEntries: 512, Identity: []byte("shard")})
	must(t, err)
	return i
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// checkEither demands that fs holds the old or the new index, whole, and after
// Open nothing else. It tells which.
func (s *swap) checkEither(t *testing.T, fs vfs.FS) (isNew bool) {
	t.Helper()
	i := s.open(t, fs)
	defer func() { must(t, i.Close()) }()
	must(t, i.Verify())
	want := s.old
	if i.Offset() == s.new.offset {
		want, isNew = s.new, true
	}
	must(t, checkContents(i, want))
	names, err := fs.List("/index")
	must(t, err)
	slices.Sort(names)
	if len(names) != 2 || names[0] != currentName || names[1] != i.durable.baseName() {
		t.Fatalf("files after Open: %v", names)
	}
	return isNew
}

// faultAt calls at for every file operation from 0 on.
type faultAt struct {
	armed bool
	n     int
	at    func(n int, op errorfs.Op) error
}

func (f *faultAt) MaybeError(op errorfs.Op) error {
	if !f.armed {
		return nil
	}
	n := f.n
	f.n++
	return f.at(n, op)
}

func (f *faultAt) String() string { return "faultAt" }

// TestPowerLoss cuts the power before each file operation of a Flush, with
// nothing, half or all of what was not synced on the disk: the next Open finds
// the old or the new index.
func TestPowerLoss(t *testing.T) {
	for _, unsynced := range []int{0, 50, 100} {
		t.Run(fmt.Sprint(unsynced), func(t *testing.T) {
			s := newSwap(t)
			rng := rand.New(rand.NewPCG(1, uint64(unsynced)))
			var clones []*vfs.MemFS
			inj := &faultAt{at: func(int, errorfs.Op) error {
				for range 3 {
					clones = append(clones, s.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: unsynced, RNG: rng}))
				}
				return nil
			}}
			i := s.open(t, errorfs.Wrap(s.mem, inj))
			must(t, i.Apply(s.change, 20))
			inj.armed = true
			must(t, i.Flush())
			inj.armed = false
			must(t, i.Close())
			if inj.n < 10 {
				t.Fatalf("only %d operations were seen", inj.n)
			}
			olds := 0
			for _, c := range clones {
				if !s.checkEither(t, c) {
					olds++
				}
			}
			if olds == 0 || olds == len(clones) {
				t.Fatalf("%d of %d crashes came back old", olds, len(clones))
			}
			if !s.checkEither(t, s.mem.CrashClone(vfs.CrashCloneCfg{})) {
				t.Fatal("a Flush that returned did not survive")
			}
		})
	}
}

// TestFault lets each file operation of a Flush fail once: the index goes on
// with all it has, another Flush succeeds, and nothing is left behind.
func TestFault(t *testing.T) {
	failed := 0
	for k := 0; ; k++ {
		s := newSwap(t)
		hit := ""
		inj := &faultAt{at: func(n int, op errorfs.Op) error {
			if n != k {
				return nil
			}
			hit = fmt.Sprintf("%d %s", op.Kind, op.Path)
			return errInjected
		}}
		i := s.open(t, errorfs.Wrap(s.mem, inj))
		must(t, i.Apply(s.change, 20))
		inj.armed = true
		err := i.Flush()
		inj.armed = false
		if hit == "" {
			must(t, err)
			must(t, i.Close())
			if k < 10 || failed < 8 {
				t.Fatalf("%d operations, %d failures", k, failed)
			}
			return
		}
		if err != nil {
			failed++
			if !errors.Is(err, errInjected) {
				t.Fatalf("%s: %v", hit, err)
			}
			if i.Stats().MergeError == nil {
				t.Fatalf("%s: the failure is not in Stats", hit)
			}
		}
		if err := checkContents(i, s.new); err != nil {
			t.Fatalf("%s: %v", hit, err)
		}
		// A crash right now is harmless too.
		s.checkEither(t, s.mem.CrashClone(vfs.CrashCloneCfg{}))
		must(t, i.Flush())
		if i.Stats().MergeError != nil {
			t.Fatalf("%s: %v", hit, i.Stats().MergeError)
		}
		must(t, checkContents(i, s.new))
		must(t, i.Close())
		if !s.checkEither(t, s.mem) {
			t.Fatalf("%s: the second Flush did not last", hit)
		}
	}
}

// TestFullDisk: where a merge cannot be written, folding stops at the limit
// with the cause, loses nothing, and goes on when there is space again.
func TestFullDisk(t *testing.T) {
	for _, sync := range []bool{true, false} {
		t.Run(fmt.Sprintf("sync=%v", sync), func(t *testing.T) {
			full := &faultAt{at: func(_ int, op errorfs.Op) error {
				if op.Kind == errorfs.OpFileWrite {
					return errInjected
				}
				return nil
			}}
			i, err := Open("/index", Options{FS: errorfs.Wrap(vfs.NewMem(), full), Sync: sync, DeltaLimit: 1000})
			must(t, err)
			full.armed = true
			s := stateOf(NoOffset)
			stopped := false
			for n := int64(0); n < 10 && !stopped; n++ {
				batch := rows(400, uint64(n+1))
				for x := range batch {
					batch[x].Key.Hi += uint64(n) << 32
				}
				if err := i.Apply(batch, n); err != nil {
					if !errors.Is(err, errInjected) {
						t.Fatal(err)
					}
					stopped = true
					break
				}
				s.offset = n
				s.fold(batch)
			}
			if !stopped {
				t.Fatal("folding went on beyond the limit")
			}
			if i.Stats().DeltaEntries > 2*1000+400 {
				t.Fatalf("%d entries in memory", i.Stats().DeltaEntries)
			}
			must(t, checkContents(i, s))
			full.armed = false
			batch := rows(400, 99)
			must(t, i.Apply(batch, 50))
			s.offset = 50
			s.fold(batch)
			must(t, checkContents(i, s))
			must(t, i.Close())
		})
	}
}

// TestRestoreFault lets each file operation of Restore fail: the old index
// stays, or, once CURRENT was renamed, the restored one is in place.
func TestRestoreFault(t *testing.T) {
	for k := 0; ; k++ {
		s := newSwap(t)
		src := s.open(t, vfs.NewMem())
		must(t, src.Apply(rows(3000, 1), 10))
		must(t, src.Apply(s.change, 20))
		var b bytes.Buffer
		_, err := src.Checkpoint(&b)
		must(t, err)
		must(t, src.Close())
		inj := &faultAt{armed: true, at: func(n int, _ errorfs.Op) error {
			if n == k {
				return errInjected
			}
			return nil
		}}
		err = Restore("/index", &b, Options{FS: errorfs.Wrap(s.mem, inj), BlockEntries: 512, Identity: []byte("shard")})
		if inj.n <= k {
			must(t, err)
			if !s.checkEither(t, s.mem.CrashClone(vfs.CrashCloneCfg{})) {
				t.Fatal("Restore returned, and a crash took it back")
			}
			return
		}
		if err != nil && !errors.Is(err, errInjected) {
			t.Fatal(err)
		}
		s.checkEither(t, s.mem.CrashClone(vfs.CrashCloneCfg{}))
		s.checkEither(t, s.mem)
	}
}

// TestSteps shows the order of file operations, which is what a crash relies on.
func TestSteps(t *testing.T) {
	datadriven.RunTest(t, "testdata/steps", func(t *testing.T, d *datadriven.TestData) string {
		var log strings.Builder
		mem := vfs.NewMem()
		quiet := true
		fs := vfs.WithLogging(mem, func(format string, args ...any) {
			if line := fmt.Sprintf(format, args...); !quiet && !strings.HasPrefix(line, "stat") {
				log.WriteString(strings.TrimRight(line, "\n") + "\n")
			}
		})
		o := Options{FS: fs, Sync: true}
		open := func() *Index {
			i, err := Open("/data/index", o)
			must(t, err)
			return i
		}
		var i *Index
		switch d.Cmd {
		case "open-empty":
			quiet = false
			i = open()
		case "first-flush", "second-flush", "flush-nothing-new", "flush-offset-only":
			i = open()
			must(t, i.Apply(rows(10, 1), 1))
			if d.Cmd != "first-flush" {
				must(t, i.Flush())
			}
			switch d.Cmd {
			case "second-flush":
				must(t, i.Apply(rows(10, 2), 2))
			case "flush-offset-only":
				must(t, i.SetOffset(2))
			}
			quiet = false
			must(t, i.Flush())
			quiet = true
		case "open-after-crash":
			i = open()
			must(t, i.Apply(rows(10, 1), 1))
			must(t, i.Flush())
			must(t, i.Close())
			for _, name := range []string{"base-000000000002.kix", "base-000000000003.kix.tmp", "CURRENT.tmp", "notes.txt"} {
				f, err := mem.Create("/data/index/"+name, vfs.WriteCategoryUnspecified)
				must(t, err)
				must(t, f.Close())
			}
			quiet = false
			i = open()
			quiet = true
		case "restore":
			var b bytes.Buffer
			src, err := Open("/src", Options{FS: vfs.NewMem()})
			must(t, err)
			must(t, src.Apply(rows(10, 1), 1))
			_, err = src.Checkpoint(&b)
			must(t, err)
			must(t, src.Close())
			quiet = false
			must(t, Restore("/data/index", &b, o))
			quiet = true
			i = open()
		case "destroy":
			i = open()
			must(t, i.Apply(rows(10, 1), 1))
			must(t, i.Flush())
			quiet = false
			must(t, Destroy("/data/index", fs))
			quiet = true
		default:
			d.Fatalf(t, "unknown command %q", d.Cmd)
		}
		must(t, i.Close())
		return log.String()
	})
}

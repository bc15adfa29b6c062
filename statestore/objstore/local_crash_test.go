package objstore_test

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/varve-io/varve/statestore/objstore"
	"github.com/varve-io/varve/statestore/objstore/objstoretest"
)

// operations are the changing calls on a store that already holds old/k and
// hint. want is the value of key afterwards; was is the value before, "" for
// no object.
var operations = []struct {
	name, key string
	was, want string
	do        func(objstore.Store) error
}{
	{"create in a known folder", "old/new", "", "fresh", func(s objstore.Store) error { return s.Create(ctx, "old/new", []byte("fresh")) }},
	{"create in new folders", "a/b/c", "", "fresh", func(s objstore.Store) error { return s.Create(ctx, "a/b/c", []byte("fresh")) }},
	{"create what is there", "old/k", "kept", "kept", func(s objstore.Store) error { return s.Create(ctx, "old/k", []byte("kept")) }},
	{"create exclusively", "old/v1", "", "fresh", func(s objstore.Store) error { return s.CreateExclusive(ctx, "old/v1", []byte("fresh")) }},
	{"write a large object", "d/large", "", large, func(s objstore.Store) error {
		w, err := s.Writer(ctx, "d/large")
		if err != nil {
			return err
		}
		defer w.Abort()
		for range largeParts {
			if _, err := w.Write([]byte(large[:len(large)/largeParts])); err != nil {
				return err
			}
		}
		return w.Commit()
	}},
	{"replace", "hint", "9", "10", func(s objstore.Store) error { return s.Replace(ctx, "hint", []byte("10")) }},
	{"replace nothing", "h/hint", "", "1", func(s objstore.Store) error { return s.Replace(ctx, "h/hint", []byte("1")) }},
	{"delete", "old/k", "kept", "", func(s objstore.Store) error { return s.Delete(ctx, "old/k") }},
}

const largeParts = 4

var large = strings.Repeat("0123456789abcdef", 4*1024)

// prepared is a disk with the objects that operations expect, all durable.
func prepared(t *testing.T) *objstoretest.Disk {
	disk := objstoretest.NewDisk()
	if err := disk.Mkdir("/mnt"); err != nil {
		t.Fatal(err)
	}
	if err := disk.SyncDir("/"); err != nil {
		t.Fatal(err)
	}
	s := openOn(t, disk)
	for key, data := range map[string]string{"old/k": "kept", "hint": "9"} {
		if err := s.Create(ctx, key, []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	return disk
}

func openOn(t *testing.T, fs objstore.FileSystem) objstore.Store {
	t.Helper()
	s, err := objstore.Open(ctx, "/mnt/lake", objstore.WithFileSystem(fs))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// value reads an object whole; "" for none.
func value(t *testing.T, s objstore.Store, key string) string {
	t.Helper()
	data, err := s.ReadAll(ctx, key, 1<<20)
	if errors.Is(err, objstore.ErrNotFound) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestCrashAtEveryStep (W3): at whatever step a call dies, by a kill or by a power
// loss that keeps any part of what was not fsynced, the object is as it was or
// as it should become; it is as it should become once the call has returned.
// Everything else stands, and after a restart no temporary file is left.
func TestCrashAtEveryStep(t *testing.T) {
	powers := []struct{ percent, seeds int }{{0, 1}, {50, 6}, {100, 1}}
	for _, op := range operations {
		t.Run(strings.ReplaceAll(op.name, " ", "_"), func(t *testing.T) {
			for step := 1; ; step++ {
				returned := false
				for _, power := range powers {
					for seed := range power.seeds {
						disk := prepared(t)
						steps := objstoretest.NewSteps(disk, "/mnt")
						s := openOn(t, steps)
						steps.CrashAt(step)
						err := op.do(s)
						if returned = err == nil; !returned && !errors.Is(err, objstoretest.ErrCrashed) {
							t.Fatalf("step %d: %v", step, err)
						}
						where := fmt.Sprintf("crash at step %d (%d%% of the unsynced kept, seed %d) of\n%s",
							step, power.percent, seed, strings.Join(steps.Take(), "\n"))

						after := disk.LosePower(power.percent, uint64(seed))
						s = openOn(t, after)
						got := value(t, s, op.key)
						if got != op.want && (returned || got != op.was) {
							t.Fatalf("%s holds %.40q (%d bytes), was %.40q, wanted %.40q; %s", op.key, got, len(got), op.was, op.want, where)
						}
						if op.key != "hint" && value(t, s, "hint") != "9" || op.key != "old/k" && value(t, s, "old/k") != "kept" {
							t.Fatalf("another object changed; %s", where)
						}
						checkNoTemporaries(t, after, "/mnt", where)
						if !returned && op.name == "create exclusively" && got == op.want {
							continue // Its repetition finds its own object.
						}
						if err := op.do(s); err != nil && (!errors.Is(err, objstore.ErrExists) || !returned) {
							t.Fatalf("repeated: %v; %s", err, where)
						}
						if got := value(t, openOn(t, after.LosePower(0, 0)), op.key); got != op.want {
							t.Fatalf("after the repetition %s holds %.40q; %s", op.key, got, where)
						}
					}
				}
				if returned {
					if step < 3 {
						t.Fatalf("the call took only %d steps", step-1)
					}
					return
				}
			}
		})
	}
}

func checkNoTemporaries(t *testing.T, fs objstore.FileSystem, dir, where string) {
	t.Helper()
	entries, err := fs.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			checkNoTemporaries(t, fs, dir+"/"+e.Name(), where)
		} else if strings.HasPrefix(e.Name(), ".varve-tmp-") {
			t.Fatalf("%s/%s is left; %s", dir, e.Name(), where)
		}
	}
}

// TestFullDiskAtEveryStep: when the disk is full at any step, the call says so
// and names the object's path, and once there is space the same call succeeds.
func TestFullDiskAtEveryStep(t *testing.T) {
	for _, op := range operations {
		t.Run(strings.ReplaceAll(op.name, " ", "_"), func(t *testing.T) {
			for step := 1; ; step++ {
				disk := prepared(t)
				steps := objstoretest.NewSteps(disk, "/mnt")
				s := openOn(t, steps)
				steps.FailAt(step, syscall.ENOSPC)
				err := op.do(s)
				if err == nil {
					return
				}
				steps.FailAt(0, nil)
				if op.name != "delete" && (!errors.Is(err, objstore.ErrNoSpace) || !strings.Contains(err.Error(), "/mnt/lake/"+op.key)) {
					t.Fatalf("step %d: error %v", step, err)
				}
				got := value(t, s, op.key)
				if got != op.was && got != op.want {
					t.Fatalf("step %d: %s holds %.40q", step, op.key, got)
				}
				if err := op.do(s); err != nil && !(op.name == "create exclusively" && got == op.want) {
					t.Fatalf("step %d: repeated: %v", step, err)
				}
				if got := value(t, s, op.key); got != op.want {
					t.Fatalf("step %d: after the repetition %s holds %.40q", step, op.key, got)
				}
			}
		})
	}
}

// Somebody else's file of the same bytes may not be on the disk yet. Create
// promises that it is.
func TestSameBytesOfAnotherWriterBecomeDurable(t *testing.T) {
	disk := prepared(t)
	f, err := disk.CreateTemp("/mnt/lake/old/theirs")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte("same")); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := openOn(t, disk).Create(ctx, "old/theirs", []byte("same")); err != nil {
		t.Fatal(err)
	}
	if got := value(t, openOn(t, disk.LosePower(0, 0)), "old/theirs"); got != "same" {
		t.Fatalf("after a power loss it holds %q", got)
	}
}

package hadoopcat_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/varve-io/varve/statestore/hadoopcat"
	"github.com/varve-io/varve/statestore/objstore"
	"github.com/varve-io/varve/statestore/objstore/objstoretest"
)

func openOn(t testing.TB, fs objstore.FileSystem) objstore.Store {
	t.Helper()
	s, err := objstore.Open(ctx, "/mnt/lake", objstore.WithFileSystem(fs))
	must(t, err)
	return s
}

// tableOn is a disk with a table of n versions, all durable.
func tableOn(t testing.TB, n int) *objstoretest.Disk {
	disk := objstoretest.NewDisk()
	must(t, disk.Mkdir("/mnt"))
	must(t, disk.SyncDir("/"))
	c := hadoopcat.New(openOn(t, disk))
	for i := 1; i <= n; i++ {
		must(t, c.Commit(ctx, table, i, metadata(i)))
	}
	return disk
}

// TestCommitSteps writes down the steps of a commit on the file system (W2).
func TestCommitSteps(t *testing.T) {
	disk := tableOn(t, 0)
	steps := objstoretest.NewSteps(disk, "/mnt/lake")
	c := hadoopcat.New(openOn(t, steps))
	datadriven.RunTest(t, "testdata/commit_steps", func(t *testing.T, d *datadriven.TestData) string {
		var n int
		d.ScanArgs(t, "v", &n)
		var err error
		switch d.Cmd {
		case "commit":
			err = c.Commit(ctx, table, n, []byte(d.Input))
		case "delete-version":
			err = c.DeleteVersion(ctx, table, n)
		default:
			t.Fatalf("unknown command %s", d.Cmd)
		}
		out := strings.Join(append(steps.Take(), ""), "\n")
		switch {
		case errors.Is(err, hadoopcat.ErrConflict):
			return out + "conflict\n"
		case err != nil:
			return out + err.Error() + "\n"
		}
		return out + "ok\n"
	})
}

// TestKillAtEveryStep: at whatever step a commit dies, by a kill or by a power
// loss, the table is at the old version or at the new one, whole; the hint
// names one of the two, and Repair brings it to the version that stands. A
// commit that has returned is never lost, and a repeated one succeeds.
func TestKillAtEveryStep(t *testing.T) {
	powers := []struct{ percent, seeds int }{{0, 1}, {50, 6}, {100, 1}}
	for _, old := range []int{0, 1, 9} {
		t.Run(fmt.Sprintf("from version %d", old), func(t *testing.T) {
			for step := 1; ; step++ {
				returned := false
				for _, power := range powers {
					for seed := range power.seeds {
						disk := tableOn(t, old)
						steps := objstoretest.NewSteps(disk, "/mnt/lake")
						c := hadoopcat.New(openOn(t, steps))
						steps.CrashAt(step)
						commitErr := c.Commit(ctx, table, old+1, metadata(old+1))
						if returned = commitErr == nil; !returned && !errors.Is(commitErr, objstoretest.ErrCrashed) {
							t.Fatalf("step %d: %v", step, commitErr)
						}
						where := fmt.Sprintf("crash at step %d (%d%%, seed %d) of\n%s", step, power.percent, seed, strings.Join(steps.Take(), "\n"))

						s := openOn(t, disk.LosePower(power.percent, uint64(seed)))
						c = hadoopcat.New(s)
						n, _, ok, err := c.Current(ctx, table)
						must(t, err)
						if ok != (n > 0) || n != old+1 && (n != old || returned || errors.Is(commitErr, hadoopcat.ErrHint)) {
							t.Fatalf("the table is at version %d; %s", n, where)
						}
						if ok {
							data, err := c.Load(ctx, table, n)
							must(t, err)
							if string(data) != string(metadata(n)) {
								t.Fatalf("version %d holds %q; %s", n, data, where)
							}
						}
						// What a reader that trusts the hint sees meanwhile.
						if hint, err := s.ReadAll(ctx, table+"/metadata/version-hint.text", 100); err == nil {
							if h := string(hint); h != fmt.Sprint(n) && h != fmt.Sprint(old) {
								t.Fatalf("the hint holds %q at version %d; %s", h, n, where)
							}
						} else if !errors.Is(err, objstore.ErrNotFound) || old > 0 || returned {
							t.Fatalf("the hint: %v; %s", err, where)
						}
						must(t, c.Repair(ctx, table))
						wantHint := ""
						if ok {
							wantHint = fmt.Sprint(n)
						}
						expectHint(t, s, wantHint)

						must(t, c.Commit(ctx, table, old+1, metadata(old+1)))
						n, _, _, err = c.Current(ctx, table)
						must(t, err)
						if n != old+1 {
							t.Fatalf("after the repetition the table is at version %d; %s", n, where)
						}
						expectHint(t, s, fmt.Sprint(old+1))
					}
				}
				if returned {
					if step < 8 {
						t.Fatalf("the commit took only %d steps", step-1)
					}
					return
				}
			}
		})
	}
}

// TestUnknownAnswers: when any single call of a commit fails, before or after
// its effect, the same commit repeated succeeds and nothing else is left. An
// ErrHint is only given when the version stands.
func TestUnknownAnswers(t *testing.T) {
	errLost := errors.New("the answer is lost")
	for _, after := range []bool{false, true} {
		for _, old := range []int{0, 3} {
			for at := 1; ; at++ {
				s := objstore.NewMem()
				c := hadoopcat.New(s)
				var want []int
				for n := 1; n <= old; n++ {
					must(t, c.Commit(ctx, table, n, metadata(n)))
					want = append(want, n)
				}
				calls := 0
				s.SetHook(func(call objstore.Call) error {
					if call.After == after {
						if calls++; calls == at {
							return errLost
						}
					}
					return nil
				})
				err := c.Commit(ctx, table, old+1, metadata(old+1))
				s.SetHook(nil)
				if err == nil {
					break
				}
				mustBe(t, err, errLost)
				if _, loadErr := c.Load(ctx, table, old+1); errors.Is(err, hadoopcat.ErrHint) && loadErr != nil {
					t.Fatalf("call %d: %v, but version %d: %v", at, err, old+1, loadErr)
				}
				must(t, c.Commit(ctx, table, old+1, metadata(old+1)))
				expect(t, s, append(want, old+1), fmt.Sprint(old+1))
			}
		}
	}
}

// FuzzHint: whatever another program wrote into the hint or beside it, Repair
// ends with digits and no newline (W2).
func FuzzHint(f *testing.F) {
	for _, seed := range []string{"", "1", "2\n", "-1", "1e3", "٣"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, hint []byte) {
		s := objstore.NewMem()
		c := hadoopcat.New(s)
		must(t, c.Commit(ctx, table, 1, metadata(1)))
		must(t, c.Commit(ctx, table, 2, metadata(2)))
		must(t, s.Replace(ctx, table+"/metadata/version-hint.text", hint))
		must(t, c.Repair(ctx, table))
		expect(t, s, []int{1, 2}, "2")
	})
}

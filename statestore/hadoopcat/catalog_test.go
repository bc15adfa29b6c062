package hadoopcat_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/varve-io/varve/statestore/hadoopcat"
	"github.com/varve-io/varve/statestore/objstore"
	"github.com/varve-io/varve/statestore/objstore/objstoretest"
)

var ctx = context.Background()

const table = "shop/orders"

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mustBe(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error is %v, want %v", err, want)
	}
}

func metadata(n int) []byte { return fmt.Appendf(nil, `{"version": %d}`, n) }

// expect asserts what a reader finds: versions, newest, hint ("" for none).
func expect(t testing.TB, s objstore.Store, versions []int, hint string) {
	t.Helper()
	c := hadoopcat.New(s)
	got, err := c.Versions(ctx, table)
	must(t, err)
	if !slices.Equal(got, versions) {
		t.Fatalf("versions %v, want %v", got, versions)
	}
	n, key, ok, err := c.Current(ctx, table)
	must(t, err)
	if len(versions) == 0 {
		if ok {
			t.Fatalf("current version %d of a table without any", n)
		}
	} else {
		want := versions[len(versions)-1]
		if !ok || n != want || key != fmt.Sprintf("%s/metadata/v%d.metadata.json", table, want) {
			t.Fatalf("current version %d %q %v, want %d", n, key, ok, want)
		}
	}
	expectHint(t, s, hint)
}

func expectHint(t testing.TB, s objstore.Store, want string) {
	t.Helper()
	data, err := s.ReadAll(ctx, table+"/metadata/version-hint.text", 1000)
	if want == "" {
		mustBe(t, err, objstore.ErrNotFound)
		return
	}
	must(t, err)
	if string(data) != want {
		t.Fatalf("version-hint.text holds %q, want %q", data, want)
	}
}

func TestCommitsFollowEachOther(t *testing.T) {
	s := objstore.NewMem()
	c := hadoopcat.New(s)
	expect(t, s, nil, "")
	for n := 1; n <= 12; n++ {
		must(t, c.Commit(ctx, table, n, metadata(n)))
		data, err := c.Load(ctx, table, n)
		must(t, err)
		if !bytes.Equal(data, metadata(n)) {
			t.Fatalf("version %d loads as %s", n, data)
		}
	}
	// v10 is newer than v9: by number, not by name. No newline (W2).
	expect(t, s, []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, "12")
	_, err := c.Load(ctx, table, 13)
	mustBe(t, err, objstore.ErrNotFound)
}

func TestTheFilesOfALocalTable(t *testing.T) {
	dir := t.TempDir()
	s, err := objstore.Open(ctx, dir)
	must(t, err)
	c := hadoopcat.New(s)
	must(t, c.Commit(ctx, table, 1, metadata(1)))
	must(t, c.Commit(ctx, table, 2, metadata(2)))
	entries, err := os.ReadDir(filepath.Join(dir, table, "metadata"))
	must(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{"v1.metadata.json", "v2.metadata.json", "version-hint.text"}; !slices.Equal(names, want) {
		t.Fatalf("files %q, want %q", names, want)
	}
}

func TestACommitMayBeRepeated(t *testing.T) {
	s := objstore.NewMem()
	c := hadoopcat.New(s)
	for n := 1; n <= 3; n++ {
		must(t, c.Commit(ctx, table, n, metadata(n)))
	}
	// Also an older one: its sender lost the answer. The hint does not go back.
	for n := 3; n >= 1; n-- {
		must(t, c.Commit(ctx, table, n, metadata(n)))
		expect(t, s, []int{1, 2, 3}, "3")
	}
	// Also when the version before it has been deleted since.
	must(t, c.DeleteVersion(ctx, table, 1))
	must(t, c.Commit(ctx, table, 2, metadata(2)))
	expect(t, s, []int{2, 3}, "3")
}

func TestConflicts(t *testing.T) {
	for _, tc := range []struct {
		name   string
		n      int
		before func(t *testing.T, s objstore.Store)
	}{
		{"another's bytes in the same version", 3, nil},
		{"an older version with other bytes", 2, nil},
		{"a gap after the newest", 5, nil},
		{"an old version that was deleted", 1, func(t *testing.T, s objstore.Store) {
			must(t, hadoopcat.New(s).DeleteVersion(ctx, table, 1))
		}},
		{"a compressed version of another engine", 4, func(t *testing.T, s objstore.Store) {
			must(t, s.Create(ctx, table+"/metadata/v4.gz.metadata.json", gz(t, []byte("{}"))))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := objstore.NewMem()
			c := hadoopcat.New(s)
			for n := 1; n <= 3; n++ {
				must(t, c.Commit(ctx, table, n, metadata(n)))
			}
			if tc.before != nil {
				tc.before(t, s)
			}
			before := objstoretest.Keys(t, s, "")
			mustBe(t, c.Commit(ctx, table, tc.n, []byte("other")), hadoopcat.ErrConflict)
			if after := objstoretest.Keys(t, s, ""); !slices.Equal(after, before) {
				t.Fatalf("a refused commit left %q, was %q", after, before)
			}
			expectHint(t, s, "3")
		})
	}
	for _, n := range []int{0, -1} {
		if err := hadoopcat.New(objstore.NewMem()).Commit(ctx, table, n, nil); err == nil {
			t.Errorf("committed version %d", n)
		}
	}
}

func TestOfManyWritersOneWinsEachVersion(t *testing.T) {
	s, err := objstore.Open(ctx, t.TempDir())
	must(t, err)
	const writers, versions = 4, 10
	won := make([][]int, writers)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			c := hadoopcat.New(s)
			for {
				n, _, _, err := c.Current(ctx, table)
				if err != nil {
					t.Error(err)
					return
				}
				if n == versions {
					return
				}
				err = c.Commit(ctx, table, n+1, fmt.Appendf(nil, "writer %d", w))
				if err == nil {
					won[w] = append(won[w], n+1)
				} else if !errors.Is(err, hadoopcat.ErrConflict) {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	all := slices.Concat(won...)
	slices.Sort(all)
	if want := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}; !slices.Equal(all, want) {
		t.Fatalf("versions won: %v", won)
	}
	expect(t, s, all, "10")
}

func gz(t testing.TB, data []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write(data)
	must(t, err)
	must(t, w.Close())
	return b.Bytes()
}

func TestAForeignCompressedVersionIsFoundAndRead(t *testing.T) {
	s := objstore.NewMem()
	c := hadoopcat.New(s)
	must(t, c.Commit(ctx, table, 1, metadata(1)))
	must(t, s.Create(ctx, table+"/metadata/v2.gz.metadata.json", gz(t, metadata(2))))
	n, key, ok, err := c.Current(ctx, table)
	must(t, err)
	if n != 2 || !ok || key != table+"/metadata/v2.gz.metadata.json" {
		t.Fatalf("current %d %q %v", n, key, ok)
	}
	data, err := c.Load(ctx, table, 2)
	must(t, err)
	if !bytes.Equal(data, metadata(2)) {
		t.Fatalf("loads as %q", data)
	}
	must(t, c.Repair(ctx, table))
	expectHint(t, s, "2")
	// Once it is imported, our next version follows it.
	must(t, c.Commit(ctx, table, 3, metadata(3)))
	expect(t, s, []int{1, 2, 3}, "3")

	must(t, s.Replace(ctx, table+"/metadata/v2.gz.metadata.json", []byte("not gzip")))
	if _, err := c.Load(ctx, table, 2); err == nil {
		t.Fatal("loaded garbage")
	}
}

func TestOtherNamesAreNoVersions(t *testing.T) {
	s := objstore.NewMem()
	for _, name := range []string{"v0.metadata.json", "v01.metadata.json", "v-1.metadata.json", "v.metadata.json",
		"v1.metadata.json.tmp", "v1.json", "v99999999999999999999.metadata.json", "v1/v1.metadata.json", "vx.metadata.json",
		"00001-5e4.metadata.json", "snap-1.avro", "1.metadata.json"} {
		must(t, s.Create(ctx, table+"/metadata/"+name, nil))
	}
	expect(t, s, nil, "")
	must(t, hadoopcat.New(s).Commit(ctx, table, 1, metadata(1)))
	expect(t, s, []int{1}, "1")
}

func TestRepairMendsTheHint(t *testing.T) {
	for _, hint := range []string{"", "1", "2", "3", "2\n", " 2", "02", "v2", "99999999999999999999", "x", string(make([]byte, 100))} {
		t.Run(fmt.Sprintf("%.10q", hint), func(t *testing.T) {
			s := objstore.NewMem()
			c := hadoopcat.New(s)
			must(t, c.Commit(ctx, table, 1, metadata(1)))
			must(t, c.Commit(ctx, table, 2, metadata(2)))
			must(t, s.Delete(ctx, table+"/metadata/version-hint.text"))
			if hint != "" {
				must(t, s.Replace(ctx, table+"/metadata/version-hint.text", []byte(hint)))
			}
			must(t, c.Repair(ctx, table))
			expect(t, s, []int{1, 2}, "2")
		})
	}
	t.Run("a hint without versions", func(t *testing.T) {
		s := objstore.NewMem()
		must(t, s.Replace(ctx, table+"/metadata/version-hint.text", []byte("7")))
		must(t, hadoopcat.New(s).Repair(ctx, table))
		expect(t, s, nil, "")
	})
	t.Run("a hint that is right is not written again", func(t *testing.T) {
		s := objstore.NewMem()
		c := hadoopcat.New(s)
		must(t, c.Commit(ctx, table, 1, metadata(1)))
		s.SetHook(func(call objstore.Call) error {
			if call.Op == "Replace" {
				t.Error("replaced")
			}
			return nil
		})
		must(t, c.Repair(ctx, table))
	})
}

func TestDeleteVersionTakesTheOldestFirstAndNeverTheNewest(t *testing.T) {
	s := objstore.NewMem()
	c := hadoopcat.New(s)
	for n := 1; n <= 4; n++ {
		must(t, c.Commit(ctx, table, n, metadata(n)))
	}
	mustBe(t, c.DeleteVersion(ctx, table, 4), hadoopcat.ErrInUse)
	mustBe(t, c.DeleteVersion(ctx, table, 2), hadoopcat.ErrInUse)
	must(t, c.DeleteVersion(ctx, table, 1))
	must(t, c.DeleteVersion(ctx, table, 1))
	must(t, c.DeleteVersion(ctx, table, 9))
	expect(t, s, []int{2, 3, 4}, "4")
	// A hint that a crash left on the deleted version is mended before.
	must(t, s.Replace(ctx, table+"/metadata/version-hint.text", []byte("2")))
	must(t, c.DeleteVersion(ctx, table, 2))
	expect(t, s, []int{3, 4}, "4")
	must(t, c.DeleteVersion(ctx, table, 3))
	mustBe(t, c.DeleteVersion(ctx, table, 4), hadoopcat.ErrInUse)
	expect(t, s, []int{4}, "4")
	must(t, c.Commit(ctx, table, 5, metadata(5)))
	expect(t, s, []int{4, 5}, "5")
}

// A slow writer is stopped at each of its calls while others commit, and even
// collect, everything around it.
func TestASleepingWriterChangesNothingThatOthersMade(t *testing.T) {
	for _, deleted := range []bool{false, true} {
		for stop := 1; ; stop++ {
			s := objstore.NewMem()
			c := hadoopcat.New(s)
			for n := 1; n <= 4; n++ {
				must(t, c.Commit(ctx, table, n, metadata(n)))
			}
			calls, slept := 0, false
			s.SetHook(func(call objstore.Call) error {
				if call.After || slept {
					return nil
				}
				if calls++; calls != stop {
					return nil
				}
				slept = true
				for n := 5; n <= 9; n++ {
					if err := c.Commit(ctx, table, n, metadata(n)); errors.Is(err, hadoopcat.ErrConflict) && n == 5 {
						// The sleeper's version 5 stands: build on that.
						continue
					} else if err != nil {
						return err
					}
				}
				for n := 1; deleted && n <= 7; n++ {
					if err := c.DeleteVersion(ctx, table, n); err != nil {
						return err
					}
				}
				return nil
			})
			err := c.Commit(ctx, table, 5, []byte("sleeper's"))
			if err != nil && !errors.Is(err, hadoopcat.ErrConflict) {
				t.Fatalf("stop %d: %v", stop, err)
			}
			s.SetHook(nil)
			if !slept {
				if stop < 5 {
					t.Fatalf("a commit takes only %d calls", stop-1)
				}
				break
			}
			want := []int{1, 2, 3, 4, 5, 6, 7, 8, 9}
			if deleted {
				want = []int{8, 9}
			}
			expect(t, s, want, "9")
			if err == nil && !deleted {
				data, loadErr := c.Load(ctx, table, 5)
				must(t, loadErr)
				if string(data) != "sleeper's" {
					t.Fatalf("stop %d: the sleeper was told that it committed, but version 5 is %s", stop, data)
				}
			}
		}
	}
}

func TestPrune(t *testing.T) {
	start := time.UnixMilli(1_700_000_000_000)
	at := func(n int) time.Time { return start.Add(time.Duration(n) * time.Minute) }
	s := objstore.NewMem()
	c := hadoopcat.New(s)
	for n := 1; n <= 10; n++ {
		s.SetClock(func() time.Time { return at(n) })
		must(t, c.Commit(ctx, table, n, metadata(n)))
	}
	prune := func(keep int, before time.Time, want int) {
		t.Helper()
		got, err := c.Prune(ctx, table, keep, before)
		must(t, err)
		if got != want {
			t.Fatalf("%d versions pruned, want %d", got, want)
		}
	}
	// Version 1 fell out of a log of 3 when version 5 was made.
	prune(3, at(5), 0)
	prune(3, at(5).Add(1), 1)
	prune(3, at(5).Add(1), 0)
	expect(t, s, []int{2, 3, 4, 5, 6, 7, 8, 9, 10}, "10")
	prune(-1, at(1000), 0)
	// A hint that points to what goes is brought up first.
	must(t, s.Replace(ctx, table+"/metadata/version-hint.text", []byte("3")))
	prune(3, at(8), 2)
	expect(t, s, []int{4, 5, 6, 7, 8, 9, 10}, "10")
	prune(3, at(1000), 3)
	expect(t, s, []int{7, 8, 9, 10}, "10")
	prune(0, at(1000), 3)
	expect(t, s, []int{10}, "10")

	// Without the store's times nothing is old.
	s = objstore.NewMem()
	c = hadoopcat.New(s)
	for n := 1; n <= 5; n++ {
		must(t, c.Commit(ctx, table, n, metadata(n)))
	}
	prune(1, at(1000), 0)

	// A deletion that fails half-way goes on from there, and leaves no gap.
	failed := errors.New("injected")
	s.SetClock(func() time.Time { return at(0) })
	for n := 6; n <= 9; n++ {
		must(t, c.Commit(ctx, table, n, metadata(n)))
	}
	must(t, s.Replace(ctx, table+"/metadata/v3.metadata.json", metadata(3)))
	must(t, s.Replace(ctx, table+"/metadata/v4.metadata.json", metadata(4)))
	must(t, s.Replace(ctx, table+"/metadata/v5.metadata.json", metadata(5)))
	deletes := 0
	s.SetHook(func(call objstore.Call) error {
		if call.Op == "Delete" && !call.After {
			if deletes++; deletes == 3 {
				return failed
			}
		}
		return nil
	})
	_, err := c.Prune(ctx, table, 1, at(1))
	mustBe(t, err, failed)
	expect(t, s, []int{3, 4, 5, 6, 7, 8, 9}, "9")
	s.SetHook(nil)
	prune(1, at(1), 5)
	expect(t, s, []int{8, 9}, "9")
}

// Readers are told only of versions that are durable: those up to the hint.
func TestPublishedIsWhatTheHintPointsTo(t *testing.T) {
	s := objstore.NewMem()
	c := hadoopcat.New(s)
	published := func(want int) {
		t.Helper()
		n, key, ok, err := c.Published(ctx, table)
		must(t, err)
		if n != want || ok != (want > 0) || ok && key != fmt.Sprintf("%s/metadata/v%d.metadata.json", table, want) {
			t.Fatalf("published version %d %q %v, want %d", n, key, ok, want)
		}
	}
	published(0)
	for n := 1; n <= 3; n++ {
		must(t, c.Commit(ctx, table, n, metadata(n)))
		published(n)
	}
	// A writer between the version and its hint.
	must(t, s.Create(ctx, table+"/metadata/v4.metadata.json", metadata(4)))
	published(3)
	for _, useless := range []string{"", "x", "9", "3\n", "-1"} {
		must(t, s.Replace(ctx, table+"/metadata/version-hint.text", []byte(useless)))
		published(4)
	}
	must(t, s.Delete(ctx, table+"/metadata/version-hint.text"))
	published(4)
}

package statestore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	randv2 "math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/checkpoint"
	"github.com/varve-io/varve/statestore/objstore"
)

// ckptWorld is a state with its log, and a store for its checkpoints.
type ckptWorld struct {
	t     testing.TB
	fs    *vfs.MemFS
	st    *statestore.Store
	mem   *objstore.Mem
	place checkpoint.Place
	now   time.Time
	log   *bytes.Buffer
	*logBuilder
}

var tinyState = statestore.Options{Cache: 1 << 20, MemTable: 1 << 20, WriteBack: 1 << 18}

func newCkptWorld(t testing.TB) *ckptWorld {
	w := &ckptWorld{t: t, fs: vfs.NewMem(), mem: objstore.NewMem(), now: time.Unix(1_700_000_000, 0), log: &bytes.Buffer{}}
	st, err := openMem(w.fs, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	w.st = st
	w.logBuilder = &logBuilder{t: t, st: st, timeMs: startMs}
	t.Cleanup(func() {
		if err := w.st.Close(); err != nil {
			t.Error(err)
		}
	})
	w.mem.SetClock(func() time.Time { return w.now })
	w.place = checkpoint.At(w.mem, "test", 0)
	w.genesis()
	w.do("t", -1, &record.CreateTable{Definition: definition("t")})
	w.do("t", 1, &record.ClaimShard{Shard: shardKey(0)})
	w.more(20)
	return w
}

// more appends AppendRows to the log and applies them.
func (w *ckptWorld) more(n int) {
	for range n {
		i, err := w.st.Table("t")
		if err != nil {
			w.t.Fatal(err)
		}
		s := &i.Shards[0]
		w.do("t", 1, &record.AppendRows{
			Shard: shardKey(0), Epoch: s.Epoch, Counter: s.Counter + 1, SourceFrom: s.SourceEnd, SourceTo: s.SourceEnd + 5, RequestFrom: s.RequestEnd, RequestTo: s.RequestEnd,
			Files: []record.DataFile{{ID: statestore.FileID(1, uint64(s.Counter)+1), Rows: 3, Bytes: 9}}, Changes: ref(1), Counts: record.Counts{Events: 5},
		})
	}
	w.commit()
}

func (w *ckptWorld) create() (*checkpoint.Made, error) {
	return w.place.Create(context.Background(), w.st, checkpoint.CreateOptions{Scratch: "scratch", FS: w.fs, Rate: -1, State: tinyState})
}

func (w *ckptWorld) mustCreate() *checkpoint.Made {
	w.t.Helper()
	m, err := w.create()
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}

func (w *ckptWorld) restoreOptions() checkpoint.RestoreOptions {
	return checkpoint.RestoreOptions{
		Dir: "state", FS: vfs.NewMem(), Deployment: testDeployment, Now: w.now, State: tinyState, Log: slog.New(slog.NewTextHandler(w.log, nil)),
	}
}

// restoredEquals restores the newest checkpoint that can be used, applies the
// rest of the log and compares with the state that applied all of it.
func (w *ckptWorld) restoredEquals(want *checkpoint.Manifest) *checkpoint.Restored {
	w.t.Helper()
	o := w.restoreOptions()
	r, err := w.place.Restore(context.Background(), o)
	if err != nil {
		w.t.Fatal(err)
	}
	if want != nil && r.Manifest.Offset != want.Offset { // two of one offset are of one state
		w.t.Fatalf("restored %s, not %s", r.Manifest.ID(), want.ID())
	}
	if err := tailEquals(o.FS, w.st, w.made, r.Manifest); err != nil {
		w.t.Fatal(err)
	}
	return r
}

// tailEquals opens what was restored, applies the log behind it, and compares.
func tailEquals(fs vfs.FS, want *statestore.Store, log []statestore.Record, m *checkpoint.Manifest) (err error) {
	opt := tinyState
	opt.FS = fs
	st, err := statestore.Open("state", opt)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	if h := st.Head(); h.Offset != m.Offset || h.Chain.String() != m.Chain {
		return fmt.Errorf("restored to offset %d, not %d", h.Offset, m.Offset)
	}
	for _, r := range log[m.Offset+1:] {
		if _, err := st.Apply(&r); err != nil {
			return err
		}
	}
	if _, err := st.Commit(); err != nil {
		return err
	}
	if st.Head().Chain != want.Head().Chain {
		return errors.New("another chain hash")
	}
	return equalDumps(want, st)
}

// TestCheckpoint: what a checkpoint has is the state at its offset; a later one
// shares the files that did not change; its manifest tells the tables.
func TestCheckpoint(t *testing.T) {
	w := newCkptWorld(t)
	first := w.mustCreate()
	if first.Shared != 0 || first.Uploaded != first.Manifest.Bytes() || first.Manifest.Offset != w.next-1 {
		t.Fatalf("first checkpoint: %+v", first)
	}
	w.restoredEquals(first.Manifest)
	again := w.mustCreate()
	if again.Shared == 0 || again.Manifest.Content.SHA256 != first.Manifest.Content.SHA256 {
		t.Fatalf("a second checkpoint of the same state shares %d bytes", again.Shared)
	}
	w.more(10)
	w.do("t", 1, &record.ShardIndex{Shard: shardKey(0), Epoch: 2, Offset: w.next - 1, File: *ref(7)})
	w.do("t", 1, &record.DeleteKeys{Keys: *ref(8), Count: 1})
	w.do("t", 1, &record.Cut{})
	w.commit()
	second := w.mustCreate()
	if second.Shared == 0 {
		t.Fatal("nothing was shared")
	}
	ts, at, err := w.place.Tables(context.Background(), testDeployment, 0, nil)
	if err != nil || at != second.Manifest.Offset || len(ts) != 1 {
		t.Fatalf("%d tables at %d, %v", len(ts), at, err)
	}
	want, err := w.st.Table("t")
	if err != nil {
		t.Fatal(err)
	}
	if want.Shards[0].Index.Path == "" || want.Pending == nil || len(want.Requests) == 0 {
		t.Fatalf("too little to compare: %+v", want)
	}
	a, err := record.EncodeDefinition(nil, ts[0].Definition)
	if err != nil {
		t.Fatal(err)
	}
	b, err := record.EncodeDefinition(nil, want.Definition)
	if err != nil || !bytes.Equal(a, b) {
		t.Fatal("the directory has another definition", err)
	}
	want.Snapshots, want.Definition, ts[0].Definition = nil, nil, nil
	if !reflect.DeepEqual(ts[0], want) {
		t.Fatalf("the directory says\n%+v, the state\n%+v", ts[0], want)
	}
	w.more(7)
	w.restoredEquals(second.Manifest)
	es, err := w.place.List(context.Background())
	if err != nil || len(es) != 3 {
		t.Fatal(es, err)
	}
	for _, e := range es {
		if e.Manifest == nil || e.Own+e.Shared != e.Manifest.Bytes() || e.MadeMs != w.now.UnixMilli() {
			t.Fatalf("listed: %+v", e)
		}
	}
	if names, err := w.fs.List(""); err != nil || slices.Contains(names, "scratch") {
		t.Fatal("the copy of the state stayed", names, err)
	}
}

// TestCheckpointAnyLog: restore + tail = rebuilt, for any log, checkpoints at
// any moment, crashes of the state in between.
func TestCheckpointAnyLog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fs := vfs.NewMem()
		st, err := openMem(fs, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		mem := objstore.NewMem()
		place := checkpoint.At(mem, "test", 0)
		ctx := context.Background()
		g := &logGen{t: t, st: st, timeMs: startMs}
		g.add("", -1, &record.SetApplyVersion{Deployment: testDeployment, Partitions: 1, Version: 1})
		var made []*checkpoint.Manifest
		for range rapid.IntRange(10, 60).Draw(t, "steps") {
			g.step()
			if g.n("checkpoint", 0, 9) == 0 && len(made) < 3 {
				m, err := place.Create(ctx, st, checkpoint.CreateOptions{Scratch: "scratch", FS: fs, Rate: -1, State: tinyState})
				if err != nil {
					t.Fatal(err)
				}
				if m.Manifest.Offset != int64(len(g.log))-1 || m.Manifest.Chain != g.chains[m.Manifest.Offset].String() {
					t.Fatalf("checkpoint at %d of a log of %d", m.Manifest.Offset, len(g.log))
				}
				made = append(made, m.Manifest)
			}
		}
		for _, m := range made {
			o := checkpoint.RestoreOptions{Dir: "state", FS: vfs.NewMem(), Deployment: testDeployment, ID: m.ID(), State: tinyState, Log: slog.New(slog.DiscardHandler)}
			r, err := place.Restore(ctx, o)
			if err != nil {
				t.Fatal(err)
			}
			if err := tailEquals(o.FS, st, g.log, r.Manifest); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestCheckpointFlippedBits: whatever byte of whatever object of a checkpoint
// changes, is cut off or goes, it is refused by name and an older one is taken.
func TestCheckpointFlippedBits(t *testing.T) {
	w := newCkptWorld(t)
	ctx := context.Background()
	older := w.mustCreate().Manifest
	w.more(30)
	newer := w.mustCreate().Manifest
	w.more(5)
	shared := map[string]bool{}
	for _, f := range older.Files {
		shared[f.Object] = true
	}
	prefix := "_varve/test/checkpoints/0/"
	var manifest string
	if err := w.mem.List(ctx, prefix+"manifests/", func(i objstore.Info) error {
		manifest = i.Key // the last one is the newest
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	targets := []string{manifest}
	for _, f := range newer.Files {
		if f.Object != "" && !shared[f.Object] {
			targets = append(targets, prefix+f.Object)
		}
	}
	if len(targets) < 3 {
		t.Fatalf("too little to damage: %v", targets)
	}
	rng := randv2.New(randv2.NewPCG(1, 2))
	for _, key := range targets {
		whole, err := w.mem.ReadAll(ctx, key, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		damages := map[string]func() error{
			"cut":    func() error { return w.mem.Replace(ctx, key, whole[:len(whole)-1]) },
			"longer": func() error { return w.mem.Replace(ctx, key, append(slices.Clone(whole), 0)) },
			"gone":   func() error { return w.mem.Delete(ctx, key) },
		}
		for i := range 8 {
			damages[fmt.Sprint("flipped ", i)] = func() error {
				b := slices.Clone(whole)
				b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
				return w.mem.Replace(ctx, key, b)
			}
		}
		for what, damage := range damages {
			w.log.Reset()
			if err := damage(); err != nil {
				t.Fatal(err)
			}
			r := w.restoredEquals(older)
			name := strings.TrimPrefix(key, prefix)
			if key == manifest {
				name = strings.TrimPrefix(name, "manifests/")
			} else if !r.Bad[name] {
				t.Fatalf("%s %s: not among %v", key, what, r.Bad)
			}
			if what != "gone" || key != manifest {
				if !strings.Contains(w.log.String(), name) {
					t.Fatalf("%s %s: the warning does not name it: %s", key, what, w.log)
				}
			}
			// A checkpoint made after that, also by another node, does not share what is damaged.
			if key != manifest && what == "flipped 0" {
				m, err := w.place.Create(ctx, w.st, checkpoint.CreateOptions{Scratch: "scratch", FS: w.fs, Rate: -1, State: tinyState})
				if err != nil {
					t.Fatal(err)
				}
				w.restoredEquals(m.Manifest)
				if err := w.place.Delete(ctx, m.Manifest.ID()); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := w.mem.Replace(ctx, key, whole); err != nil {
			t.Fatal(err)
		}
	}
	w.restoredEquals(newer)
	// All that it shares with no other is damaged: all of it is told, so that a
	// later checkpoint shares none of it.
	for _, key := range targets[1:] {
		whole, err := w.mem.ReadAll(ctx, key, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		whole[len(whole)/2] ^= 1
		if err := w.mem.Replace(ctx, key, whole); err != nil {
			t.Fatal(err)
		}
	}
	r := w.restoredEquals(older)
	if len(r.Bad) != len(targets)-1 {
		t.Errorf("%d objects are damaged, told of are %v", len(targets)-1, r.Bad)
	}
	m, err := w.place.Create(ctx, w.st, checkpoint.CreateOptions{Scratch: "scratch", FS: w.fs, Rate: -1, State: tinyState})
	if err != nil {
		t.Fatal(err)
	}
	w.restoredEquals(m.Manifest)
	// Both are damaged: nothing is left, and nothing was touched.
	for _, m := range []*checkpoint.Manifest{older, newer} {
		for _, f := range m.Files {
			if f.Object != "" {
				if err := w.mem.Delete(ctx, prefix+f.Object); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	o := w.restoreOptions()
	put(t, o.FS, "state", "precious")
	if _, err := w.place.Restore(ctx, o); !errors.Is(err, checkpoint.ErrNone) || !errors.Is(err, checkpoint.ErrDamaged) {
		t.Fatal(err)
	}
	if names, err := o.FS.List(""); err != nil || len(names) != 1 || names[0] != "state" {
		t.Fatal(names, err)
	}
}

func put(t testing.TB, fs vfs.FS, dir, name string) {
	t.Helper()
	err := fs.MkdirAll(dir, 0o755)
	if err == nil {
		var f vfs.File
		if f, err = fs.Create(fs.PathJoin(dir, name), vfs.WriteCategoryUnspecified); err == nil {
			_, err = io.WriteString(f, name)
			err = errors.Join(err, f.Close())
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

var errStore = errors.New("the store failed")

// TestCheckpointCrash: a checkpoint that ends at any of its calls to the store,
// before or after the effect, is there whole or not at all.
func TestCheckpointCrash(t *testing.T) {
	w := newCkptWorld(t)
	ctx := context.Background()
	older := w.mustCreate().Manifest
	for step := 1; ; step++ {
		w.more(3)
		calls, failed, after := 0, false, false
		w.mem.SetHook(func(c objstore.Call) error {
			if !c.After {
				calls++
			}
			if calls >= (step+1)/2 && (failed || c.After == (step%2 == 0)) {
				failed, after = true, after || c.After // from here on the process is gone
				return errStore
			}
			return nil
		})
		m, err := w.create()
		w.mem.SetHook(nil)
		if err == nil {
			if failed {
				t.Fatal("a failed call was not told")
			}
			w.restoredEquals(m.Manifest)
			if step < 8 {
				t.Fatalf("only %d steps", step)
			}
			break
		}
		if !errors.Is(err, errStore) {
			t.Fatal(err)
		}
		r := w.restoredEquals(nil)
		if r.Manifest.ID() != older.ID() {
			if !after {
				t.Fatalf("step %d: a checkpoint without its last call", step)
			}
			older = r.Manifest // its manifest was written, only nobody heard of it
		}
	}
	// What the failed ones left goes after the grace, and only that.
	w.now = w.now.Add(2 * checkpoint.DefaultGrace)
	newest := w.mustCreate().Manifest
	x, err := w.place.Expire(ctx, checkpoint.ExpireOptions{Offset: w.next, Now: w.now})
	if err != nil || x.Files == 0 {
		t.Fatal(x, err)
	}
	w.restoredEquals(newest)
}

// TestCheckpointRefused: a fork, another deployment and a newer form are
// refused by name; an older one that fits is taken.
func TestCheckpointRefused(t *testing.T) {
	ctx := context.Background()
	w := newCkptWorld(t)
	good := w.mustCreate().Manifest
	w.more(4)
	fork := w.mustCreate().Manifest
	t.Run("fork", func(t *testing.T) {
		o := w.restoreOptions()
		o.Check = func(_ context.Context, m *checkpoint.Manifest) error {
			if m.Offset == fork.Offset {
				return fmt.Errorf("%w: offset %d", statestore.ErrFork, m.Offset)
			}
			return nil
		}
		r, err := w.place.Restore(ctx, o)
		if err != nil || r.Manifest.ID() != good.ID() || !strings.Contains(w.log.String(), fork.ID()) {
			t.Fatal(r, err, w.log)
		}
	})
	t.Run("other deployment", func(t *testing.T) {
		o := w.restoreOptions()
		o.Deployment[0]++
		if _, err := w.place.Restore(ctx, o); !errors.Is(err, checkpoint.ErrNone) || !errors.Is(err, checkpoint.ErrForeign) {
			t.Fatal(err)
		}
	})
	t.Run("other partition", func(t *testing.T) {
		o := w.restoreOptions()
		o.Partition++
		if _, err := w.place.Restore(ctx, o); !errors.Is(err, checkpoint.ErrForeign) {
			t.Fatal(err)
		}
	})
	t.Run("newer form", func(t *testing.T) {
		b := []byte(`{"format":9,"shiny":true}`)
		name := checkpoint.ManifestName(fork.Offset+1, b)
		if err := w.mem.Create(ctx, "_varve/test/checkpoints/0/manifests/"+name, b); err != nil {
			t.Fatal(err)
		}
		w.log.Reset()
		w.restoredEquals(fork)
		if !strings.Contains(w.log.String(), name) || !strings.Contains(w.log.String(), "newer version") {
			t.Fatal(w.log)
		}
		// What it names is not known: no file goes while it stands.
		w.now = w.now.Add(3 * checkpoint.DefaultGrace)
		put := "_varve/test/checkpoints/0/files/" + strings.Repeat("0", 64) + ".0123456789abcdef"
		if err := w.mem.Create(ctx, put, []byte("x")); err != nil {
			t.Fatal(err)
		}
		w.now = w.now.Add(3 * checkpoint.DefaultGrace)
		x, err := w.place.Expire(ctx, checkpoint.ExpireOptions{Offset: fork.Offset + 5, Now: w.now})
		if err != nil || x.Files != 0 || x.Manifests != 0 {
			t.Fatal(x, err)
		}
	})
}

// TestCheckpointExpiry: the newest few stay; files go after the grace, never
// one that a standing checkpoint names.
func TestCheckpointExpiry(t *testing.T) {
	ctx := context.Background()
	w := newCkptWorld(t)
	var made []*checkpoint.Manifest
	for range 6 {
		w.more(5)
		made = append(made, w.mustCreate().Manifest)
	}
	x, err := w.place.Expire(ctx, checkpoint.ExpireOptions{Offset: w.next - 1, Now: w.now})
	if err != nil || x.Manifests != 3 || x.Files != 0 {
		t.Fatal(x, err)
	}
	es, err := w.place.List(ctx)
	if err != nil || len(es) != 3 || es[0].ID != made[3].ID() {
		t.Fatal(es, err)
	}
	w.now = w.now.Add(checkpoint.DefaultGrace + time.Minute)
	if x, err = w.place.Expire(ctx, checkpoint.ExpireOptions{Offset: w.next - 1, Now: w.now}); err != nil || x.Manifests != 0 || x.Files == 0 {
		t.Fatal(x, err)
	}
	kept := map[string]bool{}
	for _, m := range made[3:] {
		for _, f := range m.Files {
			kept[f.Object] = f.Object != ""
		}
	}
	delete(kept, "")
	if err := w.mem.List(ctx, "_varve/test/checkpoints/0/", func(i objstore.Info) error {
		object := strings.TrimPrefix(i.Key, "_varve/test/checkpoints/0/")
		if strings.HasPrefix(object, "expired/") || strings.HasPrefix(object, "files/") && !kept[object] {
			return fmt.Errorf("%s stayed", object)
		}
		delete(kept, object)
		return nil
	}); err != nil || len(kept) != 0 {
		t.Fatal(err, kept)
	}
	for _, m := range made[3:] {
		o := w.restoreOptions()
		o.ID = m.ID()
		if _, err := w.place.Restore(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	// An owner that is behind leaves those above it alone, and its own newest one.
	if x, err = w.place.Expire(ctx, checkpoint.ExpireOptions{Keep: 1, Offset: made[4].Offset, Now: w.now}); err != nil || x.Manifests != 1 {
		t.Fatal(x, err)
	}
	if es, err = w.place.List(ctx); err != nil || len(es) != 2 || es[0].ID != made[4].ID() || es[1].ID != made[5].ID() {
		t.Fatal(es, err)
	}
}

// TestCheckpointExpiryRace: another owner expires everything that it may at any
// moment of a checkpoint under way, which shares files with what goes.
func TestCheckpointExpiryRace(t *testing.T) {
	ctx := context.Background()
	for step := 1; ; step++ {
		w := newCkptWorld(t)
		w.mustCreate()
		w.more(1)
		other := w.mustCreate().Manifest
		w.now = w.now.Add(2 * checkpoint.DefaultGrace) // whatever nothing names is old
		calls, busy := 0, false
		w.mem.SetHook(func(c objstore.Call) error {
			if busy {
				return nil
			}
			if calls++; calls == step {
				busy = true
				for range 2 {
					if err := w.place.Delete(ctx, other.ID()); err != nil && !errors.Is(err, checkpoint.ErrNone) {
						return err
					}
					if _, err := w.place.Expire(ctx, checkpoint.ExpireOptions{Keep: 1, Offset: w.next, Now: w.now}); err != nil {
						return err
					}
				}
			}
			return nil
		})
		m, err := w.create()
		w.mem.SetHook(nil)
		if err != nil {
			t.Fatal(err)
		}
		w.restoredEquals(m.Manifest)
		if !busy {
			break
		}
	}
}

// TestCheckpointTooSlow: one that takes longer than what protects its files is
// given up.
func TestCheckpointTooSlow(t *testing.T) {
	w := newCkptWorld(t)
	_, err := w.place.Create(context.Background(), w.st, checkpoint.CreateOptions{Scratch: "scratch", FS: w.fs, Grace: time.Nanosecond, State: tinyState})
	if !errors.Is(err, checkpoint.ErrTooLong) {
		t.Fatal(err)
	}
	if es, err := w.place.List(context.Background()); err != nil || len(es) != 0 {
		t.Fatal(es, err)
	}
}

// TestCheckpointAside: what is in the folder is set aside, never lost.
func TestCheckpointAside(t *testing.T) {
	w := newCkptWorld(t)
	w.mustCreate()
	o := w.restoreOptions()
	for i := range 2 {
		put(t, o.FS, "state", fmt.Sprint("precious", i))
		r, err := w.place.Restore(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		if names, err := o.FS.List(r.Aside); err != nil || !slices.Contains(names, fmt.Sprint("precious", i)) {
			t.Fatal(r.Aside, names, err)
		}
	}
}

// TestCheckpointStoreAway: a store that does not answer is no reason to take
// another checkpoint, or none.
func TestCheckpointStoreAway(t *testing.T) {
	w := newCkptWorld(t)
	w.mustCreate()
	for _, op := range []string{"List", "ReadAll", "Open", "ReadAt"} {
		w.mem.SetHook(func(c objstore.Call) error {
			if c.Op == op {
				return errStore
			}
			return nil
		})
		_, err := w.place.Restore(context.Background(), w.restoreOptions())
		w.mem.SetHook(nil)
		if !errors.Is(err, errStore) || errors.Is(err, checkpoint.ErrNone) {
			t.Fatalf("%s: %v", op, err)
		}
	}
	w.restoredEquals(nil)
}

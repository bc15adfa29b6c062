package objstoretest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/varve-io/varve/statestore/objstore"
)

// Conformance holds a store to the contract of objstore.Store. open gives a
// new, empty store for each case.
func Conformance(t *testing.T, open func(t *testing.T) objstore.Store) {
	for _, c := range []struct {
		name string
		test func(t *testing.T, s objstore.Store)
	}{
		{"an object is created once, and again only with the same bytes (C2)", testCreate},
		{"an exclusive create refuses the same bytes too", testCreateExclusive},
		{"of many creators of one key exactly one wins", testCreateRace},
		{"an empty object is an object", testEmpty},
		{"a writer's object appears at its commit, whole", testWriter},
		{"a writer gives up without a trace", testWriterAbort},
		{"a writer's commit is create-only", testWriterConflict},
		{"a large object arrives in many parts", testWriterLarge},
		{"a replaced object holds the new bytes", testReplace},
		{"reading is bounded", testReadAll},
		{"an open object is read at any place", testReadAt},
		{"what is not there is not found", testNotFound},
		{"deleting is durable, idempotent and takes many keys", testDelete},
		{"a listing is in byte order of keys, by prefix and not by folder", testList},
		{"a listing ends with the caller's error, and allows deletes", testListCallback},
		{"folders are named once, whatever is in them", testFolders},
		{"keys outside the alphabet are not written (W1)", testKeys},
		{"a location has one key and a key one location (W1)", testLocations},
		{"a cancelled context stops every call", testCancelled},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) { c.test(t, open(t)) })
	}
}

var ctx = context.Background()

const limit = 64 << 20

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mustBe(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error is %v, want %v", err, want)
	}
}

// holds asserts an object's bytes by every way of reading it.
func holds(t *testing.T, s objstore.Store, key, want string) {
	t.Helper()
	data, err := s.ReadAll(ctx, key, limit)
	must(t, err)
	if string(data) != want {
		t.Fatalf("%s holds %s, want %s", key, brief(string(data)), brief(want))
	}
	info, err := s.Stat(ctx, key)
	must(t, err)
	if info.Key != key || info.Size != int64(len(want)) {
		t.Fatalf("Stat(%s) = %+v, want size %d", key, info, len(want))
	}
}

func brief(s string) string {
	if len(s) > 40 {
		return fmt.Sprintf("%d bytes %q…", len(s), s[:40])
	}
	return fmt.Sprintf("%q", s)
}

// Keys lists the keys under prefix, in the order of the listing.
func Keys(t testing.TB, s objstore.Store, prefix string) []string {
	t.Helper()
	var keys []string
	err := s.List(ctx, prefix, func(i objstore.Info) error {
		keys = append(keys, i.Key)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func lists(t *testing.T, s objstore.Store, prefix string, want ...string) {
	t.Helper()
	if got := Keys(t, s, prefix); strings.Join(got, " ") != strings.Join(want, " ") {
		t.Fatalf("List(%q) = %q, want %q", prefix, got, want)
	}
}

func testCreate(t *testing.T, s objstore.Store) {
	must(t, s.Create(ctx, "t/data/1.parquet", []byte("rows")))
	holds(t, s, "t/data/1.parquet", "rows")
	must(t, s.Create(ctx, "t/data/1.parquet", []byte("rows")))
	for _, other := range []string{"ROWS", "rows and more", "row", ""} {
		mustBe(t, s.Create(ctx, "t/data/1.parquet", []byte(other)), objstore.ErrExists)
		holds(t, s, "t/data/1.parquet", "rows")
	}
	lists(t, s, "", "t/data/1.parquet")
}

func testCreateExclusive(t *testing.T, s objstore.Store) {
	must(t, s.CreateExclusive(ctx, "v1", []byte("one")))
	mustBe(t, s.CreateExclusive(ctx, "v1", []byte("one")), objstore.ErrExists)
	mustBe(t, s.CreateExclusive(ctx, "v1", []byte("two")), objstore.ErrExists)
	holds(t, s, "v1", "one")
	lists(t, s, "", "v1")
}

func testCreateRace(t *testing.T, s objstore.Store) {
	const creators = 6
	errs := make([]error, creators)
	var wg sync.WaitGroup
	for i := range creators {
		wg.Go(func() { errs[i] = s.CreateExclusive(ctx, "race/v1", fmt.Appendf(nil, "creator %d", i)) })
	}
	wg.Wait()
	winner := -1
	for i, err := range errs {
		switch {
		case err == nil && winner >= 0:
			t.Fatalf("creators %d and %d both won", winner, i)
		case err == nil:
			winner = i
		default:
			mustBe(t, err, objstore.ErrExists)
		}
	}
	if winner < 0 {
		t.Fatal("nobody won")
	}
	holds(t, s, "race/v1", fmt.Sprintf("creator %d", winner))
	lists(t, s, "", "race/v1")
}

func testEmpty(t *testing.T, s objstore.Store) {
	must(t, s.Create(ctx, "a/empty", nil))
	holds(t, s, "a/empty", "")
	must(t, s.Create(ctx, "a/empty", []byte{}))
	mustBe(t, s.CreateExclusive(ctx, "a/empty", nil), objstore.ErrExists)
	w, err := s.Writer(ctx, "a/empty2")
	must(t, err)
	must(t, w.Commit())
	holds(t, s, "a/empty2", "")
	o, err := s.Open(ctx, "a/empty")
	must(t, err)
	if n, err := o.ReadAt(make([]byte, 1), 0); n != 0 || err != io.EOF {
		t.Fatalf("reading an empty object: %d bytes, %v", n, err)
	}
	must(t, o.Close())
}

func testWriter(t *testing.T, s objstore.Store) {
	w, err := s.Writer(ctx, "t/data/big")
	must(t, err)
	for _, part := range []string{"first ", "", "second ", "third"} {
		n, err := w.Write([]byte(part))
		must(t, err)
		if n != len(part) {
			t.Fatalf("wrote %d of %d bytes", n, len(part))
		}
	}
	_, err = s.Stat(ctx, "t/data/big")
	mustBe(t, err, objstore.ErrNotFound)
	lists(t, s, "")
	must(t, w.Commit())
	holds(t, s, "t/data/big", "first second third")
	must(t, w.Abort()) // after a commit: nothing
	holds(t, s, "t/data/big", "first second third")
	lists(t, s, "", "t/data/big")
	if _, err := w.Write([]byte("late")); err == nil {
		t.Fatal("a committed writer took more bytes")
	}
	if err := w.Commit(); err == nil {
		t.Fatal("a writer committed twice")
	}
}

func testWriterAbort(t *testing.T, s objstore.Store) {
	w, err := s.Writer(ctx, "t/gone")
	must(t, err)
	_, err = w.Write([]byte("half"))
	must(t, err)
	must(t, w.Abort())
	must(t, w.Abort())
	lists(t, s, "")
	if err := w.Commit(); err == nil {
		t.Fatal("an aborted writer committed")
	}
	lists(t, s, "")
}

func testWriterConflict(t *testing.T, s objstore.Store) {
	must(t, s.Create(ctx, "k", []byte("settled")))
	write := func(data string) error {
		w, err := s.Writer(ctx, "k")
		must(t, err)
		defer w.Abort()
		if _, err := io.WriteString(w, data); err != nil {
			return err
		}
		return w.Commit()
	}
	must(t, write("settled"))
	mustBe(t, write("SETTLED"), objstore.ErrExists)
	mustBe(t, write("settled later"), objstore.ErrExists)
	holds(t, s, "k", "settled")
	lists(t, s, "", "k")
}

// testWriterLarge is larger than one part of an upload in parts, and checks
// that the condition holds for such uploads too.
func testWriterLarge(t *testing.T, s objstore.Store) {
	part := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MiB
	write := func(parts int, end string) error {
		w, err := s.Writer(ctx, "large")
		must(t, err)
		defer w.Abort()
		for range parts {
			if _, err := w.Write(part); err != nil {
				return err
			}
		}
		if _, err := io.WriteString(w, end); err != nil {
			return err
		}
		return w.Commit()
	}
	must(t, write(11, "end"))
	want := string(bytes.Repeat(part, 11)) + "end"
	holds(t, s, "large", want)
	must(t, write(11, "end"))
	mustBe(t, write(11, "END"), objstore.ErrExists)
	holds(t, s, "large", want)

	o, err := s.Open(ctx, "large")
	must(t, err)
	p := make([]byte, 8)
	n, err := o.ReadAt(p, int64(len(want)-5))
	if n != 5 || err != io.EOF || string(p[:n]) != "efend" {
		t.Fatalf("the tail reads as %q, %v", p[:n], err)
	}
	must(t, o.Close())
}

func testReplace(t *testing.T, s objstore.Store) {
	must(t, s.Replace(ctx, "m/version-hint.text", []byte("9")))
	holds(t, s, "m/version-hint.text", "9")
	must(t, s.Replace(ctx, "m/version-hint.text", []byte("10")))
	holds(t, s, "m/version-hint.text", "10")
	must(t, s.Replace(ctx, "m/version-hint.text", []byte("10")))
	lists(t, s, "", "m/version-hint.text")
}

func testReadAll(t *testing.T, s objstore.Store) {
	must(t, s.Create(ctx, "k", []byte("12345")))
	data, err := s.ReadAll(ctx, "k", 5)
	must(t, err)
	if string(data) != "12345" {
		t.Fatalf("read %q", data)
	}
	for _, limit := range []int64{4, 0, -1} {
		_, err = s.ReadAll(ctx, "k", limit)
		mustBe(t, err, objstore.ErrTooLarge)
	}
}

func testReadAt(t *testing.T, s objstore.Store) {
	must(t, s.Create(ctx, "k", []byte("0123456789")))
	o, err := s.Open(ctx, "k")
	must(t, err)
	defer o.Close()
	if o.Size() != 10 {
		t.Fatalf("size %d, want 10", o.Size())
	}
	for _, c := range []struct {
		off  int64
		n    int
		want string
		err  error
	}{
		{0, 10, "0123456789", nil},
		{3, 4, "3456", nil},
		{9, 1, "9", nil},
		{8, 4, "89", io.EOF},
		{10, 1, "", io.EOF},
		{11, 1, "", io.EOF},
		{0, 11, "0123456789", io.EOF},
	} {
		p := make([]byte, c.n)
		n, err := o.ReadAt(p, c.off)
		if string(p[:n]) != c.want || err != c.err && !(err == io.EOF && c.off+int64(c.n) == 10) {
			t.Errorf("ReadAt(%d bytes, %d) = %q, %v; want %q, %v", c.n, c.off, p[:n], err, c.want, c.err)
		}
	}
	if _, err := o.ReadAt(make([]byte, 1), -1); err == nil {
		t.Error("read at a negative offset")
	}
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			p := make([]byte, 1)
			if n, err := o.ReadAt(p, int64(i)); n != 1 || p[0] != byte('0'+i) {
				t.Errorf("concurrent ReadAt(%d) = %q, %v", i, p[:n], err)
			}
		})
	}
	wg.Wait()
}

func testNotFound(t *testing.T, s objstore.Store) {
	must(t, s.Create(ctx, "a/b", []byte("x")))
	// Nothing, a folder, a name behind a file, a shorter and a longer name.
	for _, key := range []string{"z", "a", "a/b/c", "a/", "a/b2", "z/z"} {
		_, err := s.ReadAll(ctx, key, limit)
		if strings.HasSuffix(key, "/") {
			mustBe(t, err, objstore.ErrBadKey)
			continue
		}
		mustBe(t, err, objstore.ErrNotFound)
		_, err = s.Open(ctx, key)
		mustBe(t, err, objstore.ErrNotFound)
		_, err = s.Stat(ctx, key)
		mustBe(t, err, objstore.ErrNotFound)
		must(t, s.Delete(ctx, key))
	}
	lists(t, s, "none")
	lists(t, s, "none/")
	lists(t, s, "a/b/")
	holds(t, s, "a/b", "x")
}

func testDelete(t *testing.T, s objstore.Store) {
	for _, key := range []string{"a/1", "a/2", "b/1", "c"} {
		must(t, s.Create(ctx, key, []byte(key)))
	}
	must(t, s.Delete(ctx))
	must(t, s.Delete(ctx, "a/1"))
	must(t, s.Delete(ctx, "a/1"))
	lists(t, s, "", "a/2", "b/1", "c")
	must(t, s.Delete(ctx, "a/2", "nothing", "c", "c"))
	lists(t, s, "", "b/1")
	must(t, s.Create(ctx, "a/1", []byte("anew")))
	holds(t, s, "a/1", "anew")
}

func testList(t *testing.T, s objstore.Store) {
	// '-' and '.' sort before '/', digits and letters behind it.
	want := []string{"a-b/1", "a.b", "a/1", "a/b-c/1", "a/b/c", "a/b0", "a0", "ab/1", "b"}
	for _, i := range []int{4, 0, 8, 2, 6, 1, 7, 3, 5} {
		must(t, s.Create(ctx, want[i], []byte(want[i])))
	}
	lists(t, s, "", want...)
	lists(t, s, "a", want[:8]...)
	lists(t, s, "a/", "a/1", "a/b-c/1", "a/b/c", "a/b0")
	lists(t, s, "a/b", "a/b-c/1", "a/b/c", "a/b0")
	lists(t, s, "a/b/", "a/b/c")
	lists(t, s, "a/b/c", "a/b/c")
	lists(t, s, "a/b/c/")
	lists(t, s, "c")
	err := s.List(ctx, "a/b/", func(i objstore.Info) error {
		if i.Size != int64(len("a/b/c")) {
			t.Errorf("listed with size %d", i.Size)
		}
		return nil
	})
	must(t, err)
	mustBe(t, s.List(ctx, "../", func(objstore.Info) error { return nil }), objstore.ErrBadKey)
}

func testListCallback(t *testing.T, s objstore.Store) {
	for _, key := range []string{"a", "b", "c"} {
		must(t, s.Create(ctx, key, nil))
	}
	stop := errors.New("stop")
	var seen []string
	err := s.List(ctx, "", func(i objstore.Info) error {
		seen = append(seen, i.Key)
		if i.Key == "b" {
			return stop
		}
		return nil
	})
	if err != stop || strings.Join(seen, "") != "ab" {
		t.Fatalf("listing ended with %v after %q", err, seen)
	}
	must(t, s.List(ctx, "", func(i objstore.Info) error { return s.Delete(ctx, i.Key) }))
	lists(t, s, "")
}

func testFolders(t *testing.T, s objstore.Store) {
	for _, key := range []string{"file", "a/1", "a/2", "a-b/1", "a/deep/er/1", "a/deep/2", "b/c/1"} {
		must(t, s.Create(ctx, key, []byte(key)))
	}
	for dir, want := range map[string]string{"": "a a-b b", "a": "deep", "a/deep": "er", "b": "c", "b/c": "", "none": "", "file": ""} {
		var got []string
		must(t, objstore.Folders(ctx, s, dir, func(name string) error {
			got = append(got, name)
			return nil
		}))
		slices.Sort(got)
		if strings.Join(got, " ") != want {
			t.Errorf("folders of %q: %q, want %s", dir, got, want)
		}
	}
	stop := errors.New("enough")
	mustBe(t, objstore.Folders(ctx, s, "", func(string) error { return stop }), stop)
	for _, dir := range []string{"..", "a/..", "/", "a/"} {
		if err := objstore.Folders(ctx, s, dir, func(string) error { return nil }); err == nil {
			t.Errorf("folders of %q: no error", dir)
		}
	}
}

func testKeys(t *testing.T, s objstore.Store) {
	never := []string{"", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "../a", "a/.", "a\x00b", "a\nb",
		".varve-tmp-A", "a/.varve-tmp-A/b", strings.Repeat("a", 256), strings.Repeat("a/", 600) + "a"}
	for _, key := range never {
		_, err := s.ReadAll(ctx, key, limit)
		mustBe(t, err, objstore.ErrBadKey)
		_, err = s.Open(ctx, key)
		mustBe(t, err, objstore.ErrBadKey)
		_, err = s.Stat(ctx, key)
		mustBe(t, err, objstore.ErrBadKey)
		mustBe(t, s.Delete(ctx, key), objstore.ErrBadKey)
	}
	foreign := []string{"a b", "a%20b", "ü", "a?b", "a#b", "a:b", "a+b", "a\\b"}
	for _, key := range append(never, foreign...) {
		mustBe(t, s.Create(ctx, key, nil), objstore.ErrBadKey)
		mustBe(t, s.CreateExclusive(ctx, key, nil), objstore.ErrBadKey)
		mustBe(t, s.Replace(ctx, key, nil), objstore.ErrBadKey)
		_, err := s.Writer(ctx, key)
		mustBe(t, err, objstore.ErrBadKey)
	}
	for _, key := range foreign {
		_, err := s.Stat(ctx, key)
		mustBe(t, err, objstore.ErrNotFound)
	}
	lists(t, s, "")
	for _, key := range []string{"A", "z=9/_x-1.parquet", "...", "a/..b/c..", strings.Repeat("n", 255)} {
		must(t, s.Create(ctx, key, []byte(key)))
		holds(t, s, key, key)
	}
}

func testLocations(t *testing.T, s objstore.Store) {
	base := s.Location("")
	scheme, rest, ok := strings.Cut(base, "://")
	if !ok || scheme == "" || strings.HasSuffix(rest, "/") || strings.ContainsAny(base, "?#") {
		t.Fatalf("the store's location is %q", base)
	}
	for _, key := range []string{"a", "ns/t/metadata/v1.metadata.json", "a b%20c"} {
		if got := s.Location(key); got != base+"/"+key {
			t.Errorf("Location(%q) = %q", key, got)
		}
		if got, ok := s.Key(base + "/" + key); !ok || got != key {
			t.Errorf("Key(%q) = %q, %v", base+"/"+key, got, ok)
		}
	}
	for _, location := range []string{"", "a", base, base + "/", base + "x/a", base + "/a/../b", base + "//a", "other://x/a", strings.ToUpper(base) + "/a"} {
		if key, ok := s.Key(location); ok {
			t.Errorf("Key(%q) = %q, though it is not of this store", location, key)
		}
	}
}

func testCancelled(t *testing.T, s objstore.Store) {
	must(t, s.Create(ctx, "k", []byte("x")))
	w, err := s.Writer(ctx, "open")
	must(t, err)
	must(t, w.Abort())

	cancelled, cancel := context.WithCancel(ctx)
	w, err = s.Writer(cancelled, "open")
	must(t, err)
	_, err = w.Write([]byte("x"))
	must(t, err)
	cancel()
	mustBe(t, w.Commit(), context.Canceled)

	mustBe(t, s.Create(cancelled, "n", nil), context.Canceled)
	mustBe(t, s.CreateExclusive(cancelled, "n", nil), context.Canceled)
	mustBe(t, s.Replace(cancelled, "n", nil), context.Canceled)
	_, err = s.Writer(cancelled, "n")
	mustBe(t, err, context.Canceled)
	_, err = s.ReadAll(cancelled, "k", limit)
	mustBe(t, err, context.Canceled)
	_, err = s.Open(cancelled, "k")
	mustBe(t, err, context.Canceled)
	_, err = s.Stat(cancelled, "k")
	mustBe(t, err, context.Canceled)
	mustBe(t, s.Delete(cancelled, "k"), context.Canceled)
	mustBe(t, s.List(cancelled, "", func(objstore.Info) error { return nil }), context.Canceled)
	lists(t, s, "", "k")
}

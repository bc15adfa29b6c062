package objstore_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/varve-io/varve/statestore/objstore"
)

// Locations are absolute, whatever way the folder was named (W1).
func TestLocalLocations(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, tc := range []struct {
		url, location string
		opts          []objstore.Option
	}{
		{url: dir, location: "file://" + dir},
		{url: dir + "/", location: "file://" + dir},
		{url: "file://" + dir, location: "file://" + dir},
		{url: "file:" + dir, location: "file://" + dir},
		{url: "lake", location: "file://" + dir + "/lake"},
		{url: "./x/../lake", location: "file://" + dir + "/lake"},
		{url: "two words", location: "file://" + dir + "/two words"},
		{url: "/", location: "file://", opts: []objstore.Option{objstore.KeepTemporaries()}},
		{url: "lake", location: "s3://bucket/lake", opts: []objstore.Option{objstore.WithLocation("s3://bucket/lake/")}},
	} {
		s, err := objstore.Open(ctx, tc.url, tc.opts...)
		if err != nil {
			t.Errorf("%s: %v", tc.url, err)
			continue
		}
		if got, want := s.Location("a/b"), tc.location+"/a/b"; got != want {
			t.Errorf("%s: location %s, want %s", tc.url, got, want)
		}
		abs, err := filepath.Abs(strings.TrimPrefix(strings.TrimPrefix(tc.url, "file:"), "//"))
		if err != nil {
			t.Fatal(err)
		}
		abs = strings.TrimRight(abs, "/")
		for _, spelled := range []string{tc.location, "file://" + abs, "file:" + abs, abs} {
			if key, ok := s.Key(spelled + "/a/b"); !ok || key != "a/b" {
				t.Errorf("%s: Key(%s/a/b) = %q, %v", tc.url, spelled, key, ok)
			}
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	s, err := objstore.Open(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Create(ctx, "file", nil); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ url, location, problem string }{
		{url: "", problem: "empty"},
		{url: "file://", problem: "no absolute path"},
		{url: "file://lake", problem: "no absolute path"},
		{url: "file:lake", problem: "no absolute path"},
		{url: dir + "/file", problem: "is a file"},
		{url: dir + "/a?b", problem: "'?'"},
		{url: dir + "/a%20b", problem: "'%'"},
		{url: "ftp://host/a", problem: `"ftp"; it has file`},
		{url: "s3://key:secret@bucket/\x00", problem: "cannot be parsed"},
		{url: dir, location: "bucket/lake", problem: "names no place"},
		{url: dir, location: "s3://", problem: "names no place"},
		{url: dir, location: "s3://bucket/lake?region=x", problem: "'?'"},
	} {
		var opts []objstore.Option
		if tc.location != "" {
			opts = append(opts, objstore.WithLocation(tc.location))
		}
		_, err := objstore.Open(ctx, tc.url, opts...)
		if err == nil || !strings.Contains(err.Error(), tc.problem) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q at %q: error %v, want one about %q", tc.url, tc.location, err, tc.problem)
		}
	}
}

// FuzzKey: a key that may be read stays inside the folder and survives the way
// through its location; a key that may be written is in W1's alphabet as well.
func FuzzKey(f *testing.F) {
	for _, seed := range []string{"a", "a/../b", "..", "a//b", "ns/t/data/00-1.parquet", ".varve-tmp-x", "a\x00", "ü/%2e%2e/b", "a/."} {
		f.Add(seed)
	}
	locations, err := objstore.NewLocations("file:///mnt/lake", "/mnt/lake")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, key string) {
		if objstore.CheckReadKey(key) != nil {
			if objstore.CheckKey(key) == nil {
				t.Fatalf("%q may be written and not read", key)
			}
			if got, ok := locations.Key("file:///mnt/lake/" + key); ok {
				t.Fatalf("Key gives %q", got)
			}
			return
		}
		if path := filepath.Join("/mnt/lake", key); path != "/mnt/lake/"+key {
			t.Fatalf("%q leads to %s", key, path)
		}
		if got, ok := locations.Key(locations.Location(key)); !ok || got != key {
			t.Fatalf("%q comes back as %q, %v", key, got, ok)
		}
		if objstore.CheckKey(key) == nil && strings.Trim(key, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._=/-") != "" {
			t.Fatalf("%q may be written", key)
		}
	})
}

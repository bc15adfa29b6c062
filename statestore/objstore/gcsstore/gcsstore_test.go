package gcsstore

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/varve-io/varve/statestore/objstore"
)

var ctx = context.Background()

func TestURL(t *testing.T) {
	s, err := objstore.Open(ctx, "gs://lake/a/b?anonymous=true")
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Location("k"); got != "gs://lake/a/b/k" {
		t.Errorf("location %s", got)
	}
	for url, problem := range map[string]string{
		"gs:///a":                 "names no bucket",
		"gs://lake?anonymous=hm":  "anonymous",
		"gs://lake?endpoint=http": "endpoint",
	} {
		if _, err := objstore.Open(ctx, url); err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%s: error %v, want one about %q", url, err, problem)
		}
	}
}

// What a server says besides "no such object" must not read as an absence.
func TestOnlyAMissingObjectIsNotFound(t *testing.T) {
	for status, want := range map[int]bool{404: true, 403: false, 400: false} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
		}))
		t.Setenv("STORAGE_EMULATOR_HOST", strings.TrimPrefix(server.URL, "http://"))
		s, err := objstore.Open(ctx, "gs://lake/p")
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Stat(ctx, "k")
		if err == nil || errors.Is(err, objstore.ErrNotFound) != want {
			t.Errorf("%d: %v; not found should be %v", status, err, want)
		}
		server.Close()
	}
}

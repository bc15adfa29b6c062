package azstore

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
	t.Setenv("AZURE_STORAGE_ACCOUNT", "")
	t.Setenv("AZURE_STORAGE_KEY", "c2VjcmV0")
	s, err := objstore.Open(ctx, "azblob://lake/a/b?storage_account=acct")
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Location("k"); got != "abfss://lake@acct.dfs.core.windows.net/a/b/k" {
		t.Errorf("location %s", got)
	}
	if key, ok := s.Key("wasbs://lake@acct.blob.core.windows.net/a/b/k"); !ok || key != "k" {
		t.Error("a location spelled with wasbs:// is not recognized")
	}
	for url, problem := range map[string]string{
		"azblob://lake/a":                        "account",
		"azblob:///a?storage_account=acct":       "names no bucket",
		"azblob://l/a?storage_account=a&colour=": "colour",
	} {
		if _, err := objstore.Open(ctx, url); err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%s: error %v, want one about %q", url, err, problem)
		}
	}
}

// What a server says besides "no such blob" must not read as an absence.
func TestOnlyAMissingObjectIsNotFound(t *testing.T) {
	t.Setenv("AZURE_STORAGE_ACCOUNT", "acct")
	t.Setenv("AZURE_STORAGE_KEY", "c2VjcmV0")
	for _, tc := range []struct {
		status   int
		code     string
		notFound bool
	}{
		{404, "BlobNotFound", true},
		{404, "ContainerNotFound", false},
		{403, "AuthorizationFailure", false},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("x-ms-error-code", tc.code)
			w.WriteHeader(tc.status)
		}))
		domain := strings.TrimPrefix(server.URL, "http://")
		s, err := objstore.Open(ctx, "azblob://lake/p?storage_account=acct&protocol=http&localemu=true&domain="+domain)
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Stat(ctx, "k")
		if err == nil || errors.Is(err, objstore.ErrNotFound) != tc.notFound {
			t.Errorf("%d %s: %v; not found should be %v", tc.status, tc.code, err, tc.notFound)
		}
		server.Close()
	}
}

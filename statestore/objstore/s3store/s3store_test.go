package s3store

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/varve-io/varve/statestore/objstore"
	"github.com/varve-io/varve/statestore/objstore/objstoretest"
	"github.com/varve-io/varve/topology/testcluster"
)

var ctx = context.Background()

// TestConformance runs against an S3 gateway, or against the store whose URL
// is VARVE_TEST_S3, in an existing bucket, with credentials in the environment.
func TestConformance(t *testing.T) {
	base := os.Getenv("VARVE_TEST_S3")
	if base == "" {
		base = testcluster.StartS3(t).URL("conformance")
	}
	run := time.Now().UnixNano()
	var n atomic.Int64
	for _, conditional := range []bool{true, false} {
		t.Run(fmt.Sprintf("conditional writes %v", conditional), func(t *testing.T) {
			objstoretest.Conformance(t, func(t *testing.T) objstore.Store {
				if !conditional && strings.HasSuffix(t.Name(), "exactly_one_wins") {
					t.Skip("cannot hold without conditional writes; documented at cloud.Config")
				}
				u, err := url.Parse(base)
				if err != nil {
					t.Fatal(err)
				}
				u.Path += fmt.Sprintf("/%d/%d", run, n.Add(1))
				q := u.Query()
				q.Set("conditional_writes", fmt.Sprint(conditional))
				u.RawQuery = q.Encode()
				s, err := objstore.Open(ctx, u.String())
				if err != nil {
					t.Fatal(err)
				}
				return s
			})
		})
	}
}

// fakeEnv makes credentials that no server checks.
func fakeEnv(t *testing.T) {
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "", "AWS_DEFAULT_REGION": "",
		"AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
	} {
		t.Setenv(name, value)
	}
}

func TestURL(t *testing.T) {
	fakeEnv(t)
	for _, tc := range []struct{ url, location, problem string }{
		{url: "s3://lake/a/b?region=eu-west-1", location: "s3://lake/a/b"},
		{url: "s3://lake/?endpoint=http://127.0.0.1:1", location: "s3://lake"},
		{url: "s3://lake?endpoint=http://127.0.0.1:1&conditional_writes=false", location: "s3://lake"},
		{url: "s3:///a", problem: "names no bucket"},
		{url: "s3://key:secret@lake/a", problem: "credentials"},
		{url: "s3://lake/a?conditional_writes=perhaps", problem: "conditional_writes"},
		{url: "s3://lake/a?region=eu-west-1&max_attempts=0", problem: "max_attempts"},
		{url: "s3://lake/a?region=eu-west-1&stall_timeout=5", problem: "stall_timeout"},
		{url: "s3://lake/a?region=eu-west-1&ssetype=rot13", problem: "ssetype"},
		{url: "s3://lake/a?endpoint=127.0.0.1:1", problem: "endpoint"},
		{url: "s3://lake/a?endpoint=http://key:secret@127.0.0.1:1", problem: "endpoint"},
		{url: "s3://lake/a", problem: "region"},
		{url: "s3://lake/a?endpont=http://127.0.0.1:1", problem: "endpont"},
		{url: "s3://lake/a/../b", problem: "prefix"},
	} {
		s, err := objstore.Open(ctx, tc.url)
		if tc.problem != "" {
			if err == nil || !strings.Contains(err.Error(), tc.problem) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: error %v, want one about %q", tc.url, err, tc.problem)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tc.url, err)
			continue
		}
		if got := s.Location(""); got != tc.location {
			t.Errorf("%s: location %s, want %s", tc.url, got, tc.location)
		}
		for _, scheme := range []string{"s3", "s3a", "s3n"} {
			if key, ok := s.Key(scheme + strings.TrimPrefix(tc.location, "s3") + "/k"); !ok || key != "k" {
				t.Errorf("%s: a location spelled with %s:// is not recognized", tc.url, scheme)
			}
		}
	}
}

// What a server says besides "no such key" must not read as an absence.
func TestOnlyAMissingObjectIsNotFound(t *testing.T) {
	fakeEnv(t)
	for _, tc := range []struct {
		status   int
		code     string
		notFound bool
	}{
		{404, "NoSuchKey", true},
		{404, "NoSuchBucket", false},
		{403, "AccessDenied", false},
		{301, "PermanentRedirect", false},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if want := "/lake/p/k"; r.URL.Path != want {
				t.Errorf("requested %s, want %s", r.URL.Path, want)
			}
			w.WriteHeader(tc.status)
			fmt.Fprintf(w, `<?xml version="1.0"?><Error><Code>%s</Code><Message>m</Message></Error>`, tc.code)
		}))
		s, err := objstore.Open(ctx, "s3://lake/p?endpoint="+server.URL)
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.ReadAll(ctx, "k", 100)
		if err == nil || errors.Is(err, objstore.ErrNotFound) != tc.notFound {
			t.Errorf("%d %s: %v; not found should be %v", tc.status, tc.code, err, tc.notFound)
		}
		server.Close()
	}
}

// Of two that make one object at once, a store may refuse one while it does not
// show the other's yet: the refused one waits for it, and in the end gives up
// with an error that does not read as an absence.
func TestRefusedBeforeItIsVisible(t *testing.T) {
	fakeEnv(t)
	for _, tc := range []struct {
		name   string
		hidden int64 // reads that find nothing
		want   string
	}{
		{"at once", 0, ""},
		{"after two looks", 2, ""},
		{"never", 1 << 40, "and then says that there is none"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var reads atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.Method == http.MethodPut:
					w.WriteHeader(http.StatusPreconditionFailed)
					fmt.Fprint(w, `<?xml version="1.0"?><Error><Code>PreconditionFailed</Code><Message>m</Message></Error>`)
				case reads.Add(1) <= tc.hidden:
					w.WriteHeader(http.StatusNotFound)
					fmt.Fprint(w, `<?xml version="1.0"?><Error><Code>NoSuchKey</Code><Message>m</Message></Error>`)
				default:
					fmt.Fprint(w, "same")
				}
			}))
			defer server.Close()
			s := openAt(t, "s3://lake/p?max_backoff=10ms&endpoint="+server.URL)
			err := s.Create(ctx, "k", []byte("same"))
			switch {
			case tc.want == "" && err != nil:
				t.Error(err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want) || errors.Is(err, objstore.ErrNotFound) || errors.Is(err, objstore.ErrExists)):
				t.Errorf("%v does not say %q", err, tc.want)
			}
			if other := s.Create(ctx, "k", []byte("other")); tc.want == "" && !errors.Is(other, objstore.ErrExists) {
				t.Errorf("other bytes give %v", other)
			}
		})
	}
}

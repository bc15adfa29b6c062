package s3store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/varve-io/varve/statestore/objstore"
	"github.com/varve-io/varve/statestore/objstore/objstoretest"
	"github.com/varve-io/varve/topology/testcluster"
)

// quick makes retries and stalls short enough for a test.
const quick = "&max_backoff=20ms&stall_timeout=1s"

func openAt(t *testing.T, url string) objstore.Store {
	t.Helper()
	s, err := objstore.Open(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// operations are one call of each kind. Each is given a store that passes
// through faults and one that does not.
var operations = []struct {
	name string
	do   func(s, clean objstore.Store, key string, data []byte) error
}{
	{"create", func(s, clean objstore.Store, key string, data []byte) error {
		return errors.Join(s.Create(ctx, key, data), holds(clean, key, data))
	}},
	{"create what is there", func(s, clean objstore.Store, key string, data []byte) error {
		if err := clean.Create(ctx, key, data); err != nil {
			return err
		}
		err := s.Create(ctx, key, data)
		if other := s.Create(ctx, key, append(bytes.Clone(data), 'x')); !errors.Is(other, objstore.ErrExists) {
			return fmt.Errorf("creating it with other bytes gives %v", other)
		}
		return errors.Join(err, holds(clean, key, data))
	}},
	{"write in parts", func(s, clean objstore.Store, key string, data []byte) error {
		w, err := s.Writer(ctx, key)
		if err != nil {
			return err
		}
		large := bytes.Repeat(data, 20<<20/len(data)+1)
		if _, err := w.Write(large); err != nil {
			return errors.Join(err, w.Abort())
		}
		if err := w.Commit(); err != nil {
			return err
		}
		return holds(clean, key, large)
	}},
	{"replace", func(s, clean objstore.Store, key string, data []byte) error {
		if err := clean.Create(ctx, key, []byte("old")); err != nil {
			return err
		}
		return errors.Join(s.Replace(ctx, key, data), holds(clean, key, data))
	}},
	{"read all", func(s, clean objstore.Store, key string, data []byte) error {
		if err := clean.Create(ctx, key, data); err != nil {
			return err
		}
		return holds(s, key, data)
	}},
	{"read at", func(s, clean objstore.Store, key string, data []byte) error {
		if err := clean.Create(ctx, key, data); err != nil {
			return err
		}
		o, err := s.Open(ctx, key)
		if err != nil {
			return err
		}
		got := make([]byte, len(data)-100)
		if _, err := o.ReadAt(got, 50); err != nil {
			return err
		}
		if !bytes.Equal(got, data[50:len(data)-50]) {
			return errors.New("it read other bytes")
		}
		return o.Close()
	}},
	{"list and delete", func(s, clean objstore.Store, key string, data []byte) error {
		if err := clean.Create(ctx, key+"/a", data); err != nil {
			return err
		}
		var seen []string
		if err := s.List(ctx, key+"/", func(i objstore.Info) error { seen = append(seen, i.Key); return nil }); err != nil {
			return err
		}
		if len(seen) != 1 || seen[0] != key+"/a" {
			return fmt.Errorf("it lists %v", seen)
		}
		if err := s.Delete(ctx, seen...); err != nil {
			return err
		}
		if _, err := clean.Stat(ctx, seen[0]); !errors.Is(err, objstore.ErrNotFound) {
			return fmt.Errorf("after the delete: %v", err)
		}
		return nil
	}},
}

func holds(s objstore.Store, key string, want []byte) error {
	got, err := s.ReadAll(ctx, key, 64<<20)
	if err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("%s holds %d bytes, not the %d that were written", key, len(got), len(want))
	}
	return err
}

var allFaults = []testcluster.Fault{
	testcluster.Reset, testcluster.ResetRequest, testcluster.ResetResponse, testcluster.Unavailable, testcluster.LoseAnswer, testcluster.Slow, testcluster.Hang,
}

// Each fault, twice in a row at each request, is got over, and the bytes are right.
func TestFaultsAreGotOver(t *testing.T) {
	gateway := testcluster.StartS3(t)
	proxy := testcluster.StartProxy(t, gateway.Endpoint())
	proxy.Delay(100 * time.Millisecond)
	s, clean := openAt(t, gateway.Via(proxy.Endpoint(), "faults")+quick), openAt(t, gateway.URL("faults"))
	r := rand.New(rand.NewPCG(1, 2))
	data := make([]byte, 200<<10)
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	for _, f := range allFaults {
		for i, op := range operations {
			if f == testcluster.Hang && i%2 == 1 {
				continue // each of them takes seconds
			}
			t.Run(f.String()+"/"+op.name, func(t *testing.T) {
				seen := map[string]int{} // attempts by request
				proxy.Fail(func(r *http.Request) testcluster.Fault {
					request := r.Method + " " + r.URL.Path + "?" + r.URL.Query().Get("partNumber")
					if seen[request]++; seen[request] <= 2 {
						return f
					}
					return testcluster.Pass
				})
				if err := op.do(s, clean, fmt.Sprintf("%d/%d", f, i), data); err != nil {
					t.Error(err)
				}
			})
		}
		if proxy.Count(f) == 0 {
			t.Errorf("%s: it was never made", f)
		}
	}
	proxy.Fail(nil)
}

// A store that does not come back ends each call in an error in bounded time;
// what was being written is not there, nor parts of it.
func TestAFailedAttemptLeavesNothing(t *testing.T) {
	gateway := testcluster.StartS3(t)
	proxy := testcluster.StartProxy(t, gateway.Endpoint())
	s, clean := openAt(t, gateway.Via(proxy.Endpoint(), "gone")+quick+"&max_attempts=3"), openAt(t, gateway.URL("gone"))
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	for _, f := range []testcluster.Fault{testcluster.Reset, testcluster.ResetRequest, testcluster.Unavailable, testcluster.Hang} {
		t.Run(f.String(), func(t *testing.T) {
			// The beginning of an upload in parts passes, and its end; the parts do not.
			proxy.Fail(func(r *http.Request) testcluster.Fault {
				if r.Method == http.MethodPost || r.Method == http.MethodDelete {
					return testcluster.Pass
				}
				return f
			})
			begun := time.Now()
			if err := s.Create(ctx, "small", data[:1000]); err == nil {
				t.Error("a create succeeded without a store")
			}
			w, err := s.Writer(ctx, "large")
			if err != nil {
				t.Fatal(err)
			}
			_, err = w.Write(append(bytes.Clone(data), data...))
			if err == nil {
				err = w.Commit()
			}
			if err == nil {
				t.Error("an upload in parts succeeded without its parts")
			}
			if err := w.Abort(); err != nil {
				t.Error(err)
			}
			if _, err := s.ReadAll(ctx, "small", 1<<20); err == nil || errors.Is(err, objstore.ErrNotFound) {
				t.Errorf("reading gives %v", err)
			}
			if took := time.Since(begun); took > 25*time.Second {
				t.Errorf("three calls took %s", took)
			}
			if keys := objstoretest.Keys(t, clean, ""); len(keys) > 0 {
				t.Errorf("left over: %v", keys)
			}
			if parts := partFiles(t, gateway); len(parts) > 0 {
				t.Errorf("left over of uploads in parts: %v", parts)
			}
		})
	}
	proxy.Fail(nil)
	proxy.Refuse(true)
	if err := s.Create(ctx, "small", data[:1000]); err == nil || !strings.Contains(err.Error(), "no answer from "+proxy.Endpoint()) {
		t.Errorf("a closed port gives %v", err)
	}
	proxy.Refuse(false)
	if err := s.Create(ctx, "small", data[:1000]); err != nil {
		t.Errorf("the store is back: %v", err)
	}
}

// partFiles are the parts of unfinished uploads in the gateway's own folder.
func partFiles(t *testing.T, gateway *testcluster.S3) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(gateway.Folder(""), func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && strings.Contains(path, "multipart") {
			out = append(out, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// What a person must mend is one clear error, quickly, and marked.
func TestClearErrors(t *testing.T) {
	gateway := testcluster.StartS3(t)
	untrusted := httptest.NewTLSServer(http.NotFoundHandler())
	defer untrusted.Close()
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	for _, tc := range []struct {
		name, url string
		env       map[string]string
		says      string
		setup     bool
	}{
		{name: "wrong key", url: gateway.URL("x"), env: map[string]string{"AWS_ACCESS_KEY_ID": "nobody"}, says: "does not know these credentials", setup: true},
		{name: "wrong secret", url: gateway.URL("x"), env: map[string]string{"AWS_SECRET_ACCESS_KEY": "wrong-Secret-1"}, says: "does not know these credentials", setup: true},
		{name: "no credentials", url: gateway.URL("x"), env: map[string]string{"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, says: "no credentials were found", setup: true},
		{name: "no bucket", url: strings.Replace(gateway.URL("x"), "s3://lake", "s3://sea", 1), says: `the bucket "sea" is not there`, setup: true},
		{name: "untrusted certificate", url: "s3://lake/x?endpoint=" + untrusted.URL, says: "the certificate of " + untrusted.URL + " is not trusted", setup: true},
		{name: "unknown host", url: "s3://lake/x?endpoint=http://store.invalid", says: "store.invalid", setup: false},
		{name: "nobody listens", url: "s3://lake/x?endpoint=" + closed.URL + "&max_backoff=100ms", says: "no answer from " + closed.URL, setup: false},
		{name: "plain text answers TLS", url: "s3://lake/x?endpoint=https://" + gateway.Addr(), says: "does not speak TLS", setup: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for k, v := range tc.env {
				t.Setenv(k, v)
			}
			s := openAt(t, tc.url)
			begun := time.Now()
			for what, err := range map[string]error{
				"create": s.Create(ctx, "k", []byte("v")),
				"read":   func() error { _, err := s.ReadAll(ctx, "k", 10); return err }(),
				"list":   s.List(ctx, "", func(objstore.Info) error { return nil }),
			} {
				switch {
				case err == nil:
					t.Errorf("%s succeeds", what)
				case !strings.Contains(err.Error(), tc.says) || strings.Contains(err.Error(), "wrong-Secret-1") || strings.Contains(err.Error(), "\n") || len(err.Error()) > 600:
					t.Errorf("%s: %q does not say %q in one line", what, err, tc.says)
				case errors.Is(err, objstore.ErrNotFound):
					t.Errorf("%s: it reads as an absent object: %v", what, err)
				case tc.setup && !errors.Is(err, objstore.ErrSetup):
					t.Errorf("%s: not marked as ErrSetup: %v", what, err)
				default:
					t.Log(err)
				}
			}
			if took := time.Since(begun); took > 20*time.Second {
				t.Errorf("three calls took %s", took)
			}
		})
	}
}

// Credentials that the store says have expired are fetched anew.
func TestExpiredCredentialsAreRenewed(t *testing.T) {
	fakeEnv(t)
	dir := t.TempDir()
	calls := filepath.Join(dir, "calls")
	program := filepath.Join(dir, "credentials.sh")
	script := "#!/bin/sh\necho x >> " + calls + "\nn=$(wc -l < " + calls + ")\n" +
		`echo "{\"Version\":1,\"AccessKeyId\":\"KEY$((n))\",\"SecretAccessKey\":\"s\",\"SessionToken\":\"t\",\"Expiration\":\"2099-01-01T00:00:00Z\"}"` + "\n"
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "config")
	if err := os.WriteFile(config, []byte("[profile short]\ncredential_process = "+program+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	t.Setenv("AWS_CONFIG_FILE", config)
	var mu sync.Mutex
	var keys []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, rest, _ := strings.Cut(r.Header.Get("Authorization"), "Credential=")
		key, _, _ := strings.Cut(rest, "/")
		mu.Lock()
		keys = append(keys, key)
		mu.Unlock()
		if key == "KEY1" {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `<?xml version="1.0"?><Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>`)
			return
		}
		fmt.Fprint(w, "here")
	}))
	defer server.Close()
	s := openAt(t, "s3://lake/p?profile=short&max_backoff=10ms&endpoint="+server.URL)
	got, err := s.ReadAll(ctx, "k", 10)
	if err != nil || string(got) != "here" {
		t.Fatalf("%q, %v", got, err)
	}
	if len(keys) != 2 || keys[0] != "KEY1" || keys[1] != "KEY2" {
		t.Errorf("requests were signed with %v", keys)
	}
}

// A caller's own deadline ends a call, also between attempts.
func TestDeadline(t *testing.T) {
	fakeEnv(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(503) }))
	defer server.Close()
	s := openAt(t, "s3://lake/p?endpoint="+server.URL)
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	begun := time.Now()
	if _, err := s.ReadAll(short, "k", 10); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	if took := time.Since(begun); took > 3*time.Second {
		t.Errorf("it took %s", took)
	}
}

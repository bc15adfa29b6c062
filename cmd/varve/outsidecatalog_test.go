package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/varve-io/varve/topology/testcluster"
)

// The whole way by commands: load, read, look, through the reference catalog.
// The data folder remembers where it publishes; secrets are not in it.
func TestOutsideCatalogCommands(t *testing.T) {
	data := filepath.Join(t.TempDir(), "d")
	cat := testcluster.StartCatalog(t, "file://"+filepath.Join(data, "lake"))
	first := writeFile(t, "first.jsonl", `{"id":1,"v":"a"}`+"\n"+`{"id":2,"v":"b"}`+"\n")
	second := writeFile(t, "second.jsonl", `{"id":2,"v":"c"}`+"\n"+`{"id":3,"v":"d"}`+"\n")
	run(t, "load", "--data", data, "--table", "shop.people", "--format", "rows-json", "--key", "id", "--catalog-uri", cat.URI(), "--catalog-access-token", "tok-of-the-test", first)
	run(t, "load", "--data", data, "--table", "shop.people", second)
	wantLines(t, run(t, "scan", "shop.people", "--data", data, "--output", "csv"), "1,a", "2,c", "3,d")
	if out := run(t, "snapshots", "shop.people", "--data", data, "--output", "jsonl"); strings.Count(out, "snapshot_id") != 2 || !strings.Contains(out, `"main"`) {
		t.Error(out)
	}
	if out := run(t, "files", "shop.people", "--data", data, "--output", "jsonl"); strings.Count(out, ".parquet") < 2 {
		t.Error(out)
	}
	node := readText(t, filepath.Join(data, "node.json"))
	if !strings.Contains(node, cat.URI()) || strings.Contains(node, "tok-of-the-test") {
		t.Error(node)
	}
	code, _, errs := varve(t, "scan", "shop.none", "--data", data)
	if code != exitUsage || !strings.Contains(errs, "has no table shop.none") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	code, _, errs = varve(t, "load", "--data", data, "--table", "shop.people", "--catalog-type", "embedded", second)
	if code != exitUsage || !strings.Contains(errs, "are published to the catalog at "+cat.URI()) {
		t.Errorf("without the catalog: exit code %d: %s", code, errs)
	}
	// A replay makes all of it again that is varve's, and sees what was changed.
	run(t, "replay", "--data", data, "--into", filepath.Join(t.TempDir(), "again"), "--compare")
	lists, err := filepath.Glob(filepath.Join(data, "lake", "shop", "people", "metadata", "snap-*.avro"))
	if err != nil || len(lists) != 2 {
		t.Fatal(lists, err)
	}
	b := []byte(readText(t, lists[0]))
	b[len(b)/2] ^= 1
	if err := os.WriteFile(lists[0], b, 0o644); err != nil {
		t.Fatal(err)
	}
	code, _, errs = varve(t, "replay", "--data", data, "--into", filepath.Join(t.TempDir(), "differs"), "--compare")
	if code != exitDiffers || !strings.Contains(errs, filepath.Base(lists[0])) {
		t.Errorf("with a changed manifest list: exit code %d: %s", code, errs)
	}
}

func readText(t *testing.T, path string) string {
	t.Helper()
	out, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// What is wrong with the catalog at the start is one clear error with its exit
// code, and shows no secret.
func TestOutsideCatalogRefused(t *testing.T) {
	const secret = "tok-of-the-test"
	serve := func(status int, body string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			io.WriteString(w, body)
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	tls := httptest.NewTLSServer(http.NotFoundHandler())
	defer tls.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := "http://" + l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	refuse := fmt.Sprintf(`{"error":{"message":"%s is wrong","type":"NotAuthorizedException","code":401}}`, secret)
	for name, x := range map[string]struct {
		uri  string
		code int
		want string
	}{
		"wrong credentials": {serve(401, refuse), exitUsage, "denies access"},
		"a page":            {serve(200, "<html>"), exitUsage, "no Iceberg REST catalog"},
		"cut off":           {serve(200, `{"defaults":`), exitUsage, "what is no JSON"},
		"read only":         {serve(200, `{"defaults":{},"overrides":{},"endpoints":["GET /v1/config"]}`), exitUsage, "reading only"},
		"a certificate":     {tls.URL, exitUsage, "certificate"},
		"nobody":            {nobody, exitFailed, "does not answer"},
		"busy":              {serve(503, "later"), exitFailed, "status 503"},
		"no address":        {"catalog", exitUsage, "https://host:port"},
	} {
		t.Run(name, func(t *testing.T) {
			events := writeFile(t, "e.jsonl", `{"id":1}`)
			code, out, errs := varve(t, "load", "--data", filepath.Join(t.TempDir(), "d"), "--table", "t", "--format", "rows-json", "--key", "id",
				"--catalog-uri", x.uri, "--catalog-access-token", secret, events)
			if code != x.code || !strings.Contains(errs, x.want) || strings.Contains(out+errs, secret) || strings.Count(errs, "varve: ") != 1 {
				t.Errorf("exit code %d, want %d, with %q:\n%s", code, x.code, x.want, errs)
			}
		})
	}
	out := run(t, "config", "show", "--catalog-uri", "http://x", "--catalog-access-token", secret, "--catalog-header", "X="+secret)
	if strings.Contains(out, secret) || !strings.Contains(out, "(not shown)") {
		t.Errorf("config show: %s", out)
	}
	for _, bad := range []string{"catalog: {type: rest}\n", "catalog: {type: embedded, uri: 'http://x'}\n", "catalog: {type: rest, uri: 'http://x', token: a, credential: b}\n"} {
		if code, _, errs := varve(t, "config", "check", writeFile(t, "varve.yaml", bad)); code != exitUsage {
			t.Errorf("%s: exit code %d: %s", bad, code, errs)
		}
	}
}

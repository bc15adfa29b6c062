package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// catalogOf is where a started command says that it serves.
func catalogOf(t *testing.T, out string) string {
	t.Helper()
	var v struct{ Catalog *string }
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if v.Catalog == nil {
		return ""
	}
	return *v.Catalog
}

func fetch(t *testing.T, url, token string) (int, string) {
	t.Helper()
	r, err := http.NewRequest("GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// A node serves the tables of its warehouse, also one made again under the name
// of a dropped one, and says where; without a node the lake is served alone.
func TestCatalogServed(t *testing.T) {
	data := t.TempDir()
	lines := writeFile(t, "t.jsonl", `{"id":1}`+"\n")
	load := func() {
		t.Helper()
		run(t, "load", "--data", data, "--table", "shop.t", "--format", "rows-json", "--key", "id", "--log-level", "warn", lines)
	}
	load()
	run(t, "table", "drop", "shop.t", "--data", data, "--yes", "--log-level", "warn")
	load()
	n := startNode(t, "--data", data, "--log-level", "warn")
	url := catalogOf(t, n.out.String())
	if !strings.HasPrefix(url, "http://127.0.0.1:") {
		t.Fatalf("the node serves at %q", url)
	}
	wantLines(t, run(t, "status", "--data", data, "--output", "json", "--log-level", "warn"), fmt.Sprintf(`"catalog": %q`, url))
	if code, body := fetch(t, url+"/v1/namespaces/shop/tables", ""); code != 200 || strings.Count(body, `"name"`) != 1 || !strings.Contains(body, `"name":"t"`) {
		t.Errorf("tables: %d %s", code, body)
	}
	code, body := fetch(t, url+"/v1/namespaces/shop/tables/t", "")
	again, err := filepath.Glob(filepath.Join(data, "lake", "shop", "t-*"))
	if err != nil || len(again) != 1 {
		t.Fatalf("folders %v (%v)", again, err)
	}
	if code != 200 || !strings.Contains(body, again[0]+"/metadata/v") {
		t.Errorf("table: %d %s; want it in %s", code, body, again[0])
	}
	if code := n.end(t); code != exitDone {
		t.Fatalf("the node ended with %d: %s", code, n.err.String())
	}
	if _, err := http.Get(url); err == nil {
		t.Error("the catalog outlives its node")
	}

	n = startNode(t, "--data", data, "--log-level", "warn", "--catalog-listen", "off")
	if url := catalogOf(t, n.out.String()); url != "" {
		t.Errorf("switched off, it serves at %s", url)
	}
	n.end(t)

	const token = "the token of this test"
	token1 := strings.ReplaceAll(token, " ", "-")
	file := writeFile(t, "token", token1+"\n")
	s := startCommand(t, "catalog", "serve", "--data", data, "--catalog-listen", "127.0.0.1:0", "--catalog-token-file", file)
	url = catalogOf(t, s.out.String())
	if code, body := fetch(t, url+"/v1/namespaces", "of somebody else, wrong"); code != 401 {
		t.Errorf("with a wrong token: %d %s", code, body)
	}
	if code, body := fetch(t, url+"/v1/namespaces/shop/tables", token1); code != 200 || !strings.Contains(body, filepath.Base(again[0])) {
		t.Errorf("without a node: %d %s", code, body)
	}
	if code := s.end(t); code != exitDone {
		t.Errorf("serve ended with %d: %s", code, s.err.String())
	}
}

func TestCatalogWrongUsage(t *testing.T) {
	empty, two := writeFile(t, "empty", "\n"), writeFile(t, "two", "two words\n")
	data := t.TempDir()
	if err := os.MkdirAll(filepath.Join(data, "lake"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ args, want string }{
		{"--catalog-listen 0.0.0.0:0", "--catalog-token-file"},
		{"--catalog-listen :0", "needs a token"},
		{"--catalog-listen 127.0.0.1", "no address"},
		{"--catalog-token-file " + empty, "one token"},
		{"--catalog-token-file " + two, "one token"},
		{"--catalog-token-file " + filepath.Join(data, "none"), "none"},
	} {
		for _, command := range []string{"run", "catalog serve"} {
			args := append(strings.Fields(command), "--data", data)
			code, _, errs := varve(t, append(args, strings.Fields(tc.args)...)...)
			if code != exitUsage || !strings.Contains(errs, tc.want) {
				t.Errorf("%s %s: exit code %d, %s; want %q", command, tc.args, code, errs, tc.want)
			}
		}
	}
	code, _, errs := varveWith(t, []string{"VARVE_CATALOG_TOKEN=short"}, "", "run", "--data", data)
	if code != exitUsage || !strings.Contains(errs, "at least 16") {
		t.Errorf("a short token: exit code %d, %s", code, errs)
	}
}

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// A node is watched at an address of its own; its log lines say which table,
// partition and offset they are about.
func TestRunIsWatched(t *testing.T) {
	data := t.TempDir()
	token := writeFile(t, "token", "a-token-of-enough-bytes\n")
	n := startNode(t, "--data", data, "--catalog-listen", "off", "--log-format", "json", "--log-level", "debug", "--admin-listen", "127.0.0.1:0", "--admin-token-file", token)
	var shown struct {
		Monitor string `json:"monitor"`
	}
	if err := json.Unmarshal([]byte(n.out.String()), &shown); err != nil {
		t.Fatal(err)
	}
	fetch := func(path, token string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, shown.Monitor+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	schema := writeFile(t, "s.json", `{"type":"struct","fields":[{"id":1,"name":"id","type":"long","required":true}]}`)
	run(t, "table", "create", "shop.t", "--data", data, "--schema", schema, "--key", "id", "--format", "rows-json", "--log-level", "warn")
	if code, _, errs := varveWith(t, nil, "{\"id\":1}\n{\"id\":\"secret-value\"}\n", "produce", "--data", data, "--table", "shop.t", "-"); code != exitDone {
		t.Fatal(errs)
	}
	eventually(t, func() error {
		code, body := fetch("/metrics", "a-token-of-enough-bytes")
		if code != http.StatusOK || !strings.Contains(body, `varve_table_dead_letters_total{table="shop.t"} 1`) || !strings.Contains(body, `varve_table_freshness_seconds{table="shop.t"} 0`) {
			return fmt.Errorf("%d: %.2000s", code, body)
		}
		return nil
	})
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/metrics": 401, "/status": 401, "/debug/pprof/": 404, "/": 404} {
		if code, body := fetch(path, ""); code != want {
			t.Errorf("%s: %d, want %d: %s", path, code, want, body)
		}
	}
	if code := n.end(t); code != exitDone {
		t.Fatalf("the node ended with %d", code)
	}
	seen := map[string]bool{}
	for _, l := range strings.Split(strings.TrimSpace(n.err.String()), "\n") {
		var line map[string]any
		if err := json.Unmarshal([]byte(l), &line); err != nil {
			t.Fatalf("a line is no JSON: %s", l)
		}
		if strings.Contains(l, "secret-value") {
			t.Errorf("a value stands in the log: %s", l)
		}
		has := func(keys ...string) bool {
			for _, k := range keys {
				if _, ok := line[k]; !ok {
					return false
				}
			}
			return true
		}
		if line["msg"] == "published" && has("table", "partition", "offset") {
			seen["publisher"] = true
		}
		if has("table", "topic", "partition") {
			seen["shard"] = true
		}
	}
	if !seen["publisher"] || !seen["shard"] {
		t.Errorf("log lines with table, partition, offset: %v in\n%s", seen, n.err.String())
	}
}

func TestMonitorRefuses(t *testing.T) {
	for _, tc := range []struct {
		args []string
		says string
	}{
		{[]string{"--admin-listen", "0.0.0.0:9090"}, "--admin-token-file"},
		{[]string{"--admin-listen", "9090"}, "no address"},
		{[]string{"--admin-listen", ":9090", "--admin-token-file", writeFile(t, "short", "short")}, "at least"},
		{[]string{"--admin-token-file", "nowhere"}, "nowhere"},
	} {
		code, _, errs := varve(t, append([]string{"run", "--data", t.TempDir()}, tc.args...)...)
		if code != exitUsage || !strings.Contains(errs, tc.says) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%v: exit code %d, %q", tc.args, code, errs)
		}
	}
}

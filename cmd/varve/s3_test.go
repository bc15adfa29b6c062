package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/varve-io/varve/topology/testcluster"
)

// A deployment whose lake is on S3: the store's URL is named once, the data
// folder remembers it, also for commands beside the running node.
func TestCommandsOnS3(t *testing.T) {
	s3 := testcluster.StartS3(t)
	data := t.TempDir()
	r, _ := load(t, "{\"id\":1,\"v\":\"a\"}\n{\"id\":2,\"v\":\"b\"}\n", "--data", data, "--warehouse", s3.URL("wh"), "--table", "shop.t", "--format", "rows-json", "--key", "id", "-")
	if r.Rows != 2 || r.Metadata == nil || !strings.HasPrefix(*r.Metadata, "s3://lake/wh/shop/t/metadata/") {
		t.Errorf("%+v", r)
	}
	wantRows(t, scanned(t, data, "shop.t"), "1,a", "2,b")
	n := startNode(t, "--data", data, "--log-level", "warn")
	wantLines(t, n.out.String(), `"warehouse": "s3://lake/wh"`)
	code, out, errs := varve(t, "delete", "shop.t", "--data", data, "--key", "id=1", "--output", "json")
	if code != exitDone {
		t.Fatalf("delete: exit code %d, %s", code, errs)
	}
	wantLines(t, out, `"rows_deleted": 1`)
	wantRows(t, scanned(t, data, "shop.t"), "2,b")
	wantLines(t, run(t, "status", "--data", data), "s3://lake/wh")
	wantLines(t, run(t, "files", "shop.t", "--data", data, "--output", "csv"), "data/")
	if code := n.end(t); code != exitDone {
		t.Fatalf("the node ended with %d: %s", code, n.err.String())
	}
	wantRows(t, scanned(t, data, "shop.t"), "2,b")
	if _, err := os.Stat(filepath.Join(data, "lake")); !os.IsNotExist(err) {
		t.Errorf("a local lake was made too: %v", err)
	}
	// The file must not say more than the URL did.
	b, err := os.ReadFile(filepath.Join(data, "node.json"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(b), testcluster.S3SecretKey) || !strings.Contains(string(b), `"warehouse_url": "s3://lake/wh?endpoint=`) {
		t.Errorf("node.json: %s", b)
	}
}

// What is wrong with a warehouse on S3 is said in one clear error, soon.
func TestWarehouseErrors(t *testing.T) {
	s3 := testcluster.StartS3(t)
	proxy := testcluster.StartProxy(t, s3.Endpoint())
	proxy.Refuse(true)
	for _, tc := range []struct {
		name, url string
		env       map[string]string
		code      int
		says      string
	}{
		{name: "secret", url: s3.URL("e"), env: map[string]string{"AWS_SECRET_ACCESS_KEY": "wrong-Secret-1"}, code: exitUsage, says: "does not know these credentials"},
		{name: "none", url: s3.URL("e"), env: map[string]string{"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, code: exitUsage, says: "no credentials were found"},
		{name: "bucket", url: strings.Replace(s3.URL("e"), "s3://lake", "s3://sea", 1), code: exitUsage, says: `the bucket "sea" is not there`},
		{name: "parameter", url: s3.URL("e") + "&endpiont=x", code: exitUsage, says: "endpiont"},
		{name: "endpoint", url: s3.Via(proxy.Endpoint(), "e"), code: exitFailed, says: "no answer from " + proxy.Endpoint()},
		{name: "tls", url: s3.Via("https://"+s3.Addr(), "e"), code: exitUsage, says: "does not speak TLS"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for k, v := range tc.env {
				t.Setenv(k, v)
			}
			begun := time.Now()
			code, _, errs := varveWith(t, nil, "{\"id\":1}\n", "load", "--data", t.TempDir(), "--warehouse", tc.url, "--table", "t", "--format", "rows-json", "--key", "id", "--quiet", "-")
			if code != tc.code || !strings.Contains(errs, tc.says) || strings.Contains(errs, "wrong-Secret-1") || strings.Count(errs, "\n") != 1 {
				t.Errorf("exit code %d, want %d; stderr %q, want one line with %q", code, tc.code, errs, tc.says)
			}
			if took := time.Since(begun); took > 30*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
}

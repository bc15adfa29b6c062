package restcatalog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/varve-io/varve/statestore/hadoopcat"
	"github.com/varve-io/varve/statestore/objstore"
)

// metadata is a table's metadata with three snapshots, two of them of refs.
// Its spaces and its order must reach the reader.
func metadata(n int) []byte {
	return fmt.Appendf(nil, `{ "format-version" : 3, "snapshots":[{"snapshot-id":1,"a":[1, 2]}, {"snapshot-id":9007199254740993},{"snapshot-id":3}],`+
		` "current-snapshot-id":9007199254740993,"refs":{"main":{"snapshot-id":9007199254740993,"type":"branch"},"t":{"snapshot-id":1,"type":"tag"}}, "last-sequence-number":%d }`, n)
}

// lake is a warehouse with tables in nested namespaces, and with folders that
// are no tables.
func lake(t testing.TB) objstore.Store {
	t.Helper()
	s := objstore.NewMem()
	files := hadoopcat.New(s)
	for _, key := range []string{"shop/orders", "shop/items", "shop.eu/orders", "shop.eu.north/orders", "deep.er/t", "default/people", "shop-2/x"} {
		if err := files.Commit(context.Background(), key, 1, metadata(1)); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []string{"_varve/varve/deployment", "shop/half/data/1.parquet", "shop/file", "empty/x/y", "top", "secret.json", "shop/_hidden/metadata/v1.metadata.json"} {
		if err := s.Create(context.Background(), key, []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

type got struct {
	*httptest.ResponseRecorder
	t testing.TB
}

func ask(t testing.TB, c *Catalog, method, path string, headers ...string) got {
	t.Helper()
	r := httptest.NewRequest(method, "http://127.0.0.1:8181"+path, nil)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	c.ServeHTTP(w, r)
	return got{w, t}
}

// is asserts status and JSON; want is JSON, or the type of an error.
func (g got) is(status int, want string) {
	g.t.Helper()
	if g.Code != status {
		g.t.Fatalf("status %d, want %d: %s", g.Code, status, g.Body)
	}
	if want == "" {
		if g.Body.Len() != 0 {
			g.t.Fatalf("a body of %d bytes, want none: %s", g.Body.Len(), g.Body)
		}
		return
	}
	if h := g.Header().Get("Content-Type"); h != "application/json" {
		g.t.Fatalf("content type %q", h)
	}
	if want[0] != '{' {
		var e struct {
			Error struct {
				Message, Type string
				Code          int
			}
		}
		if err := json.Unmarshal(g.Body.Bytes(), &e); err != nil || e.Error.Type != want || e.Error.Code != status || e.Error.Message == "" {
			g.t.Fatalf("error %s (%v), want %s", g.Body, err, want)
		}
		return
	}
	var a, b any
	if err := json.Unmarshal(g.Body.Bytes(), &a); err != nil {
		g.t.Fatalf("%v: %s", err, g.Body)
	}
	if err := json.Unmarshal([]byte(want), &b); err != nil {
		g.t.Fatal(err)
	}
	if !reflect.DeepEqual(a, b) {
		g.t.Fatalf("got %s\nwant %s", g.Body, want)
	}
}

func TestConfig(t *testing.T) {
	c := New(lake(t), Options{TableConfig: map[string]string{"s3.endpoint": "http://127.0.0.1:9"}})
	for _, path := range []string{"/v1/config", "/v1/config?warehouse=", "/v1/config?warehouse=any"} {
		g := ask(t, c, "GET", path)
		if g.Code != 200 {
			t.Fatalf("%s: %d %s", path, g.Code, g.Body)
		}
		var v struct {
			Defaults, Overrides map[string]string
			Endpoints           []string
		}
		if err := json.Unmarshal(g.Body.Bytes(), &v); err != nil || v.Defaults["s3.endpoint"] != "http://127.0.0.1:9" || v.Overrides == nil || len(v.Endpoints) != len(endpoints) {
			t.Errorf("%s: %s (%v)", path, g.Body, err)
		}
	}
	// What is named is served, and nothing that writes is named.
	for _, e := range endpoints {
		method, path, _ := strings.Cut(e, " ")
		path = strings.NewReplacer("/{prefix}", "", "{namespace}", "shop", "{table}", "orders").Replace(path)
		if g := ask(t, c, method, path); g.Code != 200 && g.Code != 204 {
			t.Errorf("%s: %d %s", e, g.Code, g.Body)
		}
		if method != "GET" && method != "HEAD" && !strings.HasSuffix(path, "/metrics") {
			t.Errorf("%s is named", e)
		}
	}
}

func TestNamespaces(t *testing.T) {
	c := New(lake(t), Options{})
	list := func(query, names string) {
		t.Helper()
		ask(t, c, "GET", "/v1/namespaces"+query).is(200, `{"namespaces":`+names+`,"next-page-token":null}`)
	}
	top := `[["deep"],["default"],["empty"],["shop"],["shop-2"]]`
	list("", top)
	list("?parent=", top)
	list("?pageToken=", top)
	list("?parent=shop", `[["shop","eu"]]`)
	list("?parent=shop%1Feu", `[["shop","eu","north"]]`)
	list("?parent=shop%1Feu%1Fnorth", `[]`)
	list("?parent=deep", `[["deep","er"]]`)
	for _, parent := range []string{"none", "sho", "shop%1F", "shop.eu", "..", "_varve", "%00", "shop%2Feu", "secret.json"} {
		ask(t, c, "GET", "/v1/namespaces?parent="+parent).is(404, "NoSuchNamespaceException")
	}
	ask(t, c, "GET", "/v1/namespaces/shop").is(200, `{"namespace":["shop"],"properties":{}}`)
	ask(t, c, "GET", "/v1/namespaces/deep").is(200, `{"namespace":["deep"],"properties":{}}`)
	ask(t, c, "GET", "/v1/namespaces/shop%1Feu").is(200, `{"namespace":["shop","eu"],"properties":{}}`)
	ask(t, c, "GET", "/v1/namespaces/sh%6Fp").is(200, `{"namespace":["shop"],"properties":{}}`)
	ask(t, c, "HEAD", "/v1/namespaces/shop").is(204, "")
	ask(t, c, "HEAD", "/v1/namespaces/none").is(404, "")
	ask(t, c, "GET", "/v1/namespaces/none").is(404, "NoSuchNamespaceException")
	ask(t, c, "GET", "/v1/namespaces/none/tables").is(404, "NoSuchNamespaceException")
	ask(t, c, "GET", "/v1/namespaces/none/views").is(404, "NoSuchNamespaceException")
	ask(t, c, "GET", "/v1/namespaces/shop/views").is(200, `{"identifiers":[],"next-page-token":null}`)
	ask(t, c, "GET", "/v1/namespaces/shop/views/v").is(404, "NoSuchViewException")
}

func TestTables(t *testing.T) {
	c := New(lake(t), Options{})
	id := func(ns, name string) string { return `{"namespace":` + ns + `,"name":"` + name + `"}` }
	want := `{"identifiers":[` + id(`["shop"]`, "items") + "," + id(`["shop"]`, "orders") + `],"next-page-token":null}`
	ask(t, c, "GET", "/v1/namespaces/shop/tables").is(200, want)
	ask(t, c, "GET", "/v1/namespaces/shop/tables").is(200, want) // known now
	ask(t, c, "GET", "/v1/namespaces/empty/tables").is(200, `{"identifiers":[],"next-page-token":null}`)
	ask(t, c, "GET", "/v1/namespaces/deep/tables").is(200, `{"identifiers":[],"next-page-token":null}`)
	ask(t, c, "GET", "/v1/namespaces/shop%1Feu/tables").is(200, `{"identifiers":[`+id(`["shop","eu"]`, "orders")+`],"next-page-token":null}`)
	ask(t, c, "HEAD", "/v1/namespaces/shop/tables/orders").is(204, "")
	ask(t, c, "HEAD", "/v1/namespaces/shop/tables/half").is(404, "")
	for _, name := range []string{"half", "none", "file", "_hidden", "eu.orders", "..", "%2E%2E", "orders%2F..%2Fitems", "..%2F..%2Fsecret.json", "orders%00", "orders%5C", "o%0Ards", "%EF%BC%8E%EF%BC%8E", "orders%20", strings.Repeat("a", 300), ""} {
		g := ask(t, c, "GET", "/v1/namespaces/shop/tables/"+name)
		g.is(404, "NoSuchTableException")
		if strings.Contains(g.Body.String(), "mem://") || g.Body.Len() > 600 {
			t.Errorf("%q: the answer tells %s", name, g.Body)
		}
	}
}

func TestPages(t *testing.T) {
	s := objstore.NewMem()
	for i := range 25 {
		if err := hadoopcat.New(s).Commit(context.Background(), fmt.Sprintf("n%02d/t%02d", i%2, i), 1, metadata(1)); err != nil {
			t.Fatal(err)
		}
		if err := hadoopcat.New(s).Commit(context.Background(), fmt.Sprintf("m%02d/t", i), 1, metadata(1)); err != nil {
			t.Fatal(err)
		}
	}
	c := New(s, Options{})
	for _, tc := range []struct {
		path  string
		total int
	}{{"/v1/namespaces", 27}, {"/v1/namespaces/n00/tables", 13}} {
		seen := map[string]bool{}
		token, pages := "", 0
		for {
			g := ask(t, c, "GET", tc.path+"?pageSize=5&pageToken="+token)
			var v struct {
				Namespaces  [][]string
				Identifiers []struct{ Name string }
				Next        *string `json:"next-page-token"`
			}
			if err := json.Unmarshal(g.Body.Bytes(), &v); err != nil || g.Code != 200 {
				t.Fatal(err, g.Body)
			}
			for _, n := range v.Namespaces {
				seen[strings.Join(n, ".")] = true
			}
			for _, n := range v.Identifiers {
				seen[n.Name] = true
			}
			if pages++; pages > 10 || len(v.Namespaces)+len(v.Identifiers) > 5 {
				t.Fatalf("page %d: %s", pages, g.Body)
			}
			if v.Next == nil {
				break
			}
			token = *v.Next
		}
		if len(seen) != tc.total || pages != (tc.total+4)/5 {
			t.Errorf("%s: %d names on %d pages", tc.path, len(seen), pages)
		}
	}
	for _, q := range []string{"pageToken=%21", "pageSize=0&pageToken=", "pageSize=x", "pageSize=-1", "parent=%zz"} {
		ask(t, c, "GET", "/v1/namespaces?"+q).is(400, "BadRequestException")
	}
}

// The reader gets the committed bytes, the newest as soon as they are
// committed, and need not get them twice.
func TestLoadTable(t *testing.T) {
	s := lake(t)
	c := New(s, Options{TableConfig: map[string]string{"client.region": "x"}})
	const path = "/v1/namespaces/shop/tables/orders"
	load := func(query string, n int, metadata []byte) got {
		t.Helper()
		g := ask(t, c, "GET", path+query)
		want := fmt.Sprintf(`{"metadata-location":"%s/metadata/v%d.metadata.json","metadata":%s,"config":{"client.region":"x"}}`, s.Location("shop/orders"), n, metadata)
		if g.Code != 200 || g.Body.String() != want {
			t.Fatalf("%d %s\nwant %s", g.Code, g.Body, want)
		}
		return g
	}
	first := load("", 1, metadata(1))
	load("?snapshots=all", 1, metadata(1))
	refs := load("?snapshots=refs", 1, bytes.Replace(metadata(1), []byte(`[1, 2]}, {"snapshot-id":9007199254740993},{"snapshot-id":3}]`), []byte(`[1, 2]},{"snapshot-id":9007199254740993}]`), 1))
	ask(t, c, "GET", path+"?snapshots=some").is(400, "BadRequestException")
	tag := first.Header().Get("ETag")
	if tag == "" || tag == refs.Header().Get("ETag") {
		t.Fatalf("entity tags %q and %q", tag, refs.Header().Get("ETag"))
	}
	for header, status := range map[string]int{tag: 304, "W/" + tag: 304, `"x", ` + tag: 304, "*": 304, `"x"`: 200, "": 200, refs.Header().Get("ETag"): 200} {
		if g := ask(t, c, "GET", path, "If-None-Match", header); g.Code != status || status == 304 && g.Body.Len() > 0 {
			t.Errorf("If-None-Match %s: %d", header, g.Code)
		}
	}
	if err := hadoopcat.New(s).Commit(context.Background(), "shop/orders", 2, metadata(2)); err != nil {
		t.Fatal(err)
	}
	load("", 2, metadata(2))
	if g := ask(t, c, "GET", path, "If-None-Match", tag); g.Code != 200 {
		t.Errorf("the old tag still holds: %d", g.Code)
	}
	// A version whose hint is not written yet is not durable for sure.
	if err := s.Create(context.Background(), "shop/orders/metadata/v3.metadata.json", metadata(3)); err != nil {
		t.Fatal(err)
	}
	load("", 2, metadata(2))
}

func TestDamagedMetadata(t *testing.T) {
	s := lake(t)
	var logged bytes.Buffer
	c := New(s, Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	for _, text := range []string{"", "x", "[]", `{"a":`, `{} {}`, "{}", `{"format-version":"3"}`, `"{}"`, "null", `{"snapshots":[1],"refs":{}}`} {
		if err := s.Replace(context.Background(), "shop/orders/metadata/v1.metadata.json", []byte(text)); err != nil {
			t.Fatal(err)
		}
		ask(t, c, "GET", "/v1/namespaces/shop/tables/orders").is(500, "InternalServerError")
		ask(t, c, "GET", "/v1/namespaces/shop/tables/orders?snapshots=refs").is(500, "InternalServerError")
	}
	if !strings.Contains(logged.String(), "shop/orders/metadata/v1.metadata.json") {
		t.Errorf("the log does not name the file: %s", logged.String())
	}
}

func TestWritesAreRefused(t *testing.T) {
	c := New(lake(t), Options{})
	for _, e := range []string{
		"POST /namespaces", "DELETE /namespaces/shop", "POST /namespaces/shop/properties", "POST /namespaces/shop/tables", "POST /namespaces/shop/register",
		"POST /namespaces/shop/tables/orders", "DELETE /namespaces/shop/tables/orders", "POST /tables/rename", "POST /transactions/commit",
		"POST /namespaces/shop/views", "POST /namespaces/shop/views/v", "DELETE /namespaces/shop/views/v", "POST /views/rename", "PUT /config", "PATCH /namespaces",
	} {
		method, path, _ := strings.Cut(e, " ")
		g := ask(t, c, method, "/v1"+path)
		g.is(405, "UnsupportedOperationException")
		if !strings.Contains(g.Body.String(), "read-only") {
			t.Errorf("%s: %s", e, g.Body)
		}
	}
	ask(t, c, "POST", "/v1/oauth/tokens").is(400, "BadRequestException")
	ask(t, c, "POST", "/v1/namespaces/shop/tables/orders/metrics").is(204, "")
	ask(t, c, "GET", "/v1/namespaces/shop/tables/orders/metrics").is(405, "UnsupportedOperationException")
	for _, path := range []string{"/", "", "/v2/config", "/v1", "/v1/", "/v1/prefix/namespaces", "/v1/prefix/config", "/v1/namespaces/shop/tables/orders/plan", "/v1/namespaces/shop/x", "//v1/config", "/v1//config"} {
		ask(t, c, "GET", path).is(404, "NotFoundException")
	}
	r := httptest.NewRequest("POST", "http://127.0.0.1/v1/namespaces/shop/tables/orders", io.LimitReader(endless{}, maxBodyBytes+1))
	w := httptest.NewRecorder()
	c.ServeHTTP(w, r)
	got{w, t}.is(413, "BadRequestException")
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestWhoMayAsk(t *testing.T) {
	open := New(lake(t), Options{})
	for host, status := range map[string]int{
		"127.0.0.1:8181": 200, "127.0.0.1": 200, "localhost:8181": 200, "LOCALHOST": 200, "[::1]:8181": 200, "127.1.2.3:1": 200,
		"evil.example:8181": 403, "evil.example": 403, "10.0.0.1:8181": 403, "127.0.0.1.evil.example": 403, "": 403, "localhost.evil": 403,
	} {
		r := httptest.NewRequest("GET", "http://x/v1/config", nil)
		r.Host = host
		r.Header.Set("Authorization", "Bearer of whatever") // ignored (W4)
		w := httptest.NewRecorder()
		open.ServeHTTP(w, r)
		if w.Code != status {
			t.Errorf("host %q: %d, want %d", host, w.Code, status)
		}
	}
	const token = "0123456789abcdef"
	closed := New(lake(t), Options{Token: token})
	for header, status := range map[string]int{
		"": 401, "Bearer": 401, "Bearer ": 401, "Bearer x": 401, "Bearer " + token[:15]: 401, "Bearer " + token + "0": 401, "Basic " + token: 401, token: 401,
		"Bearer " + token: 200, "bearer " + token: 200,
	} {
		for _, path := range []string{"/v1/config", "/v1/namespaces/shop/tables/orders", "/v1/namespaces/none"} {
			r := httptest.NewRequest("GET", "http://lake.example"+path, nil)
			r.Header.Set("Authorization", header)
			w := httptest.NewRecorder()
			closed.ServeHTTP(w, r)
			if status == 401 {
				got{w, t}.is(401, "NotAuthorizedException")
				if w.Header().Get("WWW-Authenticate") == "" {
					t.Error("no WWW-Authenticate")
				}
			} else if w.Code == 401 {
				t.Errorf("%q %s: %d", header, path, w.Code)
			}
		}
	}
}

// A table made again under the name of a dropped one lies in another folder:
// its name stays, and the folder is no name.
func TestPlacedTables(t *testing.T) {
	s := lake(t)
	if err := hadoopcat.New(s).Commit(context.Background(), "shop/orders-43", 1, metadata(43)); err != nil {
		t.Fatal(err)
	}
	c := New(s, Options{Placed: func(context.Context) (map[string]string, error) {
		return map[string]string{"shop.orders": "shop/orders-43"}, nil
	}})
	ask(t, c, "GET", "/v1/namespaces/shop/tables").is(200, `{"identifiers":[{"namespace":["shop"],"name":"items"},{"namespace":["shop"],"name":"orders"}],"next-page-token":null}`)
	if g := ask(t, c, "GET", "/v1/namespaces/shop/tables/orders"); !strings.Contains(g.Body.String(), "/shop/orders-43/metadata/v1.metadata.json") {
		t.Errorf("got %s", g.Body)
	}
	ask(t, c, "GET", "/v1/namespaces/shop/tables/orders-43").is(404, "NoSuchTableException")
	ask(t, New(s, Options{}), "HEAD", "/v1/namespaces/shop/tables/orders-43").is(204, "")
	broken := New(s, Options{Logger: quiet(), Placed: func(context.Context) (map[string]string, error) { return nil, errors.New("secret") }})
	g := ask(t, broken, "GET", "/v1/namespaces/shop/tables/orders")
	g.is(503, "ServiceUnavailableException")
	if strings.Contains(g.Body.String(), "secret") {
		t.Errorf("told %s", g.Body)
	}
}

func TestCacheIsBounded(t *testing.T) {
	c := cache{limit: 100}
	put := func(key string, n, size int) {
		c.put(answerKey{key: key, version: n}, &answer{body: make([]byte, size)})
	}
	has := func(key string, n int) bool { return c.get(answerKey{key: key, version: n}) != nil }
	put("a", 1, 40)
	put("b", 1, 40)
	if !has("a", 1) || !has("b", 1) || has("a", 2) || c.get(answerKey{"a", 1, true}) != nil {
		t.Error("what was put is not there, or what was not is")
	}
	has("a", 1)
	put("c", 1, 40) // b was used before a
	if !has("a", 1) || has("b", 1) || !has("c", 1) || c.size != 80 {
		t.Errorf("size %d", c.size)
	}
	put("a", 2, 10)
	put("a", 1, 10) // a slow reader of the older version
	if has("a", 1) || !has("a", 2) || c.size != 50 || c.used.Len() != 2 {
		t.Errorf("size %d, %d answers", c.size, c.used.Len())
	}
	put("d", 1, 101)
	if has("d", 1) || c.size != 50 {
		t.Errorf("size %d", c.size)
	}
}

func TestManyAtATime(t *testing.T) {
	s := lake(t)
	c := New(s, Options{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range 50 {
				if g := ask(t, c, "GET", "/v1/namespaces/shop/tables/orders"); g.Code != 200 {
					t.Errorf("%d %s", g.Code, g.Body)
				}
				ask(t, c, "GET", "/v1/namespaces/shop/tables")
			}
		}()
	}
	for n := 2; n < 40; n++ {
		if err := hadoopcat.New(s).Commit(context.Background(), "shop/orders", n, metadata(n)); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	if g := ask(t, c, "GET", "/v1/namespaces/shop/tables/orders"); !strings.Contains(g.Body.String(), "v39.metadata.json") {
		t.Errorf("got %s", g.Body)
	}
	for range maxRequests {
		c.slots <- struct{}{}
	}
	ask(t, c, "GET", "/v1/config").is(503, "ServiceUnavailableException")
	ask(t, c, "HEAD", "/v1/config").is(503, "")
}

// guarded is a store that fails the test when a key is read that is no
// table's metadata.
type guarded struct {
	objstore.Store
	t testing.TB
}

func (g guarded) check(key string) {
	parts := strings.Split(key, "/")
	if len(parts) != 4 || parts[0] == "_varve" || parts[0] == ".." || parts[1] == ".." || parts[2] != "metadata" {
		g.t.Errorf("the store is asked for %q", key)
	}
}

func (g guarded) ReadAll(ctx context.Context, key string, limit int64) ([]byte, error) {
	g.check(key)
	return g.Store.ReadAll(ctx, key, limit)
}

func (g guarded) Stat(ctx context.Context, key string) (objstore.Info, error) {
	g.check(key)
	return g.Store.Stat(ctx, key)
}

// Any request gets an answer in the protocol's form, no file that is no
// table's metadata is read, and nothing fails inside.
func FuzzRequests(f *testing.F) {
	for _, path := range []string{
		"/v1/config", "/v1/namespaces?parent=shop&pageToken=&pageSize=3", "/v1/namespaces/shop%1Feu/tables/orders?snapshots=refs", "/v1/namespaces/../../etc/passwd",
		"/v1/namespaces/shop/tables/%2e%2e%2f%2e%2e%2fsecret.json", "/v1/namespaces/%5f%76arve/tables/varve", "/v1/namespaces/shop/tables/orders%ff", "/v1/namespaces/%2F/tables", "/v1/namespaces/shop/tables/orders/metrics", "/v1/%",
	} {
		for _, method := range []string{"GET", "HEAD", "POST", "DELETE"} {
			f.Add(method, path, "Bearer x", []byte("{}"))
		}
	}
	s := lake(f)
	f.Fuzz(func(t *testing.T, method, path, auth string, body []byte) {
		r, err := http.NewRequest(method, "http://127.0.0.1"+path, bytes.NewReader(body))
		if err != nil {
			t.Skip()
		}
		r.Host = "127.0.0.1"
		r.Header.Set("Authorization", auth)
		r.Header.Set("If-None-Match", auth)
		w := httptest.NewRecorder()
		New(guarded{s, t}, Options{Logger: quiet()}).ServeHTTP(w, r)
		if w.Code >= 500 || w.Code < 200 {
			t.Fatalf("%s %q: %d %s", method, path, w.Code, w.Body)
		}
		if w.Code >= 400 && r.Method != "HEAD" {
			var e struct{ Error struct{ Type string } }
			if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || e.Error.Type == "" || w.Body.Len() > 4096 {
				t.Fatalf("%s %q: %s", method, path, w.Body)
			}
		}
		if r.Method == "HEAD" && w.Body.Len() > 0 {
			t.Fatalf("HEAD %q has a body", path)
		}
	})
}

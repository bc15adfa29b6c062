package restclient

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/varve-io/varve/schemas/restcat"
)

const secret = "a-secret-of-the-test"

// answers is a server that gives one answer to everything but what is named.
func answers(t *testing.T, status int, contentType, body string, more map[string]string) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b, ok := more[r.Method+" "+r.URL.EscapedPath()]; ok {
			fmt.Fprint(w, b)
			return
		}
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	return s
}

const emptyConfig = `{"defaults":{},"overrides":{}}`

var (
	id     = restcat.Identifier{Namespace: []string{"a", "b"}, Name: "t"}
	commit = &restcat.CommitTable{Identifier: id, Requirements: []restcat.Requirement{}, Updates: []restcat.Update{}}
)

// What can be wrong at the start is one error of its kind, that says what to
// do and holds no secret.
func TestOpenRefuses(t *testing.T) {
	ctx := context.Background()
	huge := `{"defaults":{"x":"` + strings.Repeat("x", MaxAnswerBytes) + `"}}`
	refuse := func(model string) string { return `{"error":` + model + `}` }
	for name, x := range map[string]struct {
		status     int
		kind, body string
		is         error
		want       string
	}{
		"a page":              {200, "text/html", "<html>hello</html>", ErrNonsense, "no JSON but text/html"},
		"a page not found":    {404, "text/html", "<html>hello</html>", ErrNonsense, "status 404"},
		"cut off":             {200, "application/json", `{"defaults":{"a":`, ErrNonsense, "no JSON"},
		"wrong types":         {200, "application/json", `{"defaults":[1,2]}`, ErrNonsense, "not the protocol's"},
		"another JSON":        {200, "application/json", `[]`, ErrNonsense, "not the protocol's"},
		"nothing":             {200, "application/json", ``, ErrNonsense, "no JSON"},
		"a huge answer":       {200, "application/json", huge, ErrNonsense, "more than 4194304 bytes"},
		"wrong credentials":   {401, "application/json", refuse(`{"message":"token ` + secret + ` is not known","type":"NotAuthorizedException","code":401}`), ErrDenied, "token … is not known"},
		"not allowed":         {403, "application/json", refuse(`{"message":"no\u0007pe","type":"ForbiddenException","code":403}`), ErrDenied, "no pe"},
		"a warehouse unknown": {400, "application/json", refuse(`{"message":"unknown warehouse","type":"BadRequestException","code":400}`), ErrNonsense, "unknown warehouse"},
		"away":                {503, "text/html", "later", ErrAway, "status 503"},
		"too busy":            {429, "application/json", `{}`, ErrAway, "429"},
	} {
		t.Run(name, func(t *testing.T) {
			s := answers(t, x.status, x.kind, x.body, nil)
			_, err := Open(ctx, Options{URI: s.URL, Token: secret, Headers: map[string]string{"X-Key": secret}})
			if !errors.Is(err, x.is) || !strings.Contains(err.Error(), x.want) {
				t.Errorf("%v\nis no %q with %q", err, x.is, x.want)
			}
			if strings.Contains(err.Error(), secret) || len(err.Error()) > 1000 {
				t.Errorf("%v: it shows a secret, or too much", err)
			}
		})
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := "http://" + l.Addr().String()
	l.Close()
	if _, err := Open(ctx, Options{URI: nobody}); !errors.Is(err, ErrAway) || !strings.Contains(err.Error(), nobody) {
		t.Errorf("nobody there: %v", err)
	}
	moved := httptest.NewServer(http.RedirectHandler("https://else.example/v1/config", http.StatusMovedPermanently))
	defer moved.Close()
	if _, err := Open(ctx, Options{URI: moved.URL}); !errors.Is(err, ErrNonsense) || !strings.Contains(err.Error(), "redirects to https://else.example") {
		t.Errorf("moved: %v", err)
	}
	hang := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer hang.Close()
	if _, err := Open(ctx, Options{URI: hang.URL, Timeout: 50 * time.Millisecond}); !errors.Is(err, ErrAway) {
		t.Errorf("it hangs: %v", err)
	}
	for _, o := range []Options{
		{}, {URI: "catalog:8181"}, {URI: "ftp://x"}, {URI: "http://u:" + secret + "@x"}, {URI: "http://x?y=1"}, {URI: "http://%zz"},
		{URI: nobody, Token: secret, Credential: secret}, {URI: nobody, Token: secret + "\n"}, {URI: nobody, Headers: map[string]string{"a b": "x"}},
		{URI: nobody, CAFile: filepath.Join(t.TempDir(), "none")}, {URI: nobody, Credential: "a:b", TokenURI: "nowhere"},
	} {
		_, err := Open(ctx, o)
		if !errors.Is(err, ErrOptions) {
			t.Errorf("%v is no error of options", err)
		} else if strings.Contains(err.Error(), secret) {
			t.Errorf("%v shows a secret", err)
		}
	}
}

// A certificate that nobody vouches for is refused; with its authority it is taken.
func TestCertificates(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, emptyConfig) }))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	_, err := Open(context.Background(), Options{URI: s.URL})
	if !errors.Is(err, ErrDenied) || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a certificate of nobody's: %v", err)
	}
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(context.Background(), Options{URI: s.URL, CAFile: ca}); err != nil {
		t.Error(err)
	}
	plain := answers(t, 200, "application/json", emptyConfig, nil)
	if _, err := Open(context.Background(), Options{URI: strings.Replace(plain.URL, "http:", "https:", 1)}); !errors.Is(err, ErrNonsense) {
		t.Errorf("no TLS there: %v", err)
	}
}

// What the catalog's configuration says about paths is kept to, and what goes
// to it is what the options say.
func TestPaths(t *testing.T) {
	var got []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Method+" "+r.URL.EscapedPath()+"?"+r.URL.RawQuery+" "+r.Header.Get("Authorization")+r.Header.Get("X-Key")+r.Header.Get("X-Iceberg-Access-Delegation"))
		if strings.HasSuffix(r.URL.Path, "/config") {
			io.WriteString(w, `{"defaults":{"prefix":"not this"},"overrides":{"prefix":"ws/eu 1","namespace-separator":"%2E"},"endpoints":["GET /v1/{prefix}/namespaces/{namespace}/tables/{table}"]}`)
			return
		}
		io.WriteString(w, `{"metadata-location":"s3://b/m.json","metadata":{"a":1}}`)
	}))
	defer s.Close()
	c, err := Open(context.Background(), Options{URI: s.URL + "/catalog/", Warehouse: "w 1", Prefix: "mine", Token: "tok", Headers: map[string]string{"X-Key": "+k"}})
	if err != nil {
		t.Fatal(err)
	}
	x, err := c.Load(context.Background(), id)
	if err != nil || x.MetadataLocation != "s3://b/m.json" || string(x.Metadata) != `{"a":1}` {
		t.Fatalf("%+v, %v", x, err)
	}
	want := []string{
		"GET /catalog/v1/config?warehouse=w+1 Bearer tok+k",
		"GET /catalog/v1/ws/eu%201/namespaces/a%2Eb/tables/t?snapshots=all Bearer tok+k",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("asked\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if err := c.CheckCommits(); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), "reading only") {
		t.Errorf("a catalog without commits: %v", err)
	}
}

// What an answer to a commit means (C4).
func TestCommitAnswers(t *testing.T) {
	model := func(code int, kind string) string {
		b, _ := json.Marshal(restcat.Error{Error: restcat.ErrorModel{Message: "why", Type: kind, Code: code}})
		return string(b)
	}
	for _, x := range []struct {
		status int
		body   string
		is     error
	}{
		{200, `{"metadata-location":"s3://m","metadata":{}}`, nil},
		{409, model(409, restcat.CommitFailed), ErrConflict},
		{400, model(400, "ValidationException"), ErrConflict},
		{412, model(412, "x"), ErrConflict},
		{404, model(404, restcat.NoSuchTable), ErrNotFound},
		{404, "<html>", ErrNonsense},
		{409, "<html>", ErrNonsense},
		{401, model(401, restcat.NotAuthorized), ErrDenied},
		{403, model(403, restcat.Forbidden), ErrDenied},
		{429, "", ErrAway},
		{500, model(500, restcat.CommitStateUnknown), ErrUnknown},
		{502, "<html>", ErrUnknown},
		{503, model(503, "x"), ErrUnknown},
		{504, "", ErrUnknown},
		{200, "<html>", ErrUnknown},
		{200, `{"metadata-location":"s3://m","metad`, ErrUnknown},
		{200, `{"metadata-location":7,"metadata":{}}`, ErrUnknown},
		{200, `{"metadata":{}}`, ErrUnknown},
		{200, `{"metadata-location":"s3://m","metadata":7}`, ErrUnknown},
		{200, `{"metadata-location":"s3://m"}`, ErrUnknown},
	} {
		s := answers(t, x.status, "application/json", x.body, map[string]string{"GET /v1/config": emptyConfig})
		c, err := Open(context.Background(), Options{URI: s.URL})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Commit(context.Background(), commit)
		if x.is == nil && err != nil || x.is != nil && !errors.Is(err, x.is) {
			t.Errorf("status %d, %s: %v, want %v", x.status, x.body, err, x.is)
		}
		for _, other := range []error{ErrConflict, ErrUnknown, ErrNotFound, ErrDenied, ErrAway} {
			if other != x.is && errors.Is(err, other) {
				t.Errorf("status %d, %s: %v is %v too", x.status, x.body, err, other)
			}
		}
		s.Close()
		if _, err := c.Commit(context.Background(), commit); !errors.Is(err, ErrAway) && !errors.Is(err, ErrUnknown) {
			t.Errorf("a catalog that is gone: %v", err)
		}
	}
}

// An OAuth2 client's token is asked once, used by all, and asked again when
// the catalog does not take it any more; a wrong secret is one clear error.
func TestCredential(t *testing.T) {
	var asked atomic.Int64
	valid := "token-1"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/oauth/tokens") {
			if r.FormValue("grant_type") != "client_credentials" || r.FormValue("client_id") != "me" || r.FormValue("scope") != "catalog" || r.Header.Get("Authorization") != "" {
				t.Errorf("asked for a token with %v", r.Form)
			}
			if r.FormValue("client_secret") != secret {
				http.Error(w, `{"error":"invalid_client","error_description":"`+r.FormValue("client_secret")+`"}`, http.StatusBadRequest)
				return
			}
			fmt.Fprintf(w, `{"access_token":"token-%d","token_type":"bearer","expires_in":3600}`, asked.Add(1))
			return
		}
		if r.Header.Get("Authorization") != "Bearer "+valid {
			http.Error(w, `{"error":{"message":"expired","type":"NotAuthorizedException","code":401}}`, http.StatusUnauthorized)
			return
		}
		io.WriteString(w, emptyConfig[:len(emptyConfig)-1]+`,"metadata-location":"s3://m","metadata":{}}`)
	}))
	defer s.Close()
	c, err := Open(context.Background(), Options{URI: s.URL, Credential: "me:" + secret})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := c.Load(context.Background(), id); err != nil {
			t.Fatal(err)
		}
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("%d tokens were asked", n)
	}
	valid = "token-2"
	if _, err := c.Commit(context.Background(), commit); err != nil || asked.Load() != 2 {
		t.Errorf("after the token ended: %v, %d tokens asked", err, asked.Load())
	}
	valid = "none"
	if _, err := c.Load(context.Background(), id); !errors.Is(err, ErrDenied) || asked.Load() != 3 {
		t.Errorf("a token that is never taken: %v, %d tokens asked", err, asked.Load())
	}
	_, err = Open(context.Background(), Options{URI: s.URL, Credential: "me:wrong-" + secret})
	if !errors.Is(err, ErrDenied) || strings.Contains(err.Error(), secret) {
		t.Errorf("a wrong secret: %v", err)
	}
}

// Namespaces are made level by level; one that is there is fine.
func TestCreateNamespace(t *testing.T) {
	var got []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			io.WriteString(w, emptyConfig)
			return
		}
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got = append(got, string(b))
		if len(got) == 1 {
			http.Error(w, `{"error":{"message":"there","type":"AlreadyExistsException","code":409}}`, http.StatusConflict)
			return
		}
		w.Write(b)
	}))
	defer s.Close()
	c, err := Open(context.Background(), Options{URI: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.CreateNamespace(context.Background(), []string{"a", "b"}); err != nil {
		t.Fatal(err)
	}
	if want := `{"namespace":["a"],"properties":{}} {"namespace":["a","b"],"properties":{}}`; strings.Join(got, " ") != want {
		t.Errorf("asked %s", got)
	}
}

// FuzzAnswer: whatever a catalog answers, there is a table or one error of a kind.
func FuzzAnswer(f *testing.F) {
	f.Add(200, `{"metadata-location":"s3://m","metadata":{}}`)
	f.Add(200, `{"metadata":[`)
	f.Add(404, `{"error":{"message":"m","type":"NoSuchTableException","code":404}}`)
	f.Add(302, "")
	f.Add(409, `{"error":{}}`)
	c, err := newClient(Options{URI: "http://127.0.0.1:1"})
	if err != nil {
		f.Fatal(err)
	}
	kinds := []error{ErrNotFound, ErrConflict, ErrUnknown, ErrAway, ErrDenied, ErrNonsense}
	f.Fuzz(func(t *testing.T, status int, body string) {
		for _, isCommit := range []bool{false, true} {
			r := &request{method: "GET", url: c.base, limit: 1 << 10, commit: isCommit}
			var x restcat.Table
			err := c.answer(r, &http.Response{StatusCode: status, Header: http.Header{"Location": {body}}, Body: io.NopCloser(strings.NewReader(body))}, &x)
			if err == nil {
				if _, err = c.table(&x, true); err == nil {
					continue
				}
			}
			found := 0
			for _, k := range kinds {
				if errors.Is(err, k) {
					found++
				}
			}
			if found == 0 || found > 2 {
				t.Errorf("status %d, %q: %v", status, body, err)
			}
		}
	})
}

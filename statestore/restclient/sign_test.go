package restclient

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// signature reckons AWS Signature Version 4 of a request by the description of
// the protocol, apart from the library that signs.
func signature(r *http.Request, path string, signed []string, payload, key, date, region, service string) string {
	var canonical strings.Builder
	fmt.Fprintf(&canonical, "%s\n%s\n", r.Method, path)
	query, _ := url.ParseQuery(r.URL.RawQuery)
	var pairs []string
	escape := func(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }
	for k, vs := range query {
		for _, v := range vs {
			pairs = append(pairs, escape(k)+"="+escape(v))
		}
	}
	slices.Sort(pairs)
	canonical.WriteString(strings.Join(pairs, "&") + "\n")
	for _, h := range signed {
		v := r.Header.Get(h)
		switch h {
		case "host":
			v = r.Host
		case "content-length":
			v = fmt.Sprint(r.ContentLength)
		}
		fmt.Fprintf(&canonical, "%s:%s\n", h, strings.TrimSpace(v))
	}
	fmt.Fprintf(&canonical, "\n%s\n%s", strings.Join(signed, ";"), payload)
	sum := sha256.Sum256([]byte(canonical.String()))
	scope := date[:8] + "/" + region + "/" + service + "/aws4_request"
	k := []byte("AWS4" + key)
	for _, part := range []string{date[:8], region, service, "aws4_request", "AWS4-HMAC-SHA256\n" + date + "\n" + scope + "\n" + hex.EncodeToString(sum[:])} {
		h := hmac.New(sha256.New, k)
		h.Write([]byte(part))
		k = h.Sum(nil)
	}
	return hex.EncodeToString(k)
}

// The reckoning above is right: "get-vanilla" of the protocol's own test suite.
func TestSignatureOfTheSuite(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "https://example.amazonaws.com/", nil)
	r.Header.Set("X-Amz-Date", "20150830T123600Z")
	empty := sha256.Sum256(nil)
	got := signature(r, "/", []string{"host", "x-amz-date"}, hex.EncodeToString(empty[:]), "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "20150830T123600Z", "us-east-1", "service")
	if want := "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// signedServer takes requests that are signed with the key for the service, and counts them.
func signedServer(t *testing.T, key, region, service string) (uri string, took *atomic.Int64) {
	t.Helper()
	took = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		refuse := func(why string) {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprintf(w, `{"error":{"message":%q,"type":"ForbiddenException","code":403}}`, why)
		}
		rest, ok := strings.CutPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 ")
		if !ok {
			refuse("not signed")
			return
		}
		part := map[string]string{}
		for _, p := range strings.Split(rest, ", ") {
			k, v, _ := strings.Cut(p, "=")
			part[k] = v
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		payload := sha256.Sum256(body)
		date := r.Header.Get("X-Amz-Date")
		at, err := time.Parse("20060102T150405Z", date)
		signed := strings.Split(part["SignedHeaders"], ";")
		if err != nil || time.Since(at).Abs() > 5*time.Minute || !slices.Contains(signed, "host") || !strings.HasSuffix(part["Credential"], "/"+date[:8]+"/"+region+"/"+service+"/aws4_request") {
			refuse("what is signed: " + rest)
			return
		}
		// But for S3, the path is escaped as it stands, escapes too.
		path := strings.ReplaceAll(r.URL.EscapedPath(), "%", "%25")
		if part["Signature"] != signature(r, path, signed, hex.EncodeToString(payload[:]), key, date, region, service) {
			refuse("The request signature we calculated does not match the signature you provided.")
			return
		}
		took.Add(1)
		if strings.HasSuffix(r.URL.Path, "/v1/config") {
			io.WriteString(w, `{"defaults":{},"overrides":{"prefix":"catalogs/123456789012"}}`)
			return
		}
		io.WriteString(w, `{"metadata-location":"s3://m","metadata":{}}`)
	}))
	t.Cleanup(s.Close)
	return s.URL + "/iceberg", took
}

// awsEnvironment has the usual chain find these credentials and no others.
func awsEnvironment(t *testing.T, key string) {
	t.Helper()
	for k, v := range map[string]string{
		"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": key, "AWS_SESSION_TOKEN": "", "AWS_REGION": "", "AWS_DEFAULT_REGION": "", "AWS_PROFILE": "",
		"AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": t.TempDir() + "/none", "AWS_SHARED_CREDENTIALS_FILE": t.TempDir() + "/none",
	} {
		t.Setenv(k, v)
	}
}

// Every request is signed as AWS Glue's REST catalog has it: with a query, with
// a body, with a path of escapes.
func TestSigned(t *testing.T) {
	ctx := context.Background()
	uri, took := signedServer(t, secret, "eu-west-1", "glue")
	awsEnvironment(t, secret)
	c, err := Open(ctx, Options{URI: uri, Warehouse: "123456789012:s3tablescatalog/a b", SigningRegion: "eu-west-1", SigningName: "glue"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Load(ctx, id); err != nil {
		t.Error(err)
	}
	odd := *commit
	odd.Identifier.Name = "ein Tisch/é"
	if _, err := c.Commit(ctx, &odd); err != nil {
		t.Error(err)
	}
	if n := took.Load(); n != 3 {
		t.Errorf("%d requests were taken, want 3", n)
	}

	t.Setenv("AWS_REGION", "eu-west-1")
	if _, err := Open(ctx, Options{URI: uri, SigningName: "glue"}); err != nil {
		t.Errorf("with the configuration's region: %v", err)
	}
	for name, opt := range map[string]Options{
		"another service": {URI: uri, SigningRegion: "eu-west-1"},
		"another region":  {URI: uri, SigningRegion: "eu-west-2", SigningName: "glue"},
		"not signed":      {URI: uri},
	} {
		if _, err := Open(ctx, opt); !errors.Is(err, ErrDenied) {
			t.Errorf("%s: %v", name, err)
		}
	}
	t.Setenv("AWS_SECRET_ACCESS_KEY", "another key")
	if _, err := Open(ctx, Options{URI: uri, SigningRegion: "eu-west-1", SigningName: "glue"}); !errors.Is(err, ErrDenied) || strings.Contains(err.Error(), "another key") {
		t.Errorf("another key: %v", err)
	}
}

// What cannot be signed is one error that says what to do; nothing is sent.
func TestNotSigned(t *testing.T) {
	ctx := context.Background()
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request was sent") }))
	defer s.Close()
	awsEnvironment(t, secret)
	if _, err := Open(ctx, Options{URI: s.URL, SigningName: "glue"}); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), "AWS_REGION") {
		t.Errorf("without a region: %v", err)
	}
	if err := CheckOptions(Options{URI: s.URL, SigningName: "glue", Token: "t"}); !errors.Is(err, ErrOptions) {
		t.Errorf("with a token: %v", err)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	if _, err := Open(ctx, Options{URI: s.URL, SigningName: "glue", SigningRegion: "x"}); !errors.Is(err, ErrDenied) || !strings.Contains(err.Error(), "AWS_PROFILE") {
		t.Errorf("without credentials: %v", err)
	}
}

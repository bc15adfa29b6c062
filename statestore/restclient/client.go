package restclient

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
	"unicode"

	"github.com/varve-io/varve/schemas/restcat"
)

// Limits and defaults.
const (
	// DefaultTimeout bounds one request with its answer.
	DefaultTimeout = 30 * time.Second
	// MaxTableBytes bounds an answer that holds table metadata, MaxAnswerBytes any other.
	MaxTableBytes  = 128 << 20
	MaxAnswerBytes = 4 << 20

	maxMessage = 300 // characters of a catalog's message that an error repeats
	maxIdle    = 8
)

// Options say where a catalog is and how to speak to it. Token, Credential and
// the values of Headers are secrets: they stand in no error.
type Options struct {
	// URI is the address before /v1. Required.
	URI string
	// Warehouse is what the catalog calls the set of tables; some need it.
	Warehouse string
	// Prefix is a segment of every path; most catalogs name it themselves.
	Prefix string
	// Token is a bearer token.
	Token string
	// Credential is id:secret of an OAuth2 client, or a secret alone.
	Credential string
	// TokenURI is where the token for Credential is asked. Default: v1/oauth/tokens of the catalog.
	TokenURI string
	// Scope of that token. Default: catalog.
	Scope string
	// SigningRegion and SigningName, one of them given, have every request signed
	// by AWS Signature Version 4 for that region (default: the AWS configuration's)
	// and service (default: DefaultSigningName).
	SigningRegion string
	SigningName   string
	// Headers are sent with every request.
	Headers map[string]string
	// CAFile holds certificates, PEM, that are trusted besides the system's.
	CAFile string
	// Timeout of one request with its answer. Default: DefaultTimeout.
	Timeout time.Duration
}

// Client speaks to one catalog. It may be used concurrently.
type Client struct {
	opt       Options
	base      *url.URL // before v1
	prefix    string
	separator string
	config    restcat.Config
	http      *http.Client
	auth      *auth
	signer    *signer // nil: requests are not signed
	redact    *strings.Replacer
}

// Table is a table's metadata as the catalog gave it.
type Table struct {
	MetadataLocation string // "": staged only
	Metadata         []byte
}

// CheckOptions says what of the options cannot be meant, without asking the catalog.
func CheckOptions(opt Options) error {
	_, err := newClient(opt)
	return err
}

// Open reaches a catalog and reads its configuration.
func Open(ctx context.Context, opt Options) (*Client, error) {
	c, err := newClient(opt)
	if err != nil {
		return nil, err
	}
	u := c.base.JoinPath("v1", "config")
	if opt.Warehouse != "" {
		u.RawQuery = url.Values{"warehouse": {opt.Warehouse}}.Encode()
	}
	if err := c.call(ctx, request{method: http.MethodGet, url: u, limit: MaxAnswerBytes}, &c.config); err != nil {
		return nil, err
	}
	property := func(key, ours string) string {
		if v := c.config.Overrides[key]; v != "" {
			return v
		}
		if ours != "" {
			return ours
		}
		return c.config.Defaults[key]
	}
	c.prefix = strings.Trim(property(restcat.PropertyPrefix, opt.Prefix), "/")
	if s := property(restcat.PropertySeparator, ""); s != "" {
		c.separator = s
	}
	return c, nil
}

func newClient(opt Options) (*Client, error) {
	u, err := parseURI("address", opt.URI)
	if err != nil {
		return nil, err
	}
	if opt.Token != "" && opt.Credential != "" {
		return nil, fmt.Errorf("%w: give a token or a credential, not both", ErrOptions)
	}
	if opt.Timeout <= 0 {
		opt.Timeout = DefaultTimeout
	}
	for k, v := range opt.Headers {
		if !validHeader(k, v) {
			return nil, fmt.Errorf("%w: the header %.40q cannot be sent", ErrOptions, k)
		}
	}
	if !validHeader("x", opt.Token) {
		return nil, fmt.Errorf("%w: the token holds characters that cannot be sent", ErrOptions)
	}
	tlsConfig := &tls.Config{MinVersion: tls.VersionTLS12}
	if opt.CAFile != "" {
		if tlsConfig.RootCAs, err = certificates(opt.CAFile); err != nil {
			return nil, err
		}
	}
	c := &Client{opt: opt, base: u, separator: restcat.Separator, http: &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: tlsConfig, MaxIdleConnsPerHost: maxIdle, IdleConnTimeout: 90 * time.Second,
			DialContext:         (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
			TLSHandshakeTimeout: 10 * time.Second, ForceAttemptHTTP2: true,
		},
		// Followed, a redirect would carry headers with secrets to another place.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	if c.signer, err = newSigner(&c.opt); err != nil {
		return nil, err
	}
	var secrets []string
	add := func(s string) {
		if len(s) >= 4 {
			secrets = append(secrets, s, "…")
		}
	}
	add(opt.Token)
	add(opt.Credential)
	_, secret, _ := strings.Cut(opt.Credential, ":")
	add(secret)
	for _, v := range opt.Headers {
		add(v)
	}
	c.redact = strings.NewReplacer(secrets...)
	if opt.Token != "" || opt.Credential != "" {
		tokens := u.JoinPath("v1", "oauth", "tokens")
		if opt.TokenURI != "" {
			if tokens, err = parseURI("address of tokens", opt.TokenURI); err != nil {
				return nil, err
			}
		}
		c.auth = &auth{c: c, url: tokens, token: opt.Token}
	}
	return c, nil
}

func parseURI(what, text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%w: the %s is no URL; write it as https://host:port/path", ErrOptions, what)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%w: the %s %q is no address of a REST catalog; write it as https://host:port/path", ErrOptions, what, u.Redacted())
	}
	if u.User != nil {
		return nil, fmt.Errorf("%w: the %s %q holds a user; give credentials by their own options", ErrOptions, what, u.Redacted())
	}
	return u, nil
}

func validHeader(name, value string) bool {
	if name == "" {
		return false
	}
	for i := 0; i < len(name); i++ {
		if c := name[i]; c <= ' ' || c >= 0x7f || c == ':' {
			return false
		}
	}
	return !strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}

func certificates(path string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w: certificates: %w", ErrOptions, err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%w: %s holds no certificate in PEM", ErrOptions, path)
	}
	return pool, nil
}

// URI is the catalog's address; it holds no secret.
func (c *Client) URI() string { return c.base.String() }

// CheckCommits says why tables cannot be published there, nil when they can.
func (c *Client) CheckCommits() error {
	if !c.config.Serves(restcat.EndpointCommitTable) {
		return fmt.Errorf("%w: the catalog at %s serves tables for reading only; name one that takes commits", ErrOptions, c.URI())
	}
	return nil
}

func (c *Client) path(segments ...string) *url.URL {
	u := *c.base
	p := strings.TrimRight(u.EscapedPath(), "/") + "/v1"
	if c.prefix != "" {
		for _, s := range strings.Split(c.prefix, "/") {
			p += "/" + url.PathEscape(s)
		}
	}
	for _, s := range segments {
		p += "/" + s
	}
	u.RawPath = p
	// A prefix, names and separators were escaped here: they unescape.
	u.Path, _ = url.PathUnescape(p)
	return &u
}

func (c *Client) tablePath(id restcat.Identifier) *url.URL {
	return c.path("namespaces", restcat.NamespacePath(id.Namespace, c.separator), "tables", url.PathEscape(id.Name))
}

// CreateNamespace makes a namespace and those above it. nil: it is there.
func (c *Client) CreateNamespace(ctx context.Context, namespace []string) error {
	for n := 1; n <= len(namespace); n++ {
		ns := restcat.Namespace{Namespace: namespace[:n], Properties: map[string]string{}}
		err := c.call(ctx, request{method: http.MethodPost, url: c.path("namespaces"), body: ns, limit: MaxAnswerBytes}, &restcat.Namespace{})
		var s *statusError
		if errors.As(err, &s) && s.status == http.StatusConflict {
			continue
		}
		if err != nil {
			return fmt.Errorf("make the namespace %s: %w", strings.Join(ns.Namespace, "."), err)
		}
	}
	return nil
}

// Load is a table as it is now; ErrNotFound when there is none.
func (c *Client) Load(ctx context.Context, id restcat.Identifier) (*Table, error) {
	u := c.tablePath(id)
	u.RawQuery = "snapshots=all"
	var t restcat.Table
	if err := c.call(ctx, request{method: http.MethodGet, url: u, limit: MaxTableBytes}, &t); err != nil {
		return nil, fmt.Errorf("load the table %s: %w", id, err)
	}
	return c.table(&t, true)
}

// Stage asks what a table would be, without making it.
func (c *Client) Stage(ctx context.Context, namespace []string, r *restcat.CreateTable) (*Table, error) {
	r.Stage = true
	u := c.path("namespaces", restcat.NamespacePath(namespace, c.separator), "tables")
	var t restcat.Table
	if err := c.call(ctx, request{method: http.MethodPost, url: u, body: r, limit: MaxTableBytes}, &t); err != nil {
		return nil, fmt.Errorf("stage the table %s: %w", restcat.Identifier{Namespace: namespace, Name: r.Name}, err)
	}
	return c.table(&t, false)
}

// Commit asks for a commit. ErrConflict, ErrUnknown: see there. ErrNotFound:
// the table is gone. ErrDenied, ErrAway: nothing was committed.
func (c *Client) Commit(ctx context.Context, r *restcat.CommitTable) (*Table, error) {
	var t restcat.Table
	err := c.call(ctx, request{method: http.MethodPost, url: c.tablePath(r.Identifier), body: r, limit: MaxTableBytes, commit: true}, &t)
	if err != nil {
		return nil, fmt.Errorf("commit to the table %s: %w", r.Identifier, err)
	}
	out, err := c.table(&t, true)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return out, nil
}

func (c *Client) table(t *restcat.Table, committed bool) (*Table, error) {
	if len(t.Metadata) == 0 || t.Metadata[0] != '{' {
		return nil, fmt.Errorf("%w: %s answers without a table's metadata", ErrNonsense, c.URI())
	}
	if committed && t.MetadataLocation == "" {
		return nil, fmt.Errorf("%w: %s answers without a metadata-location", ErrNonsense, c.URI())
	}
	return &Table{MetadataLocation: t.MetadataLocation, Metadata: t.Metadata}, nil
}

// request is one call.
type request struct {
	method string
	url    *url.URL
	body   any        // as JSON, or
	form   url.Values // as a form
	limit  int64
	commit bool // what fails on the way is unknown
	noAuth bool
}

// statusError is an answer that is none of success.
type statusError struct {
	status int
	kind   string // the catalog's own name for it
	text   string
	is     error
}

func (e *statusError) Error() string {
	if e.text == "" {
		return fmt.Sprintf("%v: status %d", e.is, e.status)
	}
	return fmt.Sprintf("%v: status %d: %s", e.is, e.status, e.text)
}

func (e *statusError) Unwrap() error { return e.is }

// call sends a request and reads its answer. A token that is not taken any more
// is renewed once, and so are credentials: such a request had no effect.
func (c *Client) call(ctx context.Context, r request, into any) error {
	err := c.once(ctx, &r, into)
	if errors.Is(err, ErrDenied) && !r.noAuth && (c.auth != nil && c.auth.renew() || c.signer != nil && c.signer.renew()) {
		err = c.once(ctx, &r, into)
	}
	return err
}

func (c *Client) once(ctx context.Context, r *request, into any) error {
	ctx, cancel := context.WithTimeout(ctx, c.opt.Timeout)
	defer cancel()
	var body io.Reader
	var text []byte
	contentType := "application/json"
	switch {
	case r.form != nil:
		text, contentType = []byte(r.form.Encode()), "application/x-www-form-urlencoded"
		body = bytes.NewReader(text)
	case r.body != nil:
		var err error
		if text, err = json.Marshal(r.body); err != nil {
			return fmt.Errorf("write a request to the catalog: %w", err)
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, r.url.String(), body)
	if err != nil {
		return fmt.Errorf("%w: %s", ErrOptions, c.redact.Replace(err.Error()))
	}
	if body != nil {
		req.Header.Set("Content-Type", contentType)
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "varve")
	for k, v := range c.opt.Headers {
		req.Header.Set(k, v)
	}
	if c.auth != nil && !r.noAuth {
		token, err := c.auth.get(ctx)
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if c.signer != nil {
		if err := c.signer.sign(ctx, req, text); err != nil {
			return err
		}
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return c.failed(r, err)
	}
	defer resp.Body.Close()
	return c.answer(r, resp, into)
}

// failed says what an error on the way means.
func (c *Client) failed(r *request, err error) error {
	var cert *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var op *net.OpError
	text := c.redact.Replace(err.Error())
	switch {
	case errors.As(err, &cert):
		return fmt.Errorf("%w: the certificate of %s is not trusted: %s; name its authority's certificates, or the host as it stands in them", ErrDenied, c.URI(), clean(cert.Unwrap().Error()))
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		return fmt.Errorf("%w: %s does not speak TLS: %s", ErrNonsense, c.URI(), clean(text))
	case errors.As(err, &op) && op.Op == "dial":
		return fmt.Errorf("%w at %s: %s", ErrAway, c.URI(), clean(text)) // nothing was sent
	case r.commit:
		return fmt.Errorf("%w: %s", ErrUnknown, clean(text))
	}
	return fmt.Errorf("%w at %s: %s", ErrAway, c.URI(), clean(text))
}

// answer reads a response.
func (c *Client) answer(r *request, resp *http.Response, into any) error {
	limit := r.limit
	ok := resp.StatusCode >= 200 && resp.StatusCode < 300
	if !ok {
		limit = MaxAnswerBytes
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if !ok {
		return c.refused(r, resp, text)
	}
	wrong := func(err error) error {
		if r.commit {
			return fmt.Errorf("%w: %w", ErrUnknown, err)
		}
		return err
	}
	if err != nil {
		return wrong(fmt.Errorf("%w at %s: its answer ends early: %s", ErrAway, c.URI(), clean(err.Error())))
	}
	if int64(len(text)) > limit {
		return wrong(fmt.Errorf("%w: %s answers with more than %d bytes", ErrNonsense, c.URI(), limit))
	}
	if len(bytes.TrimSpace(text)) == 0 && resp.StatusCode == http.StatusNoContent {
		return nil
	}
	if err := json.Unmarshal(text, into); err != nil {
		what := "JSON that is not the protocol's: " + clean(c.redact.Replace(err.Error()))
		if !json.Valid(text) {
			what = "what is no JSON"
			if kind := resp.Header.Get("Content-Type"); kind != "" && !strings.Contains(kind, "json") {
				what += " but " + clean(kind)
			}
		}
		return wrong(fmt.Errorf("%w: %s answers with %s", ErrNonsense, c.URI(), what))
	}
	return nil
}

// refused says what an answer that is none of success means.
func (c *Client) refused(r *request, resp *http.Response, text []byte) error {
	var e restcat.Error
	known := json.Unmarshal(text, &e) == nil && (e.Error.Type != "" || e.Error.Message != "")
	s := &statusError{status: resp.StatusCode, kind: e.Error.Type, text: clean(c.redact.Replace(e.Error.Message))}
	switch code := resp.StatusCode; {
	case code == http.StatusUnauthorized || code == http.StatusForbidden || code == 419:
		s.is = ErrDenied
	case code == http.StatusTooManyRequests:
		s.is = ErrAway
	case r.commit && code >= 500:
		s.is = ErrUnknown
	case code >= 500:
		s.is = ErrAway
	case code == http.StatusNotFound && known && (e.Error.Type == restcat.NoSuchTable || e.Error.Type == restcat.NoSuchNamespace):
		s.is = ErrNotFound
	case r.commit && known && (code == http.StatusConflict || code == http.StatusBadRequest || code == http.StatusPreconditionFailed || code == http.StatusUnprocessableEntity):
		s.is = ErrConflict
	case code == http.StatusConflict && known:
		s.is = ErrConflict
	default:
		s.is = ErrNonsense
		if code >= 300 && code < 400 {
			if to, err := url.Parse(resp.Header.Get("Location")); err == nil {
				s.text = "it redirects to " + clean(to.Redacted()) + "; name that address"
			}
		}
	}
	if s.is == ErrNonsense || s.is == ErrAway {
		return fmt.Errorf("%s %s: %w", r.method, c.URI(), s)
	}
	return s
}

// clean is a foreign text for an error: short and printable.
func clean(s string) string {
	var b strings.Builder
	n := 0
	for _, r := range s {
		if !unicode.IsPrint(r) {
			r = ' '
		}
		if n++; n > maxMessage {
			b.WriteString("…")
			break
		}
		b.WriteRune(r)
	}
	return b.String()
}

package restcatalog

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/varve-io/varve/statestore/hadoopcat"
	"github.com/varve-io/varve/statestore/objstore"
)

const (
	// maxBodyBytes bounds what is read of a request's body.
	maxBodyBytes = 1 << 20
	// maxPathBytes bounds a request's path.
	maxPathBytes = 4 << 10
	// maxPage bounds a page of a listing, for who asks for pages.
	maxPage = 1000
	// requestTime bounds the work for one request.
	requestTime = 60 * time.Second
	// maxRequests is how many are worked on at a time; more are told to come back.
	maxRequests = 64
)

// Options of a catalog.
type Options struct {
	// Token, if any, must come with every request, as a bearer token. Default:
	// none is asked for, and only requests to this machine by a loopback name
	// are answered.
	Token string
	// Placed gives the folders of the tables that do not lie where their name
	// says, by full table name. Default: names are those of the folders.
	Placed func(ctx context.Context) (map[string]string, error)
	// TableConfig tells readers how to reach the store (StoreConfig). It must
	// hold no secrets. Default: nothing.
	TableConfig map[string]string
	// CacheBytes bounds the answers kept in memory. Default: DefaultCacheBytes.
	CacheBytes int
	// Logger gets the errors that a client is not told of in full.
	Logger *slog.Logger
}

// Catalog answers the read side of the REST catalog protocol for the tables of
// one store. It is an http.Handler.
type Catalog struct {
	store objstore.Store
	files *hadoopcat.Catalog
	opt   Options
	token [sha256.Size]byte
	cache cache
	known knownTables
	turn  chan struct{} // of who reads metadata
	slots chan struct{} // of requests

	placesMu sync.Mutex
	places   map[string]string
	placesAt time.Time
}

// New makes a catalog. It reads nothing.
func New(store objstore.Store, opt Options) *Catalog {
	if opt.Logger == nil {
		opt.Logger = slog.Default()
	}
	if opt.CacheBytes == 0 {
		opt.CacheBytes = DefaultCacheBytes
	}
	return &Catalog{
		store: store, files: hadoopcat.New(store), opt: opt, token: sha256.Sum256([]byte(opt.Token)),
		cache: cache{limit: opt.CacheBytes}, turn: make(chan struct{}, loaders), slots: make(chan struct{}, maxRequests),
	}
}

// endpoints is what the catalog serves, as its config says.
var endpoints = []string{
	"GET /v1/{prefix}/namespaces",
	"GET /v1/{prefix}/namespaces/{namespace}",
	"HEAD /v1/{prefix}/namespaces/{namespace}",
	"GET /v1/{prefix}/namespaces/{namespace}/tables",
	"GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
	"HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
	"POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/metrics",
	"GET /v1/{prefix}/namespaces/{namespace}/views",
}

// failure is an answer in the protocol's error form.
type failure struct {
	status  int
	kind    string
	message string
	allow   string // methods, for 405
}

func (f *failure) Error() string { return f.message }

func bad(format string, args ...any) error {
	return &failure{status: http.StatusBadRequest, kind: "BadRequestException", message: fmt.Sprintf(format, args...)}
}

func noNamespace(levels []string) error {
	return &failure{status: http.StatusNotFound, kind: "NoSuchNamespaceException", message: fmt.Sprintf("namespace does not exist: %s", shown(strings.Join(levels, ".")))}
}

func noTable(levels []string, table string) error {
	return &failure{status: http.StatusNotFound, kind: "NoSuchTableException", message: fmt.Sprintf("table does not exist: %s", shown(strings.Join(levels, ".")+"."+table))}
}

func readOnly(allow string) error {
	return &failure{
		status: http.StatusMethodNotAllowed, kind: "UnsupportedOperationException", allow: allow,
		message: "this catalog is read-only: tables change through varve's log (varve produce, varve delete, varve table)",
	}
}

var errNoPath = &failure{status: http.StatusNotFound, kind: "NotFoundException", message: "no such path; this catalog serves /v1/config and the endpoints named there, without a prefix"}

// shown bounds what of a request is repeated in an answer.
func shown(s string) string {
	if len(s) > 300 {
		s = s[:300] + "…"
	}
	return strings.ToValidUTF8(s, "\ufffd")
}

// ServeHTTP answers one request.
func (c *Catalog) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	default:
		w.Header().Set("Retry-After", "1")
		c.fail(w, r, &failure{status: http.StatusServiceUnavailable, kind: "ServiceUnavailableException", message: "too many requests at a time; try again"})
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), requestTime)
	defer cancel()
	if err := c.admit(r); err != nil {
		if err.status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", `Bearer realm="varve"`)
		}
		c.fail(w, r, err)
		return
	}
	if err := c.route(ctx, w, r); err != nil {
		c.fail(w, r, err)
	}
}

// admit refuses who may not ask.
func (c *Catalog) admit(r *http.Request) *failure {
	if c.opt.Token == "" {
		// A page in a browser may reach a loopback port under a name of its own
		// (DNS rebinding); it cannot take a loopback name for that.
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		if !IsLoopback(host) {
			return &failure{status: http.StatusForbidden, kind: "ForbiddenException", message: "this catalog answers on 127.0.0.1, ::1 and localhost only; with a token it answers under any name"}
		}
		return nil
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	got := sha256.Sum256([]byte(strings.TrimSpace(token)))
	if subtle.ConstantTimeCompare(got[:], c.token[:]) != 1 || !strings.EqualFold(scheme, "Bearer") {
		return &failure{status: http.StatusUnauthorized, kind: "NotAuthorizedException", message: "this catalog wants its bearer token (Authorization: Bearer …)"}
	}
	return nil
}

// IsLoopback tells whether a host without its port is this machine for sure.
func IsLoopback(host string) bool {
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback() || strings.EqualFold(host, "localhost")
}

// route finds the endpoint by the segments of the path, as they were sent: a
// %2F or a %2E%2E stays within its segment.
func (c *Catalog) route(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
	path := r.URL.EscapedPath()
	if len(path) > maxPathBytes {
		return bad("the path has %d bytes, at most %d are taken", len(path), maxPathBytes)
	}
	var segments []string
	for s := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		s, err := url.PathUnescape(s)
		if err != nil {
			return bad("the path has a wrong escape (%%…)")
		}
		segments = append(segments, s)
	}
	if r.Body != nil && r.Method != http.MethodGet && r.Method != http.MethodHead {
		// What is sent is of no interest; a client that is still sending hears
		// no answer.
		if _, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, maxBodyBytes)); err != nil {
			var tooLarge *http.MaxBytesError
			if errors.As(err, &tooLarge) {
				return &failure{status: http.StatusRequestEntityTooLarge, kind: "BadRequestException", message: fmt.Sprintf("a body has at most %d bytes", maxBodyBytes)}
			}
			return bad("the body cannot be read")
		}
	}
	if segments[0] != "v1" || len(segments) < 2 {
		return errNoPath
	}
	segments = segments[1:]
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	get := func(answer func() error) error {
		if !read {
			return readOnly("GET, HEAD")
		}
		return answer()
	}
	switch segments[0] {
	case "config":
		if len(segments) == 1 {
			return get(func() error { return c.config(w, r) })
		}
	case "oauth":
		return bad("this catalog gives out no tokens; set its bearer token in the client (property token), or none")
	case "namespaces":
		return c.underNamespaces(ctx, w, r, segments[1:], get)
	case "tables", "transactions", "views":
		if len(segments) == 2 && (segments[1] == "rename" || segments[1] == "commit") && !read {
			return readOnly("")
		}
	}
	return errNoPath
}

func (c *Catalog) underNamespaces(ctx context.Context, w http.ResponseWriter, r *http.Request, segments []string, get func(func() error) error) error {
	if len(segments) == 0 {
		return get(func() error { return c.listNamespaces(ctx, w, r) })
	}
	levels := strings.Split(segments[0], separator)
	namespace, ok := namespaceOf(levels)
	if !ok {
		return noNamespace(levels)
	}
	// there is called before a listing within a namespace.
	there := func() error {
		ok, err := c.namespaceExists(ctx, namespace)
		if err == nil && !ok {
			err = noNamespace(levels)
		}
		return err
	}
	switch rest := segments[1:]; {
	case len(rest) == 0:
		return get(func() error { return c.getNamespace(w, r, levels, there) })
	case len(rest) == 1 && rest[0] == "tables":
		return get(func() error { return c.listTables(ctx, w, r, levels, namespace, there) })
	case len(rest) == 1 && (rest[0] == "views" || rest[0] == "functions"):
		return get(func() error {
			if err := there(); err != nil {
				return err
			}
			return write(w, r, map[string]any{"identifiers": []string{}, "next-page-token": nil})
		})
	case len(rest) == 1 && (rest[0] == "properties" || rest[0] == "register" || rest[0] == "register-view"):
		return readOnly("")
	case len(rest) == 2 && rest[0] == "views":
		return get(func() error {
			return &failure{status: http.StatusNotFound, kind: "NoSuchViewException", message: "this catalog has no views"}
		})
	case len(rest) == 2 && rest[0] == "tables":
		if _, ok := tableOf(namespace, rest[1]); !ok {
			return noTable(levels, rest[1])
		}
		return get(func() error { return c.getTable(ctx, w, r, levels, namespace, rest[1]) })
	case len(rest) == 3 && rest[0] == "tables" && rest[2] == "metrics":
		if r.Method != http.MethodPost {
			return &failure{status: http.StatusMethodNotAllowed, kind: "UnsupportedOperationException", allow: http.MethodPost, message: "metrics are reported by POST"}
		}
		w.WriteHeader(http.StatusNoContent) // taken, and of no use to anybody here
		return nil
	}
	return errNoPath
}

func (c *Catalog) config(w http.ResponseWriter, r *http.Request) error {
	defaults := c.opt.TableConfig
	if defaults == nil {
		defaults = map[string]string{}
	}
	return write(w, r, map[string]any{"defaults": defaults, "overrides": map[string]string{}, "endpoints": endpoints})
}

func (c *Catalog) listNamespaces(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return bad("the query cannot be read")
	}
	parent, levels := "", []string(nil)
	if p := q.Get("parent"); p != "" {
		levels = strings.Split(p, separator)
		var ok bool
		if parent, ok = namespaceOf(levels); !ok {
			return noNamespace(levels)
		}
	}
	all, found, err := c.children(ctx, parent)
	if err != nil {
		return err
	}
	if !found {
		return noNamespace(levels)
	}
	page, next, err := pageOf(q, all, func(n []string) string { return strings.Join(n, separator) })
	if err != nil {
		return err
	}
	return write(w, r, map[string]any{"namespaces": page, "next-page-token": next})
}

func (c *Catalog) getNamespace(w http.ResponseWriter, r *http.Request, levels []string, there func() error) error {
	if err := there(); err != nil {
		return err
	}
	if r.Method == http.MethodHead {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return write(w, r, map[string]any{"namespace": levels, "properties": map[string]string{}})
}

func (c *Catalog) listTables(ctx context.Context, w http.ResponseWriter, r *http.Request, levels []string, namespace string, there func() error) error {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return bad("the query cannot be read")
	}
	if err := there(); err != nil {
		return err
	}
	all, err := c.tables(ctx, namespace)
	if err != nil {
		return err
	}
	page, next, err := pageOf(q, all, func(n string) string { return n })
	if err != nil {
		return err
	}
	type identifier struct {
		Namespace []string `json:"namespace"`
		Name      string   `json:"name"`
	}
	out := make([]identifier, len(page))
	for i, name := range page {
		out[i] = identifier{levels, name}
	}
	return write(w, r, map[string]any{"identifiers": out, "next-page-token": next})
}

// pageOf is a page of a sorted listing and the token of the next one (nil: it
// is the last). Who sends no pageToken gets all; an empty one is the first page.
func pageOf[T any](q url.Values, all []T, name func(T) string) ([]T, *string, error) {
	if all == nil {
		all = []T{}
	}
	size := maxPage
	if s := q.Get("pageSize"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			return nil, nil, bad("pageSize %q: write a number from 1 on", shown(s))
		}
		size = min(n, maxPage)
	}
	if !q.Has("pageToken") {
		return all, nil, nil
	}
	after, err := base64.RawURLEncoding.DecodeString(q.Get("pageToken"))
	if err != nil {
		return nil, nil, bad("pageToken is none that this catalog gave")
	}
	from := 0
	if len(after) > 0 {
		at, found := slices.BinarySearchFunc(all, string(after), func(n T, after string) int { return strings.Compare(name(n), after) })
		if from = at; found {
			from++
		}
	}
	page := all[from:min(from+size, len(all))]
	if from+len(page) == len(all) {
		return page, nil, nil
	}
	next := base64.RawURLEncoding.EncodeToString([]byte(name(page[len(page)-1])))
	return page, &next, nil
}

func (c *Catalog) getTable(ctx context.Context, w http.ResponseWriter, r *http.Request, levels []string, namespace, table string) error {
	key, err := c.key(ctx, namespace, table)
	if err != nil {
		return err
	}
	if key == "" {
		return noTable(levels, table)
	}
	if r.Method == http.MethodHead {
		_, _, ok, err := c.files.Published(ctx, key)
		if err == nil && !ok {
			err = noTable(levels, table)
		}
		if err == nil {
			w.WriteHeader(http.StatusNoContent)
		}
		return err
	}
	refs := false
	switch s := r.URL.Query().Get("snapshots"); s {
	case "", "all":
	case "refs":
		refs = true
	default:
		return bad("snapshots=%s: write all or refs", shown(s))
	}
	a, err := c.load(ctx, key, refs)
	if err != nil {
		return err
	}
	if a == nil {
		return noTable(levels, table)
	}
	w.Header().Set("ETag", a.etag)
	if matches(r.Header.Get("If-None-Match"), a.etag) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	return send(w, http.StatusOK, a.body)
}

// matches tells whether an If-None-Match names an entity tag.
func matches(header, etag string) bool {
	for t := range strings.SplitSeq(header, ",") {
		if t = strings.TrimSpace(t); t == "*" || strings.TrimPrefix(t, "W/") == etag {
			return true
		}
	}
	return false
}

func write(w http.ResponseWriter, r *http.Request, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if r.Method == http.MethodHead {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		return nil
	}
	return send(w, http.StatusOK, b)
}

func send(w http.ResponseWriter, status int, body []byte) error {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	// A client that went away is no fault of the catalog's, and cannot be told.
	_, _ = w.Write(body)
	return nil
}

// fail answers with an error. What went wrong inside is logged, not told: it
// may name files of the store.
func (c *Catalog) fail(w http.ResponseWriter, r *http.Request, err error) {
	var f *failure
	if !errors.As(err, &f) {
		f = &failure{status: http.StatusServiceUnavailable, kind: "ServiceUnavailableException", message: "the warehouse cannot be read now; the server's log says why"}
		if errors.Is(err, errNotMetadata) || errors.Is(err, objstore.ErrTooLarge) || errors.Is(err, errTooMany) {
			f = &failure{status: http.StatusInternalServerError, kind: "InternalServerError", message: "the table's metadata cannot be served; the server's log says why"}
		}
		if r.Context().Err() == nil {
			c.opt.Logger.Error("catalog request failed", "method", r.Method, "path", shown(r.URL.EscapedPath()), "error", err)
		}
	}
	if f.allow != "" {
		w.Header().Set("Allow", f.allow)
	}
	if r.Method == http.MethodHead {
		w.WriteHeader(f.status)
		return
	}
	b, err := json.Marshal(map[string]any{"error": map[string]any{"message": f.message, "type": f.kind, "code": f.status}})
	if err != nil {
		c.opt.Logger.Error("catalog error not written", "error", err)
		return
	}
	_ = send(w, f.status, b) // never an error
}

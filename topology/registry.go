package topology

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/varve-io/varve/schemas/source"
)

// Limits on what a schema registry is asked.
const (
	// DefaultRegistryTimeout bounds one request; the shard that asks waits for it.
	DefaultRegistryTimeout = 3 * time.Second
	// registryGrace is how long a schema that the registry does not have may
	// still come: a follower may be behind the node where it was registered.
	registryGrace = 2 * time.Second
	// registryPause is how long after a failure nothing is asked.
	registryPause = 500 * time.Millisecond
	// registryForget is how long an answer of "no" is believed.
	registryForget = 10 * time.Second

	maxRegistrySchemas    = 4096 // remembered; then all are forgotten
	maxRegistryReferences = 100  // of one schema, all levels
	maxRegistryMissing    = 1024
)

// RegistryOptions say where a schema registry is and how to log in. Secrets
// are read from their files at each request: files may change.
type RegistryOptions struct {
	// URLs are tried in turn. At least one is needed.
	URLs []string
	// CAFile, CertFile, KeyFile: as in Security.
	CAFile, CertFile, KeyFile string
	// User and its Password, or the PasswordFile that holds it.
	User, Password, PasswordFile string
	// Token is a bearer token, or TokenFile holds it; instead of a user.
	Token, TokenFile string
	// Timeout of one request. Default: DefaultRegistryTimeout.
	Timeout time.Duration
}

// Registry is a client of a schema registry that speaks Confluent's protocol.
// What it learned it keeps. It may be used by many goroutines.
type Registry struct {
	opt    RegistryOptions
	client *sr.Client

	mu      sync.Mutex
	known   map[source.SchemaRef]source.WriterSchema
	missing map[source.SchemaRef]time.Time // since when
	away    error                          // the newest request's failure
	awayTo  time.Time                      // until then nothing is asked
	now     func() time.Time
}

// NewRegistry makes a client; it asks nothing yet. Errors are the
// configuration's.
func NewRegistry(o RegistryOptions) (*Registry, error) {
	fail := func(format string, args ...any) (*Registry, error) {
		return nil, fmt.Errorf("%w: schema registry: "+format, append([]any{ErrConfig}, args...)...)
	}
	if len(o.URLs) == 0 {
		return fail("name at least one URL")
	}
	for _, u := range o.URLs {
		p, err := url.Parse(u)
		if err != nil || p.Scheme != "http" && p.Scheme != "https" || p.Host == "" {
			return fail("a URL begins with http:// or https:// and names a host")
		}
		if p.User != nil {
			return fail("%s: a URL holds no credentials; name the user, and its password in a file or the environment", p.Host)
		}
	}
	switch {
	case o.User != "" && (o.Token != "" || o.TokenFile != ""):
		return fail("a user and a token are given; one of them is enough")
	case o.User == "" && (o.Password != "" || o.PasswordFile != ""):
		return fail("a password is given, but no user")
	}
	if o.Timeout <= 0 {
		o.Timeout = DefaultRegistryTimeout
	}
	security := Security{CAFile: o.CAFile, CertFile: o.CertFile, KeyFile: o.KeyFile}
	t, err := security.tls()
	if err != nil {
		return fail("%w", err)
	}
	r := &Registry{opt: o, known: map[source.SchemaRef]source.WriterSchema{}, missing: map[source.SchemaRef]time.Time{}, now: time.Now}
	if err := r.authorize(&http.Request{Header: http.Header{}}); err != nil {
		return fail("%w", err)
	}
	r.client, err = sr.NewClient(sr.URLs(append([]string(nil), o.URLs...)...), sr.UserAgent("varve"),
		sr.HTTPClient(&http.Client{Timeout: o.Timeout, Transport: registryTransport(t)}), sr.PreReq(r.authorize))
	if err != nil {
		return fail("%w", err)
	}
	return r, nil
}

// maxRegistryAnswer bounds one answer's bytes.
const maxRegistryAnswer = 8 << 20

// registryTransport speaks TLS by t and bounds what it reads.
func registryTransport(t *tls.Config) http.RoundTripper {
	tr := http.DefaultTransport.(*http.Transport).Clone()
	tr.TLSClientConfig = t
	return boundedTransport{tr}
}

type boundedTransport struct{ next http.RoundTripper }

func (b boundedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.next.RoundTrip(req)
	if err == nil {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxRegistryAnswer)
	}
	return resp, err
}

// authorize adds the credentials to a request.
func (r *Registry) authorize(req *http.Request) error {
	secret := func(value, file string) (string, error) {
		if file == "" {
			return value, nil
		}
		b, err := readSecret(file)
		return strings.TrimSpace(string(b)), err
	}
	switch {
	case r.opt.User != "":
		p, err := secret(r.opt.Password, r.opt.PasswordFile)
		if err != nil {
			return err
		}
		req.SetBasicAuth(r.opt.User, p)
	case r.opt.Token != "" || r.opt.TokenFile != "":
		t, err := secret(r.opt.Token, r.opt.TokenFile)
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+t)
	}
	return nil
}

// WriterSchema is source.SchemaSource's: at once for what is known, else after
// one request, or a few for a schema with references.
func (r *Registry) WriterSchema(ref source.SchemaRef) (source.WriterSchema, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s, ok := r.known[ref]; ok {
		return s, nil
	}
	now := r.now()
	if now.Before(r.awayTo) {
		return source.WriterSchema{}, r.away
	}
	since, asked := r.missing[ref]
	if asked && now.Sub(since) >= registryGrace && now.Sub(since) < registryForget {
		return source.WriterSchema{}, fmt.Errorf("%s: %w", ref, source.ErrNoSchema)
	}
	ctx, cancel := context.WithTimeout(context.Background(), r.opt.Timeout)
	defer cancel()
	s, err := r.fetch(ctx, ref)
	switch {
	case err == nil:
		if len(r.known) >= maxRegistrySchemas {
			clear(r.known)
		}
		r.known[ref] = s
		delete(r.missing, ref)
		return s, nil
	case !isMissing(err):
		r.away, r.awayTo = fmt.Errorf("%w: %s: %w", source.ErrAway, ref, err), r.now().Add(registryPause)
		return s, r.away
	}
	if !asked || now.Sub(since) >= registryForget {
		if len(r.missing) >= maxRegistryMissing {
			clear(r.missing)
		}
		r.missing[ref], since = now, now
	}
	if now.Sub(since) < registryGrace {
		return s, fmt.Errorf("%w: it does not have %s yet", source.ErrAway, ref)
	}
	return s, fmt.Errorf("%s: %w", ref, source.ErrNoSchema)
}

// isMissing says that the registry answered that it has no such schema. Another
// "not found" comes from something that is no registry.
func isMissing(err error) bool {
	var e *sr.ResponseError
	return errors.As(err, &e) && e.StatusCode == http.StatusNotFound && e.ErrorCode >= 40401 && e.ErrorCode <= 40499
}

func (r *Registry) fetch(ctx context.Context, ref source.SchemaRef) (source.WriterSchema, error) {
	var s sr.Schema
	var err error
	if ref.ByGUID {
		var x sr.SubjectSchema
		x, err = r.client.SchemaByGUID(ctx, strings.TrimPrefix(ref.String(), "schema "))
		s = x.Schema
	} else {
		s, err = r.client.SchemaByID(ctx, int(ref.ID))
	}
	if err != nil {
		return source.WriterSchema{}, r.plainError(err)
	}
	out := source.WriterSchema{Type: s.Type.String(), Text: s.Schema}
	err = r.references(ctx, s.References, map[string]bool{}, &out)
	return out, err
}

// references fetches what a schema refers to, each behind what it refers to itself.
func (r *Registry) references(ctx context.Context, refs []sr.SchemaReference, seen map[string]bool, out *source.WriterSchema) error {
	for _, x := range refs {
		id := fmt.Sprintf("%q %d", x.Subject, x.Version)
		if seen[id] {
			continue
		}
		if seen[id] = true; len(seen) > maxRegistryReferences {
			return fmt.Errorf("a schema refers to more than %d others", maxRegistryReferences)
		}
		s, err := r.client.SchemaByVersion(ctx, x.Subject, x.Version)
		if err != nil {
			return r.plainError(err)
		}
		if err := r.references(ctx, s.References, seen, out); err != nil {
			return err
		}
		out.References, out.Names = append(out.References, s.Schema.Schema), append(out.Names, x.Name)
	}
	return nil
}

// plainError says what happened without an answer's body, which may be a page.
func (r *Registry) plainError(err error) error {
	var e *sr.ResponseError
	if !errors.As(err, &e) {
		return fmt.Errorf("ask %s: %w", strings.Join(r.opt.URLs, ", "), err)
	}
	hint := ""
	switch e.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		hint = "; check its user and password, or its token"
	case http.StatusNotFound:
		if !isMissing(e) {
			hint = "; is this the URL of a schema registry?"
		}
	}
	return fmt.Errorf("%s answered %d%s%w", strings.Join(r.opt.URLs, ", "), e.StatusCode, hint, unsaid{e})
}

// unsaid is an error that others find, but nobody reads.
type unsaid struct{ error }

func (unsaid) Error() string   { return "" }
func (q unsaid) Unwrap() error { return q.error }

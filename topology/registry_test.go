package topology

import (
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/varve-io/varve/schemas/source"
)

// registered starts a registry with one Avro schema, which refers to another.
func registered(t *testing.T, opts ...srfake.Option) (reg *srfake.Registry, id int, guid string) {
	t.Helper()
	reg = srfake.New(opts...)
	t.Cleanup(reg.Close)
	inner := sr.Schema{Schema: `{"type":"record","name":"Inner","namespace":"n","fields":[{"name":"a","type":"int"}]}`}
	if _, _, err := reg.RegisterSchema("inner", inner); err != nil {
		t.Fatal(err)
	}
	id, v, err := reg.RegisterSchema("t-value", sr.Schema{Schema: `{"type":"record","name":"T","namespace":"n","fields":[{"name":"x","type":"Inner"}]}`,
		References: []sr.SchemaReference{{Name: "n.Inner", Subject: "inner", Version: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	s, _ := reg.GetSchema("t-value", v)
	return reg, id, s.GUID
}

func newRegistry(t *testing.T, o RegistryOptions) *Registry {
	t.Helper()
	r, err := NewRegistry(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A schema comes with what it refers to, is asked for once, and is known after
// the registry has gone.
func TestRegistrySchemas(t *testing.T) {
	reg, id, guid := registered(t)
	r := newRegistry(t, RegistryOptions{URLs: []string{reg.URL()}})
	refs := []source.SchemaRef{{ID: uint32(id)}}
	if guid != "" {
		ref := source.SchemaRef{ByGUID: true}
		raw := strings.ReplaceAll(guid, "-", "")
		for i := range ref.GUID {
			ref.GUID[i] = nibble(raw[2*i])<<4 | nibble(raw[2*i+1])
		}
		refs = append(refs, ref)
	}
	check := func() {
		for _, ref := range refs {
			s, err := r.WriterSchema(ref)
			if err != nil || s.Type != source.TypeAvro || !strings.Contains(s.Text, `"T"`) || len(s.References) != 1 || !strings.Contains(s.References[0], "Inner") {
				t.Fatalf("%s: %+v %v", ref, s, err)
			}
		}
	}
	check()
	reg.Close()
	check()
	if _, err := r.WriterSchema(source.SchemaRef{ID: 9}); !errors.Is(err, source.ErrAway) {
		t.Fatalf("an unknown schema of a registry that is gone: %v", err)
	}
}

func nibble(c byte) byte {
	if c >= 'a' {
		return c - 'a' + 10
	}
	return c - '0'
}

// What the registry does not have may still come for a while; then it has not.
func TestRegistryMissing(t *testing.T) {
	reg, _, _ := registered(t)
	r := newRegistry(t, RegistryOptions{URLs: []string{reg.URL()}})
	now := time.Unix(1000, 0)
	r.now = func() time.Time { return now }
	ref := source.SchemaRef{ID: 3}
	want := func(sentinel error) {
		t.Helper()
		if _, err := r.WriterSchema(ref); !errors.Is(err, sentinel) {
			t.Fatalf("%v, want %v", err, sentinel)
		}
	}
	want(source.ErrAway)
	now = now.Add(registryGrace - 1)
	want(source.ErrAway)
	now = now.Add(1)
	want(source.ErrNoSchema)
	reg.SeedSchema("late", 1, 3, sr.Schema{Schema: `"long"`})
	want(source.ErrNoSchema) // believed for a while
	now = now.Add(registryForget)
	if s, err := r.WriterSchema(ref); err != nil || s.Text != `"long"` {
		t.Fatal(s, err)
	}
}

// Failures of every kind are "away": none says anything of an event. After one
// the registry has a rest.
func TestRegistryAway(t *testing.T) {
	status, asked := 500, 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		if status == 200 {
			_, _ = w.Write([]byte(`{"schema":"\"int\""}`))
			return
		}
		if status == 201 {
			_, _ = w.Write([]byte(`not JSON`))
			return
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(`<html>secret page</html>`))
	}))
	defer srv.Close()
	r := newRegistry(t, RegistryOptions{URLs: []string{srv.URL}})
	now := time.Unix(1000, 0)
	r.now = func() time.Time { return now }
	for _, status = range []int{500, 503, 404, 401, 429, 201} {
		now = now.Add(registryPause)
		before := asked
		for range 3 {
			_, err := r.WriterSchema(source.SchemaRef{ID: 1})
			if !errors.Is(err, source.ErrAway) || strings.Contains(err.Error(), "secret") {
				t.Fatalf("status %d: %v", status, err)
			}
		}
		if asked != before+1 {
			t.Fatalf("status %d: asked %d times in one rest", status, asked-before)
		}
	}
	status, now = 200, now.Add(registryPause)
	if s, err := r.WriterSchema(source.SchemaRef{ID: 1}); err != nil || s.Text != `"int"` {
		t.Fatal(s, err)
	}
}

func TestRegistryLogin(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("s3cr3t\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		auth string
		o    RegistryOptions
	}{
		{"Bearer s3cr3t", RegistryOptions{TokenFile: secret}},
		{"Bearer x", RegistryOptions{Token: "x"}},
		{"Basic dTpzM2NyM3Q=", RegistryOptions{User: "u", PasswordFile: secret}},
		{"Basic dTpw", RegistryOptions{User: "u", Password: "p"}},
	} {
		reg, id, _ := registered(t, srfake.WithAuth(c.auth))
		c.o.URLs = []string{reg.URL()}
		if _, err := newRegistry(t, c.o).WriterSchema(source.SchemaRef{ID: uint32(id)}); err != nil {
			t.Errorf("%s: %v", c.auth, err)
		}
		if _, err := newRegistry(t, RegistryOptions{URLs: c.o.URLs}).WriterSchema(source.SchemaRef{ID: uint32(id)}); !errors.Is(err, source.ErrAway) || !strings.Contains(err.Error(), "check its user") {
			t.Errorf("without a login: %v", err)
		}
	}
	for _, o := range []RegistryOptions{{}, {URLs: []string{"localhost:8081"}}, {URLs: []string{"http://u:p@h"}}, {URLs: []string{"http://h"}, User: "u", Token: "t"},
		{URLs: []string{"http://h"}, Password: "p"}, {URLs: []string{"http://h"}, CAFile: "/not/there"}, {URLs: []string{"http://h"}, TokenFile: "/not/there"}} {
		if _, err := NewRegistry(o); !errors.Is(err, ErrConfig) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// TLS by an authority of its own; the second URL serves when the first is away.
func TestRegistryTLS(t *testing.T) {
	reg, id, _ := registered(t)
	srv := httptest.NewTLSServer(reg.Handler())
	defer srv.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	ref := source.SchemaRef{ID: uint32(id)}
	r := newRegistry(t, RegistryOptions{URLs: []string{"https://127.0.0.1:1", srv.URL}, CAFile: ca})
	if _, err := r.WriterSchema(ref); err != nil {
		t.Fatal(err)
	}
	if _, err := newRegistry(t, RegistryOptions{URLs: []string{srv.URL}}).WriterSchema(ref); !errors.Is(err, source.ErrAway) {
		t.Fatalf("an authority that nobody named: %v", err)
	}
}

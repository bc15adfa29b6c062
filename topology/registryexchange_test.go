package topology

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/schemas/source"
)

// exchanged is one request and what a registry answered.
type exchanged struct {
	Request string `json:"request"` // method and path
	Sent    string `json:"sent,omitempty"`
	Status  int    `json:"status"`
	Answer  string `json:"answer"`
}

const exchangeFile = "testdata/registry-apicurio-2.6.13.jsonl"

// registryOf is the recorded registry, or, with VARVE_REGISTRY, a real one that
// speaks Confluent's protocol, whose answers are recorded anew: an empty one, as
// topology/testcluster/registry.sh brings and starts.
func registryOf(t *testing.T) string {
	t.Helper()
	var mu sync.Mutex
	var all []exchanged
	real := os.Getenv("VARVE_REGISTRY")
	if real == "" {
		f, err := os.Open(exchangeFile)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for s := bufio.NewScanner(f); s.Scan(); {
			var x exchanged
			if err := json.Unmarshal(s.Bytes(), &x); err != nil {
				t.Fatal(err)
			}
			all = append(all, x)
		}
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		name := r.Method + " " + r.URL.RequestURI()
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if real == "" {
			for i, x := range all {
				if x.Request == name && x.Sent == string(body) {
					all = append(all[:i:i], all[i+1:]...)
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(x.Status)
					_, _ = io.WriteString(w, x.Answer)
					return
				}
			}
			t.Errorf("no answer is recorded for %s %s", name, body)
			w.WriteHeader(http.StatusTeapot)
			return
		}
		req, err := http.NewRequestWithContext(r.Context(), r.Method, strings.TrimSuffix(real, "/")+r.URL.RequestURI(), bytes.NewReader(body))
		if err != nil {
			t.Error(err)
			return
		}
		req.Header.Set("Content-Type", r.Header.Get("Content-Type"))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Error(err)
		}
		all = append(all, exchanged{name, string(body), resp.StatusCode, string(answer)})
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(resp.StatusCode)
		_, _ = w.Write(answer)
	}))
	t.Cleanup(func() {
		srv.Close()
		if real == "" || t.Failed() {
			return
		}
		var b bytes.Buffer
		for i := range all {
			line, err := json.Marshal(&all[i])
			if err != nil {
				t.Error(err)
			}
			b.Write(append(line, '\n'))
		}
		if err := os.MkdirAll(filepath.Dir(exchangeFile), 0o755); err != nil {
			t.Error(err)
		}
		if err := os.WriteFile(exchangeFile, b.Bytes(), 0o644); err != nil {
			t.Error(err)
		}
	})
	return srv.URL
}

// A registry that is not our own test server: what Apicurio Registry answers, by
// its Confluent-compatible interface, is understood, for Avro, Protobuf and JSON
// Schema, with references, and for schemas that it does not have.
func TestRegistryExchange(t *testing.T) {
	url := registryOf(t)
	cl, err := sr.NewClient(sr.URLs(url))
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	register := func(subject string, s sr.Schema) uint32 {
		t.Helper()
		x, err := cl.CreateSchema(ctx, subject, s)
		if err != nil {
			t.Fatal(err)
		}
		return uint32(x.ID)
	}
	register("inner", sr.Schema{Schema: `{"type":"record","name":"Inner","namespace":"n","fields":[{"name":"a","type":"int"}]}`})
	avro := register("t-value", sr.Schema{Schema: `{"type":"record","name":"T","namespace":"n","fields":[{"name":"id","type":"long"},{"name":"x","type":"n.Inner"}]}`,
		References: []sr.SchemaReference{{Name: "n.Inner", Subject: "inner", Version: 1}}})
	register("status", sr.Schema{Type: sr.TypeProtobuf, Schema: `syntax = "proto3"; package shop; enum Status { NEW = 0; PAID = 1; }`})
	proto := register("o-value", sr.Schema{Type: sr.TypeProtobuf, Schema: `syntax = "proto3"; import "status.proto"; message Order { int64 id = 1; shop.Status s = 2; }`,
		References: []sr.SchemaReference{{Name: "status.proto", Subject: "status", Version: 1}}})
	rowsJSON := register("j-value", sr.Schema{Type: sr.TypeJSON, Schema: `{"type":"object","properties":{"id":{"type":"integer"},"at":{"type":"string","format":"date-time"}},"required":["id"]}`})
	r := newRegistry(t, RegistryOptions{URLs: []string{url}})
	frame := func(id uint32, body ...byte) []byte {
		return append([]byte{0, byte(id >> 24), byte(id >> 16), byte(id >> 8), byte(id)}, body...)
	}
	for _, c := range []struct {
		format string
		value  []byte
	}{
		{source.RowsAvro, frame(avro, 14, 6)}, // id 7, a 3
		{source.RowsProtobuf, frame(proto, 0, 0x08, 7, 0x10, 1)},
		{source.RowsJSONSchema, frame(rowsJSON, []byte(`{"id":7,"at":"2026-08-01T10:00:00Z"}`)...)},
		{"rows-avro,rows-protobuf,rows-json-schema", frame(proto, 0, 0x08, 7, 0x10, 1)},
		{"rows-avro,rows-protobuf,rows-json-schema", frame(avro, 14, 6)},
	} {
		rec := source.Record{Value: c.value}
		s, notes, err := source.Discover(r, c.format, nil, []source.Record{rec}, []string{"id"})
		if err != nil {
			t.Fatalf("%s: %v %v", c.format, err, notes)
		}
		d := &schemas.Definition{Name: "t", Schemas: []schemas.Schema{*s}, Key: s.Identifier}
		dec, err := source.New(source.Options{Format: c.format, Def: d, Schema: d.Schema(), Registry: r})
		if err != nil {
			t.Fatal(err)
		}
		b := rows.NewBatch(d.Schema())
		if res, err := dec.Decode(b, &rec); err != nil || res.Events != 1 || b.Cols[0].Ints[0] != 7 || b.Cols[1].IsNull(0) {
			t.Errorf("%s: %+v %v", c.format, res, err)
		}
	}
	if _, err := r.WriterSchema(source.SchemaRef{ID: 4711}); !errors.Is(err, source.ErrAway) || !strings.Contains(err.Error(), "yet") {
		t.Errorf("a schema that it does not have: %v", err) // and may still get
	}
}

package main

import (
	"context"
	"crypto/sha256"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/topology"
)

// appendLost puts a record into the log of a stopped folder whose body is nowhere.
func appendLost(t *testing.T, data string) (offset int64, ref record.Ref) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	b, err := topology.OpenBroker(topology.BrokerOptions{Dir: filepath.Join(data, "broker")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	p, err := topology.NewLogProducer(topology.ClientOptions{Brokers: []string{b.Addr()}}, topology.ProducerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	ref = record.Ref{Length: 300 << 10, Hash: record.Hash(sha256.Sum256([]byte("lost")))}
	ref.Path = "_varve/varve/bodies/" + ref.Hash.String()
	env := record.Envelope{Type: record.TypeAlterTable, TypeVersion: record.BodyVersion(record.TypeAlterTable), ApplyVersion: 1, Table: "t", TableID: 1, Request: record.RequestID{1}, BodyRef: &ref}
	var m record.Message
	record.Encode(&m, &env)
	offset, err = p.AppendSync(ctx, "varve.transactions", 0, topology.Entry{
		Key: m.Key, Value: m.Value, Headers: []topology.Header{{Key: record.HeaderKey, Value: m.Header[:]}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return offset, ref
}

// L10: a record whose body is lost holds its partition until the body is back or
// an operator says for good that it is not; then everyone rejects the record, also
// a replay, and also when the body comes back.
func TestVoid(t *testing.T) {
	data := threeLoads(t)
	fails(t, exitUsage, []string{"has its outcome"}, "transaction", "void", "--data", data, "--partition", "0", "--offset", "1")
	offset, ref := appendLost(t, data)
	at := strconv.FormatInt(offset, 10)
	fails(t, exitUsage, []string{"--partition P and --offset O"}, "transaction", "void", "--data", data, "--offset", at)
	fails(t, exitUsage, []string{"there is no record at"}, "transaction", "void", "--data", data, "--partition", "0", "--offset", strconv.FormatInt(offset+1, 10))
	fails(t, exitUsage, []string{"go together"}, "transaction", "void", "--data", data, "--partition", "0", "--offset", at, "--hash", "ab")
	body := filepath.Join(data, "lake", filepath.FromSlash(ref.Path))
	if err := os.MkdirAll(filepath.Dir(body), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(body, []byte("something else"), 0o644); err != nil {
		t.Fatal(err)
	}
	fails(t, exitUsage, []string{"nothing was declared void", "other bytes"}, "transaction", "void", "--data", data, "--partition", "0", "--offset", at)
	if err := os.Remove(body); err != nil {
		t.Fatal(err)
	}
	for range 2 { // saying it again changes nothing
		if out := run(t, "transaction", "void", "--data", data, "--partition", "0", "--offset", at, "--output", "json"); !strings.Contains(out, ref.Path) {
			t.Errorf("void prints %s", out)
		}
	}
	if err := os.WriteFile(body, []byte("back, and wrong"), 0o644); err != nil {
		t.Fatal(err)
	}
	found := false
	for _, l := range strings.Split(run(t, "transaction", "list", "t", "--data", data, "--all", "--output", "jsonl"), "\n") {
		if strings.Contains(l, `"offset":`+at+`,`) {
			found = strings.Contains(l, `"rejected"`) && strings.Contains(l, `"undecodable"`)
		}
	}
	if !found {
		t.Errorf("the record at %s is not rejected as undecodable", at)
	}
	run(t, "load", "--data", data, "--table", "t", "--format", "rows-json", writeFile(t, "events.jsonl", `{"id":9,"v":"after"}`+"\n"))
	if out := run(t, "scan", "t", "--data", data, "--output", "csv"); !strings.Contains(out, "9,after") {
		t.Errorf("after the void the table is\n%s", out)
	}
	run(t, "replay", "--data", data, "--into", filepath.Join(t.TempDir(), "again"), "--compare")
}

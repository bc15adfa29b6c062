package compactor_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/processors/compactor"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/statestore/objstore"
)

// badStore keeps something else than it was given of each data file of a job.
type badStore struct {
	*objstore.Mem
	keep func(b []byte) []byte // nil: nothing
}

func (s *badStore) Writer(ctx context.Context, key string) (objstore.Writer, error) {
	if !strings.Contains(key, "/data/") {
		return s.Mem.Writer(ctx, key)
	}
	return &badWriter{s: s, ctx: ctx, key: key}, nil
}

type badWriter struct {
	bytes.Buffer
	s   *badStore
	ctx context.Context
	key string
}

func (w *badWriter) Commit() error {
	if b := w.s.keep(w.Bytes()); b != nil {
		return w.s.Create(w.ctx, w.key, b)
	}
	return nil
}

func (w *badWriter) Abort() error { return nil }

// TestOutputsAreReadBack: a job whose output is not in the store as it was written
// has no completion, and the error names the output. (Nobody else looks at its
// bytes before the table lists it.)
func TestOutputsAreReadBack(t *testing.T) {
	file := func(schema *schemas.Schema, from, n int) []byte {
		b := rows.NewBatch(schema)
		for i := range n {
			b.Cols[0].AppendInt(int64(from + i))
			b.AppendEvent(rows.Upsert, int64(i), 0, false)
		}
		var buf bytes.Buffer
		w, err := rows.NewWriter(&buf, rows.WriteOptions{Schema: schema})
		if err == nil {
			err = w.Append(b, nil, rows.Extra{})
		}
		if err == nil {
			_, err = w.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		return buf.Bytes()
	}
	for _, c := range []struct {
		name string
		keep func(schema *schemas.Schema, b []byte) []byte
		want string // "": the job completes
	}{
		{"whole", func(_ *schemas.Schema, b []byte) []byte { return b }, ""},
		{"missing", func(*schemas.Schema, []byte) []byte { return nil }, "no such object"},
		{"empty", func(*schemas.Schema, []byte) []byte { return []byte{} }, "read back"},
		{"truncated", func(_ *schemas.Schema, b []byte) []byte { return b[:len(b)-9] }, "read back"},
		{"longer", func(_ *schemas.Schema, b []byte) []byte { return append(b[:len(b):len(b)], b...) }, "read back"},
		{"another file with fewer rows", func(s *schemas.Schema, _ []byte) []byte { return file(s, 0, 29) }, "29 rows in"},
	} {
		t.Run(c.name, func(t *testing.T) {
			mem := objstore.NewMem()
			def := schemas.Definition{
				Name: "t", Location: mem.Location("t"), FormatVersion: 3, Mode: schemas.ModeDV, LastColumnID: 1, LastPartitionID: 999, Key: []int32{1},
				Schemas: []schemas.Schema{{Fields: []schemas.Field{{ID: 1, Name: "id", Type: schemas.Of(schemas.Long), Required: true}}}}, Specs: []schemas.Spec{{}},
			}
			schema := &def.Schemas[0]
			bodies := processors.NewBodies(mem, "test")
			b, err := record.EncodeDefinition(nil, &def)
			if err != nil {
				t.Fatal(err)
			}
			d := &record.Dispatch{Job: record.JobID{Plan: 9, Item: 2, Attempt: 1}, Table: "t", TableID: 1, TargetBytes: 1 << 20}
			if d.Definition, err = bodies.Put(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			for i := range 3 {
				b, key := file(schema, 10*i, 10), fmt.Sprintf("t/data/%d.parquet", i)
				if err := mem.Create(t.Context(), key, b); err != nil {
					t.Fatal(err)
				}
				d.Inputs = append(d.Inputs, record.DispatchInput{File: uint64(i + 1), Path: mem.Location(key), Rows: 10, Bytes: int64(len(b)), Hi: 10})
			}
			store := &badStore{Mem: mem, keep: func(b []byte) []byte { return c.keep(schema, b) }}
			e := compactor.Executor{Store: store, Bodies: bodies}
			done, err := e.Execute(t.Context(), d, func(compactor.Progress) {})
			if c.want == "" {
				if err != nil || len(done.Job.Outputs) != 1 || done.Job.Outputs[0].Rows != 30 {
					t.Errorf("%v %+v", err, done)
				}
				return
			}
			if done != nil || err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "t/data/") {
				t.Errorf("%+v, %v", done, err)
			}
		})
	}
}

package statestore_test

import (
	"encoding/binary"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

// logBuilder makes a log's records and applies them.
type logBuilder struct {
	t      testing.TB
	st     *statestore.Store
	next   int64
	timeMs int64
	made   []statestore.Record
}

var testDeployment = [16]byte{1, 2, 3}

func newLog(t testing.TB, dir string) *logBuilder {
	t.Helper()
	st, err := statestore.Open(dir, statestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l := &logBuilder{t: t, st: st, timeMs: 1_700_000_000_000}
	t.Cleanup(func() {
		if l.st != nil {
			if err := l.st.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return l
}

func requestID(n int64) (id record.RequestID) {
	binary.BigEndian.PutUint64(id[:], uint64(n)+1)
	return id
}

// raw encodes a record of any type.
func (l *logBuilder) raw(table string, id int64, v any) statestore.Record {
	l.t.Helper()
	body, err := record.EncodeBody(nil, v)
	if err != nil {
		l.t.Fatal(err)
	}
	env := record.Envelope{
		Type: record.TypeOf(v), TypeVersion: record.BodyVersion(record.TypeOf(v)), ApplyVersion: 1, Request: requestID(l.next), OffsetSeen: l.next - 1,
		Table: table, TableID: id, Body: body,
	}
	var m record.Message
	record.Encode(&m, &env)
	return statestore.Record{Key: m.Key, Header: m.Header[:], Value: m.Value}
}

// put applies a record at the next offset.
func (l *logBuilder) put(r statestore.Record) record.OutcomeMessage {
	l.t.Helper()
	r.Offset, r.TimeMs = l.next, l.timeMs
	out, err := l.st.Apply(&r)
	if err != nil {
		l.t.Fatal(err)
	}
	l.next++
	l.made = append(l.made, r)
	return out
}

func (l *logBuilder) do(table string, id int64, v any) record.OutcomeMessage {
	l.t.Helper()
	return l.put(l.raw(table, id, v))
}

func (l *logBuilder) commit() statestore.Outbox {
	l.t.Helper()
	o, err := l.st.Commit()
	if err != nil {
		l.t.Fatal(err)
	}
	return o
}

func (l *logBuilder) genesis() {
	l.t.Helper()
	out := l.do("", -1, &record.SetApplyVersion{Deployment: testDeployment, Partitions: 1, Partition: 0, Version: 1})
	if out.Outcome.Code != record.Accepted {
		l.t.Fatalf("genesis: %+v", out.Outcome)
	}
}

// definition is a table with a long key and a string column.
func definition(name string) schemas.Definition {
	return schemas.Definition{
		Name: name, Location: "file:///lake/default/" + name, FormatVersion: 3, Mode: schemas.ModeDV,
		Schemas: []schemas.Schema{{ID: 0, Identifier: []int32{1}, Fields: []schemas.Field{
			{ID: 1, Name: "id", Type: schemas.Of(schemas.Long), Required: true},
			{ID: 2, Name: "name", Type: schemas.Of(schemas.String)},
		}}},
		LastColumnID: 2, Specs: []schemas.Spec{{}}, LastPartitionID: 999, Key: []int32{1},
		SourceTopic: name, Format: "rows-json", CommitIntervalMs: 1000, TombstoneTTLMs: 1000, RetentionMs: 1000, RetentionCount: 2,
	}
}

func positions(p ...uint32) []byte {
	b, err := dv.AppendBitmap(nil, roaring.BitmapOf(p...))
	if err != nil {
		panic(err)
	}
	return b
}

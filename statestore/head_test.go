package statestore_test

import (
	"bytes"
	"testing"

	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

// TestHeadNamesItsRecord: the head has the checksum of the last record's bytes (L5),
// whatever came of the record, after its bytes were used again, after one that had to
// wait, and in a state that was opened again.
func TestHeadNamesItsRecord(t *testing.T) {
	dir := t.TempDir()
	l := newLog(t, dir)
	l.genesis()
	id := l.do("t", -1, &record.CreateTable{Definition: definition("t")}).TableID
	var want uint32
	check := func(when string) {
		t.Helper()
		if h := l.st.Head(); h.Checksum != want || h.Offset != l.next-1 {
			t.Errorf("%s: offset %d, checksum %08x, want %d and %08x", when, h.Offset, h.Checksum, l.next-1, want)
		}
	}
	for _, r := range []statestore.Record{
		l.raw("t", id, &record.ClaimShard{Shard: shardKey(0)}),
		l.raw("t", id+7, &record.ClaimShard{Shard: shardKey(0)}), // rejected
		{Key: []byte("t"), Value: []byte("no record")},
		{Control: true},
		l.raw("t", id, &record.ClaimShard{Shard: shardKey(1)}),
	} {
		r.Key, r.Header, r.Value = bytes.Clone(r.Key), bytes.Clone(r.Header), bytes.Clone(r.Value)
		want = r.Checksum()
		l.put(r)
		clear(r.Key)
		clear(r.Header)
		clear(r.Value)
		check("applied")
	}
	if _, err := l.st.Apply(&statestore.Record{Offset: l.next + 1}); err == nil {
		t.Error("a hole was applied")
	}
	check("after a record that was not applied")
	l.commit()
	check("committed")
	if err := l.st.Close(); err != nil {
		t.Fatal(err)
	}
	var err error
	if l.st, err = statestore.Open(dir, statestore.Options{}); err != nil {
		t.Fatal(err)
	}
	check("opened again")
}

package iceberg

import (
	"bytes"
	"reflect"
	"testing"
)

// No bytes make a decoder panic, and what it accepts it can say again.

func FuzzReadManifest(f *testing.F) {
	spec, types, values := everySpec()
	b, _, err := WriteManifest(manifestOptions(spec, types, Data), dataEntries(spec, tupleOf(values...)))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	b, _, err = WriteManifest(manifestOptions(unpartitioned, nil, Deletes), []Entry{
		{Status: Added, SnapshotID: ptr(int64(900)), File: vectorFile("p", "d", unpartitioned, nil)}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ReadManifest(b)
		if err != nil {
			return
		}
		if err := m.Inherit(&ManifestFile{AddedSnapshotID: 1, Sequence: 1, FirstRowID: ptr(int64(0))}); err != nil {
			return
		}
		for _, e := range m.Entries {
			if e.SnapshotID == nil || e.Sequence == nil || e.FileSequence == nil || e.File.Path == "" {
				t.Fatalf("incomplete entry %+v", e)
			}
		}
	})
}

func FuzzReadManifestList(f *testing.F) {
	b, err := WriteManifestList(testListOptions, testLines())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		lines, err := ReadManifestList(b)
		if err != nil {
			return
		}
		again, err := WriteManifestList(testListOptions, lines)
		if err != nil {
			return // a foreign list need not hold our rules
		}
		got, err := ReadManifestList(again)
		if err != nil || !reflect.DeepEqual(got, lines) {
			t.Fatalf("written again: %v\n got %+v\nwant %+v", err, got, lines)
		}
	})
}

func FuzzParseMetadata(f *testing.F) {
	f.Add([]byte(foreignMetadata))
	f.Add([]byte(`{"format-version":2,"table-uuid":"u","location":"l","last-sequence-number":0,"last-updated-ms":0,"last-column-id":0,` +
		`"schemas":[{"schema-id":0}],"current-schema-id":0,"partition-specs":[{"spec-id":0}],"default-spec-id":0}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ParseMetadata(b)
		if err != nil {
			return
		}
		first, err := m.Marshal()
		if err != nil {
			return // e.g. a foreign snapshot log that does not end at the current snapshot
		}
		again, err := ParseMetadata(first)
		if err != nil {
			t.Fatalf("own bytes refused: %v\n%s", err, first)
		}
		second, err := again.Marshal()
		if err != nil || !bytes.Equal(first, second) {
			t.Fatalf("not stable: %v\n%s\n%s", err, first, second)
		}
	})
}

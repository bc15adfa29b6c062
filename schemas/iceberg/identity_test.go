package iceberg

import "testing"

// Ids and names are the same in every build (S4, C2).
func TestIdentityIsPinned(t *testing.T) {
	a := Attempt{Table: testTable, BuildOffset: 900, ParentID: 11, BaseSequence: 3, BaseNextRowID: 70}
	id := testTable.SnapshotID(900, 0)
	for _, c := range []struct{ got, want string }{
		{testTable.UUID(), "5cde6c46-333b-8fa6-b4dc-6e3b94ff28a3"},
		{a.Hash(), "c23d2465b354f70ff905c3560206229c"},
		{a.ManifestName(id, 2), "c23d2465b354f70ff905c3560206229c-1440780663635631588-m2.avro"},
		{a.ListName(id), "snap-1440780663635631588-c23d2465b354f70ff905c3560206229c.avro"},
		{a.PuffinName(id, 0), "c23d2465b354f70ff905c3560206229c-1440780663635631588-dv0.puffin"},
		{MetadataName(7), "v7.metadata.json"},
	} {
		if c.got != c.want {
			t.Errorf("got %s, want %s", c.got, c.want)
		}
	}
}

// Each input changes the result: the same offsets in another partition or
// deployment are another table.
func TestIdentityDependsOnAll(t *testing.T) {
	seen := map[string]string{}
	add := func(name, v string) {
		if other, dup := seen[v]; dup {
			t.Errorf("%s and %s give %s", name, other, v)
		}
		seen[v] = name
	}
	tables := map[string]TableIdentity{
		"table": testTable, "deployment": {Partition: 3, TableID: 42},
		"partition": {Deployment: testTable.Deployment, TableID: 42}, "id": {Deployment: testTable.Deployment, Partition: 3, TableID: 43},
	}
	for name, table := range tables {
		add("uuid of "+name, table.UUID())
		a := Attempt{Table: table, BuildOffset: 1, ParentID: 2, BaseSequence: 3, BaseNextRowID: 4}
		add("name of "+name, a.Hash())
	}
	for name, a := range map[string]Attempt{
		"build": {testTable, 9, 2, 3, 4}, "parent": {testTable, 1, 9, 3, 4}, "sequence": {testTable, 1, 2, 9, 4}, "row id": {testTable, 1, 2, 3, 9},
	} {
		add("name of "+name, a.Hash())
	}
	ids := map[int64]bool{}
	for offset := int64(0); offset < 1000; offset++ {
		for counter := uint32(0); counter < 2; counter++ {
			id := testTable.SnapshotID(offset, counter)
			if id <= 0 || ids[id] {
				t.Fatalf("offset %d, counter %d: id %d", offset, counter, id)
			}
			ids[id] = true
		}
	}
}

// A foreign snapshot that has our id moves us to the next counter (S4).
func TestFreeSnapshotID(t *testing.T) {
	m := newTable(t)
	first, second := testTable.SnapshotID(5, 0), testTable.SnapshotID(5, 1)
	if id, counter := testTable.FreeSnapshotID(m, 5, 0); id != first || counter != 0 {
		t.Errorf("empty table: %d, %d", id, counter)
	}
	mustCommit(t, m, first, 1)
	if id, counter := testTable.FreeSnapshotID(m, 5, 0); id != second || counter != 1 {
		t.Errorf("id taken: %d, %d; want %d, 1", id, counter, second)
	}
}

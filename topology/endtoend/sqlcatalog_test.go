package endtoend

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/restcat"
	"github.com/varve-io/varve/statestore/objstore"
	"github.com/varve-io/varve/statestore/restclient"
	"github.com/varve-io/varve/statestore/sqlcat"
	"github.com/varve-io/varve/topology"
	"github.com/varve-io/varve/topology/readers"
	"github.com/varve-io/varve/topology/testcluster"
)

func openSQL(t *testing.T, p *testcluster.Postgres, store objstore.Store, name string) *sqlcat.Catalog {
	t.Helper()
	c, err := sqlcat.Open(longContext(t), sqlcat.Options{URI: p.URI(), Name: name, Password: testcluster.PostgresPassword, Store: store})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// TestSQLCatalog: what the catalog in a database takes and refuses (W5): commits
// whole or not at all, one of several at a time, and what it says when it is away.
func TestSQLCatalog(t *testing.T) {
	ctx := longContext(t)
	p := testcluster.StartPostgres(t)
	store := objstore.NewMem()
	c := openSQL(t, p, store, "lake")
	id := restcat.IdentifierOf("a.b.t")
	if _, err := c.Load(ctx, id); !errors.Is(err, restclient.ErrNotFound) {
		t.Errorf("no table: %v", err)
	}
	for range 2 {
		if err := c.CreateNamespace(ctx, id.Namespace); err != nil {
			t.Fatal(err)
		}
	}
	s := &schemas.Schema{Fields: []schemas.Field{{ID: 1, Name: "id", Type: schemas.Of(schemas.Long), Required: true}}, Identifier: []int32{1}}
	create := &restcat.CommitTable{Identifier: id, Requirements: []restcat.Requirement{restcat.AssertCreate()}, Updates: []restcat.Update{
		restcat.AssignUUID("u"), restcat.UpgradeFormat(3), restcat.SetLocation(store.Location("a/b/t")), restcat.AddSchema(s, 1), restcat.SetCurrentSchema(restcat.LastAdded),
		restcat.AddSpec(&schemas.Spec{}), restcat.SetDefaultSpec(restcat.LastAdded), restcat.AddUnsorted(), restcat.SetDefaultOrder(0),
	}}
	// Of many who make a table one does.
	var mu sync.Mutex
	var all sync.WaitGroup
	made := 0
	for range 6 {
		all.Go(func() {
			_, err := c.Commit(ctx, create)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				made++
			} else if !errors.Is(err, restclient.ErrConflict) {
				t.Errorf("a second one: %v", err)
			}
		})
	}
	all.Wait()
	if made != 1 {
		t.Fatalf("%d have made the table", made)
	}
	// Each property is set once, whoever comes first; nothing is lost.
	for i := range 5 {
		all.Go(func() {
			for {
				_, err := c.Commit(ctx, &restcat.CommitTable{Identifier: id, Requirements: []restcat.Requirement{restcat.AssertUUID("u")},
					Updates: []restcat.Update{restcat.SetProperties([]schemas.Property{{Key: fmt.Sprint("p", i), Value: "x"}})}})
				if err == nil {
					return
				}
				if !errors.Is(err, restclient.ErrConflict) {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	load := func() *iceberg.Metadata {
		t.Helper()
		got, err := c.Load(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		m, err := iceberg.ParseMetadata(got.Metadata)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	if m := load(); len(m.Properties) != 5 || len(m.MetadataLog) != 5 || m.UUID != "u" || m.LastPartitionID != 999 {
		t.Errorf("the metadata is %+v", m)
	}
	files := func() int {
		n := 0
		if err := store.List(ctx, "a/b/t/metadata/", func(objstore.Info) error { n++; return nil }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := files(); n != 6 {
		t.Errorf("%d metadata files: those of refused commits are to go", n)
	}
	for want, r := range map[error]*restcat.CommitTable{
		restclient.ErrConflict: {Identifier: id, Requirements: []restcat.Requirement{restcat.AssertUUID("v")}},
		restclient.ErrNotFound: {Identifier: restcat.IdentifierOf("a.b.none"), Requirements: []restcat.Requirement{restcat.AssertUUID("u")}},
	} {
		if _, err := c.Commit(ctx, r); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	// One that says which metadata it was made for is refused on every other: a tag that
	// was set meanwhile is not removed with what it names (S16).
	read, err := c.Load(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	bound := &restcat.CommitTable{Identifier: id, Base: read.MetadataLocation, Requirements: []restcat.Requirement{restcat.AssertUUID("u")},
		Updates: []restcat.Update{restcat.SetProperties([]schemas.Property{{Key: "n", Value: "bound"}})}}
	if _, err := c.Commit(ctx, bound); err != nil {
		t.Errorf("a commit for the newest metadata: %v", err)
	}
	if _, err := c.Commit(ctx, bound); !errors.Is(err, restclient.ErrConflict) {
		t.Errorf("a commit for older metadata: %v", err)
	}
	if n := files(); n != 7 {
		t.Errorf("%d metadata files", n)
	}
	// What fell out of the metadata log goes.
	for i := range iceberg.MetadataLogLimit + 3 {
		if _, err := c.Commit(ctx, &restcat.CommitTable{Identifier: id, Requirements: []restcat.Requirement{restcat.AssertUUID("u")},
			Updates: []restcat.Update{restcat.SetProperties([]schemas.Property{{Key: "n", Value: fmt.Sprint(i)}})}}); err != nil {
			t.Fatal(err)
		}
	}
	if n := files(); n != iceberg.MetadataLogLimit+1 || len(load().MetadataLog) != iceberg.MetadataLogLimit {
		t.Errorf("%d metadata files", n)
	}
	// Another catalog of the same database has no such table.
	if _, err := openSQL(t, p, store, "other").Load(ctx, id); !errors.Is(err, restclient.ErrNotFound) {
		t.Errorf("in another catalog: %v", err)
	}
	for want, o := range map[error]sqlcat.Options{
		restclient.ErrDenied:  {URI: p.URI(), Password: "wrong"},
		restclient.ErrOptions: {URI: strings.Replace(p.URI(), "/postgres?", "/nothing?", 1), Password: testcluster.PostgresPassword},
		restclient.ErrAway:    {URI: "postgres://catalog@127.0.0.1:1/postgres?sslmode=disable", Password: testcluster.PostgresPassword},
	} {
		o.Store = store
		if _, err := sqlcat.Open(ctx, o); !errors.Is(err, want) || strings.Contains(err.Error(), testcluster.PostgresPassword) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	if err := sqlcat.CheckOptions(sqlcat.Options{URI: "postgres://u:secret@h/db"}); !errors.Is(err, restclient.ErrOptions) || strings.Contains(err.Error(), "secret") {
		t.Errorf("a password in the address: %v", err)
	}
	p.Kill()
	if _, err := c.Load(ctx, id); !errors.Is(err, restclient.ErrAway) {
		t.Errorf("away: %v", err)
	}
	p.Restart()
	waitUntil(t, "the catalog is back", func() bool { _, err := c.Load(ctx, id); return err == nil })
}

// TestOutsideSQL: the whole way to a catalog in a database, beside another writer
// that sets a property, adds a column, partitions the table otherwise and tags a
// snapshot, over restarts of node and database; a replay makes the same bytes.
func TestOutsideSQL(t *testing.T) {
	ctx := longContext(t)
	p := testcluster.StartPostgres(t)
	o := topology.NodeOptions{Data: dataDir(t), Remote: &restclient.Options{URI: p.URI(), Warehouse: "lake", Credential: "catalog:" + testcluster.PostgresPassword, Timeout: 10 * time.Second}}
	f := newFeed(users("people.users", 20, 1<<30), 5)
	f.def.Properties = []schemas.Property{{Key: "owner", Value: "varve"}}
	s := &small{o, f, f.model()}
	n := start(t, o)
	if err := prepare(ctx, n, f.workload); err != nil {
		t.Fatal(err)
	}
	s.load(t, n, 300)
	other := openSQL(t, p, n.Store(), "lake")
	id := restcat.IdentifierOf(f.def.Name)
	load := func() *iceberg.Metadata {
		t.Helper()
		x, err := other.Load(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		m, err := iceberg.ParseMetadata(x.Metadata)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	foreign := func(updates ...restcat.Update) {
		t.Helper()
		var err error
		for range 50 { // a commit of the node may come first
			if _, err = other.Commit(ctx, &restcat.CommitTable{Identifier: id, Requirements: []restcat.Requirement{restcat.AssertUUID(load().UUID)}, Updates: updates}); !errors.Is(err, restclient.ErrConflict) {
				break
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	m := load()
	column, err := m.Schema(m.CurrentSchema)
	if err != nil {
		t.Fatal(err)
	}
	column.Fields = append(slices.Clone(column.Fields), schemas.Field{ID: m.LastColumnID + 1, Name: "theirs", Type: schemas.Of(schemas.Date)})
	foreign(restcat.SetProperties([]schemas.Property{{Key: "owner", Value: "else"}}), restcat.SetRef("keep", "tag", m.Current().ID, nil),
		restcat.AddSchema(column, column.HighestID()), restcat.SetCurrentSchema(restcat.LastAdded))
	s.load(t, n, 60)
	foreign(restcat.AddSpec(&schemas.Spec{Fields: []schemas.PartitionField{{SourceID: 3, FieldID: 1000, Name: "score_bucket", Transform: schemas.Bucket, N: 2}}}), restcat.SetDefaultSpec(restcat.LastAdded))
	s.load(t, n, 60)
	info := func() *schemas.Definition {
		t.Helper()
		x, err := n.Table(ctx, f.def.Name)
		if err != nil {
			t.Fatal(err)
		}
		return x.Definition
	}
	if d := info(); d.Property("owner") != "else" || d.Schema().ByName("theirs") < 0 || d.DefaultSpec != 1 {
		t.Errorf("the log has the definition %+v", d)
	}
	partitionBy(t, n, f.def.Name, []record.PartitionTerm{term("ok", schemas.Identity, 0, "ok")})
	s.load(t, n, 60)
	stop(t, n)
	if b, err := os.ReadFile(filepath.Join(o.Data, "node.json")); err != nil || strings.Contains(string(b), testcluster.PostgresPassword) || !strings.Contains(string(b), "postgres://catalog@") {
		t.Errorf("the data folder has of the catalog %s, %v", b, err)
	}
	n = start(t, o)
	p.Kill()
	if _, err := n.Produce(ctx, f.def.SourceTopic, f.partitions, f.take(80), nil); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second) // publishing fails meanwhile, or there was nothing yet
	p.Restart()
	live := f.model()
	settle(ctx, t, n, f, live)
	m = load()
	consistent(t, m)
	if m.Property("owner") != "else" || m.Ref("keep") == nil || m.DefaultSpec != 2 || len(m.Specs) != 3 || m.CurrentSchema != 1 {
		t.Errorf("the catalog has the metadata %+v", m)
	}
	// PyIceberg has such a catalog of its own: it reads ours (0.12 writes no metadata of version 3).
	if os.Getenv(testcluster.RequirePostgresEnv) == "1" || pyicebergHasSQL() {
		readers.Need(t, readers.PyIceberg)
		program := fmt.Sprintf(`
from pyiceberg.catalog.sql import SqlCatalog
c = SqlCatalog("lake", uri=%q, warehouse=%q)
print(c.list_tables("people"))
t = c.load_table("people.users")
assert t.scan().to_arrow().num_rows == %d, t.scan().to_arrow().num_rows
`, strings.Replace(strings.Replace(p.URI(), "postgres://catalog@", "postgresql+psycopg2://catalog:"+testcluster.PostgresPassword+"@", 1), "?sslmode=disable", "", 1),
			n.Store().Location(""), len(live.lines([]string{f.key})))
		if out, err := exec.Command(filepath.Join(readers.Folder(), "bin", "python"), "-W", "ignore", "-c", program).CombinedOutput(); err != nil || !strings.Contains(string(out), "('people', 'users')") {
			t.Errorf("PyIceberg: %v: %s", err, out)
		}
	} else {
		t.Log("not read by PyIceberg's SQL catalog: topology/testcluster/install-postgres.sh installs what it needs")
	}
	location := n.Store().Location("")
	stop(t, n)
	replaySame(ctx, t, topology.ReplayOptions{Outside: true}, o.Data, location, 1, nil)
}

func pyicebergHasSQL() bool {
	return exec.Command(filepath.Join(readers.Folder(), "bin", "python"), "-c", "import sqlalchemy, psycopg2").Run() == nil
}

package endtoend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/varve-io/varve/processors/publisher"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/restcat"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/restclient"
	"github.com/varve-io/varve/topology"
	"github.com/varve-io/varve/topology/readers"
	"github.com/varve-io/varve/topology/testcluster"
)

// faultyCatalog stands before a catalog and breaks requests.
type faultyCatalog struct {
	*httptest.Server
	mu     sync.Mutex
	faults []string // of the next commits, in order
	seen   []string // faults that were met
	held   bool     // every commit is refused
}

// Faults of a commit.
const (
	lostAnswer  = "answer lost after success"
	cutAnswer   = "answer cut off after success"
	brokenReply = "server error after success"
	unavailable = "unavailable"
	resetBefore = "connection reset before"
	slowAnswer  = "slow"
	htmlAnswer  = "a page instead of the answer"
)

func newFaultyCatalog(t *testing.T, to string) *faultyCatalog {
	t.Helper()
	u, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	pass := httputil.NewSingleHostReverseProxy(u)
	pass.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	f := &faultyCatalog{}
	hangUp := func(w http.ResponseWriter) {
		c, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			c.Close()
		}
	}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fault := ""
		if r.Method == http.MethodPost && strings.Contains(r.URL.Path, "/tables/") {
			f.mu.Lock()
			if len(f.faults) > 0 {
				fault, f.faults = f.faults[0], f.faults[1:]
				f.seen = append(f.seen, fault)
			}
			if f.held {
				fault = unavailable
			}
			f.mu.Unlock()
		}
		switch fault {
		case "":
			pass.ServeHTTP(w, r)
		case lostAnswer, cutAnswer, brokenReply, htmlAnswer:
			rec := httptest.NewRecorder()
			pass.ServeHTTP(rec, r)
			if rec.Code != http.StatusOK {
				t.Errorf("the commit before a lost answer: status %d: %s", rec.Code, rec.Body)
			}
			switch fault {
			case lostAnswer:
				hangUp(w)
			case cutAnswer:
				w.Header().Set("Content-Length", fmt.Sprint(rec.Body.Len()))
				w.Write(rec.Body.Bytes()[:rec.Body.Len()/2])
			case brokenReply:
				http.Error(w, "a gateway's page", http.StatusGatewayTimeout)
			case htmlAnswer:
				fmt.Fprint(w, "<html><body>Welcome</body></html>")
			}
		case unavailable:
			http.Error(w, `{"error":{"message":"later","type":"ServiceUnavailableException","code":503}}`, http.StatusServiceUnavailable)
		case resetBefore:
			io.CopyN(io.Discard, r.Body, 10)
			hangUp(w)
		case slowAnswer:
			// Longer than the client waits; the commit lands all the same.
			rec := httptest.NewRecorder()
			pass.ServeHTTP(rec, r.Clone(context.Background()))
			select {
			case <-r.Context().Done():
			case <-time.After(30 * time.Second):
			}
		}
	}))
	t.Cleanup(f.Close)
	return f
}

func (f *faultyCatalog) next(faults ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, faults...)
}

// hold lets no commit through, until it is called with false.
func (f *faultyCatalog) hold(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held = on
}

func (f *faultyCatalog) met() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.seen)
}

// outside is a deployment that publishes to the reference catalog.
type outside struct {
	*small
	t       *testing.T
	catalog *testcluster.Catalog
	proxy   *faultyCatalog
	client  *restclient.Client // another program's
	id      restcat.Identifier
}

func newOutside(t *testing.T) (*outside, *topology.Node) {
	t.Helper()
	return newOutsideWith(t, topology.NodeOptions{})
}

func newOutsideWith(t *testing.T, o topology.NodeOptions) (*outside, *topology.Node) {
	t.Helper()
	o.Data, o.LookEvery = dataDir(t), 20*time.Millisecond
	s := &outside{t: t}
	s.catalog = testcluster.StartCatalog(t, "file://"+filepath.Join(o.Data, "lake"))
	s.proxy = newFaultyCatalog(t, s.catalog.URI())
	o.Remote = &restclient.Options{URI: s.proxy.URL, Timeout: 5 * time.Second}
	var err error
	if s.client, err = restclient.Open(longContext(t), restclient.Options{URI: s.catalog.URI()}); err != nil {
		t.Fatal(err)
	}
	f := newFeed(users("people.users", 20, 1<<30), 5)
	f.def.Properties = []schemas.Property{{Key: "owner", Value: "varve"}}
	s.small = &small{o, f, f.model()}
	s.id = restcat.IdentifierOf(f.def.Name)
	n := start(t, o)
	if err := prepare(longContext(t), n, f.workload); err != nil {
		t.Fatal(err)
	}
	s.load(t, n, 300)
	return s, n
}

func (s *outside) metadata() *iceberg.Metadata {
	s.t.Helper()
	x, err := s.client.Load(longContext(s.t), s.id)
	if err != nil {
		s.t.Fatal(err)
	}
	m, err := iceberg.ParseMetadata(x.Metadata)
	if err != nil {
		s.t.Fatal(err)
	}
	return m
}

// commit is another program's.
func (s *outside) commit(updates ...restcat.Update) {
	s.t.Helper()
	if _, err := s.client.Commit(longContext(s.t), &restcat.CommitTable{Identifier: s.id, Requirements: []restcat.Requirement{}, Updates: updates}); err != nil {
		s.t.Fatal(err)
	}
}

// foreignSnapshot commits a snapshot that adds rows to the current list, to a branch.
func (s *outside) foreignSnapshot(branch string, timestampMs int64) int64 {
	s.t.Helper()
	m := s.metadata()
	cur := m.Current()
	rows := int64(7)
	x := iceberg.Snapshot{
		ID: 1000 + m.LastSequence, Sequence: m.LastSequence + 1, ParentID: &cur.ID, TimestampMs: max(timestampMs, m.LastUpdatedMs+1), Operation: "append",
		ManifestList: cur.ManifestList, SchemaID: &m.CurrentSchema, FirstRowID: &m.NextRowID, AddedRows: &rows,
	}
	s.commit(restcat.AddSnapshot(&x), restcat.SetRef(branch, "branch", x.ID, nil))
	return x.ID
}

// python runs a program of PyIceberg's with table as the table.
func (s *outside) python(program string) {
	s.t.Helper()
	readers.Need(s.t, readers.PyIceberg)
	begin := fmt.Sprintf("from pyiceberg.catalog.rest import RestCatalog\nfrom pyiceberg.types import *\ntable = RestCatalog('c', uri=%q).load_table(%q)\n", s.catalog.URI(), s.id.String())
	out, err := exec.Command(filepath.Join(readers.Folder(), "bin", "python"), "-c", begin+program).CombinedOutput()
	if err != nil {
		s.t.Fatalf("PyIceberg: %v: %s", err, out)
	}
}

// replayed stops the node; a replay of its log makes everything again that is
// ours in the lake.
func (s *outside) replayed(n *topology.Node) {
	s.t.Helper()
	location := n.Store().Location("")
	stop(s.t, n)
	if slices.Contains(s.o.Roles, topology.RolePlanner) {
		// What it planned as it stopped is in the log, and perhaps not in its state.
		o := s.o
		o.Roles = []string{topology.RoleState}
		stop(s.t, start(s.t, o))
	}
	replaySame(longContext(s.t), s.t, topology.ReplayOptions{Outside: true}, s.o.Data, location, 1, nil)
}

// records are the outcomes of one type of record of the log.
func (s *outside) records(n *topology.Node, typ record.Type) (out []record.Outcome) {
	s.t.Helper()
	for _, d := range readTopic(longContext(s.t), s.t, n, n.Topics().Outcomes, 0) {
		var m record.OutcomeMessage
		if err := record.DecodeOutcomeMessage(d.Key, d.Value, &m); err != nil {
			s.t.Fatal(err)
		}
		if m.Type == typ {
			out = append(out, m.Outcome)
		}
	}
	return out
}

// settled holds everything that was published against the model, read at the
// metadata files and through the catalog.
func (s *outside) settled(n *topology.Node) {
	s.t.Helper()
	ctx := longContext(s.t)
	settle(ctx, s.t, n, s.f, s.m)
	for _, engine := range []readers.Engine{readers.IcebergGo, readers.PyIceberg} {
		s.t.Run("REST "+string(engine), func(t *testing.T) {
			readers.Need(t, engine)
			got, err := readers.Read(ctx, engine, s.f.def.Name, readers.Options{REST: &readers.REST{URI: s.catalog.URI()}})
			if err != nil {
				t.Fatal(err)
			}
			compare(t, string(engine), got, s.m, s.f.key)
		})
	}
	consistent(s.t, s.metadata())
}

// consistent: one snapshot a build; times that never fall.
func consistent(t *testing.T, m *iceberg.Metadata) {
	t.Helper()
	builds := map[string]int64{}
	last := int64(0)
	for i := range m.Snapshots {
		x := &m.Snapshots[i]
		before := last
		last = max(last, x.TimestampMs)
		for _, p := range x.Summary {
			if p.Key != publisher.SummaryOffset {
				continue
			}
			if x.TimestampMs < before { // others do as they like
				t.Errorf("snapshot %d is of %d, one before of %d (S2)", x.ID, x.TimestampMs, before)
			}
			if other, twice := builds[p.Value]; twice {
				t.Errorf("snapshots %d and %d are both of build %s", other, x.ID, p.Value)
			}
			builds[p.Value] = x.ID
		}
	}
}

// TestOutsideCatalog: the whole way to a REST catalog that we did not write,
// with a restart, and with another program that changes the table beside us.
func TestOutsideCatalog(t *testing.T) {
	s, n := newOutside(t)
	s.load(t, n, 200)
	s.settled(n)
	stop(t, n)
	n = start(t, s.o)
	s.load(t, n, 200)
	s.settled(n)
	m := s.metadata()
	if m.Property("owner") != "varve" || m.Property("gc.enabled") != "false" || m.Location != n.Store().Location("people/users") {
		t.Errorf("properties %v at %s", m.Properties, m.Location)
	}

	// Real other programs: a property, a tag, a branch; then a commit to it.
	s.python(`
table.transaction().set_properties({"owner": "else", "theirs": "1"}).commit_transaction()
table.manage_snapshots().create_tag(table.current_snapshot().snapshot_id, "keep").create_branch(table.current_snapshot().snapshot_id, "dev").commit()
`)
	tagged := s.metadata().Ref("keep").SnapshotID
	s.load(t, n, 100)
	dev := s.foreignSnapshot("dev", 0)
	s.load(t, n, 100)
	s.settled(n)
	m = s.metadata()
	if m.Property("owner") != "else" || m.Property("theirs") != "1" {
		t.Errorf("what another program set was lost: %v (S11)", m.Properties)
	}
	if r := m.Ref("keep"); r == nil || r.Type != "tag" || r.SnapshotID != tagged {
		t.Errorf("the tag is %+v", r)
	}
	if r := m.Ref("dev"); r == nil || r.SnapshotID != dev {
		t.Errorf("the branch is %+v, its commit %d", r, dev)
	}
	info := s.info(n)
	if got := info.Definition.Property("owner"); got != "else" {
		t.Errorf("the log has the property as %q", got)
	}
	if took := accepted(s.records(n, record.TypeCatalogBase)); took < 2 {
		t.Errorf("%d CatalogBase records were accepted, want the property and the branch", took)
	}

	// A column that another program adds gets values from then on.
	s.python(`
with table.update_schema() as u:
    u.add_column("note", StringType())
`)
	s.load(t, n, 50)
	info = s.info(n)
	if i := info.Definition.Schema().ByName("note"); i < 0 || info.Definition.CurrentSchema != 1 {
		t.Errorf("the log's columns are %+v", info.Definition.Schema())
	}
	s.settled(n)
	s.replayed(n)
}

func (s *outside) info(n *topology.Node) *statestore.TableInfo {
	s.t.Helper()
	info, err := n.Table(longContext(s.t), s.f.def.Name)
	if err != nil {
		s.t.Fatal(err)
	}
	return info
}

func accepted(out []record.Outcome) (n int) {
	for i := range out {
		if out[i].Code == record.Accepted {
			n++
		}
	}
	return n
}

// TestOutsideClock: another writer's clock is ten minutes ahead. Times never
// fall, and publishing goes on (S2).
func TestOutsideClock(t *testing.T) {
	s, n := newOutside(t)
	ahead := time.Now().Add(10 * time.Minute).UnixMilli()
	s.foreignSnapshot("dev", ahead)
	for range 3 {
		s.load(t, n, 50)
	}
	s.settled(n)
	m := s.metadata()
	if m.LastUpdatedMs <= ahead || m.Current().TimestampMs <= ahead {
		t.Errorf("last update %d, current snapshot of %d, the other writer's commit of %d", m.LastUpdatedMs, m.Current().TimestampMs, ahead)
	}
	if h := s.info(n).Head; h.TimestampMs != m.LastUpdatedMs {
		t.Errorf("the log has the time %d, the catalog %d", h.TimestampMs, m.LastUpdatedMs)
	}
	// A column alone would be dated by the catalog's own clock, and refused for
	// ten minutes: it goes with the next rows, which do not wait behind it.
	ctx := longContext(t)
	out, err := n.Request(ctx, s.f.def.Name, s.info(n).ID, &record.AlterTable{Add: []record.AddColumn{{Name: "late", Type: schemas.Of(schemas.String)}}})
	if err != nil || out.Outcome.Code != record.Accepted {
		t.Fatalf("%+v, %v", out, err)
	}
	waitUntil(t, "the column waits for rows", func() bool {
		st, err := n.Status(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(st.Waiting[s.f.def.Name], "clock was ahead")
	})
	s.load(t, n, 50)
	s.settled(n)
	if m := s.metadata(); m.CurrentSchema != 1 {
		t.Errorf("the current columns are those of schema %d", m.CurrentSchema)
	}
	stop(t, n)
}

// TestOutsideFaults: whatever becomes of a commit's answer, there is one
// snapshot a build, and no change is lost (case 17, 31).
func TestOutsideFaults(t *testing.T) {
	s, n := newOutside(t)
	for _, fault := range []string{lostAnswer, cutAnswer, brokenReply, htmlAnswer, unavailable, resetBefore, slowAnswer} {
		s.proxy.next(fault)
		s.load(t, n, 40)
		if met := s.proxy.met(); !slices.Contains(met, fault) {
			t.Errorf("no commit met the fault %q", fault)
		}
	}
	s.proxy.next(unavailable, lostAnswer, unavailable, lostAnswer)
	s.load(t, n, 40)
	s.settled(n)
	var attempts int64
	causes := map[string]bool{}
	for _, x := range s.info(n).Snapshots {
		attempts += x.Attempts
		causes[x.Cause] = true
	}
	if attempts < 8 || !causes["unknown"] {
		t.Errorf("%d failed attempts are recorded, of the causes %v", attempts, causes)
	}
	// The catalog is gone for a while: publishing waits, and goes on by itself.
	s.catalog.Kill()
	if _, err := n.Produce(longContext(t), s.f.def.SourceTopic, s.f.partitions, s.f.take(50), nil); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(longTime); ; {
		st, err := n.Status(longContext(t))
		if err != nil {
			t.Fatal(err)
		}
		if why := st.Waiting[s.f.def.Name]; why != "" {
			if !strings.Contains(why, "status 502") {
				t.Errorf("the table waits for %q", why)
			}
			break
		}
		if time.Now().After(end) {
			t.Fatal("nobody says that the catalog is away")
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.catalog.Restart()
	s.settled(n)
	s.replayed(n)
}

// TestOutsideConflict: another writer's branch commit between our reading and
// our commit is a conflict: the cut is built anew (C4), and the other's work stays.
func TestOutsideConflict(t *testing.T) {
	s, n := newOutside(t)
	var once sync.Once
	inner := s.proxy.Config.Handler
	s.proxy.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && strings.Contains(r.URL.Path, "/tables/") {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			if bytes.Contains(body, []byte("add-snapshot")) {
				once.Do(func() { s.foreignSnapshot("dev", 0) })
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		inner.ServeHTTP(w, r)
	})
	s.load(t, n, 80)
	s.settled(n)
	info := s.info(n)
	last := info.Snapshots[len(info.Snapshots)-1]
	if !slices.ContainsFunc(info.Snapshots, func(x statestore.SnapshotRef) bool { return x.Attempts > 0 && x.Cause == "conflict" }) {
		t.Errorf("no snapshot is recorded as one that met a conflict; the last is %+v", last)
	}
	if s.metadata().Ref("dev") == nil {
		t.Error("the other writer's branch is gone")
	}
	s.replayed(n)
}

// TestOutsideForeign: what another writer does to main, to the columns or to
// the whole table stops that table with an error that says what to do; another
// table goes on (H4, H11).
func TestOutsideForeign(t *testing.T) {
	ours := int64(0) // main's snapshot before the harm
	back := func(s *outside) { s.commit(restcat.SetRef(iceberg.MainBranch, "branch", ours, nil)) }
	for name, x := range map[string]struct {
		harm func(s *outside)
		want []string
		mend func(s *outside) // as the error says; nil: there is no easy way
	}{
		"deleted by equality of a column that is not there": {func(s *outside) {
			ours = s.metadata().Current().ID
			w := &otherWriter{t: s.t, s: s}
			w.do(func(*otherHead) change { return change{op: "delete", equal: []string{"x"}, by: []int32{1, 99}} })
		}, []string{"snapshot 70", "deletes by equality of the column with field id 99", "set branch main back to our snapshot"}, back},
		"rolled back": {func(s *outside) {
			m := s.metadata()
			ours = m.Current().ID
			s.commit(restcat.SetRef(iceberg.MainBranch, "branch", *m.Current().ParentID, nil))
		}, []string{"it was rolled back", "set it to"}, back},
		"column dropped": {func(s *outside) {
			s.python("with table.update_schema(allow_incompatible_changes=True) as u:\n    u.delete_column('ok')\n")
		}, []string{`column "ok" was dropped`, "undo that change"}, nil},
		"table dropped": {func(s *outside) { s.python("table.catalog.drop_table(table.name())\n") }, []string{"has no table people.users any more"}, nil},
		"table made again": {func(s *outside) {
			s.python("c = table.catalog\nc.drop_table(table.name())\nc.create_table(table.name(), schema=table.schema(), location=table.location())\n")
		}, []string{"was dropped and made again", "has the UUID"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s, n := newOutside(t)
			ctx := longContext(t)
			other := newFeed(orders("shop.orders", 20, 1<<30), 6)
			if err := prepare(ctx, n, other.workload); err != nil {
				t.Fatal(err)
			}
			s.load(t, n, 50)
			x.harm(s)
			if _, err := n.Produce(ctx, s.f.def.SourceTopic, s.f.partitions, s.f.take(50), nil); err != nil {
				t.Fatal(err)
			}
			err := n.WaitLoaded(ctx, s.f.def.Name, nil)
			told(t, err, publisher.ErrForeign, append(x.want, s.f.def.Name)...)
			if _, err := n.Produce(ctx, other.def.SourceTopic, other.partitions, other.take(100), nil); err != nil {
				t.Fatal(err)
			}
			settle(ctx, t, n, other, other.model())
			if x.mend != nil { // it goes on by itself
				x.mend(s)
				waitUntil(t, "the table is published again", func() bool {
					info, err := n.Table(ctx, s.f.def.Name)
					if err != nil {
						t.Fatal(err)
					}
					return info.Pending == nil && !info.Changes
				})
				settle(ctx, t, n, s.f, s.m)
				stop(t, n)
				return
			}
			if err := n.Close(ctx); err != nil && !errors.Is(err, publisher.ErrForeign) {
				t.Error(err)
			}
		})
	}
}

package endtoend

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/source"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/topology"
	"github.com/varve-io/varve/topology/readers"
)

// victim is a deployment with one table, into whose topics others write.
type victim struct {
	t    *testing.T
	n    *topology.Node
	p    *topology.LogProducer
	data string
	rows map[int64]string
}

const victimTable = "shop.victim"

func (v *victim) options() topology.NodeOptions {
	return topology.NodeOptions{Data: v.data, Logger: testLog(v.t, 8)}
}

func newVictim(t *testing.T) *victim {
	v := &victim{t: t, data: dataDir(t), rows: map[int64]string{}}
	v.open()
	ctx := longContext(t)
	def := definition(victimTable, source.RowsJSON, []schemas.Field{{Name: "id", Type: schemas.Of(schemas.Long)}, {Name: "v", Type: schemas.Of(schemas.String)}})
	if _, err := v.n.Produce(ctx, def.SourceTopic, 1, events(), nil); err != nil {
		t.Fatal(err)
	}
	info, _, err := v.n.EnsureTable(ctx, def)
	if err != nil {
		t.Fatal(err)
	}
	if err := v.n.Ingest(ctx, info); err != nil {
		t.Fatal(err)
	}
	v.put(1, "one")
	v.put(2, "two")
	v.healthy("before")
	return v
}

func (v *victim) open() {
	v.t.Helper()
	v.n = start(v.t, v.options())
	p, err := topology.NewLogProducer(topology.ClientOptions{Brokers: v.n.Brokers()}, topology.ProducerOptions{})
	if err != nil {
		v.t.Fatal(err)
	}
	v.p = p
}

func (v *victim) close() {
	v.t.Helper()
	v.p.Close()
	stop(v.t, v.n)
}

// again closes the node and opens it.
func (v *victim) again() {
	v.t.Helper()
	v.close()
	v.open()
}

func events(values ...string) func() (*topology.SourceEvent, error) {
	return func() (*topology.SourceEvent, error) {
		if len(values) == 0 {
			return nil, io.EOF
		}
		e := &topology.SourceEvent{Value: []byte(values[0]), Partition: -1}
		values = values[1:]
		return e, nil
	}
}

func (v *victim) put(id int64, s string) {
	v.t.Helper()
	if _, err := v.n.Produce(longContext(v.t), victimTable, 1, events(fmt.Sprintf(`{"id":%d,"v":%q}`, id, s)), nil); err != nil {
		v.t.Fatal(err)
	}
	v.rows[id] = s
}

// healthy: an event that comes now gets into the table, whose rows are right.
func (v *victim) healthy(after string) {
	v.t.Helper()
	v.put(1000, after)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := v.n.WaitLoaded(ctx, victimTable, nil); err != nil {
		v.t.Fatalf("after %s: %v", after, err)
	}
	v.same(after)
}

func (v *victim) same(after string) {
	v.t.Helper()
	got, err := readers.Read(longContext(v.t), readers.IcebergGo, v.info().Head.MetadataPath, readers.Options{})
	if err != nil {
		v.t.Fatalf("after %s: %v", after, err)
	}
	var want []string
	for id, s := range v.rows {
		want = append(want, fmt.Sprintf("id=%d v=%s", id, s))
	}
	slices.Sort(want)
	if got := got.Sorted(); !slices.Equal(got, want) {
		v.t.Fatalf("after %s: rows\n  %s\nwant\n  %s", after, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func (v *victim) info() *statestore.TableInfo {
	v.t.Helper()
	i, err := v.n.Table(longContext(v.t), victimTable)
	if err != nil {
		v.t.Fatal(err)
	}
	return i
}

func (v *victim) raw(topic string, e topology.Entry) int64 {
	v.t.Helper()
	o, err := v.p.AppendSync(longContext(v.t), topic, 0, e)
	if err != nil {
		v.t.Fatal(err)
	}
	return o
}

func (v *victim) inject(m *record.Message) int64 {
	v.t.Helper()
	return v.raw(v.n.Topics().Transactions, topology.Entry{Key: m.Key, Value: m.Value, Headers: []topology.Header{{Key: record.HeaderKey, Value: m.Header[:]}}})
}

// message is a record about the table as any program may send it.
func (v *victim) message(body any, change func(*record.Envelope)) *record.Message {
	v.t.Helper()
	env := record.Envelope{
		ApplyVersion: statestore.ApplyVersion, Request: record.NewRequestID(), OffsetSeen: 0, Table: victimTable, TableID: v.info().ID,
	}
	b, err := record.EncodeBody(nil, body)
	if err != nil {
		v.t.Fatal(err)
	}
	env.Type, env.Body = record.TypeOf(body), b
	env.TypeVersion = record.BodyVersion(env.Type)
	if change != nil {
		change(&env)
	}
	var m record.Message
	record.Encode(&m, &env)
	return &m
}

var errFoundOutcome = errors.New("found")

func (v *victim) outcome(offset int64) record.Outcome {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var out record.Outcome
	err := v.n.Transactions(ctx, victimTable, offset, func(d *processors.Decided) error {
		if d.Outcome.Offset == offset && !d.Outcome.Derived {
			out = d.Outcome.Outcome
			return errFoundOutcome
		}
		return nil
	})
	if !errors.Is(err, errFoundOutcome) {
		v.t.Fatalf("no outcome of log offset %d: %v", offset, err)
	}
	return out
}

func (v *victim) rejected(what string, m *record.Message, want record.Reason) {
	v.t.Helper()
	if o := v.outcome(v.inject(m)); o.Code != record.Rejected || o.Reason != want {
		v.t.Errorf("%s: outcome %v %v, want %v %v", what, o.Code, o.Reason, record.Rejected, want)
	}
}

func bitmap(t *testing.T, positions ...uint32) []byte {
	t.Helper()
	b, err := dv.AppendBitmap(nil, roaring.BitmapOf(positions...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Bytes of any kind in the transactions topic have an outcome each, change
// nothing and stop nobody (L2, L7, L8).
func TestHostileTransactions(t *testing.T) {
	v := newVictim(t)
	log := v.n.Topics().Transactions
	var last int64
	for _, e := range []topology.Entry{
		{}, {Value: []byte("junk")}, {Key: []byte(victimTable)}, {Key: []byte("\xff\xfe"), Value: bytes.Repeat([]byte{0xff}, 4096)},
		{Key: []byte(victimTable), Value: []byte("{}"), Headers: []topology.Header{{Key: record.HeaderKey}}},
		{Key: []byte(victimTable), Value: []byte("{}"), Headers: []topology.Header{{Key: record.HeaderKey, Value: []byte{2, 0, 0}}}},
		{Key: []byte(victimTable), Value: []byte("{}"), Headers: []topology.Header{{Key: record.HeaderKey, Value: bytes.Repeat([]byte{1}, 100)}}},
		{Value: make([]byte, 2<<20)},
	} {
		last = v.raw(log, e)
	}
	if o := v.outcome(last); o.Code != record.Rejected || o.Reason != record.Undecodable {
		t.Errorf("2 MiB of zeros: %v %v", o.Code, o.Reason)
	}
	v.healthy("junk")

	id := v.info().ID
	sh := v.info().Shards[0]
	key := record.ShardKey{TopicID: sh.TopicID, Topic: sh.Topic, Partition: sh.Partition}
	good := v.message(&record.Cut{}, nil)
	for i := range good.Value {
		cut := *good
		cut.Value = good.Value[:i]
		v.inject(&cut)
		flip := *good
		flip.Value = bytes.Clone(good.Value)
		flip.Value[i] ^= 0x41
		last = v.inject(&flip)
	}
	if o := v.outcome(last); o.Reason != record.Undecodable {
		t.Errorf("flipped: %v %v", o.Code, o.Reason)
	}
	v.healthy("torn records")

	ref := func(path string, n int64) *record.Ref { return &record.Ref{Path: path, Length: n} }
	refs := func(r *record.Ref) func(*record.Envelope) {
		return func(e *record.Envelope) { e.Body, e.BodyRef = nil, r }
	}
	hash := record.Hash(sha256.Sum256(nil)).String()
	v.rejected("unknown type", v.message(&record.Cut{}, func(e *record.Envelope) { e.Type = 99 }), record.NotActive)
	v.rejected("a type of a later version", v.message(&record.Cut{}, func(e *record.Envelope) { e.Type = record.TypeRequestErasure }), record.NotActive)
	v.rejected("newer body", v.message(&record.Cut{}, func(e *record.Envelope) { e.TypeVersion = 2 }), record.NotActive)
	v.rejected("other apply version", v.message(&record.Cut{}, func(e *record.Envelope) { e.ApplyVersion = 7 }), record.NotActive)
	v.rejected("another table's id", v.message(&record.Cut{}, func(e *record.Envelope) { e.TableID = id + 1 }), record.NoTable)
	v.rejected("negative table id", v.message(&record.Cut{}, func(e *record.Envelope) { e.TableID = math.MinInt64 }), record.NoTable)
	v.rejected("no such table", v.message(&record.Cut{}, func(e *record.Envelope) { e.Table = "shop.none" }), record.NoTable)
	v.rejected("a name that is a path", v.message(&record.Cut{}, func(e *record.Envelope) { e.Table = "../../etc" }), record.Undecodable)
	v.rejected("an offset of the future", v.message(&record.Cut{}, func(e *record.Envelope) { e.OffsetSeen = math.MaxInt64 }), record.Undecodable)
	v.rejected("no request id", v.message(&record.Cut{}, func(e *record.Envelope) { e.Request = record.RequestID{} }), record.Undecodable)
	v.rejected("body with bytes too many", v.message(&record.Cut{}, func(e *record.Envelope) { e.Body = []byte{1, 2, 3} }), record.Undecodable)
	for _, r := range []*record.Ref{
		ref("../../etc/passwd", 10), ref("", 0), ref("_varve/varve/bodies/../../../x/bodies/"+hash, 1), ref("/etc/passwd", 1),
		ref("_varve/varve/bodies/"+hash, -1), ref("_varve/varve/bodies/"+hash, math.MaxInt64), ref(strings.Repeat("a/", 500)+"bodies/"+hash, 1),
	} {
		v.rejected("body at "+r.Path, v.message(&record.Cut{}, refs(r)), record.Undecodable)
	}
	v.healthy("envelopes")

	// The same request again, and another one under its id (L9).
	m := v.message(&record.AlterTable{Set: []schemas.Property{{Key: "owner", Value: "me"}}}, nil)
	if o := v.outcome(v.inject(m)); o.Code != record.Accepted {
		t.Fatalf("alter: %v %v", o.Code, o.Reason)
	}
	if o := v.outcome(v.inject(m)); o.Code != record.Already || o.Changed {
		t.Errorf("again: %v %v", o.Code, o.Reason)
	}
	var env record.Envelope
	if err := record.DecodeEnvelope(m.Key, m.Header[:], m.Value, &env); err != nil {
		t.Fatal(err)
	}
	v.rejected("other bytes, same id", v.message(&record.DropTable{}, func(e *record.Envelope) { e.Request = env.Request }), record.IDReused)

	for what, a := range map[string]record.AlterTable{
		"reserved name":   {Add: []record.AddColumn{{Name: "_row_id", Type: schemas.Of(schemas.Long)}}},
		"empty name":      {Add: []record.AddColumn{{Type: schemas.Of(schemas.Long)}}},
		"name by case":    {Add: []record.AddColumn{{Name: "V", Type: schemas.Of(schemas.Long)}}},
		"other type":      {Add: []record.AddColumn{{Name: "v", Type: schemas.Of(schemas.Long)}}},
		"bad default":     {Add: []record.AddColumn{{Name: "w", Type: schemas.Of(schemas.Long), Default: `"x"`}}},
		"no such column":  {Widen: []record.WidenColumn{{Name: "w", Type: schemas.Of(schemas.Long)}}},
		"narrower":        {Widen: []record.WidenColumn{{Name: "id", Type: schemas.Of(schemas.Date)}}},
		"unsorted":        {Set: []schemas.Property{{Key: "b"}, {Key: "a"}}},
		"bad decimal":     {Add: []record.AddColumn{{Name: "w", Type: schemas.Type{Kind: schemas.Decimal, Precision: 60, Scale: 90}}}},
		"empty of length": {Add: []record.AddColumn{{Name: "w", Type: schemas.Type{Kind: schemas.Fixed}}}},
	} {
		b, err := record.EncodeBody(nil, &a)
		if err != nil {
			continue // nobody can send it
		}
		o := v.outcome(v.inject(v.message(&record.AlterTable{}, func(e *record.Envelope) { e.Body = b })))
		if o.Code != record.Rejected || o.Reason != record.BadAlter && o.Reason != record.Undecodable {
			t.Errorf("alter, %s: %v %v", what, o.Code, o.Reason)
		}
	}
	v.healthy("alters")

	// Appends that are not the owner's.
	file := func(counter uint64) record.DataFile {
		return record.DataFile{ID: statestore.FileID(1, counter), Rows: 1, Bytes: 1}
	}
	body := &record.Ref{Path: "_varve/varve/bodies/" + hash, Hash: record.Hash(sha256.Sum256(nil))}
	v.rejected("epoch of nobody", v.message(&record.AppendRows{Shard: key, Epoch: sh.Epoch + 1, Counter: 1}, nil), record.EpochClosed)
	v.rejected("shard of nobody", v.message(&record.AppendRows{Shard: record.ShardKey{Partition: -5}, Epoch: sh.Epoch, Counter: 1}, nil), record.NoShard)
	v.rejected("huge numbers", v.message(&record.AppendRows{
		Shard: key, Epoch: math.MaxInt64, Counter: math.MaxInt64, SourceFrom: math.MinInt64, SourceTo: math.MaxInt64, RequestFrom: -1, RequestTo: math.MaxInt64,
	}, nil), record.EpochClosed)
	v.healthy("appends of other epochs")
	for _, c := range []struct {
		what   string
		change func(a *record.AppendRows)
		want   record.Reason
	}{
		{"a source range that is taken", func(a *record.AppendRows) { a.SourceFrom = 0 }, record.SourceRange},
		{"a negative source range", func(a *record.AppendRows) { a.SourceTo = -1 }, record.SourceRange},
		{"requests of the future", func(a *record.AppendRows) { a.RequestTo = math.MaxInt64 }, record.RequestRange},
		{"negative counts", func(a *record.AppendRows) { a.Counts.Events = -1 }, record.BadCounter},
		{"huge counts", func(a *record.AppendRows) { a.Counts.Events = math.MaxInt64 }, record.BadCounter},
		{"an unknown schema", func(a *record.AppendRows) { a.SchemaID = 77 }, record.SchemaUnknown},
		{"a file of another writer", func(a *record.AppendRows) {
			a.Files, a.Changes = []record.DataFile{{ID: 1 << 60, Rows: 1, Bytes: 1}}, body
		}, record.FileNotNew},
		{"a file of too many rows", func(a *record.AppendRows) {
			f := file(1 << 30)
			f.ID, f.Rows = v.nextFile(), 1<<31
			a.Files, a.Changes = []record.DataFile{f}, body
		}, record.BadFile},
		{"a file without rows", func(a *record.AppendRows) {
			f := file(1)
			f.ID, f.Rows = v.nextFile(), 0
			a.Files, a.Changes = []record.DataFile{f}, body
		}, record.BadFile},
		{"a file without body", func(a *record.AppendRows) {
			f := file(1)
			f.ID = v.nextFile()
			a.Files = []record.DataFile{f}
		}, record.BadFile},
		{"a tuple of no spec", func(a *record.AppendRows) {
			f := file(1)
			f.ID, f.Partition = v.nextFile(), []byte{1, 2, 3}
			a.Files, a.Changes = []record.DataFile{f}, body
		}, record.BadFile},
		{"bytes for a bitmap", func(a *record.AppendRows) {
			a.Deletes = []record.DeleteBlock{{File: statestore.FileID(1, 1), Bitmap: []byte("roaring")}}
		}, record.BadBlock},
		{"an empty bitmap", func(a *record.AppendRows) {
			a.Deletes = []record.DeleteBlock{{File: statestore.FileID(1, 1), Bitmap: bitmap(t)}}
		}, record.BadBlock},
		{"a block of no file", func(a *record.AppendRows) {
			a.Deletes = []record.DeleteBlock{{File: 1<<64 - 1, Bitmap: bitmap(t, 0)}}
		}, record.NoBase},
		{"a position out of range", func(a *record.AppendRows) {
			a.Deletes = []record.DeleteBlock{{File: statestore.FileID(1, 1), Bitmap: bitmap(t, 0, 1<<31-3)}}
		}, record.OutOfRange},
	} {
		// It is of the open epoch, so it closes it: the owner claims again (A3).
		i := v.info().Shards[0]
		a := record.AppendRows{Shard: key, Epoch: i.Epoch, Counter: 1 << 40, SourceFrom: i.SourceEnd, SourceTo: i.SourceEnd + 1, RequestFrom: i.RequestEnd, RequestTo: i.RequestEnd}
		c.change(&a)
		v.rejected(c.what, v.message(&a, func(e *record.Envelope) { e.Request = record.RequestID{} }), c.want)
		v.healthy(c.what)
	}

	// Commits that are not the publisher's.
	head := v.info().Head
	for _, c := range []record.SnapshotCommitted{
		{}, {Cut: head.Build, Build: head.Build, Parent: head.SnapshotID, SnapshotID: 1, Sequence: head.Sequence + 1},
		{Cut: math.MaxInt64, Build: math.MinInt64, SnapshotID: -1, AddedRows: math.MaxInt64, FirstRowID: math.MaxInt64},
	} {
		v.rejected("forged commit", v.message(&c, nil), record.NoCutPending)
	}
	v.rejected("forged failure", v.message(&record.SnapshotFailed{Cut: 1, Build: 1, Cause: "secret"}, nil), record.NoCutPending)
	v.rejected("forged index", v.message(&record.ShardIndex{Shard: key, Epoch: v.info().Shards[0].Epoch, Offset: math.MaxInt64}, nil), record.IndexOffset)
	v.rejected("forged skip", v.message(&record.SkipSource{Shard: key, From: 0, To: math.MaxInt64}, nil), record.SourceRange)
	v.rejected("another genesis", v.message(&record.SetApplyVersion{Partitions: 9, Version: 1}, func(e *record.Envelope) { e.Table, e.TableID = "", -1 }), record.VersionOutOfOrder)
	v.healthy("forged commits")
	v.again()
	v.healthy("all of it, read again")
	v.close()
}

// nextFile is a file id that the state has not seen of the open epoch's writer.
func (v *victim) nextFile() uint64 {
	return statestore.FileID(uint32(v.info().Shards[0].Writer), 1<<20)
}

// Requests whose keys are no keys of the table, or not there, hold up nobody
// for ever: what can be read is answered, what is missing is waited for in
// plain sight (A5, L10).
func TestHostileRequests(t *testing.T) {
	v := newVictim(t)
	ctx := longContext(t)
	ask := func(ref record.Ref) int64 {
		t.Helper()
		o := v.inject(v.message(&record.DeleteKeys{Keys: ref, Count: 1}, nil))
		if out := v.outcome(o); out.Code != record.Accepted {
			t.Fatalf("delete: %v %v", out.Code, out.Reason)
		}
		return o
	}
	put := func(b []byte) record.Ref {
		t.Helper()
		ref, err := v.n.Bodies().Put(ctx, b)
		if err != nil {
			t.Fatal(err)
		}
		return ref
	}
	keys := func(ks ...[]byte) []byte {
		t.Helper()
		b, err := record.EncodeKeysBody(nil, &record.KeysBody{Keys: ks})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	settled := func(what string, o int64) {
		t.Helper()
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if _, err := v.n.WaitSettled(ctx, victimTable, o); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		v.healthy(what)
	}
	settled("junk for keys", ask(put([]byte("these are no keys"))))
	settled("no bytes for keys", ask(put(nil)))
	id1 := []byte{0x80, 0, 0, 0, 0, 0, 0, 1}
	o := ask(put(keys(bytes.Repeat([]byte{7}, 100), []byte("x"), id1)))
	delete(v.rows, 1)
	settled("keys of other tables", o)
	v.put(1, "again")
	v.healthy("a row that came later")

	// Not there yet: the shard waits, and says for what.
	late := keys(id1)
	sum := record.Hash(sha256.Sum256(late))
	ref := record.Ref{Path: "_varve/varve/bodies/" + sum.String(), Length: int64(len(late)), Hash: sum}
	o = ask(ref)
	v.waits("a record's body is missing", ref.Path)
	v.put(3, "three")
	v.again()
	v.waits("a record's body is missing", ref.Path)
	put(late)
	delete(v.rows, 1)
	settled("a body that came late", o)
	v.again()
	v.healthy("requests read again")
	v.close()
}

// waits waits until the node's status says so.
func (v *victim) waits(parts ...string) {
	v.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		st, err := v.n.Status(longContext(v.t))
		if err != nil {
			v.t.Fatal(err)
		}
		said := fmt.Sprint(st.Waiting)
		for _, s := range st.Shards {
			said += " " + s.Waiting
		}
		ok := st.Error == ""
		for _, p := range parts {
			ok = ok && strings.Contains(said, p)
		}
		if ok {
			return
		}
		if time.Now().After(deadline) {
			v.t.Fatalf("status says %q, error %q; want %q", said, st.Error, parts)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// A record whose body is not there yet holds up its partition, and status
// says so (L10).
func TestHostileBody(t *testing.T) {
	v := newVictim(t)
	b, err := record.EncodeBody(nil, &record.AlterTable{Set: []schemas.Property{{Key: "owner", Value: "me"}}})
	if err != nil {
		t.Fatal(err)
	}
	sum := record.Hash(sha256.Sum256(b))
	ref := &record.Ref{Path: "_varve/varve/bodies/" + sum.String(), Length: int64(len(b)), Hash: sum}
	v.inject(v.message(&record.AlterTable{}, func(e *record.Envelope) { e.Body, e.BodyRef = nil, ref }))
	v.waits("a record's body is missing", ref.Path)
	if _, err := v.n.Bodies().Put(longContext(t), b); err != nil {
		t.Fatal(err)
	}
	v.healthy("a body that came late")
	if p := v.info().Definition.Properties; !slices.Contains(p, schemas.Property{Key: "owner", Value: "me"}) {
		t.Errorf("properties %v", p)
	}
	v.close()
}

// What others write into the outcomes topic is passed over: outcomes are read
// beside it (L11).
func TestHostileOutcomes(t *testing.T) {
	v := newVictim(t)
	topic := v.n.Topics().Outcomes
	junk := func() {
		for _, e := range []topology.Entry{{}, {Value: []byte("junk")}, {Key: make([]byte, 8), Value: []byte{1}}, {Key: []byte("k"), Value: make([]byte, 4096)}} {
			v.raw(topic, e)
		}
		// Of a record that is not there.
		k, val, err := record.EncodeOutcomeMessage(nil, nil, &record.OutcomeMessage{Offset: 1 << 40, Type: record.TypeCut, Outcome: record.Outcome{Code: record.Accepted}})
		if err != nil {
			t.Fatal(err)
		}
		v.raw(topic, topology.Entry{Key: k, Value: val})
	}
	junk()
	v.healthy("junk outcomes")
	junk()
	v.again()
	v.healthy("junk outcomes at the end of the topic")
	v.close()
}

// A table that cannot be ingested or published does not hold up the others.
func TestHostileTables(t *testing.T) {
	v := newVictim(t)
	ctx := longContext(t)
	create := func(name string, change func(*schemas.Definition)) record.Outcome {
		t.Helper()
		def := definition(name, source.RowsJSON, []schemas.Field{{Name: "id", Type: schemas.Of(schemas.Long)}})
		def.Location = v.n.Store().Location("shop/" + name)
		change(&def)
		if _, err := v.n.Produce(ctx, name, 1, events(`{"id":1}`), nil); err != nil && !strings.Contains(name, "/") {
			t.Fatal(err)
		}
		return v.outcome(v.inject(v.message(&record.CreateTable{Definition: def}, func(e *record.Envelope) { e.Table, e.TableID = name, -1 })))
	}
	if o := create("up/../../x", func(*schemas.Definition) {}); o.Code != record.Rejected {
		t.Errorf("a table by a path: %v %v", o.Code, o.Reason)
	}
	for name, change := range map[string]func(*schemas.Definition){
		"format":   func(d *schemas.Definition) { d.Format = "nonsense" },
		"option":   func(d *schemas.Definition) { d.FormatOptions = []schemas.Property{{Key: "nonsense", Value: "x"}} },
		"location": func(d *schemas.Definition) { d.Location = "file:///etc/varve" },
		"scheme":   func(d *schemas.Definition) { d.Location = "nonsense" },
		"topic":    func(d *schemas.Definition) { d.SourceTopic = "not there" },
	} {
		if o := create(name, change); o.Code != record.Accepted && o.Reason != record.BadDefinition {
			t.Errorf("table %s: %v %v", name, o.Code, o.Reason)
		}
	}
	v.healthy("tables that cannot work")
	v.again()
	v.healthy("tables that cannot work, at a start")
	v.p.Close()
	_ = v.n.Close(ctx) // tells of the tables that could not be published
}

// Metadata of another writer stops a table in plain words, not in silence (foundations.md).
func TestHostileMetadata(t *testing.T) {
	for what, content := range map[string]func([]byte) []byte{
		"foreign": func(b []byte) []byte {
			return bytes.Replace(b, []byte(`"last-updated-ms":1`), []byte(`"last-updated-ms":2`), 1)
		},
		"junk": func([]byte) []byte { return []byte("junk") },
	} {
		t.Run(what, func(t *testing.T) {
			v := newVictim(t)
			dir := filepath.Join(v.data, "lake/shop/victim/metadata")
			head := v.info().Head
			now, err := os.ReadFile(localPath(t, head.MetadataPath))
			if err != nil {
				t.Fatal(err)
			}
			next := filepath.Join(dir, fmt.Sprintf("v%d.metadata.json", head.MetadataVersion+1))
			if err := os.WriteFile(next, content(now), 0o644); err != nil {
				t.Fatal(err)
			}
			v.put(3, "three")
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if err := v.n.WaitLoaded(ctx, victimTable, nil); err == nil || !strings.Contains(err.Error(), next) {
				t.Fatalf("got %v; want an error that names %s", err, next)
			}
			v.waits(next)
			v.close()
			if err := os.Remove(next); err != nil {
				t.Fatal(err)
			}
			v.open()
			v.healthy("it was moved away")
			v.close()
		})
	}
}

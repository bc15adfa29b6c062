package state_test

import (
	"context"
	"testing"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/processors/state"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/objstore"
)

// asked is a log that notes what was appended and takes nothing.
type asked struct{ cuts int }

func (a *asked) Append(m record.Message, done func(int64, error)) {
	a.cuts++
	done(-1, nil)
}

// TestHeldCut: after another writer's clock was ahead, a definition alone is
// not cut until the catalog's own clock is there, and with rows at once: a
// catalog would refuse it, and the rows would wait behind it (S2).
func TestHeldCut(t *testing.T) {
	ctx := context.Background()
	for _, version := range []int64{0, 1} { // an outside catalog's table has no version of ours
		st, err := statestore.Open(t.TempDir(), statestore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		bodies := processors.NewBodies(objstore.NewMem(), "varve")
		log := &asked{}
		m := state.New(state.Config{Store: st, Bodies: bodies, Log: log, Outcomes: taken{}})
		const now, ahead = 1_700_000_000_000, 600_000
		table, id := "shop.orders", int64(-1)
		apply := func(v any) *record.Outcome {
			t.Helper()
			message, err := bodies.Message(ctx, record.Envelope{ApplyVersion: 1, Request: record.NewRequestID(), OffsetSeen: m.Next() - 1, Table: table, TableID: id}, v)
			if err != nil {
				t.Fatal(err)
			}
			out, err := st.Apply(&statestore.Record{Key: message.Key, Header: message.Header[:], Value: message.Value, Offset: m.Next(), TimeMs: now})
			if err != nil || out.Outcome.Code != record.Accepted {
				t.Fatalf("%s: %+v, %v", record.TypeOf(v), out.Outcome, err)
			}
			id = out.TableID
			return &out.Outcome
		}
		table = ""
		apply(&record.SetApplyVersion{Deployment: [16]byte{1}, Partitions: 1, Version: 1})
		table, id = "shop.orders", -1
		apply(&record.CreateTable{Definition: schemas.Definition{
			Name: table, Location: "mem://store/shop/orders", FormatVersion: 3, Mode: schemas.ModeDV,
			Schemas:      []schemas.Schema{{Identifier: []int32{1}, Fields: []schemas.Field{{ID: 1, Name: "id", Type: schemas.Of(schemas.Long), Required: true}}}},
			LastColumnID: 1, Specs: []schemas.Spec{{}}, LastPartitionID: 999, Key: []int32{1}, SourceTopic: "orders", Format: "rows-json",
			CommitIntervalMs: 1000, TombstoneTTLMs: 1000, RetentionMs: 10_000, RetentionCount: 5,
		}})
		build := apply(&record.Cut{}).Numbers[0]
		apply(&record.SnapshotCommitted{Cut: build, Build: build, TimestampMs: now + ahead, MetadataVersion: version, MetadataPath: "mem://store/m"})
		apply(&record.AlterTable{Set: []schemas.Property{{Key: "owner", Value: "varve"}}})
		tick := func(at int64) (held, cuts int) {
			log.cuts = 0
			m = state.New(state.Config{Store: st, Bodies: bodies, Log: log, Outcomes: taken{}}) // none that asked before
			m.Ready()
			m.Tick(ctx, at)
			return len(m.Held()), log.cuts
		}
		if held, cuts := tick(now); version == 0 && (held != 1 || cuts != 0 || m.Held()[0].UntilMs != now+ahead) || version == 1 && (held != 0 || cuts != 1) {
			t.Errorf("metadata version %d: %d cuts held, %d asked for while the catalog's clock is ahead", version, held, cuts)
		}
		if held, cuts := tick(now + ahead); held != 0 || cuts != 1 {
			t.Errorf("metadata version %d: %d cuts held, %d asked for when the time has come", version, held, cuts)
		}
		claim := apply(&record.ClaimShard{Shard: record.ShardKey{TopicID: [16]byte{9}, Topic: "orders"}})
		ref, err := bodies.Put(ctx, rowsBody(t))
		if err != nil {
			t.Fatal(err)
		}
		apply(&record.AppendRows{
			Shard: record.ShardKey{TopicID: [16]byte{9}, Topic: "orders"}, Epoch: m.Next() - 1, Counter: 1, SourceTo: 3, RequestFrom: m.Next() - 1, RequestTo: m.Next() - 1, Changes: &ref,
			Files: []record.DataFile{{ID: statestore.FileID(uint32(claim.Numbers[record.ClaimWriter]), 1), Rows: 3, Bytes: 100}},
		})
		if held, cuts := tick(now + 2000); held != 0 || cuts != 1 {
			t.Errorf("metadata version %d: %d cuts held, %d asked for with rows to publish", version, held, cuts)
		}
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}
}

type taken struct{}

func (taken) Send(_ statestore.Message, done func(error)) { done(nil) }

func rowsBody(t *testing.T) []byte {
	t.Helper()
	text, err := record.EncodeRowsBody(nil, &record.RowsBody{})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

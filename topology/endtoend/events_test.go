package endtoend

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/source"
	"github.com/varve-io/varve/topology"
)

// workload is a table and the events of its source, which follow from the seed
// alone: event i of a partition is always the same.
type workload struct {
	def        schemas.Definition
	partitions int
	key        string                 // the key column
	owner      func(key string) int32 // the partition that has a key
	event      func(seed uint64, partition int32, i int) event
}

func definition(name string, format string, fields []schemas.Field) schemas.Definition {
	for i := range fields {
		fields[i].ID = int32(i + 1)
	}
	fields[0].Required = true
	return schemas.Definition{
		Name: name, FormatVersion: 3, Mode: schemas.ModeDV,
		Schemas:      []schemas.Schema{{Identifier: []int32{1}, Fields: fields}},
		LastColumnID: int32(len(fields)), Specs: []schemas.Spec{{}}, LastPartitionID: 999, Key: []int32{1},
		SourceTopic: name, Format: format, CommitIntervalMs: 100, TombstoneTTLMs: schemas.DefaultTombstoneTTLMs,
		RetentionMs: schemas.DefaultRetentionMs, RetentionCount: schemas.DefaultRetentionCount,
	}
}

// orders are Debezium events of a partitioned table whose order is a path of
// the event: upserts, deletes, tombstones, key changes, late events, events
// without order, bad ones and heartbeats. Past the event changeAt they have a
// column that the table lacks.
func orders(name string, keys, changeAt int) workload {
	const partitions = 3
	def := definition(name, source.DebeziumJSON, []schemas.Field{
		{Name: "id", Type: schemas.Of(schemas.Long)}, {Name: "region", Type: schemas.Of(schemas.String)},
		{Name: "qty", Type: schemas.Of(schemas.Int)}, {Name: "price", Type: schemas.Of(schemas.Double)},
	})
	def.Specs = []schemas.Spec{{Fields: []schemas.PartitionField{{SourceID: 2, FieldID: 1000, Name: "region", Transform: schemas.Identity}}}}
	def.LastPartitionID = 1000
	def.Order = schemas.Order{Kind: schemas.OrderByPath, Path: "source.ts_ms"}
	return workload{def: def, partitions: partitions, key: "id", owner: idOwner, event: func(seed uint64, p int32, i int) event {
		r := rng(seed, 1, uint64(p), uint64(i))
		id := func() int { return int(p) + partitions*r.IntN(keys) }
		k := id()
		var order *int64
		src := `"source":{"table":"orders"}`
		if r.IntN(20) > 0 {
			o := int64(1000 + i*10 - r.IntN(100)*r.IntN(4))
			order = &o
			src = fmt.Sprintf(`"source":{"table":"orders","ts_ms":%d}`, o)
		}
		e := event{key: fmt.Appendf(nil, `{"id":%d}`, k)}
		upsert := func(op, before string) {
			v := row{"id": str("%d", k), "region": nil, "qty": str("%d", r.IntN(1000)-500), "price": nil}
			after := fmt.Sprintf(`"id":%d,"qty":%s`, k, *v["qty"])
			if g := r.IntN(5); g > 0 {
				v["region"] = str("r%d", g)
				after += fmt.Sprintf(`,"region":"r%d"`, g)
			} else {
				after += `,"region":null`
			}
			if r.IntN(3) > 0 {
				v["price"] = str("%d.5", r.IntN(100))
				after += `,"price":` + *v["price"]
			}
			if i > changeAt && r.IntN(2) == 0 {
				v["note"] = str("n-%d-%d", p, i)
				after += `,"note":"` + *v["note"] + `"`
			}
			e.value = fmt.Appendf(nil, `{"before":%s,"after":{%s},"op":"%s",%s}`, before, after, op, src)
			e.effects = append(e.effects, effect{*v["id"], v, order})
		}
		switch x := r.IntN(100); {
		case x < 65:
			upsert([]string{"c", "u", "r"}[r.IntN(3)], "null")
		case x < 78:
			e.value = fmt.Appendf(nil, `{"before":{"id":%d,"qty":0},"after":null,"op":"d",%s}`, k, src)
			e.effects = []effect{{fmt.Sprint(k), nil, order}}
		case x < 84: // a tombstone has no order
			e.effects = []effect{{fmt.Sprint(k), nil, nil}}
		case x < 90: // the key changes
			old := id()
			if old != k {
				e.effects = []effect{{fmt.Sprint(old), nil, order}}
			}
			upsert("u", fmt.Sprintf(`{"id":%d}`, old))
		case x < 96:
			e.bad = true
			bad := []string{`{"op":"c"`, `{"after":{"id":null},"op":"c"}`, `{"after":{"id":"x"},"op":"c"}`, `{"before":{"id":"x"},"op":"d"}`, `[]`, `{"op":"t"}`, ``}
			e.value = []byte(bad[r.IntN(len(bad))])
		default:
			e.key, e.value = []byte(`{}`), fmt.Appendf(nil, `{"ts_ms":%d}`, i)
		}
		return e
	}}
}

// users are plain JSON rows with a text key and an ordering column: upserts
// with and without a value, flattened deletes, tombstones, bad rows. From the
// event changeAt on, some carry a schema with a wider column and a new one.
func users(name string, keys, changeAt int) workload {
	const partitions = 2
	def := definition(name, source.RowsJSON, []schemas.Field{
		{Name: "name", Type: schemas.Of(schemas.String)}, {Name: "ver", Type: schemas.Of(schemas.Long)},
		{Name: "score", Type: schemas.Of(schemas.Int)}, {Name: "ok", Type: schemas.Of(schemas.Boolean)},
	})
	def.Order = schemas.Order{Kind: schemas.OrderByColumn, Column: 2}
	return workload{def: def, partitions: partitions, key: "name", owner: nameOwner, event: func(seed uint64, p int32, i int) event {
		r := rng(seed, 2, uint64(p), uint64(i))
		k := fmt.Sprintf("ü-%03d-%d", r.IntN(keys), p)
		e := event{key: fmt.Appendf(nil, `{"name":"%s"}`, k)}
		var order *int64
		v := row{"name": &k, "ver": nil, "score": nil, "ok": nil}
		fields := []string{fmt.Sprintf(`"name":"%s"`, k)}
		if r.IntN(10) > 0 {
			o := int64(i - r.IntN(12))
			order = &o
			v["ver"] = str("%d", o)
			fields = append(fields, fmt.Sprintf(`"ver":%d`, o))
		}
		wide := i >= changeAt && r.IntN(2) == 0
		switch x := r.IntN(100); {
		case x < 75:
			if r.IntN(4) > 0 {
				v["score"] = str("%d", r.IntN(100_000))
				if wide {
					v["score"] = str("%d", 3_000_000_000+r.Int64N(1000))
				}
				fields = append(fields, `"score":`+*v["score"])
			}
			if r.IntN(2) > 0 {
				v["ok"] = str("%t", r.IntN(2) > 0)
				fields = append(fields, `"ok":`+*v["ok"])
			}
			if wide {
				v["extra"] = str("%d", r.IntN(10))
				fields = append(fields, `"extra":`+*v["extra"])
			}
			e.value = fmt.Appendf(nil, "{%s}", strings.Join(fields, ","))
			if wide {
				e.value = fmt.Appendf(nil, `{"schema":{"type":"struct","fields":[{"type":"string","field":"name"},{"type":"int64","optional":true,"field":"ver"},`+
					`{"type":"int64","optional":true,"field":"score"},{"type":"boolean","optional":true,"field":"ok"},{"type":"int32","optional":true,"field":"extra"}]},"payload":%s}`, e.value)
			}
			e.effects = []effect{{k, v, order}}
		case x < 85:
			e.value = fmt.Appendf(nil, `{%s,"__deleted":"true"}`, strings.Join(fields, ","))
			if order != nil && *order == 0 { // a database that logs the key alone fills the rest with zeros: no value
				order = nil
			}
			e.effects = []effect{{k, nil, order}}
		case x < 95:
			e.effects = []effect{{k, nil, nil}}
		default:
			e.bad = true
			e.value = []byte([]string{`{"name":5}`, `{"name":null}`, `{"name":"x","ver":"late"}`, `nonsense`}[r.IntN(4)])
		}
		return e
	}}
}

func idOwner(key string) int32 {
	id, err := strconv.Atoi(key)
	if err != nil {
		panic(err)
	}
	return int32(id % 3)
}

func nameOwner(key string) int32 { return int32(key[len(key)-1] - '0') }

// otherPartition is the name with a suffix that brings it into that partition of two.
func otherPartition(name string, p int32) string {
	for i := 0; ; i++ {
		if n := fmt.Sprintf("%s%d", name, i); schemas.PartitionOf(n, 2) == p {
			return n
		}
	}
}

// feed is how far a workload was produced.
type feed struct {
	workload
	seed uint64
	made map[int32][]event
}

func newFeed(w workload, seed uint64) *feed { return &feed{w, seed, map[int32][]event{}} }

// take makes the next n events, spread over the partitions.
func (f *feed) take(n int) func() (*topology.SourceEvent, error) {
	r := rng(f.seed, 3, uint64(f.len()))
	return func() (*topology.SourceEvent, error) {
		if n == 0 {
			return nil, io.EOF
		}
		n--
		p := int32(r.IntN(f.partitions))
		e := f.event(f.seed, p, len(f.made[p]))
		f.made[p] = append(f.made[p], e)
		return &topology.SourceEvent{Key: e.key, Value: e.value, Partition: p}, nil
	}
}

func (f *feed) len() int {
	n := 0
	for _, es := range f.made {
		n += len(es)
	}
	return n
}

func (f *feed) model() *model {
	return &model{events: f.made, keys: map[string]version{}, asked: map[int64][]string{}, owner: f.owner}
}

// TestWorkloads: the events are what the tests say of them.
func TestWorkloads(t *testing.T) {
	for _, w := range []workload{orders("o", 20, 100), users("u", 20, 100)} {
		kinds := map[string]int{}
		for p := range int32(w.partitions) {
			for i := range 500 {
				e := w.event(7, p, i)
				switch {
				case e.bad:
					kinds["bad"]++
				case len(e.effects) == 0:
					kinds["control"]++
				case e.value == nil:
					kinds["tombstone"]++
				case e.effects[0].row == nil:
					kinds["delete"]++
				default:
					kinds["upsert"]++
				}
				if again := w.event(7, p, i); string(again.value) != string(e.value) {
					t.Fatal("an event differs when it is made again")
				}
			}
		}
		for _, k := range []string{"bad", "tombstone", "delete", "upsert"} {
			if kinds[k] == 0 {
				t.Errorf("%s: no %s among %v", w.def.Name, k, kinds)
			}
		}
	}
}

//go:build !race

package source

import (
	"fmt"
	"testing"

	"github.com/varve-io/varve/schemas/rows"
)

// No event of a topic that goes on as it did takes memory of its own. (The race
// detector's build inlines less, and lets values escape that stay on the stack.)
func TestNoAllocationPerEvent(t *testing.T) {
	def := suiteTable(t)
	name := "a name of some length"
	check := func(what string, dec Decoder, recs []*Record) {
		t.Helper()
		b := rows.NewBatch(def.Schema())
		const rounds = 50
		all := func() {
			b.Reset()
			for range rounds {
				for _, r := range recs {
					if _, err := dec.Decode(b, r); err != nil {
						t.Fatalf("%s: %v", what, err)
					}
					dec.Framing(r.Key)
				}
			}
		}
		all()
		if n := testing.AllocsPerRun(5, all); n > 2 {
			t.Errorf("%s: %.1f allocations in %d events", what, n, rounds*len(recs))
		}
	}
	key := []byte(`{"id":7}`)
	all := dialects(t)
	for i, d := range all {
		recs := []*Record{{Key: key, Value: d.upsert(t, 7, &name, 5)}, {Key: key, Value: d.upsert(t, 8, nil, 6)}, {Key: key, Value: d.remove(t, 7, 7)}}
		check(fmt.Sprintf("%s-%d", d.format, i), decoder(t, d.format, def, d.options...), recs)
	}
	json := []byte(`{"before":null,"after":{"id":7,"name":"n"},"source":{"table":"x","seq":4},"op":"c"}`)
	mixed := []*Record{{Key: key, Value: json}, {Key: key, Value: custChange(t, "c", nil, custImage(7, &name), 1)}}
	check("several formats", decoder(t, "debezium-avro,debezium-json", def), mixed)
	routed, err := New(Options{Format: DebeziumJSON, Options: routeOptionsOf("source.table", "x"), Def: def, Schema: def.Schema()})
	if err != nil {
		t.Fatal(err)
	}
	check("routed", routed, []*Record{{Key: key, Value: json}})
	elsewhere, err := New(Options{Format: DebeziumJSON, Options: routeOptionsOf("source.table", "y"), Def: def, Schema: def.Schema()})
	if err != nil {
		t.Fatal(err)
	}
	check("elsewhere", elsewhere, []*Record{{Key: key, Value: json}})
}

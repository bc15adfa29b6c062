package rekey_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/varve-io/varve/processors/rekey"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/schemas/source"
)

func definition(format string) *schemas.Definition {
	return &schemas.Definition{
		Name: "shop.orders", FormatVersion: 3, Mode: schemas.ModeDV, Format: format, SourceTopic: "orders",
		Schemas: []schemas.Schema{{Fields: []schemas.Field{
			{ID: 1, Name: "id", Type: schemas.Of(schemas.Long), Required: true}, {ID: 2, Name: "qty", Type: schemas.Of(schemas.Int)},
		}}},
		LastColumnID: 2, Key: []int32{1}, Specs: []schemas.Spec{{}}, LastPartitionID: 999,
	}
}

// place is where the key of a row must be.
func place(t *testing.T, def *schemas.Definition, id int64, partitions int32) int32 {
	t.Helper()
	e, err := rows.NewKeyEncoder(def.Schema(), def.Key)
	if err != nil {
		t.Fatal(err)
	}
	c := rows.NewColumn(schemas.Of(schemas.Long))
	c.AppendInt(id)
	key, err := e.AppendFrom(nil, []rows.Column{c}, 0)
	if err != nil {
		t.Fatal(err)
	}
	return rekey.PartitionOf(key, partitions)
}

// TestSplit (K5): an event goes where its typed key hashes to, whatever its
// record key's bytes are; one that changes a key goes to both places.
func TestSplit(t *testing.T) {
	const partitions = 7
	def := definition(source.DebeziumJSON)
	s, err := rekey.NewSplitter(def, partitions, nil)
	if err != nil {
		t.Fatal(err)
	}
	used := map[int32]bool{}
	for id := range int64(200) {
		want := place(t, def, id, partitions)
		used[want] = true
		for _, r := range []source.Record{
			{Key: fmt.Appendf(nil, `{"id":%d}`, id), Value: fmt.Appendf(nil, `{"before":null,"after":{"id":%d,"qty":1},"op":"c"}`, id)},
			{Value: fmt.Appendf(nil, `{"before":null,"after":{"qty":1, "id": %d},"op":"u"}`, id)},
			{Key: []byte(`{"region":"x"}`), Value: fmt.Appendf(nil, `{"before":{"id":%d},"after":null,"op":"d"}`, id)},
			{Value: fmt.Appendf(nil, `{"before":null,"after":{"id":%d,"qty":1,"note":"a new column"},"op":"c"}`, id)},
			{Key: fmt.Appendf(nil, `{"schema":null,"payload":{"id":%d}}`, id)},
		} {
			got, err := s.Split(nil, &r)
			if err != nil || !slices.Equal(got, []int32{want}) {
				t.Fatalf("key %s, value %s: partitions %v, %v; want %d", r.Key, r.Value, got, err, want)
			}
		}
		other := id + 1
		r := source.Record{Value: fmt.Appendf(nil, `{"before":{"id":%d},"after":{"id":%d,"qty":1},"op":"u"}`, id, other)}
		got, err := s.Split(nil, &r)
		if err != nil {
			t.Fatal(err)
		}
		both := []int32{want}
		if p := place(t, def, other, partitions); p != want {
			both = append(both, p)
		}
		if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(both))) {
			t.Fatalf("key %d becomes %d: partitions %v, want %v", id, other, got, both)
		}
	}
	if len(used) != partitions {
		t.Errorf("200 keys use %d of %d partitions", len(used), partitions)
	}
}

// TestPlaceUnread: a record in which nothing is read goes where its bytes hash
// to, always the same way; nothing is dropped.
func TestPlaceUnread(t *testing.T) {
	s, err := rekey.NewSplitter(definition(source.DebeziumJSON), 5, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{`{"op":`, `{"after":{"qty":1},"op":"c"}`, `{"op":"t"}`, `{"ts_ms":1}`, ``} {
		r := source.Record{Key: []byte("some key"), Value: []byte(value)}
		if got, err := s.Split(nil, &r); !errors.Is(err, rekey.ErrUnread) || len(got) != 0 {
			t.Errorf("%s: partitions %v, %v", value, got, err)
		}
		if got, err := s.Place(nil, &r); err != nil || !slices.Equal(got, []int32{rekey.PartitionOf(r.Key, 5)}) {
			t.Errorf("%s: placed at %v, %v", value, got, err)
		}
	}
}

// TestOrigin: the header comes back as it was, and nothing else is one.
func TestOrigin(t *testing.T) {
	o := rekey.Origin{TopicID: [16]byte{1, 2, 15: 9}, Partition: 3, Offset: 1 << 40}
	h := []source.Header{{Key: rekey.OriginHeader, Value: o.Append(nil)}, {Key: "mine", Value: []byte("x")}}
	if got, ok := rekey.OriginOf(h); !ok || got != o {
		t.Errorf("%+v, %t", got, ok)
	}
	bad := o
	bad.Offset = -1
	for _, h := range [][]source.Header{nil, h[1:], {{Key: rekey.OriginHeader}}, {h[1], h[0]}, {{Key: rekey.OriginHeader, Value: bad.Append(nil)}}} {
		if _, ok := rekey.OriginOf(h); ok {
			t.Errorf("%v is an origin", h)
		}
	}
}

package record

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

func sampleEnvelope() *Envelope {
	return &Envelope{Type: TypeCut, TypeVersion: 1, ApplyVersion: 1, Request: RequestIDFrom("test"),
		OffsetSeen: 41, Table: "shop.orders", TableID: 7, Body: []byte{}}
}

func TestEnvelopeRoundTrip(t *testing.T) {
	codec := goavroCodec(t, "Envelope")
	rapid.Check(t, func(t *rapid.T) {
		var env Envelope
		fillAt(t, reflect.ValueOf(&env).Elem(), "Envelope")
		var body any
		if env.BodyRef != nil {
			env.Body = nil
			body = native(reflect.ValueOf(env.BodyRef))
		} else {
			env.Body = append([]byte{}, env.Body...)
			body = map[string]any{"bytes": env.Body}
		}
		var m Message
		Encode(&m, &env)
		got := Envelope{Table: "old", Body: []byte("old"), BodyRef: &Ref{}}
		if err := DecodeEnvelope(m.Key, m.Header[:], m.Value, &got); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, env) {
			t.Fatalf("got %+v, want %+v", got, env)
		}
		if HasBodyRef(m.Value) != (env.BodyRef != nil) {
			t.Fatalf("its body is said to lie elsewhere: %t", env.BodyRef == nil)
		}
		form, typ, version, apply, ok := PeekHeader(m.Header[:])
		if !ok || form != Form || typ != env.Type || version != env.TypeVersion || apply != env.ApplyVersion {
			t.Fatalf("header %x reads %d %d %d %d %v", m.Header, form, typ, version, apply, ok)
		}
		avro, rest, err := codec.NativeFromBinary(m.Value[:len(m.Value)-4])
		want := map[string]any{"request": env.Request[:], "offset_seen": env.OffsetSeen,
			"table": env.Table, "table_id": env.TableID, "body": body}
		if err != nil || len(rest) > 0 || !reflect.DeepEqual(avro, want) {
			t.Fatalf("goavro reads %v (%v, %d left), not %v", avro, err, len(rest), want)
		}
		reused := m
		reused.Key, reused.Value = append([]byte("x"), m.Key...), append([]byte("x"), m.Value...)
		Encode(&reused, &env)
		if !bytes.Equal(reused.Key, m.Key) || !bytes.Equal(reused.Value, m.Value) {
			t.Fatal("a message used again has other bytes")
		}
	})
}

// L7: every changed byte of header or value is found; the key must be the table.
func TestEnvelopeDamage(t *testing.T) {
	var m Message
	Encode(&m, sampleEnvelope())
	var env Envelope
	refused := func(what string, key, header, value []byte, want error) {
		t.Helper()
		if err := DecodeEnvelope(key, header, value, &env); !errors.Is(err, want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for i := range m.Value {
		v := bytes.Clone(m.Value)
		v[i] ^= 0x40
		refused("value byte", m.Key, m.Header[:], v, ErrUndecodable)
		refused("value cut", m.Key, m.Header[:], m.Value[:i], ErrUndecodable)
	}
	for i := 1; i < len(m.Header); i++ {
		h := m.Header
		h[i] ^= 0x40
		refused("header byte", m.Key, h[:], m.Value, ErrUndecodable)
		refused("header cut", m.Key, m.Header[:i], m.Value, ErrUndecodable)
	}
	refused("no header", m.Key, nil, m.Value, ErrUndecodable)
	refused("form 0", m.Key, append([]byte{0}, m.Header[1:]...), m.Value, ErrUndecodable)
	refused("long header", m.Key, append(m.Header[:], 0), m.Value, ErrUndecodable)
	refused("another key", []byte("shop.order"), m.Header[:], m.Value, ErrUndecodable)
	refused("no key", nil, m.Header[:], m.Value, ErrUndecodable)
	// L8: of a newer form nothing but the first byte is read.
	refused("newer form", nil, append([]byte{2}, m.Header[1:]...), nil, ErrNewerForm)
	refused("newer form, other header", m.Key, []byte{9, 1, 1}, []byte("?"), ErrNewerForm)
}

func TestPeekHeader(t *testing.T) {
	for _, c := range []struct {
		header string
		form   uint8
		t      Type
		v      uint16
		apply  uint32
		ok     bool
	}{
		{"0106000100000003", 1, TypeAppendRows, 1, 3, true},
		{"01ff123489abcdef", 1, 255, 0x1234, 0x89abcdef, true},
		{"02", 2, 0, 0, 0, true},
		{"02060001000000030000", 2, 0, 0, 0, true},
		{"", 0, 0, 0, 0, false},
		{"0006000100000003", 0, 0, 0, 0, false},
		{"01060001000000", 1, 0, 0, 0, false},
		{"010600010000000300", 1, 0, 0, 0, false},
	} {
		h, err := hex.DecodeString(c.header)
		if err != nil {
			t.Fatal(err)
		}
		form, typ, v, apply, ok := PeekHeader(h)
		if form != c.form || typ != c.t || v != c.v || apply != c.apply || ok != c.ok {
			t.Errorf("%q: %d %d %d %d %v", c.header, form, typ, v, apply, ok)
		}
	}
}

func FuzzEnvelope(f *testing.F) {
	var m Message
	Encode(&m, sampleEnvelope())
	f.Add(m.Key, m.Header[:], m.Value, false)
	f.Add(m.Key, m.Header[:], m.Value[:len(m.Value)-4], true)
	f.Add([]byte(nil), []byte{2}, []byte(nil), false)
	codec := goavroCodec(f, "Envelope")
	f.Fuzz(func(t *testing.T, key, header, value []byte, sum bool) {
		if sum { // so that the fuzzer gets behind the checksum
			value = appendSum(bytes.Clone(value), header)
		}
		var env Envelope
		err := DecodeEnvelope(key, header, value, &env)
		if HasBodyRef(value) != (env.BodyRef != nil) && err == nil {
			t.Fatal("HasBodyRef is wrong")
		}
		if err != nil {
			if !errors.Is(err, ErrUndecodable) && !errors.Is(err, ErrNewerForm) {
				t.Fatal(err)
			}
			return
		}
		avro, rest, err := codec.NativeFromBinary(value[:len(value)-4])
		if err != nil || len(rest) > 0 {
			t.Fatalf("we read what goavro refuses: %v, %d bytes left", err, len(rest))
		}
		m := avro.(map[string]any)
		if m["table"] != env.Table || m["table_id"] != env.TableID || m["offset_seen"] != env.OffsetSeen {
			t.Fatalf("goavro reads %v, we read %+v", m, env)
		}
		var again Message
		Encode(&again, &env)
		var back Envelope
		if err := DecodeEnvelope(again.Key, again.Header[:], again.Value, &back); err != nil || !reflect.DeepEqual(back, env) {
			t.Fatalf("not stable: %+v, then %+v (%v)", env, back, err)
		}
	})
}

func appendSum(value, header []byte) []byte {
	s := checksum(header, value)
	return append(value, byte(s>>24), byte(s>>16), byte(s>>8), byte(s))
}

func TestRequestIDs(t *testing.T) {
	a, b := NewRequestID(), NewRequestID()
	if a == b || a.IsZero() {
		t.Errorf("random ids %s and %s", a, b)
	}
	// SHA-256 of (u64 BE 6 ‖ "create" ‖ u64 BE 1 ‖ "x").
	if got := RequestIDFrom("create", []byte("x")).String(); got != "40e6aa2413e0f138073a20d873d07230" {
		t.Errorf("id is %s", got)
	}
	if RequestIDFrom("ab", []byte("c")) == RequestIDFrom("a", []byte("bc")) ||
		RequestIDFrom("a", []byte("b"), []byte("c")) == RequestIDFrom("a", []byte("bc")) {
		t.Error("parts run into each other")
	}
}

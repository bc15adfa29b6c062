package record

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

func TestOutcomeMessageRoundTrip(t *testing.T) {
	codec := goavroCodec(t, "OutcomeMessage")
	rapid.Check(t, func(t *rapid.T) {
		var m OutcomeMessage
		fillAt(t, reflect.ValueOf(&m).Elem(), "OutcomeMessage")
		m.Outcome.Numbers = m.Outcome.Numbers[:min(len(m.Outcome.Numbers), MaxNumbers)]
		key, value, err := EncodeOutcomeMessage(nil, nil, &m)
		if err != nil {
			t.Fatal(err)
		}
		w := binWriter{b: []byte{1}}
		if m.Definition != nil {
			w.b[0] = OutcomeForm
		}
		outcomeMessageFields(&w, &m)
		if w.err != nil || !bytes.Equal(value[:len(value)-4], w.b) {
			t.Fatalf("by hand\n%x\nnot\n%x (%v)", value, w.b, w.err)
		}
		if !bytes.Contains(value, EncodeOutcome(nil, &m.Outcome)) {
			t.Fatal("the hashed bytes do not stand in the message")
		}
		var got OutcomeMessage
		if err := DecodeOutcomeMessage(key, value, &got); err != nil {
			t.Fatal(err)
		}
		want := native(reflect.ValueOf(m)).(map[string]any)
		if n := native(reflect.ValueOf(got)); !reflect.DeepEqual(n, any(want)) {
			t.Fatalf("we read\n%v\nnot\n%v", n, want)
		}
		delete(want, "offset") // offset and kind stand in the key
		delete(want, "derived")
		avro, rest, err := codec.NativeFromBinary(value[1 : len(value)-4])
		if err != nil || len(rest) > 0 || !reflect.DeepEqual(avro, any(want)) {
			t.Fatalf("goavro reads\n%v (%v, %d left)\nnot\n%v", avro, err, len(rest), want)
		}
	})
}

func TestOutcomeMessageDamage(t *testing.T) {
	m := OutcomeMessage{Offset: 0x0102030405060708, Derived: true, Type: TypeDeleteKeys, Table: "a",
		Outcome: Outcome{Code: Settled}}
	key, value, err := EncodeOutcomeMessage([]byte("k"), []byte("v"), &m)
	if err != nil || key[0] != 'k' || value[0] != 'v' {
		t.Fatalf("%x %x %v", key, value, err)
	}
	key, value = key[1:], value[1:]
	if hex.EncodeToString(key) != "010203040506070801" {
		t.Errorf("key is %x", key)
	}
	var got OutcomeMessage
	if err := DecodeOutcomeMessage(key, value, &got); err != nil || got.Offset != m.Offset || !got.Derived {
		t.Fatalf("%+v %v", got, err)
	}
	for i := range value {
		v := bytes.Clone(value)
		v[i] ^= 0x40
		if err := DecodeOutcomeMessage(key, v, &got); err == nil {
			t.Errorf("changed byte %d of the value not found", i)
		}
		if err := DecodeOutcomeMessage(key, value[:i], &got); !errors.Is(err, ErrUndecodable) {
			t.Errorf("value cut at %d: %v", i, err)
		}
	}
	for i := range key {
		k := bytes.Clone(key)
		k[i] ^= 0x40
		if err := DecodeOutcomeMessage(k, value, &got); !errors.Is(err, ErrUndecodable) {
			t.Errorf("changed byte %d of the key: %v", i, err)
		}
	}
	if err := DecodeOutcomeMessage(key, []byte{OutcomeForm + 1}, &got); !errors.Is(err, ErrNewerForm) {
		t.Errorf("newer form: %v", err)
	}
	m.Table = "\xff"
	if _, _, err := EncodeOutcomeMessage(nil, nil, &m); !errors.Is(err, ErrNotEncodable) {
		t.Errorf("table not UTF-8: %v", err)
	}
	m.Table, m.Outcome.Numbers = "a", make([]int64, MaxNumbers+1)
	if _, _, err := EncodeOutcomeMessage(nil, nil, &m); !errors.Is(err, ErrNotEncodable) {
		t.Errorf("nine numbers: %v", err)
	}
}

func FuzzOutcomeMessage(f *testing.F) {
	m := OutcomeMessage{Offset: 5, Type: TypeCut, Table: "a.b", Outcome: Outcome{Code: Accepted, Numbers: []int64{1}}}
	key, value, err := EncodeOutcomeMessage(nil, nil, &m)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(key, value, false)
	f.Add(key, value[:len(value)-4], true)
	codec := goavroCodec(f, "OutcomeMessage")
	f.Fuzz(func(t *testing.T, key, value []byte, sum bool) {
		if sum {
			value = appendSum(bytes.Clone(value), key)
		}
		var m OutcomeMessage
		if err := DecodeOutcomeMessage(key, value, &m); err != nil {
			if !errors.Is(err, ErrUndecodable) && !errors.Is(err, ErrNewerForm) {
				t.Fatal(err)
			}
			return
		}
		want := native(reflect.ValueOf(m)).(map[string]any)
		delete(want, "offset")
		delete(want, "derived")
		got, rest, err := codec.NativeFromBinary(value[1 : len(value)-4])
		if err != nil || len(rest) > 0 || !reflect.DeepEqual(got, any(want)) {
			t.Fatalf("goavro reads %v (%v, %d left), we read %v", got, err, len(rest), want)
		}
		k, v, err := EncodeOutcomeMessage(nil, nil, &m)
		if err != nil {
			t.Fatal(err)
		}
		var back OutcomeMessage
		if err := DecodeOutcomeMessage(k, v, &back); err != nil || !reflect.DeepEqual(native(reflect.ValueOf(back)), native(reflect.ValueOf(m))) {
			t.Fatalf("not stable: %v", err)
		}
	})
}

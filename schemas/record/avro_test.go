package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"github.com/linkedin/goavro/v2"
	"pgregory.net/rapid"
)

func goavroCodec(t testing.TB, name string) *goavro.Codec {
	t.Helper()
	s, err := Schema(name)
	if err != nil {
		t.Fatal(err)
	}
	c, err := goavro.NewCodec(s)
	if err != nil {
		t.Fatalf("%s.avsc: %v", name, err)
	}
	return c
}

// Every value of every type: our bytes are goavro's bytes, goavro reads ours
// as what the struct says, and we read them back.
func TestEqualToGoavro(t *testing.T) {
	for _, f := range forms() {
		t.Run(f.name, func(t *testing.T) {
			codec := goavroCodec(t, f.name)
			rapid.Check(t, func(t *rapid.T) {
				v := f.fresh()
				fill(t, reflect.ValueOf(v).Elem())
				want := native(reflect.ValueOf(v).Elem())

				b, err := f.encode([]byte("before"), v)
				if err != nil {
					t.Fatal(err)
				}
				b, ok := bytes.CutPrefix(b, []byte("before"))
				if !ok {
					t.Fatal("encode did not append")
				}
				got, rest, err := codec.NativeFromBinary(b)
				if err != nil || len(rest) > 0 {
					t.Fatalf("goavro: %v, %d bytes left", err, len(rest))
				}
				if !reflect.DeepEqual(got, want) {
					t.Fatalf("goavro reads\n%v\nnot\n%v", got, want)
				}
				theirs, err := codec.BinaryFromNative(nil, want)
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(theirs, b) {
					t.Fatalf("goavro writes\n%x\nwe write\n%x", theirs, b)
				}
				back, err := f.decode(b)
				if err != nil {
					t.Fatal(err)
				}
				if n := native(reflect.ValueOf(back).Elem()); !reflect.DeepEqual(n, want) {
					t.Fatalf("we read\n%v\nnot\n%v", n, want)
				}
				for cut := range b {
					if _, err := f.decode(b[:cut]); !errors.Is(err, ErrUndecodable) {
						t.Fatalf("cut at %d of %d: %v", cut, len(b), err)
					}
				}
				if _, err := f.decode(append(b, 0)); !errors.Is(err, ErrUndecodable) {
					t.Fatalf("a byte too many: %v", err)
				}
			})
		})
	}
}

// For any bytes: goavro reads what we read, or we refuse (L7). What we read we
// write in one stable form.
func FuzzDecode(f *testing.F) {
	all := forms()
	codecs := make([]*goavro.Codec, len(all))
	for i, x := range all {
		codecs[i] = goavroCodec(f, x.name)
		empty, err := x.encode(nil, x.fresh())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(i), empty)
	}
	for _, g := range goldenSeeds(f) {
		for i, x := range all {
			if x.name == g.name {
				f.Add(uint8(i), g.body)
			}
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, b []byte) {
		i := int(which) % len(all)
		v, err := all[i].decode(b)
		if err != nil {
			if !errors.Is(err, ErrUndecodable) {
				t.Fatalf("%s: %v is not ErrUndecodable", all[i].name, err)
			}
			return
		}
		want := native(reflect.ValueOf(v).Elem())
		got, rest, err := codecs[i].NativeFromBinary(b)
		if err != nil || len(rest) > 0 {
			t.Fatalf("%s: we read what goavro refuses: %v, %d bytes left", all[i].name, err, len(rest))
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%s: goavro reads\n%v\nwe read\n%v", all[i].name, got, want)
		}
		once, err := all[i].encode(nil, v)
		if err != nil {
			t.Fatalf("%s: what was read cannot be written: %v", all[i].name, err)
		}
		again, err := all[i].decode(once)
		if err != nil {
			t.Fatalf("%s: what was written cannot be read: %v", all[i].name, err)
		}
		twice, err := all[i].encode(nil, again)
		if err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("%s: not stable: %x, then %x (%v)", all[i].name, once, twice, err)
		}
	})
}

// A named type that stands in several schema files is the same in all.
func TestSharedNamedTypes(t *testing.T) {
	seen := map[string]any{}
	var visit func(file string, x any)
	visit = func(file string, x any) {
		switch x := x.(type) {
		case []any:
			for _, y := range x {
				visit(file, y)
			}
		case map[string]any:
			if name, ok := x["name"].(string); ok && x["type"] != nil && (x["fields"] != nil || x["size"] != nil) {
				plain := map[string]any{}
				for k, v := range x {
					if k != "namespace" {
						plain[k] = v
					}
				}
				// Within a file a type is spelt out at its first use only.
				shape := flatten(plain)
				if old, dup := seen[name]; dup && !reflect.DeepEqual(old, shape) {
					t.Errorf("%s.avsc: type %s differs from another file's", file, name)
				}
				seen[name] = shape
			}
			for _, y := range x {
				visit(file, y)
			}
		}
	}
	for _, name := range SchemaNames() {
		s, err := Schema(name)
		if err != nil {
			t.Fatal(err)
		}
		var x any
		if err := json.Unmarshal([]byte(s), &x); err != nil {
			t.Fatalf("%s.avsc: %v", name, err)
		}
		if x.(map[string]any)["name"] != name {
			t.Errorf("%s.avsc names %v", name, x.(map[string]any)["name"])
		}
		visit(name, x)
	}
}

// flatten replaces the named types inside x by their names.
func flatten(x any) any {
	m, ok := x.(map[string]any)
	if !ok {
		return x
	}
	out := map[string]any{}
	for k, v := range m {
		out[k] = v
	}
	if fields, ok := m["fields"].([]any); ok {
		var flat []any
		for _, f := range fields {
			field := map[string]any{}
			for k, v := range f.(map[string]any) {
				field[k] = v
			}
			field["type"] = nameOfType(field["type"])
			flat = append(flat, field)
		}
		out["fields"] = flat
	}
	return out
}

func nameOfType(x any) any {
	switch x := x.(type) {
	case []any:
		var out []any
		for _, y := range x {
			out = append(out, nameOfType(y))
		}
		return out
	case map[string]any:
		if x["type"] == "array" {
			return map[string]any{"type": "array", "items": nameOfType(x["items"])}
		}
		return x["name"]
	}
	return x
}

func TestUnknownTypes(t *testing.T) {
	for _, c := range []struct {
		t       Type
		version uint16
	}{{0, 1}, {TypeRequestErasure, 1}, {200, 1}, {TypeCut, 2}, {TypeCut, 0}} {
		if _, err := DecodeBody(c.t, c.version, nil); !errors.Is(err, ErrUnknownType) {
			t.Errorf("%s version %d: %v", c.t, c.version, err)
		}
	}
	if _, err := EncodeBody(nil, "text"); !errors.Is(err, ErrNotEncodable) {
		t.Errorf("a string is no record: %v", err)
	}
}

// A struct and a pointer to it have the same bytes; a refusal leaves dst.
func TestEncodeBodyByValue(t *testing.T) {
	for typ := range typeNames {
		p := New(Type(typ))
		if p == nil {
			continue
		}
		byPointer, err1 := EncodeBody(nil, p)
		byValue, err2 := EncodeBody(nil, reflect.ValueOf(p).Elem().Interface())
		if err1 != nil || err2 != nil || !bytes.Equal(byPointer, byValue) {
			t.Errorf("%s: %x, %v; %x, %v", Type(typ), byPointer, err1, byValue, err2)
		}
		if TypeOf(p) != Type(typ) || TypeOf(reflect.ValueOf(p).Elem().Interface()) != Type(typ) {
			t.Errorf("%s: TypeOf says %s", Type(typ), TypeOf(p))
		}
	}
	dst := []byte("kept")
	for _, v := range []any{
		&SkipSource{Cause: "\xff"},
		&AppendRows{Shard: ShardKey{Topic: "\xff"}},
		&AppendRows{Changes: &Ref{Path: "\xff"}},
	} {
		got, err := EncodeBody(dst, v)
		if !errors.Is(err, ErrNotEncodable) || string(got) != "kept" {
			t.Errorf("%T: %q, %v", v, got, err)
		}
	}
}

// Counts are bounded by what is left before anything is allocated.
func TestCountsAreBounded(t *testing.T) {
	huge := appendLong(nil, 1<<40)
	body := append(bytes.Repeat([]byte{0}, 16+1+1+8), huge...) // AppendRows up to files
	if _, err := DecodeBody(TypeAppendRows, 1, body); !errors.Is(err, ErrUndecodable) {
		t.Errorf("AppendRows: %v", err)
	}
	if err := DecodeKeysBody(huge, new(KeysBody)); !errors.Is(err, ErrUndecodable) {
		t.Errorf("KeysBody: %v", err)
	}
	if err := DecodeRowsBody(huge, new(RowsBody)); !errors.Is(err, ErrUndecodable) {
		t.Errorf("RowsBody: %v", err)
	}
	var o Outcome
	many := Outcome{Numbers: make([]int64, MaxNumbers)}
	b := EncodeOutcome(nil, &many)
	b = bytes.Replace(b, append(appendLong(nil, MaxNumbers), make([]byte, MaxNumbers)...),
		append(appendLong(nil, MaxNumbers+1), make([]byte, MaxNumbers+1)...), 1)
	if err := DecodeOutcome(b, &o); !errors.Is(err, ErrUndecodable) {
		t.Errorf("nine numbers: %v", err)
	}
}

// Blocks as other writers make them: several, and with their size in bytes.
func TestArrayBlocks(t *testing.T) {
	keys := func(b ...byte) error { return DecodeKeysBody(b, new(KeysBody)) }
	var got KeysBody
	several := []byte{2, 2, 'a', 1, 4, 2, 'b', 2, 4, 'c', 'd', 0} // 1 of "a"; −1, 2 bytes, "b"; 1 of "cd"
	if err := DecodeKeysBody(several, &got); err != nil || len(got.Keys) != 3 || string(got.Keys[2]) != "cd" {
		t.Errorf("%q, %v", got.Keys, err)
	}
	for name, err := range map[string]error{
		"size too small":      keys(1, 2, 2, 'b', 0),
		"size too large":      keys(1, 6, 2, 'b', 0),
		"size beyond the end": keys(1, 40, 2, 'b', 0),
		"negative size":       keys(1, 1, 2, 'b', 0),
		"no end":              keys(2, 2, 'a'),
		"descending":          keys(4, 2, 'b', 2, 'a', 0),
		"twice the same":      keys(4, 2, 'b', 2, 'b', 0),
	} {
		if !errors.Is(err, ErrUndecodable) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

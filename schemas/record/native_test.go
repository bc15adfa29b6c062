package record

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"unicode"

	"pgregory.net/rapid"

	"github.com/varve-io/varve/schemas"
)

// A form under test: each record type, each body, the definition, outcomes.
type form struct {
	name   string
	fresh  func() any
	encode func(dst []byte, v any) ([]byte, error)
	decode func(b []byte) (any, error)
}

func forms() []form {
	var all []form
	for t := range typeNames {
		if v := New(Type(t)); v != nil {
			all = append(all, form{
				name:   Type(t).String(),
				fresh:  func() any { return New(Type(t)) },
				encode: EncodeBody,
				decode: func(b []byte) (any, error) { return DecodeBody(Type(t), BodyVersion(Type(t)), b) },
			})
		}
	}
	return append(all, form{
		name:   "RowsBody",
		fresh:  func() any { return new(RowsBody) },
		encode: func(dst []byte, v any) ([]byte, error) { return EncodeRowsBody(dst, v.(*RowsBody)) },
		decode: func(b []byte) (any, error) { v := new(RowsBody); return v, DecodeRowsBody(b, v) },
	}, form{
		name:   "KeysBody",
		fresh:  func() any { return new(KeysBody) },
		encode: func(dst []byte, v any) ([]byte, error) { return EncodeKeysBody(dst, v.(*KeysBody)) },
		decode: func(b []byte) (any, error) { v := new(KeysBody); return v, DecodeKeysBody(b, v) },
	}, form{
		name:   "TreeBody",
		fresh:  func() any { return new(TreeBody) },
		encode: func(dst []byte, v any) ([]byte, error) { return EncodeTreeBody(dst, v.(*TreeBody)) },
		decode: func(b []byte) (any, error) { v := new(TreeBody); return v, DecodeTreeBody(b, v) },
	}, form{
		name:   "WhereBody",
		fresh:  func() any { return new(WhereBody) },
		encode: func(dst []byte, v any) ([]byte, error) { return EncodeWhereBody(dst, v.(*WhereBody)) },
		decode: func(b []byte) (any, error) { v := new(WhereBody); return v, DecodeWhereBody(b, v) },
	}, form{
		name:   "Definition",
		fresh:  func() any { return new(schemas.Definition) },
		encode: func(dst []byte, v any) ([]byte, error) { return EncodeDefinition(dst, v.(*schemas.Definition)) },
		decode: func(b []byte) (any, error) { v := new(schemas.Definition); return v, DecodeDefinition(b, v) },
	}, form{
		name:  "Dispatch",
		fresh: func() any { return new(Dispatch) },
		encode: func(dst []byte, v any) ([]byte, error) {
			b, err := EncodeDispatch(nil, v.(*Dispatch))
			if err != nil {
				return dst, err
			}
			return append(dst, b[1:len(b)-crcSize]...), nil
		},
		decode: func(b []byte) (any, error) {
			all := append([]byte{DispatchForm}, b...)
			v := new(Dispatch)
			return v, DecodeDispatch(binary.BigEndian.AppendUint32(all, checksum(nil, all)), v)
		},
	}, form{
		name:  "FindDispatch",
		fresh: func() any { return new(FindDispatch) },
		encode: func(dst []byte, v any) ([]byte, error) {
			b, err := EncodeFind(nil, v.(*FindDispatch))
			if err != nil {
				return dst, err
			}
			return append(dst, b[1:len(b)-crcSize]...), nil
		},
		decode: func(b []byte) (any, error) {
			all := append([]byte{FindForm}, b...)
			v := new(FindDispatch)
			return v, DecodeFind(binary.BigEndian.AppendUint32(all, checksum(nil, all)), v)
		},
	}, form{
		name:  "Heartbeat",
		fresh: func() any { return new(Heartbeat) },
		encode: func(dst []byte, v any) ([]byte, error) {
			b, err := EncodeHeartbeat(nil, v.(*Heartbeat))
			if err != nil {
				return dst, err
			}
			return append(dst, b[1:len(b)-crcSize]...), nil
		},
		decode: func(b []byte) (any, error) {
			all := append([]byte{HeartbeatForm}, b...)
			v := new(Heartbeat)
			return v, DecodeHeartbeat(binary.BigEndian.AppendUint32(all, checksum(nil, all)), v)
		},
	}, form{
		name:   "Outcome",
		fresh:  func() any { return new(Outcome) },
		encode: func(dst []byte, v any) ([]byte, error) { return EncodeOutcome(dst, v.(*Outcome)), nil },
		decode: func(b []byte) (any, error) { v := new(Outcome); return v, DecodeOutcome(b, v) },
	})
}

// fill draws a value for everything in v, by Go type alone, so that a field
// forgotten by a codec is found.
func fill(t *rapid.T, v reflect.Value) {
	fillAt(t, v, v.Type().Name())
	switch x := v.Addr().Interface().(type) {
	case *RowsBody:
		x.Changes = ascending(x.Changes, func(c KeyChange) []byte { return c.Key })
	case *KeysBody:
		x.Keys = ascending(x.Keys, func(k []byte) []byte { return k })
	case *TreeBody:
		for i := range x.Items {
			x.Items[i].Keys = ascending(x.Items[i].Keys, func(k []byte) []byte { return k })
		}
	case *Outcome:
		x.Numbers = x.Numbers[:min(len(x.Numbers), MaxNumbers)]
	}
}

// ascending keeps what is above all before it.
func ascending[T any](s []T, key func(T) []byte) []T {
	var out []T
	for _, x := range s {
		if len(out) == 0 || string(key(out[len(out)-1])) < string(key(x)) {
			out = append(out, x)
		}
	}
	return out
}

func fillAt(t *rapid.T, v reflect.Value, path string) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, path))
	case reflect.Int32:
		v.SetInt(int64(rapid.Int32().Draw(t, path)))
	case reflect.Int64:
		v.SetInt(rapid.Int64().Draw(t, path))
	case reflect.Uint8:
		v.SetUint(uint64(rapid.Uint8().Draw(t, path)))
	case reflect.Uint16:
		v.SetUint(uint64(rapid.Uint16().Draw(t, path)))
	case reflect.Uint32:
		v.SetUint(uint64(rapid.Uint32().Draw(t, path)))
	case reflect.Uint64:
		v.SetUint(rapid.Uint64().Draw(t, path))
	case reflect.String:
		v.SetString(rapid.StringN(0, 12, -1).Draw(t, path))
	case reflect.Array:
		for i := range v.Len() {
			v.Index(i).SetUint(uint64(rapid.Byte().Draw(t, path)))
		}
	case reflect.Pointer:
		if rapid.Bool().Draw(t, path+"?") {
			v.Set(reflect.New(v.Type().Elem()))
			fillAt(t, v.Elem(), path)
		}
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[json.RawMessage]() {
			if s := rapid.StringN(0, 5, -1).Draw(t, path); s != "" {
				v.SetBytes([]byte(s))
			}
			return
		}
		n := rapid.IntRange(0, 3).Draw(t, path+"#")
		if n == 0 {
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			fillAt(t, v.Index(i), path)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if has, ok := guard(v, i); ok && !has {
				continue
			}
			fillAt(t, v.Field(i), path+"."+v.Type().Field(i).Name)
		}
	default:
		panic(fmt.Sprintf("%s: no way to fill a %s", path, v.Type()))
	}
}

// guard is the value of HasX in front of field X.
func guard(v reflect.Value, i int) (has, ok bool) {
	if i == 0 || v.Type().Field(i-1).Name != "Has"+v.Type().Field(i).Name {
		return false, false
	}
	return v.Field(i - 1).Bool(), true
}

// native is what goavro makes of v's bytes, built from the Go struct alone:
// its fields in order, names in snake_case, HasX and X one optional field.
func native(v reflect.Value) any {
	switch v.Kind() {
	case reflect.Bool:
		return v.Bool()
	case reflect.Int32:
		return int32(v.Int())
	case reflect.Int64:
		return v.Int()
	case reflect.Uint8, reflect.Uint16:
		return int32(v.Uint())
	case reflect.Uint32, reflect.Uint64:
		return int64(v.Uint())
	case reflect.String:
		return v.String()
	case reflect.Array:
		b := make([]byte, v.Len())
		reflect.Copy(reflect.ValueOf(b), v)
		return b
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return map[string]any{"varve." + v.Type().Elem().Name(): native(v.Elem())}
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[json.RawMessage]() {
			return optionalNative(v.Len() > 0, string(v.Bytes()))
		}
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return append([]byte{}, v.Bytes()...)
		}
		out := []any{}
		for i := range v.Len() {
			out = append(out, native(v.Index(i)))
		}
		return out
	case reflect.Struct:
		out := map[string]any{}
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			switch has, ok := guard(v, i); {
			case ok:
				out[snake(name)] = optionalNative(has, native(v.Field(i)))
			case i+1 < v.NumField() && "Has"+v.Type().Field(i+1).Name == name:
			case name == "Items" && v.Type() == reflect.TypeFor[Outcome]():
				out["items"] = optionalNative(!v.Field(i).IsNil(), native(v.Field(i)))
			default:
				out[snake(name)] = native(v.Field(i))
			}
		}
		return out
	}
	panic("no native form of " + v.Type().String())
}

func optionalNative(has bool, x any) any {
	if !has {
		return nil
	}
	switch x.(type) {
	case int64:
		return map[string]any{"long": x}
	case string:
		return map[string]any{"string": x}
	case []byte:
		return map[string]any{"bytes": x}
	}
	panic(fmt.Sprintf("no optional %T", x))
}

func snake(name string) string {
	if name == "NaNs" {
		return "nans"
	}
	var out strings.Builder
	r := []rune(name)
	for i, c := range r {
		if i > 0 && unicode.IsUpper(c) && (unicode.IsLower(r[i-1]) || i+1 < len(r) && unicode.IsLower(r[i+1])) {
			out.WriteByte('_')
		}
		out.WriteRune(unicode.ToLower(c))
	}
	return out.String()
}

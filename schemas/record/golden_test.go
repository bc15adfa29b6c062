package record

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/varve-io/varve/schemas"
)

// testdata/golden holds one instance of each form, as JSON and as bytes. A
// format that changes by accident fails here.
func TestGolden(t *testing.T) {
	named := map[string]bool{}
	datadriven.RunTest(t, "testdata/golden", func(t *testing.T, d *datadriven.TestData) string {
		named[d.Cmd] = true
		b, json, err := goldenForm(d.Cmd, []byte(d.Input))
		if err != nil {
			return "error: " + err.Error() + "\n"
		}
		compact := strings.Join(strings.Fields(d.Input), "")
		if got := strings.Join(strings.Fields(string(json)), ""); got != compact {
			t.Errorf("%s: the bytes read back as\n%s", d.Pos, json)
		}
		return dump(b)
	})
	for _, name := range SchemaNames() {
		if !named[name] {
			t.Errorf("no golden bytes of %s", name)
		}
	}
}

// goldenForm is the bytes of the form that in describes, and the JSON of what
// is read back from them.
func goldenForm(name string, in []byte) (b, json []byte, err error) {
	show := func(fields func(visitor)) []byte {
		w := jsonWriter{}
		w.begin("")
		fields(&w)
		w.end()
		return w.b
	}
	switch name {
	case "Envelope":
		var env, back Envelope
		var version, apply int64
		var body []byte
		err := readJSON(in, func(v visitor) {
			v.enum("type", (*uint8)(&env.Type), typeNames)
			v.long("type_version", &version)
			v.long("apply_version", &apply)
			v.fixed("request", env.Request[:])
			v.long("offset_seen", &env.OffsetSeen)
			v.str("table", &env.Table)
			v.long("table_id", &env.TableID)
			if optionalRecord(v, "body_ref", &env.BodyRef, refFields); env.BodyRef == nil {
				v.bytes("body", &body)
			}
		})
		if err != nil {
			return nil, nil, err
		}
		env.TypeVersion, env.ApplyVersion, env.Body = uint16(version), uint32(apply), body
		var m Message
		Encode(&m, &env)
		if err := DecodeEnvelope(m.Key, m.Header[:], m.Value, &back); err != nil {
			return nil, nil, err
		}
		json = show(func(v visitor) {
			envelopeJSON(v.(*jsonWriter), &back)
			if back.BodyRef == nil {
				v.bytes("body", &back.Body)
			}
		})
		all := append(append([]byte{}, m.Key...), m.Header[:]...)
		return append(all, m.Value...), json, nil
	case "OutcomeMessage":
		var m, back OutcomeMessage
		err := readJSON(in, func(v visitor) {
			v.long("offset", &m.Offset)
			v.bool("derived", &m.Derived)
			outcomeMessageFields(v, &m)
		})
		if err != nil {
			return nil, nil, err
		}
		key, value, err := EncodeOutcomeMessage(nil, nil, &m)
		if err != nil {
			return nil, nil, err
		}
		if err := DecodeOutcomeMessage(key, value, &back); err != nil {
			return nil, nil, err
		}
		json, err = AppendRecordJSON(nil, &back)
		return append(key, value...), json, err
	}
	for _, f := range forms() {
		if f.name != name {
			continue
		}
		v := f.fresh()
		fields := func(v any) func(visitor) {
			return func(x visitor) {
				switch r := v.(type) {
				case *RowsBody:
					rowsBodyFields(x, r)
				case *KeysBody:
					keysBodyFields(x, r)
				case *TreeBody:
					treeBodyFields(x, r)
				case *WhereBody:
					whereBodyFields(x, r)
				case *FindDispatch:
					findDispatchFields(x, r)
				case *Outcome:
					outcomeFields(x, r)
				case *Dispatch:
					dispatchFields(x, r)
				case *Heartbeat:
					heartbeatFields(x, r)
				case *schemas.Definition:
					definitionFields(x, r)
				default:
					walk(x, v)
				}
			}
		}
		if err := readJSON(in, fields(v)); err != nil {
			return nil, nil, err
		}
		if b, err = f.encode(nil, v); err != nil {
			return nil, nil, err
		}
		back, err := f.decode(b)
		if err != nil {
			return nil, nil, err
		}
		return b, show(fields(back)), nil
	}
	return nil, nil, fmt.Errorf("no form %q", name)
}

// dump is hex, 32 bytes a line.
func dump(b []byte) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%d bytes\n", len(b))
	for len(b) > 0 {
		n := min(32, len(b))
		fmt.Fprintf(&out, "%s\n", hex.EncodeToString(b[:n]))
		b = b[n:]
	}
	return out.String()
}

type golden struct {
	name string
	json []byte
	body []byte
}

// goldenSeeds reads the golden file for the fuzz targets.
func goldenSeeds(t testing.TB) []golden {
	t.Helper()
	b, err := os.ReadFile("testdata/golden")
	if err != nil {
		t.Fatal(err)
	}
	var all []golden
	for _, part := range bytes.Split(b, []byte("\n\n")) {
		head, rest, ok := bytes.Cut(bytes.TrimSpace(part), []byte("\n"))
		in, _, ok2 := bytes.Cut(rest, []byte("\n----"))
		if !ok || !ok2 {
			continue
		}
		body, _, err := goldenForm(string(head), in)
		if err != nil {
			t.Fatalf("%s: %v", head, err)
		}
		all = append(all, golden{string(head), in, body})
	}
	if len(all) == 0 {
		t.Fatal("no seeds in testdata/golden")
	}
	return all
}

// The hand-written reader of AppendRows and the described fields agree, also
// when it fills a struct that was used before.
func TestAppendRowsByHand(t *testing.T) {
	var used AppendRows
	for _, g := range goldenSeeds(t) {
		if g.name != "AppendRows" {
			continue
		}
		for cut := len(g.body); cut >= 0; cut-- {
			b := binReader{b: g.body[:cut]}
			var slow AppendRows
			appendRowsFields(&b, &slow)
			slowErr, fastErr := b.finish("AppendRows"), used.Decode(g.body[:cut])
			if (slowErr == nil) != (fastErr == nil) {
				t.Fatalf("cut at %d: %v, %v", cut, slowErr, fastErr)
			}
			if slowErr == nil && !reflect.DeepEqual(native(reflect.ValueOf(slow)), native(reflect.ValueOf(used))) {
				t.Fatalf("%+v, %+v", slow, used)
			}
		}
		w := binWriter{}
		var r AppendRows
		if err := r.Decode(g.body); err != nil {
			t.Fatal(err)
		}
		appendRowsFields(&w, &r)
		if !bytes.Equal(w.b, g.body) {
			t.Fatalf("%x, %x", w.b, g.body)
		}
	}
}

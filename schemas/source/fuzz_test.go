package source

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/rows"
)

// seeds are the records of the files in testdata/decode.
func seeds(f *testing.F, name string) {
	b, err := os.ReadFile(filepath.Join("testdata/decode", name))
	if err != nil {
		f.Fatal(err)
	}
	for _, part := range strings.Split(string(b), "\n----\n") {
		_, in, ok := strings.Cut(part, "decode\n")
		if !ok {
			continue
		}
		rec := record(in)
		f.Add(rec.Key, rec.Value)
	}
}

// checkBatch says whether a batch is whole: every column has every event.
func checkBatch(t *testing.T, b *rows.Batch) {
	for c := range b.Cols {
		col := &b.Cols[c]
		if col.Len() != b.Len() {
			t.Fatalf("column %d has %d of %d values", c, col.Len(), b.Len())
		}
		if n := len(col.Ints) + len(col.Floats) + len(col.Ends); n != b.Len() {
			t.Fatalf("column %d stores %d of %d values", c, n, b.Len())
		}
		if k := len(col.Ends); k > 0 && int(col.Ends[k-1]) != len(col.Data) {
			t.Fatalf("column %d has stray bytes", c)
		}
	}
}

const fuzzColumns = "id long\ntenant string\nb boolean\ni int\nf float\nd double\np decimal(9, 2)\nw decimal(38, 5)\n" +
	"day date\ntm time\nts timestamp\ntz timestamptz\ntn timestamp_ns\ns string\nu uuid\nfx fixed[3]\nbin binary\nname string default=\"x\""

func fuzzJSON(f *testing.F, format string, files ...string) {
	for _, name := range files {
		seeds(f, name)
	}
	def := table(f, fuzzColumns, "id", "tenant")
	def.Order = schemas.Order{Kind: schemas.OrderByPath, Path: "source.ts_ms"}
	kept := decoder(f, format, def, "timestamp.unit=micros", "decimal.handling=text")
	kb, fb := rows.NewBatch(def.Schema()), rows.NewBatch(def.Schema())
	f.Fuzz(func(t *testing.T, key, value []byte) {
		rec := &Record{Key: key, Value: value}
		kb.Reset()
		fb.Reset()
		res, err := kept.Decode(kb, rec)
		checkBatch(t, kb)
		if kb.Len() != res.Events || err != nil && kb.Len() != 0 {
			t.Fatalf("%d events told, %d appended", res.Events, kb.Len())
		}
		var j *Reject
		var c *SchemaChange
		switch {
		case err == nil:
			if text := stripFraming(value); value != nil && !json.Valid(text) {
				t.Fatal("accepted, but it is no JSON")
			}
		case errors.As(err, &j):
			if j.Code == "" || j.Reason == "" {
				t.Fatal("a Reject without code or reason")
			}
		case errors.As(err, &c):
			for _, a := range c.Add {
				if a.ID != 0 || a.Required || schemas.ReservedName(a.Name) {
					t.Fatalf("asks for column %q", a.Name)
				}
			}
		default:
			t.Fatalf("%v", err)
		}
		// What a decoder remembers of earlier records changes nothing.
		fresh := decoder(t, format, def, "timestamp.unit=micros", "decimal.handling=text")
		framing := fresh.Framing(key)
		for range 2 { // the second time from memory
			if kept.Framing(key) != framing {
				t.Fatal("a key has two framings")
			}
		}
		res2, err2 := fresh.Decode(fb, rec)
		var j2 *Reject
		if j != nil && errors.As(err2, &j2) && j.Code == "malformed" && j2.Code == j.Code {
			return // text can be ill-formed in two places at once
		}
		if res2 != res || (err == nil) != (err2 == nil) || show(fb, 0) != show(kb, 0) || err != nil && err.Error() != err2.Error() {
			t.Fatalf("a fresh decoder says\n%s%v\nand not\n%s%v", show(fb, 0), err2, show(kb, 0), err)
		}
	})
}

func FuzzDebeziumJSON(f *testing.F) {
	fuzzJSON(f, DebeziumJSON, "debezium_ops", "debezium_control", "debezium_malformed", "debezium_schema", "debezium_types")
}

func FuzzRowsJSON(f *testing.F) { fuzzJSON(f, RowsJSON, "rows_json") }

// FuzzScanner holds the scanner against encoding/json.
func FuzzScanner(f *testing.F) {
	for _, s := range []string{`{"a":[1,-0.5e+3,true,null,"é\n\ud83d\ude00"],"b":{}}`, `[[]]`, `"\ud800"`, `01`, `1.`, `"a`, "\"\x01\"", `{"a":1,}`, `tru`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		i := skipSpace(b, 0)
		end := -1
		if i < len(b) {
			end = skipValue(b, i)
		}
		ours := end >= 0 && skipSpace(b, end) == len(b)
		std := json.Valid(b)
		if ours && !std {
			t.Fatal("accepted what encoding/json refuses")
		}
		lone := bytes.Contains(bytes.ToLower(b), []byte(`\ud`)) // may be half a pair
		if std && !ours && utf8.Valid(b) && !lone && bytes.Count(b, []byte("{"))+bytes.Count(b, []byte("[")) <= maxDepth {
			t.Fatal("refused what encoding/json accepts")
		}
		if ours && b[i] == '"' && !lone {
			var want string
			if err := json.Unmarshal(b, &want); err != nil {
				t.Fatal(err)
			}
			if got := unescape(nil, b[i+1:end-1]); string(got) != want {
				t.Fatalf("%q, want %q", got, want)
			}
		}
	})
}

// FuzzDecimal holds exact decimals against big.Rat.
func FuzzDecimal(f *testing.F) {
	for _, s := range []string{"0", "-1.50", "12345678901234567890.123456789", "1e10", "1E-10", "0.000", "99999999999999999999999999999999999999", "00.1", "1e400", "-"} {
		f.Add([]byte(s), 38, 10)
	}
	f.Fuzz(func(t *testing.T, s []byte, precision, scale int) {
		if precision < 1 || precision > 38 || scale < 0 || scale > precision || len(s) > 100 {
			return
		}
		d, why := parseDecimal(s, false)
		end, _ := scanNumber(s, 0)
		number := end == len(s) && end > 0
		if (why == badText) == number {
			t.Fatalf("number %v, but %v", number, why)
		}
		if !number {
			return
		}
		if i := bytes.IndexAny(s, "eE"); i >= 0 && len(s)-i > 5 {
			return // too large for big.Rat
		}
		want, ok := new(big.Rat).SetString(string(s))
		if !ok {
			t.Fatal("big.Rat refuses a number")
		}
		scaled := new(big.Rat).Mul(want, new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(scale)), nil)))
		limit := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(precision)), nil)
		fits := scaled.IsInt() && new(big.Int).Abs(scaled.Num()).Cmp(limit) < 0
		c := rows.NewColumn(schemas.DecimalOf(precision, scale))
		if why == okay {
			why = putDecimal(&c, d)
		}
		if (why == okay) != fits {
			t.Fatalf("fits is %v, but %v", fits, failure[why])
		}
		if fits {
			if got := showValue(&c, 0); got != decimalText(scaled.Num(), scale) {
				t.Fatalf("%s, want %s", got, decimalText(scaled.Num(), scale))
			}
			// The plain text of a decimal reads back as the same decimal.
			if back, why := parseDecimal(d.text(nil), false); why != okay || back != d {
				t.Fatalf("%s reads back as %+v", d.text(nil), back)
			}
		}
	})
}

func FuzzDiscover(f *testing.F) {
	for _, name := range []string{"debezium_ops", "debezium_schema", "debezium_types", "rows_json"} {
		seeds(f, name)
	}
	f.Fuzz(func(t *testing.T, key, value []byte) {
		for _, format := range []string{DebeziumJSON, RowsJSON} {
			sample := []Record{{Key: key, Value: value}}
			s, _, err := Discover(nil, format, nil, sample, nil)
			if err != nil {
				continue
			}
			// A table so made takes the event, or refuses its values; it does
			// not ask to be altered at once.
			d := &schemas.Definition{Name: "t", Schemas: []schemas.Schema{*s}, Key: s.Identifier}
			dec, err := New(Options{Format: format, Def: d, Schema: d.Schema()})
			if err != nil {
				t.Fatal(err)
			}
			b := rows.NewBatch(d.Schema())
			_, err = dec.Decode(b, &sample[0])
			checkBatch(t, b)
			if c := (*SchemaChange)(nil); errors.As(err, &c) {
				t.Fatalf("the discovered table lacks %v", showError(t, err))
			}
		}
	})
}

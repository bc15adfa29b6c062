package statestore_test

import (
	"encoding/hex"
	"strings"

	"github.com/varve-io/varve/schemas/record"
)

// adoptFrom reads lines "file theirs/a rows=4 bytes=9 spec=1 partition=00 schema=0 dead=0+2".
func adoptFrom(a *args) *record.AdoptFiles {
	v := &record.AdoptFiles{Cause: "script"}
	if !a.has("no-metrics") {
		v.Metrics = ref(12)
	}
	for _, l := range a.lines {
		f := strings.Fields(l)
		x := record.AdoptedFile{Path: f[1], Rows: 1, Bytes: 100}
		if x.Path == "none" {
			x.Path = ""
		}
		for _, arg := range f[2:] {
			k, val, _ := strings.Cut(arg, "=")
			switch k {
			case "rows":
				x.Rows = number(a.t, val)
			case "bytes":
				x.Bytes = number(a.t, val)
			case "spec":
				x.SpecID = int32(number(a.t, val))
			case "schema":
				x.SchemaID = int32(number(a.t, val))
			case "dead":
				x.Dead = setFrom(a.t, val)
			case "partition":
				b, err := hex.DecodeString(val)
				if err != nil {
					a.t.Fatal(err)
				}
				x.Partition = b
			default:
				a.t.Fatalf("adopt: %s", l)
			}
		}
		v.Items = append(v.Items, x)
	}
	return v
}

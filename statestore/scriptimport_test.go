package statestore_test

import (
	"encoding/binary"
	"encoding/hex"
	"strings"

	"github.com/varve-io/varve/schemas/record"
)

// addFilesFrom reads lines "file 7 rows=4 bytes=9 spec=1 partition=00 schema=0";
// 7 stands for a name, 0 for none.
func addFilesFrom(a *args) *record.AddFiles {
	v := &record.AddFiles{Cause: "script"}
	if !a.has("no-metrics") {
		v.Metrics = ref(11)
	}
	for _, l := range a.lines {
		f := strings.Fields(l)
		x := record.AddedFile{Rows: 1, Bytes: 100}
		binary.BigEndian.PutUint64(x.Name[:], uint64(number(a.t, f[1])))
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
			case "partition":
				b, err := hex.DecodeString(val)
				if err != nil {
					a.t.Fatal(err)
				}
				x.Partition = b
			default:
				a.t.Fatalf("add-files: %s", l)
			}
		}
		v.Items = append(v.Items, x)
	}
	return v
}

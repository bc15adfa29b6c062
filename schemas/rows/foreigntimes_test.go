package rows

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/varve-io/varve/schemas"
)

// null stands for a null among the numbers of testdata/foreigntimes.py.
const null = -1 << 63

var (
	theirMicros = []int64{0, 1_000, -1_000, 1_700_000_000_123_000, -62_135_596_800_000_000, null, 253_402_300_799_999_000, -1_000, -86_400_000_000, 951_782_400_007_000}
	theirTimes  = []int64{0, 1_000, 86_399_999_000, null, 43_200_500_000, 0, 1_000, 7_000, 3_600_000_000, null}
)

func foreignTimes(t testing.TB, name string) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "foreigntimes", name))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// Milliseconds and INT96 of files that PyArrow wrote are the same instants in
// microseconds; what an INT96, a byte array or 16 bytes without an annotation are,
// the wanted field says.
func TestForeignTimes(t *testing.T) {
	of := schemas.Of
	nest := func(k schemas.Kind) schemas.Field {
		return schemas.Field{ID: 5, Name: "nest", Type: schemas.NestedOf(schemas.Struct, []schemas.Field{{ID: 6, Name: "at", Type: of(k)}})}
	}
	for _, name := range []string{"int96-plain", "int96-dict", "millis-plain", "millis-dict", "millis-delta", "millis-split"} {
		t.Run(name, func(t *testing.T) {
			f := opened(t, foreignTimes(t, name+".parquet"))
			want := []schemas.Field{
				{ID: 2, Name: "local", Type: of(schemas.Timestamp)}, {ID: 3, Name: "zoned", Type: of(schemas.TimestampTz)}, nest(schemas.Timestamp),
			}
			int96 := strings.HasPrefix(name, "int96")
			if int96 {
				want = append(want, schemas.Field{ID: 7, Name: "bytes", Type: of(schemas.String)}, schemas.Field{ID: 8, Name: "sixteen", Type: of(schemas.UUID)})
			} else {
				want = append(want, schemas.Field{ID: 4, Name: "clock", Type: of(schemas.Time)})
			}
			instants := slices.Clone(theirMicros)
			for i := range instants {
				if int96 && instants[i] != null {
					instants[i] += int64(i)
				}
			}
			numbers := func(c *Column, want []int64) {
				t.Helper()
				if c.Len() != len(want) {
					t.Fatalf("%d values of %s", c.Len(), c.Type)
				}
				for i, v := range want {
					if c.IsNull(i) != (v == null) || v != null && c.Ints[i] != v {
						t.Errorf("%s of row %d: %d, null %v; want %d", c.Type, i, c.Ints[i], c.IsNull(i), v)
					}
				}
			}
			check := func(cols []Column) {
				t.Helper()
				numbers(&cols[0], instants)
				numbers(&cols[1], instants)
				for i, v := range instants {
					part := []byte{0}
					if v != null {
						part = binary.AppendVarint([]byte{1}, v)
					}
					if got := cols[2].BytesAt(i); string(got) != string(part) {
						t.Errorf("struct of row %d: % x, want % x", i, got, part)
					}
				}
				if !int96 {
					numbers(&cols[3], theirTimes)
					return
				}
				for i := range instants {
					if cols[3].IsNull(i) != (i == 0) || i > 0 && string(cols[3].BytesAt(i)) != fmt.Sprintf("text %d ø", i) {
						t.Errorf("text of row %d: %q", i, cols[3].BytesAt(i))
					}
					if got := cols[4].BytesAt(i); string(got) != strings.Repeat(string(rune(i)), 16) {
						t.Errorf("uuid of row %d: % x", i, got)
					}
				}
			}
			cols, err := f.Read(want)
			if err != nil {
				t.Fatal(err)
			}
			check(cols)
			if cols, err = f.ReadGroup(0, want); err != nil {
				t.Fatal(err)
			}
			check(cols)
			if cols, err = scanned(f, want, 0, f.NumRows(), 100, 0); err != nil {
				t.Fatal(err)
			}
			check(cols)
			checkScan(t, f, want, rand.New(rand.NewPCG(7, 96)))

			if int96 {
				// An INT96 has no zone of its own.
				want[0].Type, want[1].Type, want[2] = of(schemas.TimestampTz), of(schemas.Timestamp), nest(schemas.TimestampTz)
				if cols, err = f.Read(want); err != nil {
					t.Fatal(err)
				}
				check(cols)
			} else if _, err := f.Read([]schemas.Field{{ID: 2, Name: "local", Type: of(schemas.TimestampTz)}}); err == nil {
				t.Error("a timestamp without a zone was read as one with it")
			}
			for _, no := range []schemas.Field{
				{ID: 2, Name: "local", Type: of(schemas.Long)}, {ID: 2, Name: "local", Type: of(schemas.TimestampNs)}, {ID: 1, Name: "id", Type: of(schemas.Timestamp)},
			} {
				_, err := f.Read([]schemas.Field{no})
				_, scan := f.Scan([]schemas.Field{no}, 0, 1, 0)
				if err == nil || scan == nil {
					t.Errorf("%q was read as a %s", no.Name, no.Type)
				}
			}
		})
	}
}

// Milliseconds that are too far from 1970 are an error, not another instant.
func TestForeignTimesOutOfRange(t *testing.T) {
	want := []schemas.Field{{ID: 2, Name: "local", Type: schemas.Of(schemas.Timestamp)}}
	for _, name := range []string{"millis-late.parquet", "millis-early.parquet"} {
		f := opened(t, foreignTimes(t, name))
		_, err := f.Read(want)
		_, scan := scanned(f, want, 0, 2, 2, 0)
		for _, err := range []error{err, scan} {
			if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "further from 1970") || !strings.Contains(err.Error(), `"local"`) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

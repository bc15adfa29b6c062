package dv

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/cockroachdb/datadriven"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// parsePositions reads "1 3 10-20" with inclusive ranges; a position may be written
// key:low.
func parsePositions(t testing.TB, s string) *Vector {
	t.Helper()
	one := func(s string) uint64 {
		var key uint64
		if k, low, ok := strings.Cut(s, ":"); ok {
			n, err := strconv.ParseUint(k, 0, 32)
			if err != nil {
				t.Fatal(err)
			}
			key, s = n, low
		}
		n, err := strconv.ParseUint(s, 0, 32)
		if err != nil {
			t.Fatal(err)
		}
		return key<<32 | n
	}
	v := &Vector{}
	for _, f := range strings.Fields(s) {
		first, last, ok := strings.Cut(f, "-")
		if !ok {
			last = first
		}
		addRange(t, v, one(first), one(last)+1)
	}
	return v
}

func formatPositions(v *Vector) string {
	var sb strings.Builder
	var first, last uint64
	open := false
	one := func(p uint64) string {
		if p>>32 == 0 {
			return strconv.FormatUint(p, 10)
		}
		return fmt.Sprintf("%d:%d", p>>32, uint32(p))
	}
	flush := func() {
		if !open {
			return
		}
		sb.WriteByte(' ')
		sb.WriteString(one(first))
		if last != first {
			sb.WriteString("-" + one(last))
		}
	}
	for p := range v.All() {
		if open && p == last+1 {
			last = p
			continue
		}
		flush()
		first, last, open = p, p, true
	}
	flush()
	return fmt.Sprintf("%d:%s", v.Cardinality(), sb.String())
}

func setOf(t testing.TB, s string) []byte {
	t.Helper()
	b, ok := parsePositions(t, s).Bitmap32()
	if !ok {
		t.Fatalf("%q is no 32-bit set", s)
	}
	set, err := AppendBitmap(nil, b)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// TestScripts runs testdata/*: the format as text.
//
//	blob        positions               -> the blob
//	map         positions               -> the bare 64-bit map
//	set         positions               -> the 32-bit set
//	read-blob   hexadecimal             -> positions
//	read-map    hexadecimal             -> positions
//	read-set    hexadecimal             -> positions and what Inspect says
//	union       one set a line          -> the set
//	minus       a line, then another    -> the set
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/script", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out, err := runScript(t, d)
			if err != nil {
				return "error: " + err.Error() + "\n"
			}
			return out + "\n"
		})
	})
}

func runScript(t *testing.T, d *datadriven.TestData) (string, error) {
	switch d.Cmd {
	case "blob":
		out, err := parsePositions(t, d.Input).AppendBlob(nil)
		return hex.EncodeToString(out), err
	case "map":
		out, err := parsePositions(t, d.Input).AppendMap(nil)
		return hex.EncodeToString(out), err
	case "set":
		return hex.EncodeToString(setOf(t, d.Input)), nil
	case "read-blob":
		v, err := Decode(unhex(t, d.Input))
		if err != nil {
			return "", err
		}
		return formatPositions(v), nil
	case "read-map":
		v, err := DecodeMap(unhex(t, d.Input))
		if err != nil {
			return "", err
		}
		return formatPositions(v), nil
	case "read-set":
		data := unhex(t, d.Input)
		stat, err := Inspect(data)
		if err != nil {
			return "", err
		}
		b, err := ReadBitmap(data)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%s\ncount=%d max=%d canonical=%t", formatPositions(FromBitmap(b)), stat.Count, stat.Max, stat.Canonical), nil
	case "union":
		var sets [][]byte
		for line := range strings.Lines(d.Input) {
			sets = append(sets, setOf(t, line))
		}
		all, err := UnionAll(nil, sets...)
		if err != nil {
			return "", err
		}
		if len(sets) == 2 {
			pair, err := Union(nil, sets[0], sets[1])
			if err != nil {
				return "", err
			}
			if string(pair) != string(all) {
				t.Errorf("Union gives %x, UnionAll %x", pair, all)
			}
		}
		return hex.EncodeToString(all), nil
	case "minus":
		lines := strings.SplitN(d.Input, "\n", 2)
		out, err := Minus(nil, setOf(t, lines[0]), setOf(t, lines[1]))
		return hex.EncodeToString(out), err
	}
	return "", fmt.Errorf("unknown command %q", d.Cmd)
}

func bitmapOfRanges(n, step, length int) *roaring.Bitmap {
	b := roaring.New()
	for i := range n {
		b.AddRange(uint64(i*step), uint64(i*step+length))
	}
	return b
}

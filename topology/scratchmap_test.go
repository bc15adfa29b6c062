package topology

import (
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"testing"
)

// TestScratchMap: names of tables and spaces are apart, one that is there keeps
// its value, and what was taken is gone.
func TestScratchMap(t *testing.T) {
	m := newScratchMap(filepath.Join(t.TempDir(), "map"), slog.New(slog.DiscardHandler))
	defer func() {
		if err := m.close(); err != nil {
			t.Error(err)
		}
	}()
	if v, err := m.get(scratchFile, 1, "a"); v != nil || err != nil {
		t.Fatalf("of an empty map: %q %v", v, err)
	}
	for i, c := range []struct {
		space byte
		table int64
		name  string
		fresh bool
	}{
		{scratchFile, 1, "a", true}, {scratchFile, 1, "b", true}, {scratchFile, 1, "a", false}, {scratchVector, 1, "a", true},
		{scratchFile, 2, "a", true}, {scratchFile, 1, "", true},
	} {
		fresh, err := m.put(c.space, c.table, c.name, fmt.Append(nil, i))
		if err != nil || fresh != c.fresh {
			t.Fatalf("%d: fresh %t, %v", i, fresh, err)
		}
	}
	if v, err := m.take(scratchFile, 1, "a"); string(v) != "0" || err != nil {
		t.Errorf("taken %q %v", v, err)
	}
	if v, err := m.take(scratchFile, 1, "a"); v != nil || err != nil {
		t.Errorf("taken again %q %v", v, err)
	}
	all := func(space byte, table int64) (got string) {
		if err := m.each(space, table, func(name string, v []byte) error {
			got += name + "=" + string(v) + ";"
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return got
	}
	for _, c := range []struct {
		space byte
		table int64
		want  string
	}{{scratchFile, 1, "=5;b=1;"}, {scratchVector, 1, "a=3;"}, {scratchFile, 2, "a=4;"}, {scratchLooked, 1, ""}} {
		if got := all(c.space, c.table); got != c.want {
			t.Errorf("%c %d: %q, not %q", c.space, c.table, got, c.want)
		}
	}
	n := 0
	if err := m.each(scratchFile, 1, func(string, []byte) error { n++; return io.EOF }); err != nil || n != 1 {
		t.Errorf("%d names before the end, %v", n, err)
	}
	if err := m.drop(1, scratchFile); err != nil {
		t.Fatal(err)
	}
	if got := all(scratchFile, 1) + all(scratchVector, 1) + all(scratchFile, 2); got != "a=3;a=4;" {
		t.Errorf("left %q", got)
	}
}

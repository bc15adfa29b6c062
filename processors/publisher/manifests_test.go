package publisher

import (
	"fmt"
	"strings"
	"testing"

	"github.com/varve-io/varve/schemas/iceberg"
)

// TestArrange: which manifests are kept, rewritten and merged, by size, spec
// and content (M2, M3). A case is the base's list: content, spec and size in
// MiB of each manifest, "!" behind one that loses entries, "0" as size for one
// without live entries; the expectation is what stays, and for each new
// manifest what it replaces.
func TestArrange(t *testing.T) {
	many := func(n int, line string) string { return strings.TrimSpace(strings.Repeat(line+" ", n)) }
	for name, c := range map[string]struct {
		list, fresh, keep string
		new               string
		dead              int
	}{
		"nothing lost":           {"d0:1 d1:1 v0:1", "d0", "0 1 2", "d0+", 0},
		"one loses":              {"d0:1 d0:1! d0:1", "", "0 2", "d0[1]", 0},
		"losers of one kind":     {"d0:1! d1:1! d0:1! v0:1! v1:1", "v1", "4", "d0[0 2] d1[1] v0[3] v1+", 0},
		"losers fill a bin":      {"d0:5! d0:3! d0:1! d0:20! d0:2!", "", "", "d0[0 1] d0[2] d0[3] d0[4]", 0},
		"dead are not listed":    {"d0:1 v0:0 v0:0", "v0", "0", "v0+", 2},
		"a hundred stay":         {many(100, "d0:0.01"), "", span(0, 100), "", 0},
		"one more merges":        {many(100, "d0:0.01"), "d0", "", "d0+ d0[" + span(0, 100) + "]", 0},
		"the large do not":       {many(101, "d0:0.01") + " d0:8 d0:7.9", "", "101", "d0[" + span(0, 101) + "] d0[102]", 0},
		"a large one may lose":   {many(101, "d0:0.01") + " d0:9!", "", "", "d0[" + span(0, 101) + "] d0[101]", 0},
		"each kind by itself":    {many(60, "d0:0.01") + " " + many(60, "d1:0.01") + " " + many(60, "v0:0.01"), "d0 d1 v0", span(0, 180), "d0+ d1+ v0+", 0},
		"the small fill a bin":   {many(101, "v0:0.1"), "", "", "v0[" + span(0, 80) + "] v0[" + span(80, 101) + "]", 0},
		"dead ones do not count": {many(100, "d0:0.01") + " d0:0", "", span(0, 100), "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			parse := func(s string) kind {
				k := kind{content: iceberg.Data}
				if s[0] == 'v' {
					k.content = iceberg.Deletes
				}
				k.spec = int32(s[1] - '0')
				return k
			}
			label := func(k kind) string { return fmt.Sprintf("%c%d", "dv"[k.content], k.spec) }
			b, s := &base{}, &snapshotPlan{gone: map[string]map[identityOf]bool{}}
			numbers := map[string]int64{}
			for i, item := range strings.Fields(c.list) {
				path := fmt.Sprint(i)
				k := parse(item)
				item, loses := strings.CutSuffix(item[3:], "!")
				var mib float64
				if _, err := fmt.Sscan(item, &mib); err != nil {
					t.Fatal(err)
				}
				line := iceberg.ManifestFile{Path: path, Content: k.content, SpecID: k.spec, Length: int64(mib * (1 << 20)), ExistingFiles: 1}
				if mib == 0 {
					line.Length, line.ExistingFiles, line.DeletedFiles = 1000, 0, 1
				}
				if loses {
					s.gone[path] = map[identityOf]bool{{}: true}
				}
				numbers[path] = int64(i)
				b.list = append(b.list, line)
			}
			fresh := map[kind]*manifestPlan{}
			for _, f := range strings.Fields(c.fresh) {
				k := parse(f)
				fresh[k] = &manifestPlan{content: k.content, spec: k.spec}
			}
			if err := s.arrange(b, fresh, numbers); err != nil {
				t.Fatal(err)
			}
			var keep, made []string
			for _, l := range s.keep {
				keep = append(keep, l.Path)
			}
			for _, m := range s.new {
				text := label(kind{m.content, m.spec}) + "+"
				if m.replaces != nil {
					text = strings.TrimSuffix(text, "+") + fmt.Sprint(m.numbers)
				}
				made = append(made, text)
			}
			if got := strings.Join(keep, " "); got != c.keep {
				t.Errorf("keeps %s, want %s", got, c.keep)
			}
			if got := strings.Join(made, " "); got != c.new {
				t.Errorf("makes %s, want %s", got, c.new)
			}
			if len(s.dead) != c.dead {
				t.Errorf("%d without live entries, want %d", len(s.dead), c.dead)
			}
		})
	}
	// The state and the base must agree on what is there.
	s := &snapshotPlan{gone: map[string]map[identityOf]bool{"x": {}}}
	if err := s.arrange(&base{}, nil, nil); err == nil {
		t.Error("a manifest that the base does not list loses entries")
	}
	s = &snapshotPlan{gone: map[string]map[identityOf]bool{"x": {}}}
	if err := s.arrange(&base{list: []iceberg.ManifestFile{{Path: "x", ExistingFiles: 1}}}, nil, nil); err == nil {
		t.Error("a manifest without a number is replaced")
	}
}

func span(from, to int) string {
	var parts []string
	for i := from; i < to; i++ {
		parts = append(parts, fmt.Sprint(i))
	}
	return strings.Join(parts, " ")
}

// TestManifestCache: the least recently used leave, what is larger than the
// whole is not kept, and entries count for what they take in memory.
func TestManifestCache(t *testing.T) {
	entries := func(n int) []iceberg.Entry { return make([]iceberg.Entry, n) }
	one := entries(1)[0].Memory()
	c := newManifestCache(10*one + 3*(cachedBytes+1))
	has := func(want string) {
		t.Helper()
		got, bytes := "", int64(0)
		for _, p := range []string{"a", "b", "c", "d", "e"} {
			if e := c.byKey[p]; e != nil {
				got += p
				bytes += int64(len(e.Value.(*cached).entries))*one + cachedBytes + 1
			}
		}
		if got != want || len(c.byKey) != c.order.Len() || c.bytes != bytes {
			t.Fatalf("holds %q of %d bytes, want %q of %d", got, c.bytes, want, bytes)
		}
	}
	c.put("a", entries(4))
	c.put("b", entries(4))
	c.put("e", entries(20))
	has("ab")
	if _, ok := c.get("a"); !ok {
		t.Fatal("a is gone")
	}
	c.put("c", entries(4))
	has("ac")
	c.put("a", entries(4))
	c.put("d", entries(9))
	has("d")
	c.put("a", entries(1))
	c.drop("d")
	c.drop("d")
	has("a")
}

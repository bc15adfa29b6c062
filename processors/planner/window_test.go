package planner

import (
	"testing"
	"time"

	"github.com/varve-io/varve/schemas"
)

func TestWindows(t *testing.T) {
	for _, c := range []struct {
		text        string
		open, close []string
	}{
		{"", []string{"00:00", "12:00", "23:59"}, nil},
		{"01:00-05:00", []string{"01:00", "04:59"}, []string{"00:59", "05:00", "13:00"}},
		{"22:30-02:00", []string{"22:30", "23:59", "00:00", "01:59"}, []string{"22:29", "02:00", "12:00"}},
		{"01:00-02:00, 20:00-24:00", []string{"01:30", "20:00", "23:59"}, []string{"00:00", "02:00", "19:59"}},
	} {
		d := schemas.Definition{Name: "t"}
		if c.text != "" {
			d.Properties = []schemas.Property{{Key: PropertyWindow, Value: c.text}}
		}
		p, err := PolicyOf(&d)
		if err != nil {
			t.Fatal(err)
		}
		at := func(s string) time.Time {
			x, err := time.Parse("15:04", s)
			if err != nil {
				t.Fatal(err)
			}
			return x.In(time.FixedZone("", 3*3600)) // the zone of the clock does not matter
		}
		for _, s := range c.open {
			if !p.Open(at(s)) {
				t.Errorf("%q is closed at %s", c.text, s)
			}
		}
		for _, s := range c.close {
			if p.Open(at(s)) {
				t.Errorf("%q is open at %s", c.text, s)
			}
		}
	}
	for _, bad := range []string{"1-5", "01:00", "01:00-25:00", "01:00-01:00", "24:00-03:00", "01:00-02:00,", "x"} {
		p, err := PolicyOf(&schemas.Definition{Name: "t", Properties: []schemas.Property{{Key: PropertyWindow, Value: bad}}})
		if err == nil || len(p.Windows) != 0 {
			t.Errorf("%q: %v, %v", bad, p.Windows, err)
		}
	}
}

func TestTreePolicy(t *testing.T) {
	p := Policy{SplitBytes: 1000, Batch: 4}
	for _, c := range []struct {
		n        Node
		children int
		down     bool
	}{
		{Node{Leaf: true, Bytes: 1000}, 0, false},
		{Node{Leaf: true, Bytes: 1001}, 2, false}, // the median
		{Node{Leaf: true, Bytes: 2000}, 4, false},
		{Node{Leaf: true, Bytes: 1 << 40}, maxSplit, false},
		{Node{Bytes: 5000}, 0, false},
		{Node{Bytes: 249, Refs: 3}, 0, false},
		{Node{Bytes: 250, Refs: 1}, 0, true},
		{Node{Bytes: 4, Refs: 4}, 0, true},
	} {
		if got := p.Children(&c.n); got != c.children {
			t.Errorf("%+v: %d children, want %d", c.n, got, c.children)
		}
		if got := p.Down(&c.n); got != c.down {
			t.Errorf("%+v: down %t", c.n, got)
		}
	}
	if p = (Policy{Batch: 4}); p.Children(&Node{Leaf: true, Bytes: 1 << 40}) != 0 || p.Down(&Node{Refs: 9}) {
		t.Error("a table without the property has no tree to grow")
	}
}

// Jobs take references of one leaf, as they are (F1, F8).
func TestLeaves(t *testing.T) {
	x := New(policy(SizeRatio))
	for i := range 6 {
		x.Add(File{ID: uint64(i/2 + 1), Lo: int64(i%2) * 50, Hi: int64(i%2)*50 + 50, Rows: 50, Bytes: mib, Node: int64(1 + i%2), Record: int64(i)})
	}
	items := x.Plan(10)
	if len(items) != 2 {
		t.Fatalf("%+v", items)
	}
	for i, it := range items {
		for k, in := range it.Inputs {
			if in.File != uint64(k+1) || in.Lo != int64(i)*50 || in.Hi != int64(i)*50+50 {
				t.Errorf("item %d: %+v", i, it)
			}
		}
	}
}

package statestore

import "testing"

func TestContentSum(t *testing.T) {
	var a, b contentSum
	a.file(listed, 1, 10)
	a.file(listed, 2, 20)
	a.vector(listed, 2, "p", 4, 7)
	b.vector(listed, 2, "p", 4, 7)
	b.file(listed, 2, 20)
	b.file(listed, 3, 5)
	b.file(unlisted, 3, 5)
	b.file(listed, 1, 10)
	if a != b {
		t.Errorf("the order matters: %x, %x", a, b)
	}
	seen := map[contentSum]int{}
	for i, f := range []func(c *contentSum){
		func(c *contentSum) {},
		func(c *contentSum) { c.file(listed, 1, 10) },
		func(c *contentSum) { c.file(listed, 10, 1) },
		func(c *contentSum) { c.file(listed, 1, 11) },
		func(c *contentSum) { c.file(listed, 1, 10); c.file(listed, 2, 20) },
		func(c *contentSum) { c.file(listed, 1, 20); c.file(listed, 2, 10) },
		func(c *contentSum) { c.vector(listed, 1, "p", 4, 7) },
		func(c *contentSum) { c.vector(listed, 1, "q", 4, 7) },
		func(c *contentSum) { c.vector(listed, 1, "p", 7, 4) },
		func(c *contentSum) { c.vector(listed, 1, "p", 4, 8) },
		func(c *contentSum) { c.vector(listed, 2, "p", 4, 7) },
	} {
		var c contentSum
		f(&c)
		if j, twice := seen[c]; twice {
			t.Errorf("contents %d and %d have the sum %x", j, i, c)
		}
		seen[c] = i
	}
}

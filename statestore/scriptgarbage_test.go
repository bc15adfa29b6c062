package statestore_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

// collectFrom reads lines "file 12 1/3", "metadata 12 0", "stray 30 data/x", and
// "all": what the state says can be collected.
func (s *script) collectFrom(t *testing.T, a *args) *record.CollectFiles {
	c := &record.CollectFiles{Cause: "script"}
	for _, l := range a.lines {
		f := strings.Fields(l)
		switch f[0] {
		case "all":
			items, next, err := s.st.Collectable(s.info(t, a.table()).ID, nil, statestore.MaxCollect)
			if err != nil || next != nil {
				t.Fatalf("collectable: more at %x, %v", next, err)
			}
			c.Items = append(c.Items, items...)
		case "file":
			c.Items = append(c.Items, record.CollectItem{Kind: record.GarbageFile, Left: number(t, f[1]), ID: fileID(t, f[2], 0)})
		case "metadata":
			c.Items = append(c.Items, record.CollectItem{Kind: record.GarbageMetadata, Left: number(t, f[1]), ID: uint64(number(t, f[2]))})
		case "stray":
			c.Items = append(c.Items, record.CollectItem{Kind: record.GarbageStray, Left: number(t, f[1]), Name: f[2]})
		case "kind":
			c.Items = append(c.Items, record.CollectItem{Kind: record.Garbage(number(t, f[1]))})
		case "many":
			c.Items = make([]record.CollectItem, statestore.MaxCollect+1)
		default:
			t.Fatalf("collect: %s", l)
		}
	}
	return c
}

// garbageText is what left a table, why it is still there, and what waits to be
// deleted.
func (s *script) garbageText(t *testing.T, id int64) string {
	var b strings.Builder
	if err := s.st.LeftObjects(id, func(x *statestore.Left) error {
		name := fmt.Sprint(x.ID)
		if x.Kind == record.GarbageFile {
			name = fileName(x.ID)
		}
		fmt.Fprintf(&b, "left @%d: %s %s", x.Left, name, x.Path)
		if x.Kept.By != statestore.KeptByNothing {
			fmt.Fprintf(&b, ", kept by %s %v", x.Kept.By, x.Kept.Numbers)
		}
		b.WriteByte('\n')
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	all, err := s.st.Collections(id)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		fmt.Fprintf(&b, "collected @%d: %s\n", c.Offset, strings.Join(c.Objects, " "))
	}
	return none(b.String())
}

package statestore_test

import (
	"fmt"
	"strings"

	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

// refsFrom reads lines "tag NAME SNAPSHOT", "branch NAME SNAPSHOT", "drop NAME".
func refsFrom(a *args) *record.AlterRefs {
	x := &record.AlterRefs{}
	for _, l := range a.lines {
		f := strings.Fields(l)
		if len(f) < 2 {
			a.t.Fatalf("refs: %s", l)
		}
		name := strings.Trim(f[1], `"`)
		if f[0] == "drop" {
			x.Drop = append(x.Drop, name)
			continue
		}
		x.Set = append(x.Set, record.TableRef{Name: name, Branch: f[0] == "branch", Snapshot: number(a.t, f[2])})
	}
	return x
}

// expireFrom: before is milliseconds after the script's beginning.
func expireFrom(a *args) *record.ExpireSnapshots {
	x := &record.ExpireSnapshots{KeepLast: a.num("keep", 0)}
	if _, ok := a.vals["before"]; ok {
		x.BeforeMs = startMs + a.num("before", 0)
	}
	for _, v := range a.vals["snapshots"] {
		x.Snapshots = append(x.Snapshots, number(a.t, v))
	}
	return x
}

func refsText(i *statestore.TableInfo) string {
	if len(i.Refs) == 0 {
		return ""
	}
	return "\nrefs" + refList(i.Refs)
}

func refList(refs []record.TableRef) string {
	var b strings.Builder
	for _, r := range refs {
		kind := "tag"
		if r.Branch {
			kind = "branch"
		}
		fmt.Fprintf(&b, " %s %s=%d", kind, r.Name, r.Snapshot)
	}
	return b.String()
}

func refChangesText(c *statestore.RefChanges) string {
	text := ""
	if len(c.Drop) > 0 {
		text += fmt.Sprintf("drops refs %v\n", c.Drop)
	}
	if len(c.Set) > 0 {
		text += "sets" + refList(c.Set) + "\n"
	}
	return text
}

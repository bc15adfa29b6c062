package record

import "testing"

func TestNames(t *testing.T) {
	for typ := TypeSetApplyVersion; typ <= TypeAlterRefs; typ++ {
		if got, ok := ParseType(typ.String()); !ok || got != typ {
			t.Errorf("%d is %q, which reads %d %v", typ, typ, got, ok)
		}
	}
	for _, bad := range []string{"", "type 0", "appendrows", "type 32"} {
		if got, ok := ParseType(bad); ok {
			t.Errorf("%q reads %s", bad, got)
		}
	}
	seen := map[string]bool{}
	for r := ReasonNone; r <= NoChange; r++ {
		s := r.String()
		if seen[s] || s == "" || s == nameOf(nil, int(r), "reason") {
			t.Errorf("reason %d is %q", r, s)
		}
		seen[s] = true
	}
	for c := Accepted; c <= Settled; c++ {
		if s := c.String(); s == nameOf(nil, int(c), "code") {
			t.Errorf("code %d has no name", c)
		}
	}
	for got, want := range map[string]string{
		Type(0).String(): "type 0", Type(99).String(): "type 99", Type(255).String(): "type 255",
		Code(0).String(): "code 0", Code(6).String(): "code 6", Reason(999).String(): "reason 999",
		Undecodable.String(): "undecodable", NotActive.String(): "not active", IDReused.String(): "id reused",
		TooOld.String(): "too old", NoBase.String(): "no base", OutOfRange.String(): "out of range",
		HeadMoved.String(): "head moved", Already.String(): "already", Settled.String(): "settled",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

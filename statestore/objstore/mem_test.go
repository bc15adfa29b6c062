package objstore_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/varve-io/varve/statestore/objstore"
)

var errHook = errors.New("hook")

// A hook's error before the effect means that nothing happened; after it, that
// it happened and the caller does not know.
func TestMemHooks(t *testing.T) {
	calls := map[string]func(objstore.Store) error{
		"Create":          func(s objstore.Store) error { return s.Create(ctx, "new", []byte("x")) },
		"CreateExclusive": func(s objstore.Store) error { return s.CreateExclusive(ctx, "new", []byte("x")) },
		"Replace":         func(s objstore.Store) error { return s.Replace(ctx, "new", []byte("x")) },
		"Commit": func(s objstore.Store) error {
			w, err := s.Writer(ctx, "new")
			if err != nil {
				return err
			}
			if _, err := io.WriteString(w, "x"); err != nil {
				return err
			}
			return w.Commit()
		},
		"Delete": func(s objstore.Store) error { return s.Delete(ctx, "old") },
	}
	for op, do := range calls {
		for _, after := range []bool{false, true} {
			m := objstore.NewMem()
			if err := m.Create(ctx, "old", []byte("o")); err != nil {
				t.Fatal(err)
			}
			m.SetHook(func(c objstore.Call) error {
				if c.Op == op && c.After == after {
					return errHook
				}
				return nil
			})
			if err := do(m); !errors.Is(err, errHook) {
				t.Fatalf("%s: %v", op, err)
			}
			m.SetHook(nil)
			changed := value(t, m, "new") == "x" || value(t, m, "old") == ""
			if changed != after {
				t.Errorf("%s with an error after=%v: changed=%v", op, after, changed)
			}
		}
	}
}

// A hook sees every call in order, twice, and may itself use the store.
func TestMemHookSeesCalls(t *testing.T) {
	m := objstore.NewMem(objstore.WithLocation("s3://bucket/sim"))
	if got := m.Location("k"); got != "s3://bucket/sim/k" {
		t.Errorf("location %s", got)
	}
	now := time.Unix(1000, 0)
	m.SetClock(func() time.Time { return now })
	var seen []string
	inside := false
	m.SetHook(func(c objstore.Call) error {
		if inside {
			return nil
		}
		inside = true
		defer func() { inside = false }()
		if _, err := m.Stat(ctx, "none"); !errors.Is(err, objstore.ErrNotFound) {
			t.Errorf("in the hook: %v", err)
		}
		phase := "before"
		if c.After {
			phase = "after"
		}
		seen = append(seen, fmt.Sprint(phase, " ", c.Op, " ", c.Key))
		return nil
	})
	if err := m.Create(ctx, "a", []byte("12")); err != nil {
		t.Fatal(err)
	}
	o, err := m.Open(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.ReadAt(make([]byte, 1), 0); err != nil {
		t.Fatal(err)
	}
	info, err := m.Stat(ctx, "a")
	if err != nil || !info.ModTime.Equal(now) {
		t.Errorf("Stat = %+v, %v", info, err)
	}
	if err := m.Delete(ctx, "a", "b"); err != nil {
		t.Fatal(err)
	}
	if err := m.List(ctx, "p", func(objstore.Info) error { return nil }); err != nil {
		t.Fatal(err)
	}
	want := "before Create a, after Create a, before Open a, after Open a, before ReadAt a, after ReadAt a, before Stat a, after Stat a, " +
		"before Delete a, after Delete a, before Delete b, after Delete b, before List p, after List p"
	if got := strings.Join(seen, ", "); got != want {
		t.Errorf("calls:\n%s\nwant:\n%s", got, want)
	}
}

// What a caller does with its buffer afterwards does not reach the store.
func TestMemKeepsItsOwnBytes(t *testing.T) {
	m := objstore.NewMem()
	data := []byte("mine")
	if err := m.Create(ctx, "k", data); err != nil {
		t.Fatal(err)
	}
	copy(data, "XXXX")
	got, err := m.ReadAll(ctx, "k", 10)
	if err != nil {
		t.Fatal(err)
	}
	copy(got, "YYYY")
	if v := value(t, m, "k"); v != "mine" {
		t.Errorf("holds %q", v)
	}
}

package readers

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/varve-io/varve/statestore/objstore"
	"github.com/varve-io/varve/topology/restcatalog"
)

// Every engine attaches to the read side of the REST catalog, with a token and
// without, and reads the model's rows: of the newest commit, of an earlier
// snapshot, and of a table in a nested namespace.
func TestRESTCatalog(t *testing.T) {
	const token = "a token of the test's own"
	e := newEvolving(t)
	rng := rand.New(rand.NewPCG(5, 6))
	var middle int64
	var then []string
	for i := range 6 {
		e.append(rng, 30, []int32{1, 2, -1}, 20)
		if id := e.cut(); i == 3 {
			middle, then = id, e.want()
		}
	}
	// The same table's metadata, in a namespace of two levels.
	if err := e.store.List(context.Background(), "shop/orders/metadata/", func(i objstore.Info) error {
		b, err := e.store.ReadAll(context.Background(), i.Key, i.Size)
		if err != nil {
			return err
		}
		return e.store.Create(context.Background(), strings.Replace(i.Key, "shop/", "shop.eu/", 1), b)
	}); err != nil {
		t.Fatal(err)
	}
	nested := e.want()
	open := serve(t, e, restcatalog.Options{})
	closed := serve(t, e, restcatalog.Options{Token: token})
	for _, engine := range All {
		t.Run(string(engine), func(t *testing.T) {
			Need(t, engine)
			check := func(name string, o Options, want []string) {
				t.Helper()
				got, err := Read(context.Background(), engine, name, o)
				if err != nil {
					t.Fatalf("open %s, closed %s: %v", open, closed, err)
				}
				if a, b := strings.Join(got.Sorted(), "\n"), strings.Join(want, "\n"); a != b {
					t.Fatalf("got %s\nwant %s", a, b)
				}
			}
			check(e.def.Name, Options{REST: &REST{URI: open}}, e.want())
			check(e.def.Name, Options{REST: &REST{URI: closed, Token: token}}, e.want())
			check(e.def.Name, Options{REST: &REST{URI: open}, Snapshot: middle}, then)
			check("shop.eu.orders", Options{REST: &REST{URI: open}}, nested)
			for _, wrong := range []*REST{{URI: closed}, {URI: closed, Token: "another token, as long"}} {
				if _, err := Read(context.Background(), engine, e.def.Name, Options{REST: wrong}); !errors.Is(err, ErrEngine) {
					t.Errorf("with the wrong token: %v", err)
				}
			}
			if _, err := Read(context.Background(), engine, "shop.none", Options{REST: &REST{URI: open}}); !errors.Is(err, ErrEngine) {
				t.Errorf("a table that is not there: %v", err)
			}
			// What is committed now is read now.
			e.append(rng, 10, []int32{3}, 5)
			e.cut()
			check(e.def.Name, Options{REST: &REST{URI: open}}, e.want())
		})
	}
}

func serve(t *testing.T, e *evolving, o restcatalog.Options) string {
	t.Helper()
	s, err := restcatalog.Listen(e.store, "127.0.0.1:0", false, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s.URL()
}

package objstore_test

import (
	"context"
	"testing"

	"github.com/varve-io/varve/statestore/objstore"
	"github.com/varve-io/varve/statestore/objstore/objstoretest"
)

var ctx = context.Background()

func TestLocalConformance(t *testing.T) {
	objstoretest.Conformance(t, func(t *testing.T) objstore.Store {
		s, err := objstore.Open(ctx, t.TempDir()+"/not/yet/there")
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}

func TestMemConformance(t *testing.T) {
	objstoretest.Conformance(t, func(t *testing.T) objstore.Store { return objstore.NewMem() })
}

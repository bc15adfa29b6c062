package cloud

import (
	"testing"

	"gocloud.dev/blob/memblob"

	"github.com/varve-io/varve/statestore/objstore"
	"github.com/varve-io/varve/statestore/objstore/objstoretest"
)

func TestConformance(t *testing.T) {
	for name, c := range map[string]Config{
		"whole bucket": {Location: "s3://bucket"},
		"under prefix": {Location: "s3://bucket/lake", Prefix: "lake/v=1"},
	} {
		t.Run(name, func(t *testing.T) {
			objstoretest.Conformance(t, func(t *testing.T) objstore.Store { return open(t, c) })
		})
	}
}

func open(t *testing.T, c Config) objstore.Store {
	c.Bucket = memblob.OpenBucket(nil)
	t.Cleanup(func() {
		if err := c.Bucket.Close(); err != nil {
			t.Error(err)
		}
	})
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

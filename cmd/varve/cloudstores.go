//go:build cloud

package main

// Drivers of cloud object stores take minutes to compile, and nothing reaches
// them in a first look: `go build -tags cloud ./cmd/varve` has them.
import (
	_ "github.com/varve-io/varve/statestore/objstore/azstore"
	_ "github.com/varve-io/varve/statestore/objstore/gcsstore"
	_ "github.com/varve-io/varve/statestore/objstore/s3store"
)

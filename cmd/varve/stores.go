package main

// Stores that this program opens besides local folders. The drivers of Google
// Cloud and Azure are most of a build's time, so they are asked for by name:
// go build -tags gcs,azure ./cmd/varve
import _ "github.com/varve-io/varve/statestore/objstore/s3store" // s3://

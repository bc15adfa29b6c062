//go:build gcs

package main

import _ "github.com/varve-io/varve/statestore/objstore/gcsstore" // gs://

// Package gcsstore registers gs:// with objstore, for Google Cloud Storage.
// Import it for its effect.
//
//	gs://bucket/prefix
//
// Credentials are the application default ones. Parameter: anonymous=true for
// none. STORAGE_EMULATOR_HOST names an emulator, which needs none.
//
// It owns the URL's meaning; it may touch the bucket under its prefix; tables
// and keys never enter it.
package gcsstore

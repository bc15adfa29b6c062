// Package cloud makes an objstore.Store of a gocloud.dev/blob bucket.
//
// It owns the adapter: keys under a prefix, create-only by conditional writes,
// the comparison that makes a repeated create succeed. It may touch the bucket
// that it is given, under its prefix. The providers' drivers never enter it:
// s3store, gcsstore and azstore bring those.
package cloud

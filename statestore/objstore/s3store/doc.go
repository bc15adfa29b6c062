// Package s3store registers s3:// with objstore, for Amazon S3 and the stores
// that speak its protocol. Import it for its effect.
//
//	s3://bucket/prefix?endpoint=http://127.0.0.1:9000&region=us-east-1
//
// Credentials come from the environment, the shared configuration or the
// machine's role, as for every AWS tool. Parameters: endpoint (a store other
// than Amazon's; it is addressed by path unless use_path_style=false), region,
// profile, anonymous, role, ssetype, kmskeyid, use_path_style, and the others
// of gocloud.dev/aws; conditional_writes=false for a store that does not
// honour If-None-Match (see cloud.Config.StatThenCreate).
//
// It owns the URL's meaning; it may touch the bucket under its prefix; tables
// and keys never enter it.
package s3store

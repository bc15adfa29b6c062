// Package s3store registers s3:// with objstore, for Amazon S3 and the stores
// that speak its protocol. Import it for its effect.
//
//	s3://bucket/prefix?endpoint=http://127.0.0.1:9000&region=us-east-1
//
// Credentials come from the environment, the shared configuration or the
// machine's role, as for every AWS tool. They are renewed before they expire,
// and when the store says that they have. AWS_CA_BUNDLE names the certificate
// authorities of an endpoint with https.
//
// Parameters: endpoint (a store other than Amazon's; it is addressed by path
// unless use_path_style=false), region, profile, anonymous, role, ssetype,
// kmskeyid, accelerate, use_path_style, and the others of gocloud.dev/aws;
// conditional_writes=false for a store that does not honour If-None-Match (see
// cloud.Config.StatThenCreate); max_attempts, max_backoff and stall_timeout
// bound one request (DefaultMaxAttempts, DefaultMaxBackoff,
// DefaultStallTimeout).
//
// A request is sent again after connection errors, time-outs, 5xx and
// throttling, with backoff and jitter, at most max_attempts times; its caller
// decides about more. Objects of more than 16 MiB go up in parts; an upload
// that fails is aborted, and its object does not appear. When the answer to a
// conditional write is lost, the next attempt finds the object there and
// compares its bytes (C2).
//
// It owns the URL's meaning; it may touch the bucket under its prefix; tables
// and keys never enter it.
package s3store

// Package objstoretest tests object stores and what is built on them: a
// conformance suite for every objstore.Store, a file system that logs its
// steps and fails or crashes at a chosen one, and a disk that loses what was
// not fsynced.
//
// It owns nothing that a running program uses; only tests import it.
package objstoretest

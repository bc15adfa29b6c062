// Package testcluster starts real servers for tests: an Apache Kafka of one node or three, an S3 gateway over a
// folder, Iceberg's reference REST catalog, a PostgreSQL server, and between a client and any HTTP server a proxy that makes faults.
//
// It owns the child processes that it starts and their folders, and ends no other process. It may touch the
// folder of installed servers (install.sh, install-s3.sh, install-catalog.sh, install-postgres.sh) and 127.0.0.1. It imports none of
// the product's packages, so that each of them can use it in its tests; nothing but tests imports it.
package testcluster

// Package testcluster starts a real Apache Kafka, of one node or three, and Iceberg's reference REST catalog, for
// tests.
//
// It owns the child processes that it starts and their folders, and ends no other process. It may touch the
// folder of installed jars (install.sh, install-catalog.sh) and 127.0.0.1. It imports none of the product's packages, so that each of
// them can use it in its tests; nothing but tests imports it.
package testcluster

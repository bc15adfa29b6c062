// Package sqlcat is an Iceberg catalog in a PostgreSQL database, in the tables
// that Iceberg's JDBC catalog and PyIceberg's SQL catalog have: iceberg_tables
// says for each table where its newest metadata lies. Whoever commits writes the
// metadata itself, and moves that place only where nobody has moved it before.
//
// Owns: the statements, what an error of the database says of a commit, names of
// metadata files. The metadata's bytes are ours (packages iceberg and restcat), so
// what other writers put into it stays (S11).
// May touch: the database, the table's metadata folder in the object store.
// Never enters: what is published, when it is tried again, other databases.
//
// The driver is lib/pq: it is kept by many, speaks database/sql alone and brings no
// dependencies of its own, where iceberg-go's SQL catalog brings an ORM with five
// dialects and writes all metadata anew by its own model.
//
// Errors are those of package restclient: the publisher decides by them, whatever
// kind of catalog there is. A commit whose statement was sent and not answered is
// ErrUnknown; its metadata file stays. One that did not move the place is
// ErrConflict, and its file goes again. A commit that says which metadata it was
// made for is ErrConflict on every other: what it removes nobody else named since.
package sqlcat

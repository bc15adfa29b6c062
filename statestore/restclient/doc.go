// Package restclient is a client of Iceberg REST catalogs that others write
// to as well (W5).
//
// Owns: the connection, its credentials and their renewal, what an answer means
// for the caller (taken, conflict, refused, unknown), and bounds on what is
// read. May touch: the catalog's address and no other. Never enters: table
// metadata as a type, and what to do about an answer: processors/publisher
// decides.
//
// # Why not iceberg-go's client
//
// It does the same calls, but it reads answers of any length, gives metadata as
// a type that drops what it does not know (S11 wants it kept, and the facts
// that the log takes are read from the text), makes one error of "refused" and
// "nobody knows", follows redirects with its own headers, asks every catalog to
// vend credentials, and puts what a token server answered into its errors. The
// tests read through it, as another program would. Its clients for SQL, Glue
// and Hive catalogs are not wired: they commit a metadata file that the client
// writes, with other rules for conflicts. AWS Glue and S3 Tables are reached by
// their REST endpoints, with signed requests.
package restclient

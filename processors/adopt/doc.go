// Package adopt reads an Iceberg table that another program wrote and keeps, as of
// one snapshot, and finds which of its data files a table of ours can take as they
// lie (H14).
//
// Owns: how a table's newest metadata is found; which delete files apply to which
// data files, and what of their rows is dead; whether a data file's columns and
// partition are ones that our table has.
// May touch: the store of the warehouse, to read; the definition of our table.
// Never enters: the log, the state, writing anything; rows themselves, apart from
// those of delete files, and those that equality deletes are held against.
//
// # What is read
//
// Format versions 1 to 3, and tables that were upgraded between them. A deletion
// vector applies to the data file that it names, and puts that file's
// position-delete files out of force. Which rows the other delete files end package
// deletefiles finds.
package adopt

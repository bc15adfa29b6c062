// Package readers reads Iceberg tables with engines that other people wrote,
// so that tests compare what varve published with what its users will see:
// DuckDB and PyIceberg in a Python process, iceberg-go in this one.
//
// Owns: the pinned engines (install.sh, requirements.txt), the program that
// drives them (reader.py), one text form of values that is equal for all.
// May touch: files and stores that a test names; one child process.
// Never enters: the product. Only tests import it.
package readers

// Package matrix is a test: which engines read which of varve's tables, and
// whether each row is the model's. A node writes the tables from events and
// serves them as a REST catalog; every engine attaches to that.
//
// It owns the list of tables (cases_test.go), the answers that engines are
// known to refuse, and the Markdown table of the README. The fast engines run
// wherever they are installed; matrix.sh, beside this folder, also runs those
// of VARVE_MATRIX=all and prints the table.
//
// It may touch the node, and engines through package readers. Nothing else
// enters it.
package matrix

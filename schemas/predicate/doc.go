// Package predicate reads and evaluates the conditions of DELETE … WHERE: small,
// typed, three-valued as SQL has it.
//
// Owns: the grammar, which literal a column takes, what a comparison with a null
// is, which row groups need no look.
// May touch: a schema, parts of columns that it is handed.
// Never enters: files, the log. Its errors name columns, types and places, never
// a literal: that is user data (E1).
//
// # Grammar
//
//	expr    = and { OR and }
//	and     = not { AND not }
//	not     = NOT not | "(" expr ")" | test
//	test    = column ( = | != | <> | < | <= | > | >= ) literal
//	        | column [ NOT ] IN "(" literal { "," literal } ")"
//	        | column IS [ NOT ] NULL
//	column  = name of letters, digits and _ that begins with no digit, or any name
//	          in "double quotes" or `backticks`
//	literal = number | 'text' | TRUE | FALSE
//
// Words are read in any case, names as they are. A quote is doubled within quotes.
//
// A literal is of its column's type, exactly, or the predicate is refused: numbers
// for int, long, float, double and decimal, TRUE and FALSE for boolean, texts for
// the rest: '2026-08-01', '2026-08-01T10:00:00.5', '…+02:00' (a date stands for its
// midnight in a timestamp, a time without zone in a timestamptz for UTC), a uuid in
// its usual form, binary and fixed in hex.
//
// # Truth
//
// A comparison with a null is unknown, and so is NOT of it; AND and OR are
// unknown where the other side does not decide. A row matches where the whole is
// true. A NaN is equal to nothing, above and below nothing: != and NOT of the
// others are true of it.
package predicate

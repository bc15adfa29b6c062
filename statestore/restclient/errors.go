package restclient

import "errors"

// Errors that callers decide on.
var (
	// ErrNotFound: the catalog has no such table, or no such namespace.
	ErrNotFound = errors.New("the catalog has no such table")
	// ErrConflict: the catalog did not take a commit, since the table is not
	// what the commit was made for. Some catalogs also say so of a commit that
	// they do not understand.
	ErrConflict = errors.New("the catalog refused the commit: the table is not what it was made for")
	// ErrUnknown: a commit may or may not have been taken (C4).
	ErrUnknown = errors.New("it is not known whether the catalog took the commit")
	// ErrAway: nothing answers, or it says that it cannot now. It may pass.
	ErrAway = errors.New("the catalog does not answer")
	// ErrDenied: the credentials are wrong, or do not allow it.
	ErrDenied = errors.New("the catalog denies access")
	// ErrNonsense: what answers is no Iceberg REST catalog, or speaks brokenly.
	ErrNonsense = errors.New("what answers is no Iceberg REST catalog")
	// ErrOptions: the options cannot work.
	ErrOptions = errors.New("catalog options")
)

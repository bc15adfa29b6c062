package keyindex

import (
	"errors"
	"fmt"
)

var (
	// ErrCorrupt marks damage to the files of the index: the owner throws the
	// index away (Destroy) and builds it again from a checkpoint or the log.
	ErrCorrupt = errors.New("key index is damaged")
	// ErrForeign marks files of another deployment, table or shard, or of the
	// other key width. Nothing was changed.
	ErrForeign = errors.New("key index belongs to another owner")
	// ErrVersion marks files of a format version that this binary does not know.
	ErrVersion = errors.New("key index has an unknown format version")
	// ErrOrder marks a call that breaks the order of the index: unsorted or
	// doubled keys, an offset that goes back, an overlay out of turn, a key or
	// row id out of range. Nothing was changed.
	ErrOrder = errors.New("key index call out of order")
	// ErrClosed is returned by calls after Close.
	ErrClosed = errors.New("key index is closed")

	errCancelled = errors.New("merge cancelled by Close")
)

func corruptf(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrCorrupt}, args...)...)
}

func orderf(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrOrder}, args...)...)
}

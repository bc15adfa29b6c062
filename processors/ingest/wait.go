package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/statestore/objstore"
)

// How long a shard waits between attempts at what is away: a store, a disk
// that is full, a broker (§12). It doubles from the first to the last.
const (
	retryMinMs = 100
	retryMaxMs = 10_000
)

// awayError marks a failure of the outside that loses nothing: the same step
// succeeds once the outside is back.
type awayError struct{ err error }

func (e *awayError) Error() string { return e.err.Error() }
func (e *awayError) Unwrap() error { return e.err }

// away marks an error of the object store. What is there with other bytes does
// not mend itself.
func away(err error) error {
	if err == nil || errors.Is(err, objstore.ErrExists) || errors.Is(err, objstore.ErrBadKey) || errors.Is(err, processors.ErrBodyAltered) {
		return err
	}
	return &awayError{err}
}

// awayDisk marks an error of the key index when its disk is full: it folded
// nothing then, and the same call may be made again.
func awayDisk(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return &awayError{err}
	}
	return err
}

func isAway(err error) bool {
	var a *awayError
	return errors.As(err, &a)
}

// backoff is when something may be tried again.
type backoff struct {
	err  error // why it waits, nil: it does not
	atMs int64
	ms   int64
}

func (b *backoff) mayTry(nowMs int64) bool { return nowMs >= b.atMs }

// wait puts the next attempt off.
func (s *Shard) wait(b *backoff, err error) {
	if b.err == nil && !errors.Is(err, context.Canceled) {
		s.log.Warn("waiting for what is away", "error", err)
	}
	b.err = err
	b.ms = min(max(2*b.ms, retryMinMs), retryMaxMs)
	b.atMs = s.nowMs + b.ms
}

// there: an attempt succeeded.
func (s *Shard) there(b *backoff) {
	if b.err != nil {
		s.log.Info("going on")
	}
	*b = backoff{}
}

// Waiting is what the shard waits for, nil when it waits for nothing.
func (s *Shard) Waiting() error {
	if s.decideWait.err != nil {
		return s.decideWait.err
	}
	if s.sourceWait.err != nil {
		return s.sourceWait.err
	}
	return s.appendWait.err
}

// unsent: an append or a dead letter of the open epoch may not be where it was
// sent to. The epoch ends with what was in flight; a new claim reads the source
// again from what was accepted.
func (s *Shard) unsent(what string, err error) {
	err = fmt.Errorf("%s: %w", what, err)
	if errors.Is(err, processors.ErrNotTaken) {
		s.fail(err)
		return
	}
	s.lose()
	s.wait(&s.appendWait, err)
}

// watchedReader remembers that reading failed for another reason than the
// object's end: what comes of it says nothing of the object.
type watchedReader struct {
	io.ReaderAt
	err error
}

func (r *watchedReader) ReadAt(p []byte, off int64) (int, error) {
	n, err := r.ReaderAt.ReadAt(p, off)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/varve-io/varve/processors/adopt"
	"github.com/varve-io/varve/statestore/objstore"
	"github.com/varve-io/varve/topology"
)

// Exit codes.
const (
	exitDone    = 0
	exitFailed  = 1
	exitUsage   = 2
	exitDiffers = 3
	exitStopped = 4
)

// codeError is an error that decides the exit code.
type codeError struct {
	code int
	err  error
}

func (e *codeError) Error() string { return e.err.Error() }
func (e *codeError) Unwrap() error { return e.err }

// usagef is wrong usage or configuration.
func usagef(format string, args ...any) error {
	return &codeError{exitUsage, fmt.Errorf(format, args...)}
}

// asUsage marks err as wrong usage or configuration.
func asUsage(err error) error {
	if err == nil {
		return nil
	}
	return &codeError{exitUsage, err}
}

// exitCode is the code that err ends the process with.
func exitCode(err error) int {
	var ce *codeError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &ce):
		return ce.code
	case errors.Is(err, topology.ErrConfig), errors.Is(err, topology.ErrNoTable), errors.Is(err, topology.ErrTopicSettings),
		errors.Is(err, objstore.ErrSetup), errors.Is(err, adopt.ErrNoSnapshot):
		return exitUsage
	case errors.Is(err, context.Canceled):
		return exitStopped
	}
	return exitFailed
}

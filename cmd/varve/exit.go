package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"unicode"
	"unicode/utf8"

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

// What an error quotes, of arguments, files or answers, is told whole up to these
// lengths: no path of a store is longer than a word may be.
const (
	maxWord = 1100
	maxLine = 4096
)

// shortened is a message whose words and lines are no longer than maxWord and
// maxLine; of a longer one the beginning and the end are told.
func shortened(s string) string {
	if len(s) <= maxWord {
		return s
	}
	var out []string
	for line := range strings.SplitSeq(s, "\n") {
		var b strings.Builder
		for line != "" {
			n := strings.IndexFunc(line, unicode.IsSpace)
			if n < 0 {
				n = len(line)
			}
			b.WriteString(middleOut(line[:n], maxWord))
			_, space := utf8.DecodeRuneInString(line[n:])
			b.WriteString(line[n : n+space])
			line = line[n+space:]
		}
		out = append(out, middleOut(b.String(), maxLine))
	}
	return strings.Join(out, "\n")
}

// middleOut is s, or its beginning and its end if it is longer than most.
func middleOut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	head, tail := most/4, len(s)-most/4
	for head > 0 && !utf8.RuneStart(s[head]) {
		head--
	}
	for tail < len(s) && !utf8.RuneStart(s[tail]) {
		tail++
	}
	return fmt.Sprintf("%s… (%d bytes) …%s", s[:head], tail-head, s[tail:])
}

// shortenedAttr does the same for what a line of the log quotes.
func shortenedAttr(_ []string, a slog.Attr) slog.Attr {
	switch v := a.Value.Any().(type) {
	case string:
		a.Value = slog.StringValue(shortened(v))
	case error:
		a.Value = slog.StringValue(shortened(v.Error()))
	}
	return a
}

package statestore

import (
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"
)

// pebbleLog is what Pebble tells of one database.
type pebbleLog struct {
	dir   string
	log   *slog.Logger
	fatal func(error)
}

func (p pebbleLog) Infof(string, ...any) {}

func (p pebbleLog) Errorf(format string, args ...any) {
	p.log.Error("state database", "path", p.dir, "error", fmt.Sprintf(format, args...))
}

// Fatalf is called where Pebble's memory and its files have parted. It does not return.
func (p pebbleLog) Fatalf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	err := fmt.Errorf("the state database in %s cannot go on: %s; make space or mend the disk, then start again: nothing is lost", p.dir, text)
	if p.fatal != nil {
		p.fatal(err)
		panic(err)
	}
	if !strings.HasPrefix(text, "MANIFEST ") { // a fault of the program, not of the disk
		p.log.Error("state database", "stack", string(debug.Stack()))
	}
	p.log.Error(err.Error())
	os.Exit(1)
}

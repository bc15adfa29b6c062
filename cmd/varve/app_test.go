package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Every command says what it does and shows an example of itself.
func TestEveryCommandHasHelpAndExample(t *testing.T) {
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Name() == "help" {
			return
		}
		if c.Short == "" || !strings.Contains(c.Example, c.CommandPath()) && !c.HasSubCommands() {
			t.Errorf("%s: short help %q, example %q", c.CommandPath(), c.Short, c.Example)
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			// The flag library aligns by bytes.
			if name, _ := pflag.UnquoteUsage(f); strings.ContainsFunc(name, func(r rune) bool { return r > unicode.MaxASCII }) {
				t.Errorf("%s: --%s %s stands out of line in the help", c.CommandPath(), f.Name, name)
			}
		})
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk((&app{}).root())
	out := run(t, "scan", "--help")
	wantLines(t, out, "Examples:", "varve scan shop.orders", "--as-of time")
}

func TestExitCodes(t *testing.T) {
	tests := []struct {
		args []string
		code int
		want string
	}{
		{[]string{"version"}, exitDone, ""},
		{[]string{"versoin"}, exitUsage, `unknown command "versoin" for "varve"; did you mean "version"?`},
		{[]string{"config", "chek"}, exitUsage, `did you mean "check"`},
		{[]string{"version", "x"}, exitUsage, "usage: varve version"},
		{[]string{"version", "--outptu", "json"}, exitUsage, "varve version --help"},
		{[]string{"version", "--output", "yaml"}, exitUsage, "use table, json, jsonl or csv"},
		{[]string{"version", "--log-level", "loud"}, exitUsage, "--log-level"},
		{[]string{"version", "--log-format", "xml"}, exitUsage, "--log-format"},
		{[]string{"version", "--config", "nowhere.yaml"}, exitUsage, "nowhere.yaml"},
		{[]string{"completion", "tcsh"}, exitUsage, "tcsh"},
		{[]string{"completion", "bash"}, exitDone, ""},
	}
	for _, tc := range tests {
		code, out, errs := varve(t, tc.args...)
		if code != tc.code || !strings.Contains(errs, tc.want) || (code == exitDone) != (errs == "") || (code == exitDone) == (out == "") {
			t.Errorf("%v: exit code %d, want %d; stdout of %d bytes; stderr %q", tc.args, code, tc.code, len(out), errs)
		}
	}
}

func TestExitCodeOfErrors(t *testing.T) {
	for err, want := range map[error]int{
		nil: exitDone, errors.New("x"): exitFailed, usagef("x"): exitUsage,
		fmt.Errorf("outer: %w", usagef("x")): exitUsage, &codeError{exitDiffers, errors.New("x")}: exitDiffers,
		fmt.Errorf("outer: %w", context.Canceled): exitStopped,
	} {
		if got := exitCode(err); got != want {
			t.Errorf("%v: got %d, want %d", err, got, want)
		}
	}
}

func TestVersionForms(t *testing.T) {
	wantLines(t, run(t, "version", "--output", "json"), `"version": "dev"`, `"go": "go1.`)
	wantLines(t, run(t, "version"), "version ", "commit ")
}

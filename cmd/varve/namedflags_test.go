package main

import (
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var (
	namedFlag = regexp.MustCompile("(?:^|[\\s\"'(`\\[/])--([a-z][a-z0-9-]*)")
	// A command line in a text, quoted by "…" or `…`.
	namedLine = regexp.MustCompile("[\"`](varve [^\"`\n]*)[\"`]")
	// Flags of other programs that texts tell of.
	flagsOfOthers = map[string]bool{"packages": true, "conf": true}
)

// TestNamedFlags: a flag that a help text, an error or README.md names is one, and one
// of the command that it is named with.
func TestNamedFlags(t *testing.T) {
	root := (&app{}).root()
	all := map[string]bool{"help": true}
	of := func(c *cobra.Command) map[string]bool {
		out := map[string]bool{"help": true}
		add := func(f *pflag.Flag) { out[f.Name] = true }
		c.Flags().VisitAll(add)
		c.InheritedFlags().VisitAll(add)
		return out
	}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for name := range of(c) {
			all[name] = true
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root)
	line := func(where, text string) {
		for text := range strings.SplitSeq(text, "varve ") {
			text, _, _ = strings.Cut(text, "#")
			c, _, err := root.Find(strings.Fields(text))
			if err != nil || c == root || strings.HasPrefix(strings.TrimPrefix("varve "+text, c.CommandPath()+" "), "%") {
				continue // which command it is stands elsewhere
			}
			has := of(c)
			for _, m := range namedFlag.FindAllStringSubmatch(text, -1) {
				if !has[m[1]] {
					t.Errorf("%s: %s has no flag --%s", where, c.CommandPath(), m[1])
				}
			}
		}
	}
	texts := func(where, text string) {
		if strings.Contains(text, "kafka-") {
			return // command lines of Kafka's own tools
		}
		for _, m := range namedFlag.FindAllStringSubmatch(text, -1) {
			if !all[m[1]] && !flagsOfOthers[m[1]] {
				t.Errorf("%s: no command has a flag --%s", where, m[1])
			}
		}
		for _, m := range namedLine.FindAllStringSubmatch(text, -1) {
			line(where, m[1])
		}
	}

	var examples func(c *cobra.Command)
	examples = func(c *cobra.Command) {
		for s := range strings.Lines(c.Example) {
			line(c.CommandPath()+" --help", s)
		}
		for _, sub := range c.Commands() {
			examples(sub)
		}
	}
	examples(root)
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	texts("README.md", string(readme))
	for s := range strings.Lines(string(readme)) {
		if strings.HasPrefix(s, "    varve ") {
			line("README.md", s)
		}
	}

	read := 0
	for _, dir := range []string{".", "../../topology", "../../processors", "../../statestore", "../../schemas"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() && (d.Name() == "testcluster" || d.Name() == "readers") {
				return fs.SkipDir
			}
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(gotoken.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			read++
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.BinaryExpr: // lines that are joined by + are one text
					if s, ok := joined(n); ok {
						texts(path, s)
						return false
					}
				case *ast.BasicLit:
					if s, ok := joined(n); ok {
						texts(path, s)
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if read < 100 {
		t.Errorf("only %d files were read", read)
	}
}

// joined is a constant text.
func joined(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind != gotoken.STRING {
			return "", false
		}
		s, err := strconv.Unquote(e.Value)
		return s, err == nil
	case *ast.BinaryExpr:
		x, ok := joined(e.X)
		y, also := joined(e.Y)
		return x + y, ok && also && e.Op == gotoken.ADD
	}
	return "", false
}

package main

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"unicode/utf8"
)

// What a refusal quotes is cut where it is too long to be read, its beginning and
// its end stay; the longest key of a store is told whole.
func TestRefusalsQuoteLittle(t *testing.T) {
	data := t.TempDir()
	run(t, "load", "--data", data, "--table", "people", "--format", "rows-json", "--key", "id", "--log-level", "warn", writeFile(t, "p.jsonl", `{"id":1}`+"\n"))
	word, words := strings.Repeat("é", 50_000), strings.Repeat("w ", 50_000)
	folders := strings.Repeat("/"+strings.Repeat("q", 200), 500)
	for name, args := range map[string][]string{
		"import":           {"table", "import", "people", "LONG", "--data", data},
		"import --iceberg": {"table", "import", "people", "--iceberg", "LONG", "--data", data},
		"append a file":    {"transaction", "append", "people", "LONG", "--type", "Cut", "--data", data},
		"append a type":    {"transaction", "append", "people", "-", "--type", "LONG", "--data", data},
		"append a table":   {"transaction", "append", "LONG", "-", "--type", "Cut", "--data", data},
		"load":             {"load", "LONG", "--table", "people", "--data", data},
		"alter":            {"table", "alter", "people", "--add", "c LONG", "--data", data},
		"snapshot":         {"scan", "people", "--snapshot", "LONG", "--data", data},
		"data":             {"scan", "people", "--data", "LONG"},
		"configuration":    {"run", "--config", "LONG"},
		"command":          {"LONG"},
		"flag":             {"--LONG"},
	} {
		for _, long := range []string{word, words, folders} {
			args := strings.Split(strings.ReplaceAll(strings.Join(args, "\x00"), "LONG", long), "\x00")
			code, _, errs := varveWith(t, nil, "{}", args...)
			if code == exitDone || len(errs) > 5000 || !strings.HasPrefix(errs, "varve: ") || !strings.Contains(errs, long[:100]) || !strings.Contains(errs, " bytes) …") || !utf8.ValidString(errs) {
				t.Errorf("%s, %.4s…: exit code %d, %d bytes: %.300s", name, long, code, len(errs), errs)
			}
		}
	}
	// A record's field that nobody knows stands in a file, not in an argument.
	code, _, errs := varveWith(t, nil, `{"`+word+`":1}`, "transaction", "append", "people", "-", "--type", "AlterTable", "--data", data)
	if code != exitUsage || len(errs) > 5000 || !strings.Contains(errs, "is no field of this version; its fields are ") {
		t.Errorf("exit code %d, %d bytes: %.300s", code, len(errs), errs)
	}
}

func TestShortened(t *testing.T) {
	key := strings.Repeat("k", 1024) // the longest of S3
	for in, want := range map[string]string{
		"":                           "",
		"s3://bucket/" + key + " no": "s3://bucket/" + key + " no",
		"a\n\n b" + key + key + " c": "a\n\n b" + key[:274] + "… (1499 bytes) …" + key[:275] + " c",
		strings.Repeat("a ", 2048):   strings.Repeat("a ", 2048),
		strings.Repeat("a ", 2049):   strings.Repeat("a ", 512) + "… (2050 bytes) …" + strings.Repeat("a ", 512),
	} {
		if got := shortened(in); got != want {
			t.Errorf("of %d bytes came %d: %q, want %q", len(in), len(got), got, want)
		}
	}
	long := strings.Repeat("x", 5000)
	for _, a := range []slog.Attr{slog.String("s", long), slog.Any("error", errors.New(long))} {
		if got := shortenedAttr(nil, a).Value.String(); len(got) > 1000 {
			t.Errorf("%s has %d bytes in the log", a.Key, len(got))
		}
	}
	if a := slog.Int("n", 3); !shortenedAttr(nil, a).Equal(a) {
		t.Error("a number is another one in the log")
	}
}

package main

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestConfigExampleIsValid(t *testing.T) {
	cfg, err := parseConfig("example", []byte(run(t, "config", "example")))
	if err != nil {
		t.Fatal(err)
	}
	if err := cfg.check(); err != nil {
		t.Fatal(err)
	}
	table := cfg.Tables[0]
	if table.Name != "shop.orders" || table.Source.Topic != "dbserver1.shop.orders" || !slices.Equal(table.Key, []string{"order_id"}) ||
		time.Duration(table.TombstoneTTL) != 7*24*time.Hour || table.CommitInterval.millis() != 1000 || table.Retention.Snapshots != 100 {
		t.Errorf("got %+v", table)
	}
}

// Every key of the file stands in the example, so that nobody has to guess one.
func TestConfigExampleNamesEveryKey(t *testing.T) {
	var walk func(t reflect.Type) []string
	walk = func(t reflect.Type) (out []string) {
		for k, f := range yamlKeys(t) {
			out = append(out, k)
			for f.Kind() == reflect.Slice {
				f = f.Elem()
			}
			if f.Kind() == reflect.Struct {
				out = append(out, walk(f)...)
			}
		}
		return out
	}
	keys := walk(reflect.TypeFor[fileConfig]())
	if len(keys) < 30 {
		t.Fatalf("only %d keys", len(keys))
	}
	for _, key := range keys {
		if !strings.Contains(configExample, key+":") {
			t.Errorf("the example does not show %s", key)
		}
	}
}

func TestConfigErrors(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"unknown key", "data: x\nbrokes: [a:1]\n", `:2: unknown key "brokes"; the nearest known key is "brokers"`},
		{"unknown key far from all", "xyzzy: 1\n", "the nearest known key is"},
		{"unknown key of a table", "tables:\n  - name: t\n    kye: [id]\n", `:3: unknown key "kye" in tables[0]; the nearest known key is "key"`},
		{"unknown key deep down", "tables:\n  - name: t\n    key: [id]\n    source: {tpoic: x}\n", `:4: unknown key "tpoic" in tables[0].source; the nearest known key is "topic"`},
		{"swapped letters in retention", "tables: [{name: t, key: [id], retention: {aeg: 1s}}]\n", `"age"`},
		{"not YAML", "data: [", "is not YAML"},
		{"two documents", "data: a\n---\ndata: b\n", "more than one YAML document"},
		{"wrong type", "log_partitions: many\n", "line 1"},
		{"list for a text", "data: [a]\n", "line 1"},
		{"alias", "data: &a x\nwarehouse: *a\n", "aliases"},
		{"duration", "tables: [{name: t, key: [id], commit_interval: 5}]\n", "is no duration"},
		{"no key", "tables: [{name: t}]\n", "append_only"},
		{"key and append_only", "tables: [{name: t, key: [id], append_only: true}]\n", "not both"},
		{"order without key", "tables: [{name: t, append_only: true, order_by: ts}]\n", "order_by"},
		{"bad name", "tables: [{name: 'a b', key: [id]}]\n", "only A-Z"},
		{"twice", "tables: [{name: t, key: [id]}, {name: t, key: [id]}]\n", "twice"},
		{"format", "tables: [{name: t, key: [id], source: {format: debezium-jsn}}]\n", `did you mean "debezium-json"`},
		{"partition", "tables: [{name: t, key: [id], partition_by: ['bucket(id)']}]\n", "bucket(16, id)"},
		{"catalog", "catalog: {type: hive}\n", "is not there; use embedded, rest or sql"},
		{"catalog of AWS", "catalog: {type: glue}\n", "signing_name glue"},
		{"catalog signed and with a token", "catalog: {type: rest, uri: 'http://x', token: a, signing_name: glue}\n", "carry no token"},
		{"catalog signed and in PostgreSQL", "catalog: {type: sql, uri: 'postgres://u@h/db', signing_region: eu-west-1}\n", "for a REST catalog alone"},
		{"catalog uri", "catalog: {type: sql, uri: 'http://127.0.0.1'}\n", "its uri is postgres://"},
		{"catalog password", "catalog: {type: sql, uri: 'postgres://u:geheim@h/db'}\n", "the address holds a password"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			path := writeFile(t, "varve.yaml", tc.text)
			for _, args := range [][]string{{"config", "check", path}, {"config", "check", "--config", path}} {
				code, out, errs := varve(t, args...)
				if code != exitUsage || out != "" || !strings.Contains(errs, tc.want) {
					t.Errorf("%v: exit code %d, want %d; stdout %q; stderr %q, want %q in it", args, code, exitUsage, out, errs, tc.want)
				}
			}
		})
	}
}

func TestConfigEmptyFileIsFine(t *testing.T) {
	for _, text := range []string{"", "# nothing\n", "data: ./x\n"} {
		path := writeFile(t, "varve.yaml", text)
		if code, _, errs := varve(t, "config", "check", path); code != exitDone {
			t.Errorf("%q: exit code %d: %s", text, code, errs)
		}
	}
}

// Flags win over the environment, the environment over the file, the file
// over defaults.
func TestSettingsPrecedence(t *testing.T) {
	path := writeFile(t, "varve.yaml", "data: from-file\nwarehouse: from-file\ndeployment: from-file\nbrokers: [a:1, b:2]\n")
	env := []string{"VARVE_DATA=from-env", "VARVE_WAREHOUSE=from-env", "VARVE_OUTPUT=csv", "VARVE_LOG_LEVEL="}
	code, out, errs := varveWith(t, env, "", "config", "show", "--config", path, "--data", "from-flag")
	if code != exitDone {
		t.Fatal(errs)
	}
	for _, want := range []string{
		"data,from-flag,flag", "warehouse,from-env,environment", "deployment,from-file,file", `brokers,"a:1,b:2",file`,
		`log_level,"",default`, "output,csv,environment",
	} {
		if !slices.Contains(lines(out), want) {
			t.Errorf("no line %q in\n%s", want, out)
		}
	}
}

func TestConfigFileFromEnvironment(t *testing.T) {
	path := writeFile(t, "varve.yaml", "data: from-file\n")
	_, out, _ := varveWith(t, []string{"VARVE_CONFIG=" + path}, "", "config", "show", "--output", "csv")
	if !slices.Contains(lines(out), "data,from-file,file") {
		t.Errorf("got\n%s", out)
	}
}

func TestEnvironmentErrorsAndWarnings(t *testing.T) {
	code, _, errs := varveWith(t, []string{"VARVE_QUIET=maybe"}, "", "version")
	if code != exitUsage || !strings.Contains(errs, "VARVE_QUIET") {
		t.Errorf("wrong value: exit code %d, stderr %q", code, errs)
	}
	_, _, errs = varveWith(t, []string{"VARVE_BROKER=a:1", "VARVE_SOMETHING_ELSE=1"}, "", "config", "show")
	if !strings.Contains(errs, "name=VARVE_BROKER nearest=VARVE_BROKERS") || strings.Contains(errs, "SOMETHING_ELSE") {
		t.Errorf("misspelled variable: stderr %q", errs)
	}
	secrets := []string{"VARVE_ADMIN_TOKEN=hidden", "VARVE_CATALOG_TOKEN=hidden", "VARVE_KAFKA_PASSWORD=hidden", "VARVE_CATALOG_ACCESS_TOKEN=hidden", "VARVE_CATALOG_CREDENTIAL=a:hidden"}
	_, out, errs := varveWith(t, secrets, "", "config", "show")
	if errs != "" || strings.Contains(out, "hidden") {
		t.Errorf("variables that hold secrets do something: stdout %q, stderr %q", out, errs)
	}
}

func TestNearest(t *testing.T) {
	known := []string{"brokers", "catalog", "data", "deployment", "warehouse"}
	for word, want := range map[string]string{"broker": "brokers", "brokres": "brokers", "dta": "data", "Warehouse": "warehouse", "cat": "catalog"} {
		if got, _ := nearest(word, known); got != want {
			t.Errorf("%s: got %s, want %s", word, got, want)
		}
	}
}

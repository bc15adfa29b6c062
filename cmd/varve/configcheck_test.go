package main

import (
	"strings"
	"testing"
)

// What run would not take of a file, config check does not call right.
func TestConfigCheckIsAsRun(t *testing.T) {
	for file, want := range map[string]string{
		"partitions: 5-2":                                 "write them as 0-3,7",
		"partitions: 0-3":                                 "name its brokers",
		"node_id: a b":                                    "node id",
		"roles: [nobody]":                                 `unknown role "nobody"`,
		"roles: [publisher]":                              "name both roles",
		"session_timeout: 10ms":                           "a second or more",
		`ingest_tables: ["["]`:                            "no pattern",
		`warehouse: "s3://"`:                              "names no bucket",
		`warehouse: "http://x"`:                           "no store for scheme",
		`warehouse: "s3://key:hidden@b/x"`:                "holds credentials",
		"catalog: {type: rest, uri: nonsense}":            "no address of a REST catalog",
		`catalog: {type: rest, uri: "http://u:hidden@h"}`: "holds a user",
		"kafka: {sasl: FOO}":                              "no mechanism",
		"kafka: {ca: /not/there}":                         "/not/there",
		"admin_listen: 0.0.0.0:1":                         "VARVE_ADMIN_TOKEN",
		"catalog_listen: nonsense":                        "no address to listen on",
		"catalog_token_file: /not/there":                  "/not/there",
		"checkpoint_keep: -1":                             "--checkpoint-keep",
		"checkpoint_interval: soon":                       "no duration",
		"log_partitions: -3":                              "below zero",
		"log_level: loud":                                 "--log-level",
		"deployment: a b":                                 "deployment name",
		"tables: [{name: a, key: [x], source: {repartition: perhaps}}]": `it can only be "always"`,
		"- 1": "",
	} {
		path := writeFile(t, "c.yaml", "data: "+t.TempDir()+"\n"+file+"\n")
		if file == "- 1" {
			path = writeFile(t, "c.yaml", file+"\n")
		}
		code, out, errs := varveWith(t, nil, "", "config", "check", path)
		if code != exitUsage || out != "" || !strings.Contains(errs, want) || !strings.Contains(errs, path) || strings.Contains(errs, "hidden") {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q; want %q", file, code, out, errs, want)
		}
	}
	path := writeFile(t, "c.yaml", "data: "+t.TempDir()+"\nbrokers: [nobody.invalid:9092]\nwarehouse: /not/there\nroles: [ingest]\npartitions: 0-3\ncatalog: {type: rest, uri: 'http://nobody.invalid'}\n")
	if code, _, errs := varveWith(t, nil, "", "config", "check", path); code != exitDone || errs != "" {
		t.Errorf("a file that is right: exit code %d, stderr %q", code, errs)
	}
}

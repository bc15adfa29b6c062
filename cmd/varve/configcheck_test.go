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
	// Requests that are signed need a region, of the file or of AWS's own settings.
	signed := "data: " + t.TempDir() + "\ncatalog: {type: rest, uri: 'http://nobody.invalid', signing_name: glue"
	for _, name := range []string{"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_DEFAULT_PROFILE"} {
		t.Setenv(name, "")
	}
	profile := writeFile(t, "profile", "[default]\nregion = eu-west-1\n")
	for _, tc := range []struct{ text, file, region, want string }{
		{signed + "}\n", "/not/there", "", "requests are to be signed for glue, and no region is known; give signing_region, or set AWS_REGION"},
		{signed + "}\n", "/not/there", "eu-west-1", ""},
		{signed + "}\n", profile, "", ""},
		{signed + ", signing_region: eu-west-1}\n", "/not/there", "", ""},
	} {
		t.Setenv("AWS_CONFIG_FILE", tc.file)
		t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/not/there")
		t.Setenv("AWS_REGION", tc.region)
		code, _, errs := varveWith(t, nil, "", "config", "check", writeFile(t, "c.yaml", tc.text))
		if (code == exitUsage) != (tc.want != "") || !strings.Contains(errs, tc.want) || tc.want == "" && errs != "" || strings.Count(errs, "\n") > 1 {
			t.Errorf("%+v: exit code %d, stderr %q", tc, code, errs)
		}
	}
	path := writeFile(t, "c.yaml", "data: "+t.TempDir()+"\nbrokers: [nobody.invalid:9092]\nwarehouse: /not/there\nroles: [ingest]\npartitions: 0-3\ncatalog: {type: rest, uri: 'http://nobody.invalid'}\n")
	if code, _, errs := varveWith(t, nil, "", "config", "check", path); code != exitDone || errs != "" {
		t.Errorf("a file that is right: exit code %d, stderr %q", code, errs)
	}
}

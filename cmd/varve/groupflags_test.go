package main

import (
	"slices"
	"strings"
	"testing"
)

func TestParseRanges(t *testing.T) {
	for in, want := range map[string][]int32{"": nil, "7": {7}, "0-2,7": {0, 1, 2, 7}, "65536": {65536}} {
		if got, err := parseRanges(in); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v; want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"5-2", "a", "1-2-3", "-1", "0-65537", "1,1", "0-3,2", ",", "1,", "99999999999999999999", "0-99999999999"} {
		if got, err := parseRanges(in); err == nil {
			t.Errorf("%q is taken for %v", in, got)
		}
	}
}

// What a node cannot work with is wrong usage, told before anything is made.
func TestRunRefusesNonsense(t *testing.T) {
	base := []string{"run", "--catalog-listen", "off"}
	for _, c := range []struct {
		env, args []string
		want      string
	}{
		{nil, []string{"--partitions", "5-2"}, "write them as 0-3,7"},
		{nil, []string{"--session-timeout", "0s"}, "--session-timeout 0s: a second or more"},
		{nil, []string{"--rebalance-timeout", "1ns"}, "--rebalance-timeout 1ns: a second or more"},
		{nil, []string{"--roles", "nothing"}, `unknown role "nothing"`},
		{nil, []string{"--node-id", "../x"}, "node id"},
		{nil, []string{"--warehouse", "file://host/x"}, "write file:///folder"},
		{nil, []string{"--warehouse", "s3://key:hidden@b/x"}, "holds credentials"},
		{nil, []string{"--admin-listen", "0.0.0.0:0"}, "VARVE_ADMIN_TOKEN"},
		{[]string{"VARVE_ADMIN_TOKEN=hidden with words in it"}, []string{"--admin-listen", "0.0.0.0:0"}, "VARVE_ADMIN_TOKEN must hold one token"},
		{[]string{"VARVE_CATALOG_TOKEN=hidden-and-an-end\n"}, []string{"--catalog-listen", "0.0.0.0:0"}, "VARVE_CATALOG_TOKEN must hold one token"},
	} {
		args := append(append(slices.Clone(base), "--data", t.TempDir()), c.args...)
		code, out, errs := varveWith(t, c.env, "", args...)
		if code != exitUsage || !strings.Contains(errs, c.want) || strings.Contains(out+errs, "hidden") {
			t.Errorf("%v: exit code %d, stdout %q, stderr %q; want %q", c.args, code, out, errs, c.want)
		}
	}
}

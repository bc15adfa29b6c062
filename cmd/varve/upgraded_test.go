package main

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/varve-io/varve/schemas/restcat"
	"github.com/varve-io/varve/statestore/restclient"
	"github.com/varve-io/varve/topology/readers"
	"github.com/varve-io/varve/topology/testcluster"
)

// A table of version 2 that another program made, and its upgrade to version 3,
// cannot be taken over: that is one clear error. Its rows come in by its files.
func TestTableOfAnotherProgram(t *testing.T) {
	readers.Need(t, readers.PyIceberg)
	data := filepath.Join(t.TempDir(), "d")
	cat := testcluster.StartCatalog(t, "file://"+filepath.Join(data, "lake"))
	var theirs struct {
		Version int
		Files   []string
		Rows    int
	}
	python := func(program string) {
		t.Helper()
		begin := fmt.Sprintf("import json, pyarrow as pa\nfrom pyiceberg.catalog.rest import RestCatalog\nfrom pyiceberg.schema import Schema\nfrom pyiceberg.types import *\nc = RestCatalog('c', uri=%q)\n", cat.URI())
		end := "\nt = c.load_table('shop.people')\nprint(json.dumps({'version': t.format_version, 'files': [x.file.file_path for x in t.scan().plan_files()], 'rows': t.scan().to_arrow().num_rows}))\n"
		out, err := exec.Command(filepath.Join(readers.Folder(), "bin", "python"), "-W", "ignore", "-c", begin+program+end).Output()
		if err != nil {
			t.Fatalf("PyIceberg: %v: %s", err, err.(*exec.ExitError).Stderr)
		}
		if err := json.Unmarshal(out, &theirs); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	python(`
c.create_namespace("shop")
t = c.create_table("shop.people", Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType())), properties={"format-version": "2"})
def rows(*ids):
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [f"n{i}" for i in ids]}, schema=pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())]))
t.append(rows(1, 2, 3, 4))
t.append(rows(5, 6))
t.delete("id = 2")
`)
	if theirs.Version != 2 || len(theirs.Files) != 2 || theirs.Rows != 5 {
		t.Fatalf("PyIceberg made %+v", theirs)
	}
	events := writeFile(t, "events.jsonl", `{"id":3,"name":"ours"}`+"\n"+`{"id":9,"name":"nine"}`+"\n")
	refused := func() {
		t.Helper()
		code, _, errs := varve(t, "load", "--data", filepath.Join(t.TempDir(), "refused"), "--table", "shop.people", "--format", "rows-json", "--key", "id",
			"--catalog-uri", cat.URI(), events)
		for _, want := range []string{"shop.people is there already, and not ours", fmt.Sprintf("format version %d", theirs.Version), "varve table import"} {
			if code != exitFailed || !strings.Contains(errs, want) {
				t.Errorf("exit code %d, want %q in %s", code, want, errs)
			}
		}
	}
	refused()
	client, err := restclient.Open(t.Context(), restclient.Options{URI: cat.URI()})
	if err == nil {
		_, err = client.Commit(t.Context(), &restcat.CommitTable{Identifier: restcat.IdentifierOf("shop.people"), Requirements: []restcat.Requirement{}, Updates: []restcat.Update{restcat.UpgradeFormat(3)}})
	}
	if err != nil {
		t.Fatal(err)
	}
	python("")
	if theirs.Version != 3 || theirs.Rows != 5 {
		t.Fatalf("upgraded, it is %+v", theirs)
	}
	refused()

	load := func(file string) {
		t.Helper()
		run(t, "load", "--data", data, "--table", "shop.persons", "--format", "rows-json", "--key", "id", "--catalog-uri", cat.URI(), file)
	}
	load(writeFile(t, "first.jsonl", `{"id":6,"name":"older"}`+"\n"))
	args := []string{"table", "import", "shop.persons", "--data", data}
	for _, f := range theirs.Files {
		path := strings.TrimPrefix(strings.TrimPrefix(f, "file:"), "//")
		args = append(args, path)
	}
	run(t, args...)
	load(events)
	wantRows(t, scanned(t, data, "shop.persons"), "1,n1", "3,ours", "4,n4", "5,n5", "6,n6", "9,nine")
}

package main

import (
	"strings"
	"testing"

	"github.com/varve-io/varve/topology/testcluster"
)

// Values that the source did not send because they did not change: from the
// buffer, from a file, across a key change, and from nowhere (K10).
func TestUnchangedValues(t *testing.T) { unchangedValues(t) }

func TestUnchangedValuesOnKafka(t *testing.T) {
	unchangedValues(t, "--brokers", strings.Join(testcluster.Start(t, 1).Brokers(), ","))
}

func unchangedValues(t *testing.T, where ...string) {
	const marker = `"__debezium_unavailable_value"`
	data := t.TempDir()
	base := append([]string{"--data", data, "--table", "t", "--records"}, where...)
	first := strings.Join([]string{
		`{"key":{"id":1},"value":{"op":"c","after":{"id":1,"a":"x","big":"one","n":7}}}`,
		`{"key":{"id":1},"value":{"op":"u","after":{"id":1,"a":"y","big":` + marker + `,"n":` + marker + `}}}`,
		`{"key":{"id":2},"value":{"op":"c","after":{"id":2,"a":"x","big":"two","n":8}}}`,
		`{"key":{"id":3},"value":{"op":"u","after":{"id":3,"a":"x","big":` + marker + `,"n":1}}}`,
		`{"key":{"id":4},"value":{"op":"c","after":{"id":4,"a":"x","big":"four","n":9}}}`,
		`{"key":{"id":4},"value":{"op":"d","before":{"id":4}},"headers":{"__debezium.newkey":"{\"id\":5}"}}`,
		`{"key":{"id":4},"value":null}`,
		`{"key":{"id":5},"value":{"op":"c","after":{"id":5,"a":"z","big":` + marker + `,"n":9}},"headers":{"__debezium.oldkey":"{\"id\":4}"}}`,
	}, "\n")
	r, _ := load(t, first, append([]string{"--format", "debezium-json", "--key", "id"}, append(base, "-")...)...)
	if r.Rows != 3 || r.DeadLetters != 1 {
		t.Errorf("first load: %+v", r)
	}
	wantRows(t, scanned(t, data, "t"), "1,y,one,7", "2,x,two,8", "5,z,four,9")
	second := strings.Join([]string{
		`{"key":{"id":2},"value":{"op":"u","before":{"id":2},"after":{"id":6,"a":"w","big":` + marker + `,"n":` + marker + `}}}`,
		`{"key":{"id":6},"value":{"op":"u","after":{"id":6,"a":"v","big":` + marker + `,"n":10}}}`,
		`{"key":{"id":1},"value":{"op":"u","after":{"id":1,"a":"q","big":` + marker + `,"n":null}}}`,
		`{"key":{"id":7},"value":{"op":"u","before":{"id":9},"after":{"id":7,"a":"w","big":` + marker + `,"n":1}}}`,
		`{"key":{"id":5},"value":{"op":"d","before":{"id":5}}}`,
		`{"key":{"id":5},"value":{"op":"c","after":{"id":5,"a":"z","big":` + marker + `,"n":9}}}`,
	}, "\n")
	r, _ = load(t, second, append(base, "-")...)
	if r.Rows != 2 || r.DeadLetters != 2 {
		t.Errorf("second load: %+v", r)
	}
	wantRows(t, scanned(t, data, "t"), "1,q,one,", "6,v,two,10")
}

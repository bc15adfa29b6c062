package main

import (
	"strings"
	"testing"

	"github.com/varve-io/varve/processors/adopt"
	"github.com/varve-io/varve/schemas"
)

// TestDefinitionLike: a table with the ids of another one gives no id again that the
// other has given, and has some left.
func TestDefinitionLike(t *testing.T) {
	w := &wish{name: "t", key: []string{"id"}, format: "rows-json"}
	src := &adopt.Table{Metadata: "m", Schema: &schemas.Schema{Fields: []schemas.Field{{ID: 3, Name: "id", Type: schemas.Of(schemas.Long)}}}}
	for last, want := range map[int32]int32{0: 3, 3: 3, 7: 7, schemas.MaxFieldID - 1: schemas.MaxFieldID - 1} {
		src.LastColumnID = last
		if d, _, err := w.definitionLike(src); err != nil || d.LastColumnID != want {
			t.Errorf("%d: got %d, %v, want %d", last, d.LastColumnID, err, want)
		}
	}
	for _, last := range []int32{schemas.MaxFieldID, 1<<31 - 1} {
		src.LastColumnID = last
		if _, _, err := w.definitionLike(src); exitCode(err) != exitUsage || !strings.Contains(err.Error(), "none could be added") {
			t.Errorf("%d: got %v", last, err)
		}
	}
}

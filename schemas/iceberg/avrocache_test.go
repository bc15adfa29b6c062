package iceberg

import (
	"fmt"
	"strings"
	"testing"
)

// TestSchemaCache: a text is parsed once; the cache is bounded in texts and in
// their length, and keeps no faults.
func TestSchemaCache(t *testing.T) {
	var c schemaCache
	text := func(i int) string {
		return fmt.Sprintf(`{"type":"record","name":"r%d","fields":[{"name":"a","type":"long"}]}`, i)
	}
	parse := func(s string) *avroType {
		t.Helper()
		p, err := c.parse(s)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	first := parse(text(0))
	if parse(text(0)) != first {
		t.Error("the same text was parsed twice")
	}
	if parse(text(1)) == first {
		t.Error("another text gave the same schema")
	}
	for i := range 10 * maxCachedSchemas {
		parse(text(i))
		if len(c.byText) > maxCachedSchemas {
			t.Fatalf("%d schemas are kept", len(c.byText))
		}
	}
	long := strings.Replace(text(0), `"a"`, `"`+strings.Repeat("a", maxCachedSchemaText)+`"`, 1)
	if parse(long); c.byText[long] != nil {
		t.Error("a text over the limit is kept")
	}
	if _, err := c.parse("{"); err == nil || c.byText["{"] != nil {
		t.Errorf("a faulty text: %v", err)
	}
}

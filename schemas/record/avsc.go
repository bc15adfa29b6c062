package record

import (
	"embed"
	"fmt"
)

//go:embed avsc/*.avsc
var avscFiles embed.FS

// Schema is the Avro schema of a record type or body by its name, such as
// AppendRows, RowsBody, Envelope, OutcomeMessage: a whole schema file that any
// Avro library reads.
func Schema(name string) (string, error) {
	b, err := avscFiles.ReadFile("avsc/" + name + ".avsc")
	if err != nil {
		return "", fmt.Errorf("there is no Avro schema %q; see schemas/record/avsc for those there are", name)
	}
	return string(b), nil
}

// SchemaNames are the names that Schema knows, sorted.
func SchemaNames() []string {
	entries, err := avscFiles.ReadDir("avsc")
	if err != nil {
		panic(err) // embedded: it is there or the build failed
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()[:len(e.Name())-len(".avsc")]
	}
	return names
}

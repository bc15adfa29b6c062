package iceberg

import "sync"

// The schemas of manifests and lists are few and their texts long: parsing one
// costs more than reading the entries of a small manifest.
const (
	maxCachedSchemas    = 32
	maxCachedSchemaText = 16 << 10
)

// schemaCache holds parsed schemas by their text. A parsed schema never changes.
type schemaCache struct {
	mu     sync.Mutex
	byText map[string]*avroType
}

var parsedSchemas schemaCache

func (c *schemaCache) parse(text string) (*avroType, error) {
	c.mu.Lock()
	t := c.byText[text]
	c.mu.Unlock()
	if t != nil {
		return t, nil
	}
	t, err := parseAvroSchema([]byte(text))
	if err != nil || len(text) > maxCachedSchemaText {
		return t, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byText == nil || len(c.byText) >= maxCachedSchemas {
		c.byText = map[string]*avroType{}
	}
	c.byText[text] = t
	return t, nil
}

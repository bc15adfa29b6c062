package publisher

import (
	"slices"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/iceberg"
)

// applyDefinition brings schemas, specs and properties of the metadata to the
// definition (S12). Versions that are there stay as they are.
//
// Until foreign metadata can be a base, every property of the metadata came
// from an earlier definition: one that the definition no longer has was removed.
func applyDefinition(m *iceberg.Metadata, d *schemas.Definition) error {
	has := func(docs []iceberg.Document, id int32) bool {
		return slices.ContainsFunc(docs, func(x iceberg.Document) bool { return x.ID == int64(id) })
	}
	for i := range d.Schemas {
		if id := d.Schemas[i].ID; id != d.CurrentSchema && !has(m.Schemas, id) {
			if err := m.SetSchema(&d.Schemas[i]); err != nil {
				return err
			}
		}
	}
	if err := m.SetSchema(d.Schema()); err != nil {
		return err
	}
	for i := range d.Specs {
		if id := d.Specs[i].ID; id != d.DefaultSpec && !has(m.Specs, id) {
			if err := m.SetSpec(&d.Specs[i]); err != nil {
				return err
			}
		}
	}
	if err := m.SetSpec(d.Spec(d.DefaultSpec)); err != nil {
		return err
	}
	m.LastColumnID = max(m.LastColumnID, d.LastColumnID)
	m.LastPartitionID = max(m.LastPartitionID, d.LastPartitionID)
	m.Properties = nil
	m.SetProperty("gc.enabled", "false")
	for _, x := range d.Properties {
		m.SetProperty(x.Key, x.Value)
	}
	return nil
}

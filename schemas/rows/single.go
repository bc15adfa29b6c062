package rows

import (
	"fmt"

	"github.com/varve-io/varve/schemas"
)

// AppendSingle appends a value given in Iceberg's single-value form.
func (c *Column) AppendSingle(single []byte) error {
	switch c.Storage {
	case Ints:
		v, err := schemas.IntValue(c.Type, single)
		if err != nil {
			return err
		}
		c.AppendInt(v)
	case Floats:
		v, err := schemas.FloatValue(c.Type, single)
		if err != nil {
			return err
		}
		c.AppendFloat(v)
	default:
		v, err := schemas.BytesValue(c.Type, single)
		if err != nil {
			return err
		}
		c.AppendBytes(v)
	}
	return nil
}

// SingleAt appends row i in Iceberg's single-value form; the row is not null.
func (c *Column) SingleAt(dst []byte, i int) ([]byte, error) {
	switch c.Storage {
	case Ints:
		return schemas.AppendIntValue(dst, c.Type, c.Ints[i])
	case Floats:
		return schemas.AppendFloatValue(dst, c.Type, c.Floats[i]), nil
	}
	return schemas.AppendBytesValue(dst, c.Type, c.BytesAt(i))
}

// ParseKeyText reads a key part as a user types it and appends it to c: exact
// or an error.
func ParseKeyText(c *Column, text string) error {
	single, err := schemas.ParseText(c.Type, text)
	if err != nil {
		return err
	}
	return c.AppendSingle(single)
}

// AppendJSON appends a value given in Iceberg's JSON form, as column defaults
// hold it.
func (c *Column) AppendJSON(raw []byte) error {
	single, err := schemas.ParseJSONValue(c.Type, raw)
	if err != nil {
		return err
	}
	return c.AppendSingle(single)
}

// AppendRow appends row i of another column of the same storage.
func (c *Column) AppendRow(from *Column, i int) {
	switch {
	case from.IsNull(i):
		c.AppendNull()
	case c.Storage != from.Storage:
		panic(fmt.Sprintf("rows: a %s taken into a %s", from.Type, c.Type))
	case c.Storage == Ints:
		c.AppendInt(from.Ints[i])
	case c.Storage == Floats:
		c.AppendFloat(from.Floats[i])
	default:
		c.AppendBytes(from.BytesAt(i))
	}
}

package puffin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Names of the format.
const (
	// PropertyDataFile names the data file of a vector, letter by letter.
	PropertyDataFile = "referenced-data-file"
	// PropertyCardinality is a vector's number of positions, in decimal.
	PropertyCardinality = "cardinality"
	// PropertyCreatedBy is the file property that names the writer.
	PropertyCreatedBy = "created-by"

	// FieldRowPosition is the id of Iceberg's _pos column, a vector's only field.
	FieldRowPosition = int32(math.MaxInt32 - 2)
	// Inherited is the snapshot id and sequence number of a vector's blob: both
	// come from the manifest entry.
	Inherited = int64(-1)

	// CodecZstd and CodecLZ4 are the compression codecs of the format.
	CodecZstd = "zstd"
	CodecLZ4  = "lz4"
)

// Property is one entry of a property list.
type Property struct{ Key, Value string }

// Properties keeps the order in which they stand in the file. No key occurs twice.
type Properties []Property

// Get returns the value of key.
func (p Properties) Get(key string) (value string, ok bool) {
	for _, e := range p {
		if e.Key == key {
			return e.Value, true
		}
	}
	return "", false
}

// Blob is the footer's entry for one blob. Offset and length are bytes of the file,
// as a manifest entry repeats them.
type Blob struct {
	Type             string
	Fields           []int32
	SnapshotID       int64
	SequenceNumber   int64
	Offset           int64
	Length           int64
	CompressionCodec string // empty when the blob is not compressed
	Properties       Properties
}

// Metadata is a file's footer.
type Metadata struct {
	Blobs      []Blob
	Properties Properties
}

// appendJSON appends the footer as Java writes it.
func (m *Metadata) appendJSON(dst []byte) []byte {
	dst = append(dst, `{"blobs":[`...)
	for i := range m.Blobs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = m.Blobs[i].appendJSON(dst)
	}
	dst = append(dst, ']')
	dst = m.Properties.appendJSON(dst)
	return append(dst, '}')
}

func (b *Blob) appendJSON(dst []byte) []byte {
	dst = append(dst, `{"type":`...)
	dst = appendString(dst, b.Type)
	dst = append(dst, `,"fields":[`...)
	for i, f := range b.Fields {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, int64(f), 10)
	}
	dst = append(dst, `],"snapshot-id":`...)
	dst = strconv.AppendInt(dst, b.SnapshotID, 10)
	dst = append(dst, `,"sequence-number":`...)
	dst = strconv.AppendInt(dst, b.SequenceNumber, 10)
	dst = append(dst, `,"offset":`...)
	dst = strconv.AppendInt(dst, b.Offset, 10)
	dst = append(dst, `,"length":`...)
	dst = strconv.AppendInt(dst, b.Length, 10)
	if b.CompressionCodec != "" {
		dst = append(dst, `,"compression-codec":`...)
		dst = appendString(dst, b.CompressionCodec)
	}
	dst = b.Properties.appendJSON(dst)
	return append(dst, '}')
}

func (p Properties) appendJSON(dst []byte) []byte {
	if len(p) == 0 {
		return dst
	}
	dst = append(dst, `,"properties":{`...)
	for i, e := range p {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(dst, e.Key)
		dst = append(dst, ':')
		dst = appendString(dst, e.Value)
	}
	return append(dst, '}')
}

// check refuses what has no faithful JSON.
func (p Properties) check() error {
	for i, e := range p {
		if !utf8.ValidString(e.Key) || !utf8.ValidString(e.Value) {
			return fmt.Errorf("property %d is not valid UTF-8", i)
		}
	}
	return p.checkUnique()
}

func (p Properties) checkUnique() error {
	keys := make([]string, len(p))
	for i := range p {
		keys[i] = p[i].Key
	}
	slices.Sort(keys)
	for i := 1; i < len(keys); i++ {
		if keys[i] == keys[i-1] {
			return fmt.Errorf("property %q occurs twice", keys[i])
		}
	}
	return nil
}

// appendString quotes s with Java's escapes: quotes, backslashes and control
// characters only, hexadecimal in upper case.
func appendString(dst []byte, s string) []byte {
	const digits = "0123456789ABCDEF"
	dst = append(dst, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c >= 0x20:
			dst = append(dst, c)
		case c == '\b':
			dst = append(dst, '\\', 'b')
		case c == '\t':
			dst = append(dst, '\\', 't')
		case c == '\n':
			dst = append(dst, '\\', 'n')
		case c == '\f':
			dst = append(dst, '\\', 'f')
		case c == '\r':
			dst = append(dst, '\\', 'r')
		default:
			dst = append(dst, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		}
	}
	return append(dst, '"')
}

// object is a JSON object with its keys as written: encoding/json's structs would
// also match "Offset" for "offset", and take the last of two equal keys.
type object map[string]json.RawMessage

func (o *object) UnmarshalJSON(data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := expect(dec, '{'); err != nil {
		return err
	}
	*o = object{}
	for dec.More() {
		name, err := key(dec)
		if err != nil {
			return err
		}
		if _, twice := (*o)[name]; twice {
			return fmt.Errorf("%q occurs twice", name)
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return err
		}
		(*o)[name] = value
	}
	return nil
}

func expect(dec *json.Decoder, delim json.Delim) error {
	token, err := dec.Token()
	if err != nil {
		return err
	}
	if token != delim {
		return fmt.Errorf("found %v, want %v", token, delim)
	}
	return nil
}

func key(dec *json.Decoder) (string, error) {
	token, err := dec.Token()
	if err != nil {
		return "", err
	}
	name, ok := token.(string)
	if !ok {
		return "", fmt.Errorf("found %v, want a name", token)
	}
	return name, nil
}

func (o object) required(name string, out any) error {
	raw, ok := o[name]
	if !ok || bytes.Equal(raw, []byte("null")) {
		return fmt.Errorf("%q is missing", name)
	}
	if err := json.Unmarshal(raw, out); err != nil {
		return fmt.Errorf("%q: %w", name, err)
	}
	return nil
}

func (o object) optional(name string, out any) error {
	if raw, ok := o[name]; !ok || bytes.Equal(raw, []byte("null")) {
		return nil
	}
	return o.required(name, out)
}

// parseMetadata reads a footer. Unknown names are ignored, as the format wants.
func parseMetadata(data []byte) (*Metadata, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("not valid UTF-8")
	}
	var footer object
	if err := json.Unmarshal(data, &footer); err != nil {
		return nil, err
	}
	m := &Metadata{}
	if err := footer.required("blobs", (*blobList)(&m.Blobs)); err != nil {
		return nil, err
	}
	if err := footer.optional("properties", &m.Properties); err != nil {
		return nil, err
	}
	return m, nil
}

// blobList is read one blob at a time, so that memory follows valid blobs only.
type blobList []Blob

func (l *blobList) UnmarshalJSON(data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := expect(dec, '['); err != nil {
		return err
	}
	for dec.More() {
		var o object
		if err := dec.Decode(&o); err != nil {
			return fmt.Errorf("blob %d: %w", len(*l), err)
		}
		var b Blob
		if err := b.parse(o); err != nil {
			return fmt.Errorf("blob %d: %w", len(*l), err)
		}
		*l = append(*l, b)
	}
	return nil
}

func (b *Blob) parse(o object) error {
	return errors.Join(
		o.required("type", &b.Type),
		o.required("fields", &b.Fields),
		o.required("snapshot-id", &b.SnapshotID),
		o.required("sequence-number", &b.SequenceNumber),
		o.required("offset", &b.Offset),
		o.required("length", &b.Length),
		o.optional("compression-codec", &b.CompressionCodec),
		o.optional("properties", &b.Properties),
	)
}

// UnmarshalJSON reads an object of strings in its order and refuses a key that
// occurs twice: readers would differ on which data file is meant.
func (p *Properties) UnmarshalJSON(data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := expect(dec, '{'); err != nil {
		return err
	}
	for dec.More() {
		name, err := key(dec)
		if err != nil {
			return err
		}
		value, err := dec.Token()
		if err != nil {
			return err
		}
		text, ok := value.(string)
		if !ok {
			return fmt.Errorf("the value of %q is not a string", name)
		}
		*p = append(*p, Property{name, text})
	}
	return p.checkUnique()
}

package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/varve-io/varve/schemas"
)

// What registries let schemas import without naming it as a reference, beside
// Protobuf's own files.
var protoImports = map[string]string{
	"confluent/meta.proto": `syntax = "proto3"; package confluent; import "google/protobuf/descriptor.proto";
message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; }
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }`,
	"confluent/type/decimal.proto": `syntax = "proto3"; package confluent.type;
message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }`,
	"google/type/date.proto": `syntax = "proto3"; package google.type;
message Date { int32 year = 1; int32 month = 2; int32 day = 3; }`,
	"google/type/timeofday.proto": `syntax = "proto3"; package google.type;
message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }`,
}

const (
	protoMain    = "varve/writer.proto"
	fieldMeta    = 1088 // the extension of confluent/meta.proto
	maxProtoPath = 32   // messages within messages
)

var errProto = errors.New("no Protobuf schema")

// compileProto compiles a registry's schema.
func compileProto(s WriterSchema) (file protoreflect.FileDescriptor, err error) {
	defer func() {
		if p := recover(); p != nil { // the text comes from outside, the compiler too
			err = errProto
		}
	}()
	texts := map[string]string{protoMain: s.Text}
	for i, text := range s.References {
		if i < len(s.Names) {
			texts[s.Names[i]] = text
		}
	}
	c := protocompile.Compiler{
		MaxParallelism: 1,
		Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{Accessor: func(path string) (io.ReadCloser, error) {
			text, ok := texts[path]
			if !ok {
				if text, ok = protoImports[path]; !ok {
					return nil, errProto
				}
			}
			return io.NopCloser(strings.NewReader(text)), nil
		}}),
	}
	files, err := c.Compile(context.Background(), protoMain)
	if err != nil || len(files) != 1 {
		return nil, errProto // the compiler's text quotes the schema
	}
	return files[0], nil
}

// messageAt is the message at a path of ordinals: of the file, then of messages.
func messageAt(file protoreflect.FileDescriptor, path []int32) protoreflect.MessageDescriptor {
	var m protoreflect.MessageDescriptor
	in := file.Messages()
	for _, i := range path {
		if i < 0 || int(i) >= in.Len() {
			return nil
		}
		m = in.Get(int(i))
		in = m.Messages()
	}
	return m
}

// protoPath reads the message's path behind a framing: how many ordinals, and
// each; one 0 alone is the first message. n is its length, 0 when it is cut off.
func protoPath(path []int32, b []byte) ([]int32, int) {
	path = path[:0]
	v, n := protowire.ConsumeVarint(b)
	count := protowire.DecodeZigZag(v)
	if n < 0 || count < 0 || count > maxProtoPath {
		return nil, 0
	}
	if count == 0 {
		return append(path, 0), n
	}
	for range count {
		v, k := protowire.ConsumeVarint(b[n:])
		if k < 0 {
			return nil, 0
		}
		i := protowire.DecodeZigZag(v)
		if i < 0 || i > 1<<20 {
			return nil, 0
		}
		path, n = append(path, int32(i)), n+k
	}
	return path, n
}

// wellKnown are messages that are one value.
type wellKnown uint8

const (
	notWellKnown wellKnown = iota
	wellTimestamp
	wellDate
	wellTimeOfDay
	wellDecimal
	wellWrapper
)

// protoField is a field of a message that rows are read from.
type protoField struct {
	number   protowire.Number
	kind     protoreflect.Kind
	wire     protowire.Type
	presence bool // an absent value is none, not the type's zero
	repeated bool
	well     wellKnown
	enum     map[int32][]byte
	scale    int // wellDecimal: of values that do not say theirs

	name  string
	inner *protoMessage // of a message that is a struct, and of a map's entries
	isMap bool
}

// protoMessage is a message that rows or keys are read from. Its fields stand
// in the order of the plan's.
type protoMessage struct {
	refuse   *Reject
	desc     protoreflect.MessageDescriptor
	fields   []protoField
	byNumber map[protowire.Number]int
	plan     *plan  // of a row
	spans    []span // scratch, of a message inside of a row
}

var wireOf = map[protoreflect.Kind]protowire.Type{
	protoreflect.BoolKind: protowire.VarintType, protoreflect.EnumKind: protowire.VarintType,
	protoreflect.Int32Kind: protowire.VarintType, protoreflect.Sint32Kind: protowire.VarintType, protoreflect.Uint32Kind: protowire.VarintType,
	protoreflect.Int64Kind: protowire.VarintType, protoreflect.Sint64Kind: protowire.VarintType, protoreflect.Uint64Kind: protowire.VarintType,
	protoreflect.Sfixed32Kind: protowire.Fixed32Type, protoreflect.Fixed32Kind: protowire.Fixed32Type, protoreflect.FloatKind: protowire.Fixed32Type,
	protoreflect.Sfixed64Kind: protowire.Fixed64Type, protoreflect.Fixed64Kind: protowire.Fixed64Type, protoreflect.DoubleKind: protowire.Fixed64Type,
	protoreflect.StringKind: protowire.BytesType, protoreflect.BytesKind: protowire.BytesType, protoreflect.MessageKind: protowire.BytesType,
	protoreflect.GroupKind: protowire.StartGroupType,
}

// protoRow is the Connect schema of a message's rows, and its fields.
func protoRow(md protoreflect.MessageDescriptor) (*connectSchema, []protoField) {
	budget := maxSchemaParts
	return protoRowAt(md, 0, &budget)
}

// protoRowAt bounds what messages that hold themselves, or others often, are
// unrolled to: what lies deeper than a table's columns can is no type of one.
func protoRowAt(md protoreflect.MessageDescriptor, depth int, budget *int) (*connectSchema, []protoField) {
	s := &connectSchema{Type: "struct"}
	var fields []protoField
	if depth > schemas.MaxNesting {
		return s, nil
	}
	for i := range md.Fields().Len() {
		if *budget--; *budget < 0 {
			return &connectSchema{Type: "struct"}, nil
		}
		fd := md.Fields().Get(i)
		c, f := protoFieldAt(fd, depth, budget)
		c.Field, f.name = string(fd.Name()), string(fd.Name())
		s.Fields = append(s.Fields, c)
		fields = append(fields, f)
	}
	return s, fields
}

func protoMessageAt(fields []protoField) *protoMessage {
	m := &protoMessage{fields: fields, byNumber: make(map[protowire.Number]int, len(fields))}
	for i := range fields {
		m.byNumber[fields[i].number] = i
	}
	return m
}

// protoConnect is the Connect schema of a field's values, and how they are read.
func protoConnect(fd protoreflect.FieldDescriptor) (connectSchema, protoField) {
	budget := maxSchemaParts
	return protoFieldAt(fd, 0, &budget)
}

func protoFieldAt(fd protoreflect.FieldDescriptor, depth int, budget *int) (connectSchema, protoField) {
	c, f := protoElement(fd, depth, budget)
	switch {
	case fd.IsMap():
		key, kf := protoElement(fd.MapKey(), depth+1, budget)
		value, vf := protoElement(fd.MapValue(), depth+1, budget)
		vf.presence = false // an absent one is its type's zero
		c = connectSchema{Type: "map", Keys: &key, Values: &value}
		f.inner, f.isMap = protoMessageAt([]protoField{kf, vf}), true
	case fd.IsList():
		element := c
		c = connectSchema{Type: "array", Items: &element}
	}
	return c, f
}

// protoScalars are the literal types of scalar kinds.
var protoScalars = map[protoreflect.Kind]string{
	protoreflect.BoolKind:  "boolean",
	protoreflect.Int32Kind: "int32", protoreflect.Sint32Kind: "int32", protoreflect.Sfixed32Kind: "int32",
	protoreflect.Int64Kind: "int64", protoreflect.Sint64Kind: "int64", protoreflect.Sfixed64Kind: "int64",
	protoreflect.Uint32Kind: "int64", protoreflect.Fixed32Kind: "int64",
	protoreflect.Uint64Kind: "uint64", protoreflect.Fixed64Kind: "uint64",
	protoreflect.FloatKind: "float", protoreflect.DoubleKind: "double",
	protoreflect.StringKind: "string", protoreflect.BytesKind: "bytes", protoreflect.EnumKind: "string",
}

// protoElement is protoFieldAt of one value of a field; of a map it says nothing.
func protoElement(fd protoreflect.FieldDescriptor, depth int, budget *int) (connectSchema, protoField) {
	c := connectSchema{Type: protoScalars[fd.Kind()], Optional: fd.HasPresence()}
	f := protoField{number: fd.Number(), kind: fd.Kind(), wire: wireOf[fd.Kind()], presence: fd.HasPresence(), repeated: fd.IsList() || fd.IsMap()}
	if fd.IsMap() {
		return c, f
	}
	switch fd.Kind() {
	case protoreflect.EnumKind:
		f.enum = map[int32][]byte{}
		for i := range fd.Enum().Values().Len() {
			v := fd.Enum().Values().Get(i)
			if _, alias := f.enum[int32(v.Number())]; !alias {
				f.enum[int32(v.Number())] = []byte(v.Name())
			}
		}
	case protoreflect.MessageKind:
		md := fd.Message()
		switch name := string(md.FullName()); name {
		case "google.protobuf.Timestamp":
			f.well, c.Type, c.Name = wellTimestamp, "int64", "timestamp-nanos"
		case "google.type.Date":
			f.well, c.Type, c.Name = wellDate, "int32", "org.apache.kafka.connect.data.Date"
		case "google.type.TimeOfDay":
			f.well, c.Type, c.Name = wellTimeOfDay, "int64", "io.debezium.time.NanoTime"
		case "confluent.type.Decimal":
			f.well = wellDecimal
			params := metaParams(fd)
			scale, err := strconv.Atoi(params["scale"])
			if err == nil {
				f.scale = scale
				c.Type, c.Name = "bytes", "org.apache.kafka.connect.data.Decimal"
				c.Parameters = map[string]string{"scale": params["scale"], "connect.decimal.precision": params["precision"]}
			} else {
				c.Type, c.Name = "struct", "io.debezium.data.VariableScaleDecimal"
			}
		case "google.protobuf.BoolValue", "google.protobuf.Int32Value", "google.protobuf.Int64Value", "google.protobuf.UInt32Value",
			"google.protobuf.UInt64Value", "google.protobuf.FloatValue", "google.protobuf.DoubleValue", "google.protobuf.StringValue", "google.protobuf.BytesValue":
			f.well, f.kind = wellWrapper, md.Fields().ByNumber(1).Kind()
			c.Type = protoScalars[f.kind]
		default:
			row, fields := protoRowAt(md, depth+1, budget)
			c, f.inner = *row, protoMessageAt(fields)
		}
	case protoreflect.GroupKind:
		c.Type = "struct"
	}
	return c, f
}

// metaParams are the parameters that Confluent's converters write beside a field.
func metaParams(fd protoreflect.FieldDescriptor) map[string]string {
	out := map[string]string{}
	o := fd.Options()
	if o == nil {
		return out
	}
	o.ProtoReflect().Range(func(opt protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if opt.Number() != fieldMeta || opt.Kind() != protoreflect.MessageKind || opt.IsList() {
			return true
		}
		params := v.Message().Descriptor().Fields().ByName("params")
		if params == nil || !params.IsMap() || params.MapKey().Kind() != protoreflect.StringKind || params.MapValue().Kind() != protoreflect.StringKind {
			return false
		}
		v.Message().Get(params).Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
			out[k.String()] = v.String()
			return true
		})
		return false
	})
	return out
}

// protoMessageOf makes what rows of a message are read by.
func (r *reader) protoMessageOf(ref SchemaRef, file protoreflect.FileDescriptor, path []int32, name string) *protoMessage {
	m := &protoMessage{byNumber: map[protowire.Number]int{}}
	if name != "" {
		m.desc = messageNamed(file.Messages(), protoreflect.FullName(name))
	} else {
		m.desc = messageAt(file, path)
	}
	if m.desc == nil {
		what := fmt.Sprintf("no message %v", path)
		if name != "" {
			what = fmt.Sprintf("no message %q", name)
		}
		m.refuse = Rejectf(KindUnknown, "schema", "%s has %s", ref, what)
		return m
	}
	row, fields := protoRow(m.desc)
	m.fields = fields
	for i := range fields {
		m.byNumber[fields[i].number] = i
	}
	m.plan = r.compile(row)
	return m
}

func messageNamed(in protoreflect.MessageDescriptors, name protoreflect.FullName) protoreflect.MessageDescriptor {
	for i := range in.Len() {
		m := in.Get(i)
		if m.FullName() == name {
			return m
		}
		if m = messageNamed(m.Messages(), name); m != nil {
			return m
		}
	}
	return nil
}

package codec

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	commonv1 "bos/rest/gen/bos/common/v1"
)

// plainWriter writes messages as plain JSON: fields as protobuf's own JSON has them, typed values as the
// JSON that they stand for. docs/reference/plain-json.md says how.
type plainWriter struct {
	out     bytes.Buffer
	scalars *json.Encoder
	// objects: rows are objects, and not arrays.
	objects bool
	// keys of the rows of the table that is being written.
	keys []string
}

// plainJSON encodes a message; the error is protobuf's, of a time or duration that JSON cannot say.
func plainJSON(message proto.Message, objects bool) ([]byte, error) {
	w := &plainWriter{objects: objects}
	w.scalars = json.NewEncoder(&w.out)
	w.scalars.SetEscapeHTML(false)
	if err := w.message(message.ProtoReflect()); err != nil {
		return nil, err
	}
	return w.out.Bytes(), nil
}

func (w *plainWriter) message(message protoreflect.Message) error {
	switch known := message.Interface().(type) {
	case *commonv1.Value:
		return w.value(known)
	case *commonv1.ValueList:
		return w.values(known.GetValues())
	case *commonv1.ValueMap:
		return w.valueMap(known)
	case *commonv1.Row:
		return w.row(known)
	case *commonv1.Table:
		if w.objects {
			w.keys = rowKeys(known)
		}
	}
	if strings.HasPrefix(string(message.Descriptor().FullName()), "google.protobuf.") {
		return w.wellKnown(message)
	}
	return w.fields(message)
}

// wellKnown writes times, durations and free JSON as protobuf does, without the spaces that it varies.
func (w *plainWriter) wellKnown(message protoreflect.Message) error {
	text, err := protojson.Marshal(message.Interface())
	if err != nil {
		return err
	}
	return json.Compact(&w.out, text)
}

// fields writes those that are set, and those that have no other way to say that they are not.
func (w *plainWriter) fields(message protoreflect.Message) error {
	w.out.WriteByte('{')
	fields, separate := message.Descriptor().Fields(), w.separator()
	for i := range fields.Len() {
		field := fields.Get(i)
		if field.HasPresence() && !message.Has(field) {
			continue
		}
		separate()
		if err := w.key(string(field.Name())); err != nil {
			return err
		}
		if err := w.field(field, message.Get(field)); err != nil {
			return err
		}
	}
	w.out.WriteByte('}')
	return nil
}

func (w *plainWriter) field(field protoreflect.FieldDescriptor, value protoreflect.Value) error {
	switch {
	case field.IsMap():
		return w.mapField(field.MapValue(), value.Map())
	case field.IsList():
		list := value.List()
		return w.array(list.Len(), func(i int) error { return w.single(field, list.Get(i)) })
	default:
		return w.single(field, value)
	}
}

func (w *plainWriter) mapField(field protoreflect.FieldDescriptor, entries protoreflect.Map) error {
	keys := make([]protoreflect.MapKey, 0, entries.Len())
	entries.Range(func(key protoreflect.MapKey, _ protoreflect.Value) bool {
		keys = append(keys, key)
		return true
	})
	sort.Slice(keys, func(i, j int) bool { return keys[i].String() < keys[j].String() })
	return w.object(len(keys), func(i int) string { return keys[i].String() }, func(i int) error {
		return w.single(field, entries.Get(keys[i]))
	})
}

// single writes one value of a field, as protobuf's own JSON does.
func (w *plainWriter) single(field protoreflect.FieldDescriptor, value protoreflect.Value) error {
	switch field.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return w.message(value.Message())
	case protoreflect.EnumKind:
		if field.Enum().FullName() == "google.protobuf.NullValue" {
			return w.scalar(nil)
		}
		if named := field.Enum().Values().ByNumber(value.Enum()); named != nil {
			return w.scalar(string(named.Name()))
		}
		return w.scalar(int32(value.Enum()))
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind,
		protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return w.scalar(value.String())
	case protoreflect.DoubleKind, protoreflect.FloatKind:
		return w.number(value.Float())
	case protoreflect.BytesKind:
		return w.bytes(value.Bytes())
	default:
		return w.scalar(value.Interface())
	}
}

// value writes a typed value; one that is not set is null.
func (w *plainWriter) value(value *commonv1.Value) error {
	switch kind := value.GetKind().(type) {
	case *commonv1.Value_BoolValue:
		return w.scalar(kind.BoolValue)
	case *commonv1.Value_Int64Value:
		return w.scalar(strconv.FormatInt(kind.Int64Value, 10))
	case *commonv1.Value_DoubleValue:
		return w.number(kind.DoubleValue)
	case *commonv1.Value_DecimalValue:
		return w.scalar(kind.DecimalValue)
	case *commonv1.Value_StringValue:
		return w.scalar(kind.StringValue)
	case *commonv1.Value_BytesValue:
		return w.bytes(kind.BytesValue)
	case *commonv1.Value_DateValue:
		day := kind.DateValue
		return w.scalar(fmt.Sprintf("%04d-%02d-%02d", day.GetYear(), day.GetMonth(), day.GetDay()))
	case *commonv1.Value_TimestampValue:
		return w.wellKnown(kind.TimestampValue.ProtoReflect())
	case *commonv1.Value_ListValue:
		return w.values(kind.ListValue.GetValues())
	case *commonv1.Value_MapValue:
		return w.valueMap(kind.MapValue)
	default:
		return w.scalar(nil)
	}
}

func (w *plainWriter) values(values []*commonv1.Value) error {
	return w.array(len(values), func(i int) error { return w.value(values[i]) })
}

func (w *plainWriter) valueMap(values *commonv1.ValueMap) error {
	fields := values.ProtoReflect().Descriptor().Fields().ByName("fields")
	return w.mapField(fields.MapValue(), values.ProtoReflect().Get(fields).Map())
}

func (w *plainWriter) row(row *commonv1.Row) error {
	if !w.objects || len(w.keys) < len(row.GetValues()) {
		return w.values(row.GetValues())
	}
	return w.object(len(row.GetValues()), func(i int) string { return w.keys[i] }, func(i int) error {
		return w.value(row.GetValues()[i])
	})
}

// rowKeys names the cells of a row: by their columns; names that are missing or repeated get one.
func rowKeys(table *commonv1.Table) []string {
	cells := len(table.GetColumns())
	for _, row := range table.GetRows() {
		cells = max(cells, len(row.GetValues()))
	}
	keys, taken := make([]string, cells), make(map[string]bool, cells)
	for i := range keys {
		name := ""
		if i < len(table.GetColumns()) {
			name = table.GetColumns()[i].GetName()
		}
		if name == "" {
			name = "column_" + strconv.Itoa(i+1)
		}
		key := name
		for n := 2; taken[key]; n++ {
			key = name + "_" + strconv.Itoa(n)
		}
		keys[i], taken[key] = key, true
	}
	return keys
}

func (w *plainWriter) array(length int, item func(int) error) error {
	w.out.WriteByte('[')
	separate := w.separator()
	for i := range length {
		separate()
		if err := item(i); err != nil {
			return err
		}
	}
	w.out.WriteByte(']')
	return nil
}

func (w *plainWriter) object(length int, key func(int) string, item func(int) error) error {
	w.out.WriteByte('{')
	separate := w.separator()
	for i := range length {
		separate()
		if err := w.key(key(i)); err != nil {
			return err
		}
		if err := item(i); err != nil {
			return err
		}
	}
	w.out.WriteByte('}')
	return nil
}

// separator returns a function that writes a comma, but for the first time.
func (w *plainWriter) separator() func() {
	first := true
	return func() {
		if !first {
			w.out.WriteByte(',')
		}
		first = false
	}
}

func (w *plainWriter) key(name string) error {
	if err := w.scalar(name); err != nil {
		return err
	}
	w.out.WriteByte(':')
	return nil
}

func (w *plainWriter) number(value float64) error {
	switch {
	case math.IsNaN(value):
		return w.scalar("NaN")
	case math.IsInf(value, 1):
		return w.scalar("Infinity")
	case math.IsInf(value, -1):
		return w.scalar("-Infinity")
	default:
		return w.scalar(value)
	}
}

func (w *plainWriter) bytes(value []byte) error {
	return w.scalar(base64.StdEncoding.EncodeToString(value))
}

// scalar writes a text, number, boolean or null.
func (w *plainWriter) scalar(value any) error {
	if err := w.scalars.Encode(value); err != nil {
		return err
	}
	w.out.Truncate(w.out.Len() - 1) // the line break that the encoder ends with
	return nil
}

package apidoc

import (
	"google.golang.org/protobuf/reflect/protoreflect"
)

const (
	tableName = "bos.common.v1.Table"
	valueName = "bos.common.v1.Value"
	valueRef  = "#/components/schemas/Value"
)

// typedValue is the plain JSON of a typed value, as package codec writes it; nil for other messages.
func typedValue(name protoreflect.FullName) object {
	cells := object{"type": "array", "items": object{"$ref": valueRef}}
	fields := object{"type": "object", "additionalProperties": object{"$ref": valueRef}}
	switch name {
	case valueName:
		return object{"description": "Any JSON. 64-bit integers and decimals are strings, as JSON numbers " +
			"would lose digits; so are dates (`2026-06-15`), times (RFC 3339 in UTC), bytes (base64), and " +
			"`NaN`, `Infinity`, `-Infinity`."}
	case "bos.common.v1.ValueList":
		cells["description"] = "The items, in order."
		return cells
	case "bos.common.v1.ValueMap":
		fields["description"] = "The fields by name."
		return fields
	case "bos.common.v1.Row":
		return object{
			"description": "One row: a value for each column, in their order; with `rows=objects` an " +
				"object by the columns' names, of which repeated ones get `_2`, `_3`, and empty ones " +
				"`column_` with their position.",
			"oneOf": []any{cells, fields},
		}
	default:
		return nil
	}
}

// inEachForm is the content of an answer in all forms that package codec writes.
func inEachForm(schema object) object {
	return object{
		jsonType: object{"schema": schema},
		protobufType: object{"schema": object{
			"type": "object",
			"description": "protobuf's own JSON of the same message, in which every value says its type; " +
				"for callers that send `Accept: " + protobufType + "`.",
		}},
	}
}

// rowsParameter chooses how rows of tables are written.
func rowsParameter() object {
	return object{
		"name": "rows", "in": "query",
		"description": "How rows of tables are written: as arrays, or as objects by column.",
		"schema":      object{"type": "string", "enum": []string{"arrays", "objects"}, "default": "arrays"},
	}
}

// holdsTable reports whether a message may hold a table.
func holdsTable(message protoreflect.MessageDescriptor, seen map[protoreflect.FullName]bool) bool {
	if message.FullName() == tableName {
		return true
	}
	if seen[message.FullName()] {
		return false
	}
	seen[message.FullName()] = true
	for i := range message.Fields().Len() {
		field := message.Fields().Get(i)
		if field.IsMap() {
			field = field.MapValue()
		}
		if inner := field.Message(); inner != nil && holdsTable(inner, seen) {
			return true
		}
	}
	return false
}

package codec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// What a value has to be.
const (
	anObject = "an object"
	aList    = "a list"
	aText    = "a text"
	aTime    = `a text such as "2026-01-31T12:00:00Z"`
	aSpan    = `a text such as "30s"`
)

// misfit returns what is wrong with JSON of another shape than the message that is to hold it; empty if it
// has that shape. The library's own text says at which character it stopped, and not in which field.
func misfit(target any, body []byte) string {
	descriptor := descriptorOf(target)
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	var value any
	if descriptor == nil || decoder.Decode(&value) != nil {
		return ""
	}
	path, want := inMessage(descriptor, value, "")
	switch {
	case want == "":
		return ""
	case path == "":
		return "the body must be " + want
	default:
		return fmt.Sprintf("field %q must be %s", path, want)
	}
}

// descriptorOf is that of a message, or of what a pointer to one points to; nil for anything else.
func descriptorOf(target any) protoreflect.MessageDescriptor {
	if pointer := reflect.ValueOf(target); pointer.Kind() == reflect.Pointer && pointer.Type().Elem().Kind() == reflect.Pointer {
		target = pointer.Elem().Interface()
	}
	if message, is := target.(proto.Message); is {
		return message.ProtoReflect().Descriptor()
	}
	return nil
}

// inMessage returns the first value of another shape, by the names of fields: its path, and what it has to be.
func inMessage(of protoreflect.MessageDescriptor, value any, path string) (string, string) {
	if of.FullName().Parent() == "google.protobuf" {
		return path, wellKnown(of.Name(), value)
	}
	object, is := value.(map[string]any)
	if !is {
		return path, anObject
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		field := of.Fields().ByJSONName(name)
		if field == nil {
			field = of.Fields().ByTextName(name)
		}
		if field == nil || object[name] == nil {
			continue
		}
		if at, want := inField(field, object[name], joined(path, name)); want != "" {
			return at, want
		}
	}
	return "", ""
}

func inField(field protoreflect.FieldDescriptor, value any, path string) (string, string) {
	switch {
	case field.IsMap():
		entries, is := value.(map[string]any)
		if !is {
			return path, anObject
		}
		for _, key := range slices.Sorted(maps.Keys(entries)) {
			if at, want := inSingle(field.MapValue(), entries[key], joined(path, key)); want != "" {
				return at, want
			}
		}
		return "", ""
	case field.IsList():
		elements, is := value.([]any)
		if !is {
			return path, aList
		}
		for position, element := range elements {
			if at, want := inSingle(field, element, fmt.Sprintf("%s[%d]", path, position)); want != "" {
				return at, want
			}
		}
		return "", ""
	default:
		return inSingle(field, value, path)
	}
}

// inSingle looks at a value that is no list and no map; of plain ones the library says all itself.
func inSingle(field protoreflect.FieldDescriptor, value any, path string) (string, string) {
	if field.Message() == nil {
		return "", ""
	}
	return inMessage(field.Message(), value, path)
}

// wellKnown returns what a value has to be whose JSON has a form of its own; empty if it is that.
func wellKnown(name protoreflect.Name, value any) string {
	_, object := value.(map[string]any)
	_, list := value.([]any)
	_, text := value.(string)
	switch {
	case name == "Struct" && !object:
		return anObject
	case name == "ListValue" && !list:
		return aList
	case name == "Timestamp" && !text:
		return aTime
	case name == "Duration" && !text:
		return aSpan
	case name == "FieldMask" && !text:
		return aText
	default: // of this form, or one that may be anything
		return ""
	}
}

func joined(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

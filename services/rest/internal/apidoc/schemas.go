package apidoc

import (
	"fmt"
	"maps"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

const (
	durationName    = "google.protobuf.Duration"
	durationPattern = `^-?[0-9]{1,12}(\.[0-9]{1,9})?s$`
)

// schemas builds the components of the document. Input schemas are closed and nullable, as the parser
// is; output schemas list the fields that are always present.
type schemas struct {
	rules *rules
	done  object
	names map[string]protoreflect.FullName
}

func (s *schemas) output(message protoreflect.MessageDescriptor) object {
	return s.reference(message, false)
}

func (s *schemas) input(message protoreflect.MessageDescriptor) object {
	return s.reference(message, true)
}

func (s *schemas) reference(message protoreflect.MessageDescriptor, input bool) object {
	if known := wellKnown(message.FullName()); known != nil {
		return known
	}
	if typed := typedValue(message.FullName()); typed != nil {
		s.done[string(message.Name())] = typed
		s.done["Value"] = typedValue(valueName)
	}
	name := string(message.Name())
	if first, taken := s.names[name]; taken && first != message.FullName() {
		panic(fmt.Sprintf("%s and %s need different names in the document", first, message.FullName()))
	}
	s.names[name] = message.FullName()
	if _, started := s.done[name]; !started {
		s.done[name] = object{} // breaks the circle of a message that holds itself
		if input {
			s.done[name] = s.inputObject(message, nil)
		} else {
			s.done[name] = s.outputObject(message)
		}
	}
	return object{"$ref": "#/components/schemas/" + name}
}

// inputObject returns the schema of a request message without the fields in the path.
func (s *schemas) inputObject(
	message protoreflect.MessageDescriptor, without map[string]bool,
) object {
	properties := object{}
	var required []string
	for i := range message.Fields().Len() {
		field := message.Fields().Get(i)
		name := string(field.Name())
		if without[name] {
			continue
		}
		schema := s.field(field, true)
		if s.rules.required(field) {
			required = append(required, name)
		} else {
			schema = object{
				"anyOf":       []any{schema, object{"type": "null"}},
				"description": comment(field),
			}
		}
		properties[name] = schema
	}
	made := object{
		"type": "object", "properties": properties, "additionalProperties": false,
		"description": comment(message),
	}
	if required != nil {
		made["required"] = required
	}
	return made
}

func (s *schemas) outputObject(message protoreflect.MessageDescriptor) object {
	properties := object{}
	required := []string{}
	for i := range message.Fields().Len() {
		field := message.Fields().Get(i)
		properties[string(field.Name())] = s.field(field, false)
		if !field.HasPresence() {
			required = append(required, string(field.Name()))
		}
	}
	made := object{"type": "object", "properties": properties, "description": comment(message)}
	if len(required) > 0 {
		made["required"] = required
	}
	return made
}

func (s *schemas) field(field protoreflect.FieldDescriptor, input bool) object {
	made := s.value(field, input)
	bounds := object{}
	if input {
		bounds = s.rules.bounds(field)
	}
	switch {
	case field.IsMap():
		made = object{"type": "object", "additionalProperties": s.value(field.MapValue(), input)}
	case field.IsList():
		made = object{"type": "array", "items": made}
	}
	maps.Copy(made, bounds)
	if text := comment(field); text != "" {
		made["description"] = text
	}
	return made
}

func (s *schemas) value(field protoreflect.FieldDescriptor, input bool) object {
	if field.IsMap() {
		return nil
	}
	switch field.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return s.reference(field.Message(), input)
	case protoreflect.EnumKind:
		return enum(field.Enum())
	case protoreflect.DoubleKind, protoreflect.FloatKind:
		return object{"anyOf": []any{
			object{"type": "number"},
			object{"type": "string", "enum": []string{"NaN", "Infinity", "-Infinity"}},
		}}
	default:
		return scalar(field.Kind())
	}
}

// parameter returns the schema of a field in a path or query, where all values are text.
func (s *schemas) parameter(field protoreflect.FieldDescriptor) object {
	if field.Message() != nil {
		return s.value(field, true)
	}
	made := s.value(field, true)
	if field.Kind() == protoreflect.Int64Kind {
		// Text as in answers, so that a value of an answer is one of a request as it is.
		return made
	}
	if field.IsList() {
		made = object{"type": "array", "items": made} // in a query the parameter is repeated
	}
	maps.Copy(made, s.rules.bounds(field))
	return made
}

func scalar(kind protoreflect.Kind) object {
	switch kind {
	case protoreflect.BoolKind:
		return object{"type": "boolean"}
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return object{"type": "integer", "format": "int32"}
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return object{"type": "integer", "format": "int64", "minimum": 0}
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind,
		protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return object{"type": "string", "format": "int64", "pattern": "^-?[0-9]{1,20}$"}
	case protoreflect.BytesKind:
		return object{"type": "string", "contentEncoding": "base64"}
	default:
		return object{"type": "string"}
	}
}

func enum(descriptor protoreflect.EnumDescriptor) object {
	if descriptor.FullName() == "google.protobuf.NullValue" {
		return object{"type": "null"}
	}
	var names []string
	for i := range descriptor.Values().Len() {
		names = append(names, string(descriptor.Values().Get(i).Name()))
	}
	return object{"type": "string", "enum": names}
}

func isDuration(message protoreflect.MessageDescriptor) bool {
	return message.FullName() == durationName
}

func wellKnown(name protoreflect.FullName) object {
	switch name {
	case "google.protobuf.Timestamp":
		return object{"type": "string", "format": "date-time"}
	case durationName:
		return object{"type": "string", "pattern": durationPattern, "examples": []string{"30s"}}
	case "google.protobuf.Struct":
		return object{"type": "object"}
	case "google.protobuf.Value":
		return object{}
	case "google.protobuf.ListValue":
		return object{"type": "array"}
	default:
		return nil
	}
}

// comment is the text above a declaration, lines joined.
func comment(descriptor protoreflect.Descriptor) string {
	location := descriptor.ParentFile().SourceLocations().ByDescriptor(descriptor)
	var paragraphs []string
	for paragraph := range strings.SplitSeq(location.LeadingComments, "\n\n") {
		if text := strings.Join(strings.Fields(paragraph), " "); text != "" {
			paragraphs = append(paragraphs, text)
		}
	}
	return strings.Join(paragraphs, "\n\n")
}

// summary is the first sentence of a method's comment without the method's name.
func summary(text, method string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(text, method+" "), ". ")
	first = strings.TrimSuffix(first, ".")
	if first == "" {
		return method
	}
	return strings.ToUpper(first[:1]) + first[1:]
}

package apidoc

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

const fieldRules = "buf.validate.field"

// rules reads the buf.validate options of fields. Their Go package is itself generated, so they are
// read by reflection.
type rules struct {
	types     *dynamicpb.Types
	extension protoreflect.ExtensionType
}

func newRules(files *protoregistry.Files) (*rules, error) {
	found, err := files.FindDescriptorByName(fieldRules)
	if err != nil {
		return nil, fmt.Errorf("the image lacks %s: %w", fieldRules, err)
	}
	extension, ok := found.(protoreflect.ExtensionDescriptor)
	if !ok {
		return nil, fmt.Errorf("%s is not an option", fieldRules)
	}
	return &rules{dynamicpb.NewTypes(files), dynamicpb.NewExtensionType(extension)}, nil
}

// of returns the rules of a field; nil if there are none.
func (r *rules) of(field protoreflect.FieldDescriptor) protoreflect.Message {
	data, err := proto.Marshal(field.Options())
	if err != nil || len(data) == 0 {
		return nil
	}
	options := &descriptorpb.FieldOptions{}
	if err := (proto.UnmarshalOptions{Resolver: r.types}).Unmarshal(data, options); err != nil {
		return nil
	}
	if !proto.HasExtension(options, r.extension) {
		return nil
	}
	return options.ProtoReflect().Get(r.extension.TypeDescriptor()).Message()
}

func (r *rules) required(field protoreflect.FieldDescriptor) bool {
	message := r.of(field)
	if message == nil {
		return false
	}
	if value, set := get(message, "required"); set && value.Bool() {
		return true
	}
	// A field without presence that must have characters cannot be left out either.
	least, set := get(message, "string", "min_len")
	return set && least.Uint() > 0 && !field.HasPresence()
}

// bounds returns the JSON schema keywords for the rules of a field.
func (r *rules) bounds(field protoreflect.FieldDescriptor) object {
	made := object{}
	message := r.of(field)
	if message == nil {
		return made
	}
	for keyword, path := range map[string][]protoreflect.Name{
		"minLength": {"string", "min_len"}, "maxLength": {"string", "max_len"},
		"pattern": {"string", "pattern"}, "maxItems": {"repeated", "max_items"},
		"minItems": {"repeated", "min_items"},
	} {
		if value, set := get(message, path...); set {
			made[keyword] = value.Interface()
		}
	}
	for _, kind := range []protoreflect.Name{"int32", "int64", "double"} {
		for keyword, bound := range map[string]protoreflect.Name{
			"minimum": "gte", "maximum": "lte", "exclusiveMinimum": "gt", "exclusiveMaximum": "lt",
		} {
			if value, set := get(message, kind, bound); set {
				made[keyword] = value.Interface()
			}
		}
	}
	return made
}

func get(message protoreflect.Message, path ...protoreflect.Name) (protoreflect.Value, bool) {
	for i, name := range path {
		field := message.Descriptor().Fields().ByName(name)
		if field == nil || !message.Has(field) {
			return protoreflect.Value{}, false
		}
		if i == len(path)-1 {
			return message.Get(field), true
		}
		message = message.Get(field).Message()
	}
	return protoreflect.Value{}, false
}

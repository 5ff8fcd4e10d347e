package apidoc

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

const (
	fieldRules = "buf.validate.field"
	openMethod = "bos.common.v1.open_method"
)

// rules reads the buf.validate options of fields, and our own options of methods. Their Go packages
// are themselves generated, so they are read by reflection.
type rules struct {
	types *dynamicpb.Types
}

func newRules(files *protoregistry.Files) (*rules, error) {
	for _, name := range []protoreflect.FullName{fieldRules, openMethod} {
		found, err := files.FindDescriptorByName(name)
		if err != nil {
			return nil, fmt.Errorf("the image lacks %s: %w", name, err)
		}
		if _, ok := found.(protoreflect.ExtensionDescriptor); !ok {
			return nil, fmt.Errorf("%s is not an option", name)
		}
	}
	return &rules{dynamicpb.NewTypes(files)}, nil
}

// isOpen reports whether a method needs no credential; false if the option cannot be read.
func (r *rules) isOpen(method protoreflect.MethodDescriptor) bool {
	data, err := proto.Marshal(method.Options())
	if err != nil || len(data) == 0 {
		return false
	}
	options := &descriptorpb.MethodOptions{}
	if err := (proto.UnmarshalOptions{Resolver: r.types}).Unmarshal(data, options); err != nil {
		return false
	}
	open := false
	options.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		open = open || (field.FullName() == openMethod && value.Bool())
		return true
	})
	return open
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
	var found protoreflect.Message
	// By name, as the resolver's type of an option is not identical to ours, so Has would not find it.
	options.ProtoReflect().Range(func(option protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		if option.FullName() == fieldRules {
			found = value.Message()
		}
		return found == nil
	})
	return found
}

func (r *rules) required(field protoreflect.FieldDescriptor) bool {
	message := r.of(field)
	if message == nil {
		return false
	}
	if value, set := get(message, "required"); set && value.Bool() {
		return true
	}
	// A field without presence and with a minimum length is required.
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

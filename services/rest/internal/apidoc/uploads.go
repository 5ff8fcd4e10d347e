package apidoc

import (
	"strconv"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// uploads adds the paths of uploads, whose body is a form: no binding can say that.
func (b *builder) uploads(files *protoregistry.Files) {
	const service = "bos.documents.v1.DocumentsService"
	found, err := files.FindDescriptorByName(service)
	if err != nil {
		return // an image without documents
	}
	method := found.(protoreflect.ServiceDescriptor).Methods().ByName("UploadDocument")
	header := method.Input().Fields().ByName("upload").Message()
	properties := object{"file": object{
		"type": "string", "format": "binary", "description": "The file, with its name; the last part.",
	}}
	for i := range header.Fields().Len() {
		if field := header.Fields().Get(i); field.Name() != "name" {
			schema := b.schemas.parameter(field)
			schema["description"] = comment(field)
			properties[string(field.Name())] = schema
		}
	}
	answer := b.schemas.output(method.Output())
	for n, path := range []string{"/v1/documents", "/upload"} {
		alias := ""
		if n > 0 {
			alias = "At2"
		}
		tag := tagOf(path, alias)
		b.tags[tag] = tagTexts[tag]
		responses := object{"200": object{
			"description": "Stored, and queued to be read.",
			"content":     object{jsonType: object{"schema": answer}},
		}}
		for _, status := range []int{
			400, 401, 403, 405, 408, 409, 413, 415, 429, 431, 499, 500, 501, 503, 504,
		} {
			responses[strconv.Itoa(status)] = object{
				"$ref": "#/components/responses/" + strconv.Itoa(status),
			}
		}
		item, _ := b.paths[path].(object)
		if item == nil {
			item = object{}
			b.paths[path] = item
		}
		item["post"] = object{
			"operationId": "uploadDocument" + alias, "tags": []string{tag},
			"summary": summary(comment(method), "UploadDocument"), "description": comment(method),
			"x-service": service, "responses": responses,
			"requestBody": object{"required": true, "content": object{formType: object{
				"schema": object{
					"type": "object", "required": []string{"file"}, "additionalProperties": false,
					"properties": properties,
				},
			}}},
		}
	}
}

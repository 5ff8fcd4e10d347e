package apidoc

import (
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// upload is a path whose body is a form with a file: no binding can say that.
type upload struct {
	service, method, stored string
	paths                   []string
}

var uploadPaths = []upload{
	{
		"bos.documents.v1.DocumentsService", "UploadDocument", "Stored, and queued to be read.",
		[]string{"/v1/documents", "/upload"},
	},
	{"bos.files.v1.FileService", "UploadFile", "Stored.", []string{"/v1/files"}},
}

// uploads adds the paths of uploads.
func (b *builder) uploads(files *protoregistry.Files) {
	for _, each := range uploadPaths {
		found, err := files.FindDescriptorByName(protoreflect.FullName(each.service))
		if err != nil {
			continue // an image without the service
		}
		b.upload(each, found.(protoreflect.ServiceDescriptor))
	}
}

func (b *builder) upload(each upload, service protoreflect.ServiceDescriptor) {
	method := service.Methods().ByName(protoreflect.Name(each.method))
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
	for n, path := range each.paths {
		alias := ""
		if n > 0 {
			alias = "At2"
		}
		tag := tagOf(path, alias)
		b.tags[tag] = tagTexts[tag]
		responses := object{"200": object{
			"description": each.stored,
			"content":     inEachForm(answer),
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
			"operationId": strings.ToLower(each.method[:1]) + each.method[1:] + alias, "tags": []string{tag},
			"summary": summary(comment(method), each.method), "description": comment(method),
			"x-service": each.service, "responses": responses,
			"requestBody": object{"required": true, "content": object{formType: object{
				"schema": object{
					"type": "object", "required": []string{"file"}, "additionalProperties": false,
					"properties": properties,
				},
			}}},
		}
	}
}

// Package apidoc generates the OpenAPI document from the schemas: paths from google.api.http, bounds
// from buf.validate, descriptions from comments, and JSON exactly as the service reads and writes it.
// It is our own, as generators for Swagger 2 support neither bounds of fields nor streams.
package apidoc

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"sort"
	"strconv"
	"strings"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

type object = map[string]any

const (
	jsonType     = "application/json"
	protobufType = "application/protobuf+json"
	eventsType   = "text/event-stream"
	formType     = "multipart/form-data"
)

var pathVariable = regexp.MustCompile(`\{([^}=]+)(=[^}]*)?\}`)

// Build returns the document as indented JSON.
func Build(files *protoregistry.Files) ([]byte, error) {
	rules, err := newRules(files)
	if err != nil {
		return nil, err
	}
	b := &builder{
		schemas: &schemas{rules: rules, done: object{}, names: map[string]protoreflect.FullName{}},
		paths:   object{},
		tags:    map[string]string{},
	}
	eachService(files, func(service protoreflect.ServiceDescriptor) {
		b.service(service)
	})
	b.schemas.done["Error"] = errorSchema()
	b.schemas.done["StreamEnd"] = streamEndSchema()
	b.schemas.done["ServerSentEvent"] = serverSentEventSchema()
	b.decision()
	b.uploads(files)
	b.sessions()
	b.operations()
	return json.MarshalIndent(object{
		"openapi": "3.1.0",
		"info": object{
			"title":       "Bos",
			"version":     "v1",
			"description": introduction,
			"license":     object{"name": "Apache-2.0", "identifier": "Apache-2.0"},
		},
		"servers":  []any{object{"url": "/"}},
		"security": []any{object{"bearer": []string{}}},
		"tags":     b.tagList(),
		"paths":    b.paths,
		"components": object{
			"schemas":   b.schemas.done,
			"responses": errorResponses(),
			"securitySchemes": object{"bearer": object{
				"type": "http", "scheme": "bearer",
				"description": "The API key. A local installation keeps it in " +
					"`.data/standalone.json`.",
			}},
		},
	}, "", "  ")
}

// ServiceFiles names the schemas whose services have REST paths.
func ServiceFiles(files *protoregistry.Files) []string {
	var names []string
	eachService(files, func(service protoreflect.ServiceDescriptor) {
		names = append(names, service.ParentFile().Path())
	})
	return names
}

func eachService(files *protoregistry.Files, visit func(protoreflect.ServiceDescriptor)) {
	var found []protoreflect.ServiceDescriptor
	files.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				if httpRule(service.Methods().Get(j)) != nil {
					found = append(found, service)
					break
				}
			}
		}
		return true
	})
	sort.Slice(found, func(i, j int) bool { return found[i].FullName() < found[j].FullName() })
	for _, service := range found {
		visit(service)
	}
}

func httpRule(method protoreflect.MethodDescriptor) *annotations.HttpRule {
	rule, _ := proto.GetExtension(method.Options(), annotations.E_Http).(*annotations.HttpRule)
	if rule.GetPattern() == nil {
		return nil
	}
	return rule
}

type builder struct {
	schemas *schemas
	paths   object
	tags    map[string]string
}

func (b *builder) service(service protoreflect.ServiceDescriptor) {
	for i := range service.Methods().Len() {
		method := service.Methods().Get(i)
		rule := httpRule(method)
		if rule == nil {
			continue
		}
		b.binding(method, rule, "")
		for n, other := range rule.AdditionalBindings {
			b.binding(method, other, "At"+strconv.Itoa(n+2))
		}
	}
}

// binding adds one verb and path of a method; alias is empty for the first.
func (b *builder) binding(
	method protoreflect.MethodDescriptor, rule *annotations.HttpRule, alias string,
) {
	verb, path := verbAndPath(rule)
	variables := map[string]bool{}
	for _, match := range pathVariable.FindAllStringSubmatch(path, -1) {
		variables[match[1]] = true
	}
	path = pathVariable.ReplaceAllString(path, "{$1}")
	tag := tagOf(path, alias)
	b.tags[tag] = tagTexts[tag]
	name := string(method.Name())
	operation := object{
		"operationId": strings.ToLower(name[:1]) + name[1:] + alias,
		"tags":        []string{tag},
		"description": comment(method),
		"summary":     summary(comment(method), name),
		"responses":   b.responses(method, rule, variables, alias != ""),
		// At run time operations without a target are left out.
		"x-service": string(method.Parent().FullName()),
	}
	if b.schemas.rules.isOpen(method) {
		operation["security"] = []any{}
	}
	parameters := b.parameters(method, rule, variables)
	if holdsTable(method.Output(), map[protoreflect.FullName]bool{}) {
		parameters = append(parameters, rowsParameter())
	}
	if len(parameters) > 0 {
		operation["parameters"] = parameters
	}
	if rule.Body != "" {
		operation["requestBody"] = b.requestBody(method, rule, variables)
	}
	item, _ := b.paths[path].(object)
	if item == nil {
		item = object{}
		b.paths[path] = item
	}
	item[verb] = operation
}

func verbAndPath(rule *annotations.HttpRule) (verb, path string) {
	switch pattern := rule.Pattern.(type) {
	case *annotations.HttpRule_Get:
		return "get", pattern.Get
	case *annotations.HttpRule_Post:
		return "post", pattern.Post
	case *annotations.HttpRule_Put:
		return "put", pattern.Put
	case *annotations.HttpRule_Patch:
		return "patch", pattern.Patch
	case *annotations.HttpRule_Delete:
		return "delete", pattern.Delete
	default:
		panic(fmt.Sprintf("a custom verb has no place in the document: %v", rule))
	}
}

func (b *builder) parameters(
	method protoreflect.MethodDescriptor, rule *annotations.HttpRule, variables map[string]bool,
) []any {
	var parameters []any
	fields := method.Input().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		name := string(field.Name())
		schema := b.schemas.parameter(field)
		switch {
		case variables[name]:
			// A slash would start another path segment, a colon another verb.
			schema["pattern"] = "^[^/:]+$"
			if name == "digest" {
				schema["pattern"] = "^[0-9a-f]{64}$"
			}
			parameters = append(parameters, parameter(field, "path", schema))
		case rule.Body == "" && (field.Message() == nil || isDuration(field.Message())):
			parameters = append(parameters, parameter(field, "query", schema))
		}
	}
	if method.IsStreamingServer() && rule.Body == "" && isOfRun(method) {
		parameters = append(parameters, object{
			"name": "Last-Event-ID", "in": "header",
			"description": "The `id` of the last event seen; browsers send it by themselves. " +
				"What is further, this or `after_sequence` and `after_offset`, counts.",
			"schema": object{"type": "string", "pattern": `^[0-9]{1,18}(\.[0-9]{1,18})?$`},
		})
	}
	if string(method.Name()) == lookUpRun {
		parameters = append(parameters, knownRun())
	}
	return parameters
}

func parameter(field protoreflect.FieldDescriptor, in string, schema object) object {
	made := object{
		"name": string(field.Name()), "in": in, "schema": schema, "description": comment(field),
	}
	if in == "path" {
		made["required"] = true
	}
	return made
}

func (b *builder) requestBody(
	method protoreflect.MethodDescriptor, rule *annotations.HttpRule, variables map[string]bool,
) object {
	content := object{}
	required := true
	if rule.Body == "*" {
		schema := b.schemas.inputObject(method.Input(), variables)
		_, required = schema["required"]
		content["schema"] = schema
	} else {
		field := method.Input().Fields().ByName(protoreflect.Name(rule.Body))
		content["schema"] = b.schemas.input(field.Message())
	}
	if examples := requestExamples[string(method.Name())]; examples != nil {
		content["examples"] = examples
	}
	return object{"required": required, "content": object{jsonType: content}}
}

func (b *builder) responses(
	method protoreflect.MethodDescriptor, rule *annotations.HttpRule, variables map[string]bool,
	alias bool,
) object {
	responses := object{}
	statuses := []int{400, 401, 403, 405, 429, 431, 499, 500, 501, 503, 504}
	if len(variables) > 0 || namesByID(method.Input()) {
		statuses = append(statuses, 404)
	}
	if len(variables) == 0 || rule.GetPost() != "" {
		statuses = append(statuses, 409)
	}
	if rule.Body != "" {
		statuses = append(statuses, 408, 413, 415)
	}
	for _, status := range statuses {
		responses[strconv.Itoa(status)] = object{
			"$ref": "#/components/responses/" + strconv.Itoa(status),
		}
	}
	if isFile(method) {
		responses["200"] = fileResponse()
		return responses
	}
	if method.IsStreamingServer() && !isOfRun(method) {
		document := method.Output().Fields().ByName("document")
		responses["200"] = documentStreamResponse(b.schemas.output(document.Message()))
		return responses
	}
	if method.IsStreamingServer() {
		b.schemas.output(method.Output())
		responses["200"] = streamResponse(alias)
		if rule.Body == "" {
			responses["204"] = object{"description": "The run has ended and every event was seen."}
		}
		return responses
	}
	output := b.schemas.output(method.Output())
	if rule.ResponseBody != "" {
		field := method.Output().Fields().ByName(protoreflect.Name(rule.ResponseBody))
		output = b.schemas.output(field.Message())
	}
	succeeded(responses, method, output)
	return responses
}

// isFile reports whether a stream is a file in pieces, which is one file over HTTP.
func isFile(method protoreflect.MethodDescriptor) bool {
	content := method.Output().Fields().ByName("content")
	return method.IsStreamingServer() && content != nil && content.Kind() == protoreflect.BytesKind
}

// isOfRun says whether a stream is the events of a run.
func isOfRun(method protoreflect.MethodDescriptor) bool {
	return method.IsStreamingServer() && method.Output().Fields().ByName("event") != nil
}

// decision adds the path of an approval's decision, whose body has field names of its own.
func (b *builder) decision() {
	approval, known := b.schemas.done["Approval"]
	if !known || approval == nil {
		return // an image without approvals
	}
	b.tags[tagOther] = tagTexts[tagOther]
	responses := object{"200": object{
		"description": "Done.",
		"content":     inEachForm(object{"$ref": "#/components/schemas/Approval"}),
	}}
	for _, status := range []int{
		400, 401, 403, 404, 405, 408, 409, 413, 415, 429, 431, 499, 500, 501, 503, 504,
	} {
		responses[strconv.Itoa(status)] = object{
			"$ref": "#/components/responses/" + strconv.Itoa(status),
		}
	}
	text := func(about string, limit int) object {
		return object{"type": "string", "description": about, "maxLength": limit}
	}
	id := text("The request.", 64)
	id["minLength"] = 1
	b.paths["/hitl/respond"] = object{"post": object{
		"operationId": "respondApprovalAt2", "tags": []string{tagOther},
		"summary": "Decide about a request for approval", "x-service": "bos.gateway.v1.ApprovalService",
		"description": "As `/v1/approvals/{approval_id}:respond`, in other words.",
		"requestBody": object{"required": true, "content": object{jsonType: object{
			"schema": object{
				"type": "object", "required": []string{"request_id", "decision"},
				"additionalProperties": false,
				"properties": object{
					"request_id": id,
					"decision": object{
						"type": "string", "enum": []string{"approved", "denied"},
						"description": "The decision.",
					},
					"instructions": text("What else to do, or instead; with an approval only.", 8192),
				},
			},
			"examples": object{"approve": object{
				"summary": "Do exactly what was proposed",
				"value":   object{"request_id": "0199f0a4", "decision": "approved"},
			}},
		}}},
		"responses": responses,
	}}
}

// operations adds the paths that are no RPCs.
func (b *builder) operations() {
	const tag = "Operation"
	b.tags[tag] = tagTexts[tag]
	state := object{
		"type": "object", "required": []string{"status"},
		"properties": object{"status": object{"type": "string"}},
	}
	answer := object{
		"description": "Yes.", "content": object{jsonType: object{"schema": state}},
	}
	for path, about := range map[string]string{
		"/healthz": "Whether the process is alive",
		"/readyz":  "Whether it takes requests: it is not stopping, and the gateway answers",
	} {
		get := object{
			"operationId": strings.Trim(path, "/"), "tags": []string{tag}, "summary": about,
			"security": []any{}, "responses": object{"200": answer},
		}
		for _, status := range []int{400, 403, 405, 431, 503} {
			get["responses"].(object)[strconv.Itoa(status)] = object{
				"$ref": "#/components/responses/" + strconv.Itoa(status),
			}
		}
		b.paths[path] = object{"get": get}
	}
}

func (b *builder) tagList() []any {
	var list []any
	for _, name := range tagOrder {
		if _, used := b.tags[name]; used {
			list = append(list, object{"name": name, "description": tagTexts[name]})
		}
	}
	return list
}

func errorResponses() object {
	responses := object{}
	for status, text := range errorTexts {
		response := object{
			"description": text,
			"content": object{jsonType: object{
				"schema": object{"$ref": "#/components/schemas/Error"},
			}},
		}
		headers := object{}
		if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
			headers["Retry-After"] = object{
				"description": "Seconds to wait before trying again, if known.",
				"schema":      object{"type": "integer", "minimum": 0},
			}
		}
		if status == http.StatusMethodNotAllowed {
			headers["Allow"] = object{
				"description": "Methods of this path.", "schema": object{"type": "string"},
			}
		}
		if len(headers) > 0 {
			response["headers"] = headers
		}
		responses[strconv.Itoa(status)] = response
	}
	return responses
}

// namesByID reports whether a request refers to a resource by id outside of the path, in itself or in
// the message of its body.
func namesByID(request protoreflect.MessageDescriptor) bool {
	if hasID(request) {
		return true
	}
	for i := range request.Fields().Len() {
		if body := request.Fields().Get(i).Message(); body != nil && hasID(body) {
			return true
		}
	}
	return false
}

func hasID(message protoreflect.MessageDescriptor) bool {
	for i := range message.Fields().Len() {
		if strings.HasSuffix(string(message.Fields().Get(i).Name()), "_id") {
			return true
		}
	}
	return false
}

// Package openapi serves the generated document and its interactive pages, and matches its routes.
package openapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"

	generated "bos/rest/gen/openapi"
)

// Document holds the operations that this process offers.
type Document struct {
	text   []byte
	routes []*Route
}

// Route is one path with its operations.
type Route struct {
	// Template is the path with its variables in braces.
	Template   string
	operations map[string]*Operation
	pattern    *regexp.Regexp
}

// Operation is one method of a path.
type Operation struct {
	// Query holds the query parameters by name.
	Query map[string]Parameter
	// Streams is set if the response is a stream of events.
	Streams bool
	// Service that handles it; empty for paths of this gateway itself.
	Service string
	// Open is set if no credential is needed.
	Open bool
	// Uploads says that the body is a form with a file, which is read piece by piece.
	Uploads bool
	// Protocol is set if another service speaks the protocol, and knows its query parameters.
	Protocol bool
	// Page is set for pages and files of the console, which have query parameters of their own.
	Page bool
}

// OwnRoute is a path beside those of the generated document.
type OwnRoute struct {
	Template   string
	Operations map[string]*Operation
}

// PageRoute returns the route of pages and files of the console.
func PageRoute(template string) *Route {
	return &Route{Template: template, operations: map[string]*Operation{
		http.MethodGet: {Open: true, Page: true},
	}}
}

// Operation returns the operation for a method; nil if there is none.
func (r *Route) Operation(method string) *Operation {
	if r == nil {
		return nil
	}
	return r.operations[method]
}

// Methods lists the methods of the path.
func (r *Route) Methods() []string {
	methods := make([]string, 0, len(r.operations))
	for method := range r.operations {
		methods = append(methods, method)
	}
	sort.Strings(methods)
	return methods
}

// Parameter is the type of a query parameter; further bounds are checked by the service.
type Parameter struct {
	Type   string   `json:"type"`
	Format string   `json:"format"`
	Enum   []string `json:"enum"`
	// Items is the type of each value where there may be several; nil if there is one.
	Items *Parameter `json:"items"`
}

// IsList reports whether the parameter may be repeated.
func (p Parameter) IsList() bool { return p.Items != nil }

// Problem describes why a value is invalid; empty if it is valid.
func (p Parameter) Problem(value string) string {
	if p.IsList() {
		return p.Items.Problem(value)
	}
	if len(p.Enum) > 0 && !slices.Contains(p.Enum, value) {
		return "must be one of " + strings.Join(p.Enum, ", ")
	}
	if p.Type == "integer" || p.Format == "int64" {
		if _, err := strconv.ParseInt(value, 10, 64); err != nil {
			return "must be a whole number"
		}
	}
	return ""
}

type operationText struct {
	Service    string `json:"x-service"`
	Parameters []struct {
		Name, In string
		Schema   Parameter
	} `json:"parameters"`
	RequestBody struct {
		Content map[string]json.RawMessage `json:"content"`
	} `json:"requestBody"`
	Responses map[string]struct {
		Content map[string]json.RawMessage `json:"content"`
	} `json:"responses"`
	// Security is present and empty if no credential is needed.
	Security *[]json.RawMessage `json:"security"`
}

// Load reads the generated document without the operations of services that are not configured.
// own are additional paths.
func Load(offered func(service string) bool, own []OwnRoute) (*Document, error) {
	var whole map[string]json.RawMessage
	if err := json.Unmarshal(generated.Document, &whole); err != nil {
		return nil, fmt.Errorf("the generated document: %w", err)
	}
	var paths map[string]map[string]json.RawMessage
	if err := json.Unmarshal(whole["paths"], &paths); err != nil {
		return nil, fmt.Errorf("the paths of the generated document: %w", err)
	}
	document := &Document{}
	for template, operations := range paths {
		route := newRoute(template)
		for verb, text := range operations {
			var one operationText
			if err := json.Unmarshal(text, &one); err != nil {
				return nil, fmt.Errorf("%s %s of the generated document: %w", verb, template, err)
			}
			if one.Service != "" && !offered(one.Service) {
				delete(operations, verb)
				continue
			}
			route.operations[strings.ToUpper(verb)] = one.operation()
		}
		if len(operations) == 0 {
			delete(paths, template)
			continue
		}
		document.routes = append(document.routes, route)
	}
	for _, one := range own {
		route := newRoute(one.Template)
		route.operations = one.Operations
		document.routes = append(document.routes, route)
	}
	// A literal comes before a variable, a verb before none.
	slices.SortFunc(document.routes, func(a, b *Route) int {
		if byLength := len(b.pattern.String()) - len(a.pattern.String()); byLength != 0 {
			return byLength
		}
		return strings.Compare(a.Template, b.Template)
	})
	text, err := json.Marshal(paths)
	if err != nil {
		return nil, err
	}
	whole["paths"] = text
	document.text, err = json.MarshalIndent(whole, "", "  ")
	return document, err
}

func (o operationText) operation() *Operation {
	made := &Operation{Query: map[string]Parameter{}}
	for _, parameter := range o.Parameters {
		if parameter.In == "query" {
			made.Query[parameter.Name] = parameter.Schema
		}
	}
	made.Service = o.Service
	made.Open = o.Security != nil && len(*o.Security) == 0
	_, made.Streams = o.Responses["200"].Content["text/event-stream"]
	_, made.Uploads = o.RequestBody.Content["multipart/form-data"]
	return made
}

var variable = regexp.MustCompile(`\\\{[^}]+\\\}`)

func newRoute(template string) *Route {
	pattern := variable.ReplaceAllString(regexp.QuoteMeta(template), `[^/]+`)
	return &Route{
		Template: template, operations: map[string]*Operation{},
		pattern: regexp.MustCompile("^" + pattern + "$"),
	}
}

// Match returns the route of a path; nil if there is none.
func (d *Document) Match(path string) *Route {
	for _, route := range d.routes {
		if route.pattern.MatchString(path) {
			return route
		}
	}
	return nil
}

// ServeHTTP answers with the document.
func (d *Document) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(d.text)
}

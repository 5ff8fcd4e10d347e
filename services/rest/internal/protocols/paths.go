// Package protocols passes the requests of other protocols' clients (OpenAI, MCP, A2A) on to the service
// that speaks these. A protocol's paths are guarded as all others are; the caller's credential is checked
// by the gateway first.
package protocols

import (
	"net/http"

	"bos/rest/internal/openapi"
)

// path is one path of a protocol.
type path struct {
	template string
	methods  []string
	// open paths need no credential: they say how to get one.
	open bool
}

var (
	read   = []string{http.MethodGet}
	submit = []string{http.MethodPost}
)

var paths = []path{
	{template: "/v1/chat/completions", methods: submit},
	{template: "/v1/responses", methods: submit},
	{template: "/v1/responses/{response_id}", methods: read},
	{template: "/v1/responses/{response_id}/cancel", methods: submit},
	{template: "/v1/models", methods: read},
	{template: "/v1/models/{model}", methods: read},
	{template: "/v1/models/bos/{agent}", methods: read},

	{template: mcpPath, methods: []string{http.MethodGet, http.MethodPost, http.MethodDelete}},
	{template: metaPath, methods: read, open: true},
	{template: metaPath + mcpPath, methods: read, open: true},

	{template: "/.well-known/agent-card.json", methods: read, open: true},
	{template: "/a2a", methods: submit},
	{template: "/a2a/v1/message:send", methods: submit},
	{template: "/a2a/v1/message:stream", methods: submit},
	{template: "/a2a/v1/tasks", methods: read},
	{template: "/a2a/v1/tasks/{id}", methods: read},
	{template: "/a2a/v1/tasks/{id}:cancel", methods: submit},
	{template: "/a2a/v1/tasks/{id}:subscribe", methods: []string{http.MethodGet, http.MethodPost}},
	// Not offered; the service says so in the protocol's form.
	{template: "/a2a/v1/tasks/{id}/pushNotificationConfigs", methods: []string{http.MethodGet, http.MethodPost}},
	{template: "/a2a/v1/tasks/{id}/pushNotificationConfigs/{push_id}",
		methods: []string{http.MethodGet, http.MethodDelete}},
	{template: "/a2a/v1/extendedAgentCard", methods: read},
}

// Routes are the paths of all protocols, for openapi.Load.
func Routes() []openapi.OwnRoute {
	routes := make([]openapi.OwnRoute, 0, len(paths))
	for _, one := range paths {
		operations := map[string]*openapi.Operation{}
		for _, method := range one.methods {
			// A protocol's answer may be a stream for any method.
			operations[method] = &openapi.Operation{
				Protocol: true, Open: one.open, Streams: !one.open && method != http.MethodDelete,
			}
		}
		routes = append(routes, openapi.OwnRoute{Template: one.template, Operations: operations})
	}
	return routes
}

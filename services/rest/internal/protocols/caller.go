package protocols

import (
	"context"
	"net/http"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	gatewayv1 "bos/rest/gen/bos/gateway/v1"
	"bos/rest/internal/apierror"
	"bos/rest/internal/guard"
)

const (
	mcpPath  = "/mcp"
	metaPath = "/.well-known/oauth-protected-resource"
)

// KnownCallers has the gateway check the credential of each request to a protocol that is not open: some
// protocols greet their callers before anything is asked of the gateway, which would greet unknown callers
// too.
func KnownCallers(gateway gatewayv1.OrchestratorServiceClient, within time.Duration) guard.Middleware {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !guard.IsProtocol(r) || guard.IsOpen(r) {
				next.ServeHTTP(w, r)
				return
			}
			ctx, cancel := context.WithTimeout(r.Context(), within)
			defer cancel()
			if given := r.Header.Get("Authorization"); given != "" {
				ctx = metadata.AppendToOutgoingContext(ctx, "authorization", given)
			}
			if _, err := gateway.ListAgents(ctx, &gatewayv1.ListAgentsRequest{}); err != nil {
				if status.Code(err) == codes.Unauthenticated && r.URL.Path == mcpPath {
					// Clients of MCP learn here who gives them a token.
					w.Header().Set("WWW-Authenticate",
						`Bearer resource_metadata="`+origin(r)+metaPath+mcpPath+`"`)
				}
				apierror.Write(w, err)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

func origin(r *http.Request) string {
	if r.TLS != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

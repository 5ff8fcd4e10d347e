package server

import (
	"context"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	auditv1 "bos/rest/gen/bos/audit/v1"
	"bos/rest/internal/apierror"
)

// trails asks the service that a request names for its audit trail: all offer the same contract.
type trails map[string]auditv1.AuditServiceClient

func (s *Server) trails() trails {
	found := trails{}
	for name, conn := range map[string]*grpc.ClientConn{
		"gateway": s.gateway, "identity": s.identity, "memory": s.memory,
		"documents": s.documents, "files": s.files,
	} {
		if conn != nil {
			found[name] = auditv1.NewAuditServiceClient(conn)
		}
	}
	return found
}

// ListAuditEntries asks the service of the request. An invalid name is refused by the gateway,
// after it has looked who asks.
func (t trails) ListAuditEntries(
	ctx context.Context, request *auditv1.ListAuditEntriesRequest, options ...grpc.CallOption,
) (*auditv1.ListAuditEntriesResponse, error) {
	client, given := t[request.GetService()]
	if given {
		return client.ListAuditEntries(ctx, request, options...)
	}
	if _, err := t["gateway"].ListAuditEntries(ctx, request, options...); status.Code(err) != codes.InvalidArgument {
		return nil, err
	}
	return nil, apierror.New(http.StatusNotFound, codes.NotFound, "NOT_FOUND",
		"There is no such service here, or it keeps no trail.")
}

package server

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	gatewayv1 "bos/rest/gen/bos/gateway/v1"
	"bos/rest/internal/apierror"
	"bos/rest/internal/codec"
)

const decisionPath = "/hitl/respond"

// decision is the body of a decision. Its field names differ from the schema, so it is no HTTP binding.
type decision struct {
	RequestID    string `json:"request_id"`
	Decision     string `json:"decision"`
	Instructions string `json:"instructions"`
}

var decisions = map[string]gatewayv1.ApprovalDecision{
	"approved": gatewayv1.ApprovalDecision_APPROVAL_DECISION_APPROVE,
	"denied":   gatewayv1.ApprovalDecision_APPROVAL_DECISION_DENY,
}

// registerDecision serves RespondApproval under the path and with the body of the predecessor's API.
func registerDecision(mux *runtime.ServeMux, client gatewayv1.ApprovalServiceClient) error {
	return mux.HandlePath(http.MethodPost, decisionPath,
		func(w http.ResponseWriter, r *http.Request, _ map[string]string) {
			ctx, err := runtime.AnnotateContext(r.Context(), mux, r,
				gatewayv1.ApprovalService_RespondApproval_FullMethodName,
				runtime.WithHTTPPathPattern(decisionPath))
			if err != nil {
				apierror.Write(w, err)
				return
			}
			request, err := decisionOf(r.Body)
			if err != nil {
				apierror.Write(w, err)
				return
			}
			answer, err := client.RespondApproval(ctx, request)
			if err != nil {
				apierror.Write(w, err)
				return
			}
			codec.Write(w, r, answer.GetApproval())
		})
}

func decisionOf(body io.Reader) (*gatewayv1.RespondApprovalRequest, error) {
	var given decision
	decoder := json.NewDecoder(body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&given); err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			return nil, err
		}
		return nil, status.Error(codes.InvalidArgument,
			"The body must be a JSON object with request_id, decision and, if wanted, instructions.")
	}
	if given.RequestID == "" {
		return nil, apierror.Field("request_id", "is missing")
	}
	wanted, known := decisions[given.Decision]
	if !known {
		return nil, apierror.Field("decision", `must be "approved" or "denied"`)
	}
	return &gatewayv1.RespondApprovalRequest{
		ApprovalId: given.RequestID, Decision: wanted, Instructions: given.Instructions,
	}, nil
}

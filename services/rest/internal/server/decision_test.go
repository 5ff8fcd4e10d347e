package server

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	gatewayv1 "bos/rest/gen/bos/gateway/v1"
)

// desk is a fake gateway that accepts the first decision about one request.
type desk struct {
	gatewayv1.UnimplementedApprovalServiceServer
	taken *gatewayv1.RespondApprovalRequest
}

func (d *desk) RespondApproval(
	_ context.Context, request *gatewayv1.RespondApprovalRequest,
) (*gatewayv1.RespondApprovalResponse, error) {
	if request.GetApprovalId() != "ap-1" {
		return nil, refused(codes.NotFound, "NOT_FOUND")
	}
	if d.taken != nil && d.taken.GetDecision() != request.GetDecision() {
		return nil, refused(codes.AlreadyExists, "APPROVAL_RESOLVED")
	}
	d.taken = request
	return &gatewayv1.RespondApprovalResponse{Approval: &gatewayv1.Approval{
		ApprovalId: "ap-1", Status: gatewayv1.ApprovalStatus_APPROVAL_STATUS_APPROVED,
	}}, nil
}

func TestDecisionIsAcceptedUnderBothPathsAndASecondConflicts(t *testing.T) {
	g := startGateway(t, "")
	s := start(t, g.target, nil)
	for _, one := range []struct {
		path, body string
		status     int
		holds      string
	}{
		{"/hitl/respond", `{"request_id": "ap-2", "decision": "approved"}`, 404, "NOT_FOUND"},
		{"/hitl/respond", `{"request_id": "ap-1", "decision": "maybe"}`, 400, "decision: must be"},
		{"/hitl/respond", `{"decision": "approved"}`, 400, "request_id: is missing"},
		{"/hitl/respond", `{"request_id": "ap-1", "by": "me"}`, 400, "INVALID_ARGUMENT"},
		{"/hitl/respond", `[`, 400, "INVALID_ARGUMENT"},
		{
			"/hitl/respond",
			`{"request_id": "ap-1", "decision": "approved", "instructions": "and more"}`, 200, "ap-1",
		},
		{"/v1/approvals/ap-1:respond", `{"decision": "APPROVAL_DECISION_APPROVE"}`, 200, "ap-1"},
		{"/v1/approvals/ap-1:respond", `{"decision": "APPROVAL_DECISION_DENY"}`, 409, "APPROVAL_RESOLVED"},
		{"/hitl/respond", `{"request_id": "ap-1", "decision": "denied"}`, 409, "APPROVAL_RESOLVED"},
	} {
		response := send(t, s, http.MethodPost, one.path, one.body)
		text := read(t, response)
		if response.StatusCode != one.status || !strings.Contains(text, one.holds) {
			t.Errorf("%s %s: %d %s", one.path, one.body, response.StatusCode, text)
		}
		if !json.Valid([]byte(text)) {
			t.Errorf("%s is no JSON", text)
		}
		if strings.Contains(one.body, "and more") && g.desk.taken.GetInstructions() != "and more" {
			t.Errorf("instructions became %q", g.desk.taken.GetInstructions())
		}
	}
}

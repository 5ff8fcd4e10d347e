package sse

import (
	"encoding/json"

	"google.golang.org/protobuf/proto"

	gatewayv1 "bos/rest/gen/bos/gateway/v1"
	"bos/rest/internal/codec"
)

// message is one server-sent event; only the last of an event's messages bears its sequence.
type message struct {
	name string
	data []byte
}

// naming says how an event is called and what of it is sent; nothing leaves it out. One naming
// serves one stream.
type naming func(event *gatewayv1.RunEvent) ([]message, error)

const doneName = "done"

// kindNames calls events by the field that is set, and sends them whole.
func kindNames() naming { return ofKind }

func ofKind(event *gatewayv1.RunEvent) ([]message, error) {
	set := event.ProtoReflect().WhichOneof(eventField)
	if set == nil {
		return nil, nil // an event of a newer gateway
	}
	return named(string(set.Name()), event)
}

var eventField = (&gatewayv1.RunEvent{}).ProtoReflect().Descriptor().Oneofs().ByName("event")

// sourceNames are the names of SPEC K-15 and M-09; events that these do not name are called by
// their kind.
func sourceNames() naming {
	told := false
	return func(event *gatewayv1.RunEvent) ([]message, error) {
		switch kind := event.GetEvent().(type) {
		case *gatewayv1.RunEvent_AnswerStarted:
			told = false
			return ofKind(event)
		case *gatewayv1.RunEvent_AnswerDelta:
			told = true
			return named("token", kind.AnswerDelta)
		case *gatewayv1.RunEvent_RunFinished:
			return finished(kind.RunFinished.GetResponse(), told)
		case *gatewayv1.RunEvent_ApprovalRequested:
			return encoded("hitl_required", approvalRequested(kind.ApprovalRequested.GetApproval()))
		case *gatewayv1.RunEvent_ApprovalResolved:
			approval := kind.ApprovalResolved.GetApproval()
			name, known := resolvedNames[approval.GetStatus()]
			if !known {
				return ofKind(event)
			}
			return encoded(name, map[string]any{
				"request_id": approval.GetApprovalId(), "agent_id": approval.GetAgentId(),
			})
		default:
			return ofKind(event)
		}
	}
}

// finished is the answer, if no part of it was sent before, and the whole response.
func finished(response *gatewayv1.OrchestratorResponse, told bool) ([]message, error) {
	done, err := named(doneName, response)
	if told || err != nil || response.GetAnswer() == "" {
		return done, err
	}
	whole, err := named("token", &gatewayv1.AnswerDeltaEvent{Text: response.GetAnswer(), Attempt: 1})
	return append(whole, done...), err
}

func named(name string, content proto.Message) ([]message, error) {
	data, err := codec.JSON(content)
	return []message{{name, data}}, err
}

func encoded(name string, content any) ([]message, error) {
	data, err := json.Marshal(content)
	return []message{{name, data}}, err
}

var resolvedNames = map[gatewayv1.ApprovalStatus]string{
	gatewayv1.ApprovalStatus_APPROVAL_STATUS_APPROVED:  "hitl_approved",
	gatewayv1.ApprovalStatus_APPROVAL_STATUS_DENIED:    "hitl_denied",
	gatewayv1.ApprovalStatus_APPROVAL_STATUS_TIMED_OUT: "hitl_timeout",
}

func approvalRequested(approval *gatewayv1.Approval) map[string]any {
	tools := []string{}
	for _, action := range approval.GetActions() {
		tools = append(tools, action.GetTool())
	}
	waits := approval.GetExpireTime().AsTime().Sub(approval.GetCreateTime().AsTime())
	return map[string]any{
		"request_id":       approval.GetApprovalId(),
		"agent_id":         approval.GetAgentId(),
		"agent_name":       approval.GetAgentName(),
		"tool_names":       tools,
		"task_description": approval.GetTaskDescription(),
		"timeout_seconds":  waits.Seconds(),
	}
}

package sse

import (
	"encoding/json"
	"hash/maphash"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	gatewayv1 "bos/rest/gen/bos/gateway/v1"
	"bos/rest/internal/codec"
)

// message is one server-sent event; only the last message of a run event has its id.
type message struct {
	name string
	data []byte
}

// naming maps an event to its messages; none leaves it out. Each stream has a naming of its own.
type naming func(event *gatewayv1.RunEvent) ([]message, error)

const doneName = "done"

// namer writes the content of messages in one form of JSON.
type namer struct{ form codec.Form }

// kindNames names events by the field that is set, and sends them whole.
func kindNames(form codec.Form) naming { return namer{form}.ofKind }

func (n namer) ofKind(event *gatewayv1.RunEvent) ([]message, error) {
	set := event.ProtoReflect().WhichOneof(eventField)
	if set == nil {
		return nil, nil // an event of a newer gateway
	}
	return n.named(string(set.Name()), event)
}

var eventField = (&gatewayv1.RunEvent{}).ProtoReflect().Descriptor().Oneofs().ByName("event")

// sourceNames maps kinds to event names of /query/stream; other events are named by their kind.
func sourceNames(form codec.Form) naming {
	var text sentText
	n := namer{form}
	return func(event *gatewayv1.RunEvent) ([]message, error) {
		switch kind := event.GetEvent().(type) {
		case *gatewayv1.RunEvent_AnswerStarted:
			text = sentText{attempt: kind.AnswerStarted.GetAttempt()}
			return n.ofKind(event)
		case *gatewayv1.RunEvent_AnswerDelta:
			text.add(kind.AnswerDelta)
			return n.named("token", kind.AnswerDelta)
		case *gatewayv1.RunEvent_RunFinished:
			return n.finished(kind.RunFinished.GetResponse(), &text)
		case *gatewayv1.RunEvent_ApprovalRequested:
			return encoded("hitl_required", approvalRequested(kind.ApprovalRequested.GetApproval()))
		case *gatewayv1.RunEvent_ApprovalResolved:
			approval := kind.ApprovalResolved.GetApproval()
			name, known := resolvedNames[approval.GetStatus()]
			if !known {
				return n.ofKind(event)
			}
			return encoded(name, map[string]any{
				"request_id": approval.GetApprovalId(), "agent_id": approval.GetAgentId(),
			})
		default:
			return n.ofKind(event)
		}
	}
}

// sentText is a digest of the answer's text that was sent.
type sentText struct {
	attempt    int32
	bytes      int
	characters int64
	hash       maphash.Hash
}

func (t *sentText) add(piece *gatewayv1.AnswerDeltaEvent) {
	t.bytes += len(piece.GetText())
	t.characters += int64(utf8.RuneCountInString(piece.GetText()))
	_, _ = t.hash.WriteString(piece.GetText())
}

// rest returns the unsent part of an answer, if it begins with the sent part.
func (t *sentText) rest(answer string) string {
	if len(answer) < t.bytes || maphash.String(t.hash.Seed(), answer[:t.bytes]) != t.hash.Sum64() {
		return ""
	}
	return answer[t.bytes:]
}

// finished returns the unsent part of the answer, and the whole response.
func (n namer) finished(response *gatewayv1.OrchestratorResponse, text *sentText) ([]message, error) {
	done, err := n.named(doneName, response)
	rest := text.rest(response.GetAnswer())
	if err != nil || rest == "" {
		return done, err
	}
	last, err := n.named("token", &gatewayv1.AnswerDeltaEvent{
		Text: rest, Attempt: max(text.attempt, 1), Offset: text.characters,
	})
	return append(last, done...), err
}

func (n namer) named(name string, content proto.Message) ([]message, error) {
	data, err := n.form.JSON(content)
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
		"request_id": approval.GetApprovalId(),
		"agent_id":   approval.GetAgentId(),
		"agent_name": approval.GetAgentName(),
		"tool_names": tools,
		// Shown to users, so without invisible characters.
		"task_description": strings.Join(approval.GetDisplay().GetTask(), "\n"),
		"timeout_seconds":  waits.Seconds(),
	}
}

package codec

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	gatewayv1 "bos/rest/gen/bos/gateway/v1"
)

func TestJSONOfAnotherShapeNamesTheFieldAndWhatItHasToBe(t *testing.T) {
	for _, one := range []struct {
		into       proto.Message
		body, want string
	}{
		{&gatewayv1.AgentRequest{}, `{"question": "x", "context": "today"}`, `field "context" must be an object`},
		{&gatewayv1.AgentRequest{}, `{"context": ["today"]}`, `field "context" must be an object`},
		{&gatewayv1.AgentRequest{}, "{\"question\": \"ä\",\n\"context\": 3}", `field "context" must be an object`},
		{&gatewayv1.AgentRequest{}, `{"prefer_agents": "sql"}`, `field "prefer_agents" must be a list`},
		{&gatewayv1.AgentRequest{}, `{"timeout": 30}`, `field "timeout" must be a text such as "30s"`},
		{&gatewayv1.AgentRequest{}, `[]`, `the body must be an object`},
		{&gatewayv1.AgentRequest{}, `"question"`, `the body must be an object`},
		{&gatewayv1.AskStreamRequest{}, `{"request": {"context": true}}`, `field "request.context" must be an object`},
		{&gatewayv1.AskStreamRequest{}, `{"request": []}`, `field "request" must be an object`},
		{&gatewayv1.ListRunsResponse{}, `{"runs": [{}, {"create_time": 3}]}`,
			`field "runs[1].create_time" must be a text such as "2026-01-31T12:00:00Z"`},
		{&gatewayv1.ListRunsResponse{}, `{"runs": [{}, "r1"]}`, `field "runs[1]" must be an object`},
		// What the library says itself names the field.
		{&gatewayv1.AgentRequest{}, `{"max_rows": "many"}`, `field max_rows: "many"`},
		{&gatewayv1.AgentRequest{}, `{"colour": 1}`, `unknown field "colour"`},
	} {
		err := New(Plain).NewDecoder(strings.NewReader(one.body)).Decode(one.into)
		if err == nil || !strings.Contains(err.Error(), one.want) {
			t.Errorf("%s: %v", one.body, err)
		}
	}
}

func TestJSONOfTheRightShapeIsRead(t *testing.T) {
	body := `{"question": "x", "context": {"deep": [{"er": null}]}, "prefer_agents": [], "max_rows": "2", "timeout": "30s"}`
	request := &gatewayv1.AgentRequest{}
	if err := New(Plain).NewDecoder(strings.NewReader(body)).Decode(request); err != nil {
		t.Fatal(err)
	}
	if request.GetMaxRows() != 2 || request.GetContext().GetFields()["deep"] == nil {
		t.Error(request)
	}
	if wrong := misfit(request, []byte(body)); wrong != "" {
		t.Error(wrong)
	}
}

func TestBodyThatIsAFieldOfItsRequestIsLookedAtToo(t *testing.T) {
	request := &gatewayv1.AskRequest{}
	err := New(Plain).NewDecoder(strings.NewReader(`{"context": 1}`)).Decode(&request.Request)
	if err == nil || err.Error() != `field "context" must be an object` {
		t.Error(err)
	}
}

package server

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	commonv1 "bos/rest/gen/bos/common/v1"
	gatewayv1 "bos/rest/gen/bos/gateway/v1"
)

const submission = `{"question": "how much?", "request_id": "q1"}`

func (g *gateway) SubmitRun(
	_ context.Context, request *gatewayv1.SubmitRunRequest,
) (*gatewayv1.SubmitRunResponse, error) {
	return &gatewayv1.SubmitRunResponse{Run: &gatewayv1.Run{
		RunId: "r1", Question: request.GetRequest().GetQuestion(),
		RequestId: request.GetRequest().GetRequestId(), LastSequence: 1,
		Status: gatewayv1.RunStatus_RUN_STATUS_ACCEPTED,
	}}, nil
}

// tabular is a run whose response has a table.
func tabular() *gatewayv1.Run {
	return &gatewayv1.Run{RunId: "r1", LastSequence: 9, Response: &gatewayv1.OrchestratorResponse{
		Data: &commonv1.Table{
			Columns: []*commonv1.Column{{Name: "n", Type: commonv1.ColumnType_COLUMN_TYPE_INT64}},
			Rows: []*commonv1.Row{{Values: []*commonv1.Value{
				{Kind: &commonv1.Value_Int64Value{Int64Value: 1}},
			}}},
		},
	}}
}

func TestSubmittedQuestionIsAcceptedAndSaysWhereItsRunIs(t *testing.T) {
	g := startGateway(t, "")
	s := start(t, g.target, nil)
	for _, path := range []string{"/v1/runs", "/api/generate-plan"} {
		response := send(t, s, "POST", path, submission)
		var run struct {
			RunID    string `json:"run_id"`
			Question string
			Status   string
		}
		if err := json.Unmarshal([]byte(read(t, response)), &run); err != nil {
			t.Fatal(err)
		}
		if response.StatusCode != http.StatusAccepted || response.Header.Get("Location") != "/v1/runs/r1" ||
			run.RunID != "r1" || run.Question != "how much?" || run.Status != "RUN_STATUS_ACCEPTED" {
			t.Errorf("%s: %d %v %+v", path, response.StatusCode, response.Header, run)
		}
	}
	asked := send(t, s, "POST", "/v1/runs:ask", submission)
	if read(t, asked); asked.StatusCode != http.StatusOK || asked.Header.Get("Location") != "" {
		t.Error(asked.StatusCode, asked.Header)
	}
}

func TestRunIsAnsweredInTheFormThatIsAskedFor(t *testing.T) {
	g := startGateway(t, "")
	g.run = tabular()
	s := start(t, g.target, nil)
	tags := map[string]bool{}
	for _, one := range []struct{ path, accept, mediaType, rows string }{
		{"/v1/runs/r1", "", "application/json", `[["1"]]`},
		{"/v1/runs/r1?rows=arrays", "*/*", "application/json", `[["1"]]`},
		{"/v1/runs/r1?rows=objects", "application/json", "application/json", `[{"n":"1"}]`},
		{"/v1/runs/r1", "application/protobuf+json", "application/protobuf+json",
			`[{"values":[{"int64_value":"1"}]}]`},
	} {
		response := send(t, s, "GET", one.path, "", header("Accept", one.accept))
		var run struct {
			Response struct{ Data struct{ Rows any } }
		}
		if err := json.Unmarshal([]byte(read(t, response)), &run); err != nil {
			t.Fatal(err)
		}
		rows, err := json.Marshal(run.Response.Data.Rows)
		if err != nil || string(rows) != one.rows || response.Header.Get("Content-Type") != one.mediaType ||
			!slices.Contains(response.Header.Values("Vary"), "Accept") {
			t.Errorf("%+v: %s %v %v", one, rows, response.Header, err)
		}
		tags[response.Header.Get("ETag")] = true
	}
	if len(tags) != 3 {
		t.Errorf("each form has a tag of its own: %v", tags)
	}
	for _, path := range []string{"/v1/runs/r1?rows=tables", "/v1/approvals?rows=objects"} {
		if got := send(t, s, "GET", path, ""); got.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %d", path, got.StatusCode)
		}
	}
}

func TestTagSaysWhetherARunIsAsItIsKnown(t *testing.T) {
	g := startGateway(t, "")
	g.run = tabular()
	s := start(t, g.target, nil)
	for tag, want := range map[string]int{
		`"r1.9"`: 304, `W/"r1.9"`: 304, `"r0.3", "r1.9"`: 304, `*`: 304,
		`"r1.8"`: 200, `"r1.9.objects"`: 200, `"r2.9"`: 200, `r1.9`: 200, ``: 200, `"r1.`: 200,
	} {
		response := send(t, s, "GET", "/v1/runs/r1", "", header("If-None-Match", tag))
		body := read(t, response)
		if response.StatusCode != want || response.Header.Get("ETag") != `"r1.9"` ||
			(body == "") != (want == http.StatusNotModified) {
			t.Errorf("%s: %d %v %s", tag, response.StatusCode, response.Header, body)
		}
	}
}

func TestWaitAndWhatIsKnownReachTheGateway(t *testing.T) {
	g := startGateway(t, "")
	g.run = tabular()
	s := start(t, g.target, nil)
	for _, one := range []struct {
		path, tag string
		wait      time.Duration
		after     int64 // -1: not said
	}{
		{"/v1/runs/r1", "", 0, -1},
		{"/v1/runs/r1?wait=30s", "", 30 * time.Second, -1},
		{"/v1/runs/r1?wait=0.5s&after_sequence=0", "", time.Second / 2, 0},
		{"/v1/runs/r1?wait=30s", `"r1.4"`, 30 * time.Second, 4},
		{"/v1/runs/r1?wait=30s", `"r1.4", "r1.7.objects", "r2.99"`, 30 * time.Second, 7},
		{"/v1/runs/r1?wait=30s&after_sequence=5", `"r1.7"`, 30 * time.Second, 5},
		{"/v1/runs/r1?wait=30s", `"r1.x"`, 30 * time.Second, -1},
	} {
		read(t, send(t, s, "GET", one.path, "", header("If-None-Match", one.tag)))
		got := g.seenLookUp()
		after := int64(-1)
		if got.AfterSequence != nil {
			after = got.GetAfterSequence()
		}
		if got.GetRunId() != "r1" || got.GetWait().AsDuration() != one.wait || after != one.after {
			t.Errorf("%+v: %v", one, got)
		}
	}
	for _, path := range []string{"/v1/runs/r1?wait=30", "/v1/runs/r1?wait=x", "/v1/runs/r1?after_sequence=x"} {
		if got := send(t, s, "GET", path, ""); got.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %d", path, got.StatusCode)
		}
	}
}

func TestEventsAreInTheFormThatIsAskedFor(t *testing.T) {
	g := startGateway(t, "")
	s := start(t, g.target, nil)
	for _, one := range []struct{ path, accept, rows string }{
		{"/v1/runs/r1:watch", "text/event-stream", `"rows":[["1"]]`},
		{"/v1/runs/r1:watch?rows=objects", "text/event-stream", `"rows":[{"n":"1"}]`},
		{"/v1/runs/r1:watch", "text/event-stream, application/protobuf+json", `"int64_value"`},
	} {
		response := send(t, s, "GET", one.path, "", header("Accept", one.accept))
		g.events <- &gatewayv1.RunEvent{RunId: "r1", Sequence: 9, Event: &gatewayv1.RunEvent_RunFinished{
			RunFinished: &gatewayv1.RunFinishedEvent{Response: tabular().GetResponse()},
		}}
		if text := read(t, response); !strings.Contains(text, one.rows) {
			t.Errorf("%+v: %s", one, text)
		}
	}
}

package server

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	agentv1 "bos/rest/gen/bos/agent/v1"
	gatewayv1 "bos/rest/gen/bos/gateway/v1"
	"bos/rest/internal/settings"
)

const question = `{"question": "how much?"}`

func TestStreamHasIdsKindsAndAnEnd(t *testing.T) {
	g := startGateway(t, "")
	s := start(t, g.target, nil)
	go func() {
		for _, event := range []*gatewayv1.RunEvent{accepted(1), delta(4, 0, "Al"), delta(4, 2, "l."), finished(5)} {
			g.events <- event
		}
	}()
	response := send(t, s, "POST", "/v1/runs:askStream", question)
	for name, want := range map[string]string{
		"Content-Type": "text/event-stream", "X-Accel-Buffering": "no", "Cache-Control": "no-store",
	} {
		if got := response.Header.Get(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	stream := framesOf(response)
	var got []string
	for {
		one, ok := stream.next()
		if !ok {
			break
		}
		got = append(got, one.id+" "+one.event+one.comment)
		if one.event != "" && !json.Valid([]byte(one.data)) {
			t.Errorf("not JSON: %s", one.data)
		}
	}
	want := []string{" open", "1 run_accepted", "4.2 answer_delta", "4.4 answer_delta",
		"5.4 run_finished", " done"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got := g.seenMetadata().Get("authorization"); !slices.Equal(got, []string{"Bearer " + key}) {
		t.Errorf("authorization went on as %q", got)
	}
}

func TestQueryStreamHasItsOwnEventNames(t *testing.T) {
	approval := &gatewayv1.Approval{
		ApprovalId: "a1", AgentId: "mail_0", AgentName: "mail", TaskDescription: "Send\u202e it",
		Display:    &gatewayv1.ApprovalDisplay{Task: []string{`Send\u{202E} it`, "now"}},
		Actions:    []*agentv1.ProposedAction{{Tool: "send_email"}},
		CreateTime: &timestamppb.Timestamp{Seconds: 100}, ExpireTime: &timestamppb.Timestamp{Seconds: 220},
	}
	resolved := func(sequence int64, outcome gatewayv1.ApprovalStatus) *gatewayv1.RunEvent {
		return &gatewayv1.RunEvent{RunId: "r1", Sequence: sequence,
			Event: &gatewayv1.RunEvent_ApprovalResolved{ApprovalResolved: &gatewayv1.ApprovalResolvedEvent{
				Approval: &gatewayv1.Approval{ApprovalId: "a1", AgentId: "mail_0", Status: outcome},
			}}}
	}
	for name, one := range map[string]struct {
		events []*gatewayv1.RunEvent
		want   []string
	}{
		"approvals, pieces": {[]*gatewayv1.RunEvent{
			{RunId: "r1", Sequence: 2, Event: &gatewayv1.RunEvent_ApprovalRequested{
				ApprovalRequested: &gatewayv1.ApprovalRequestedEvent{Approval: approval}}},
			resolved(3, gatewayv1.ApprovalStatus_APPROVAL_STATUS_APPROVED),
			resolved(4, gatewayv1.ApprovalStatus_APPROVAL_STATUS_DENIED),
			resolved(5, gatewayv1.ApprovalStatus_APPROVAL_STATUS_TIMED_OUT),
			delta(6, 0, "All."), finished(7),
		}, []string{"hitl_required", "hitl_approved", "hitl_denied", "hitl_timeout", "token", "done"}},
		"an answer that came whole": {[]*gatewayv1.RunEvent{finished(2)}, []string{"token", "done"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := startGateway(t, "")
			s := start(t, g.target, nil)
			go func() {
				for _, event := range one.events {
					g.events <- event
				}
			}()
			stream := framesOf(send(t, s, "POST", "/query/stream", question))
			var got []string
			for range one.want {
				event := stream.event(t)
				got = append(got, event.event)
				var data map[string]any
				if err := json.Unmarshal([]byte(event.data), &data); err != nil {
					t.Fatal(err)
				}
				switch event.event {
				case "hitl_required":
					if data["timeout_seconds"] != 120.0 || data["request_id"] != "a1" {
						t.Errorf("%v", data)
					}
					if data["task_description"] != "Send\\u{202E} it\nnow" {
						t.Errorf("the task is not as the gateway shows it: %v", data)
					}
				case "token":
					if data["text"] != "All." {
						t.Errorf("%v", data)
					}
				case "done":
					if data["answer"] != "All." {
						t.Errorf("%v", data)
					}
				}
			}
			if !slices.Equal(got, one.want) {
				t.Errorf("%q", got)
			}
			if _, more := stream.next(); more {
				t.Error("something came after done")
			}
		})
	}
}

func TestStreamContinuesAfterALostGateway(t *testing.T) {
	g := startGateway(t, "")
	s := start(t, g.target, nil)
	go func() {
		g.events <- accepted(1)
		g.events <- delta(1, 0, "Al")
	}()
	stream := framesOf(send(t, s, "POST", "/v1/runs:askStream", question))
	stream.event(t)
	stream.event(t)
	target := g.target
	g.server.Stop()
	again := startGateway(t, target)
	go func() {
		again.events <- accepted(1) // a repetition
		again.events <- delta(1, 0, "Al")
		again.events <- delta(1, 2, "l.")
		again.events <- finished(2)
	}()
	if one := stream.event(t); one.id != "1.4" || !strings.Contains(one.data, `"text":"l."`) {
		t.Errorf("%v", one)
	}
	if one := stream.event(t); one.id != "2.4" {
		t.Errorf("%v", one)
	}
	if one := stream.event(t); one.event != "done" {
		t.Errorf("%v", one)
	}
	again.mu.Lock()
	defer again.mu.Unlock()
	if len(again.watched) == 0 || again.watched[len(again.watched)-1] != [2]int64{1, 2} {
		t.Errorf("resumed after %v", again.watched)
	}
}

func TestStreamEndsWithoutRunEndIfTheGatewayStaysAway(t *testing.T) {
	g := startGateway(t, "")
	s := start(t, g.target, func(set *settings.Settings) { set.ReconnectAttempts = 1 })
	go func() { g.events <- accepted(1) }()
	stream := framesOf(send(t, s, "POST", "/v1/runs:askStream", question))
	stream.event(t)
	g.server.Stop()
	for {
		one, ok := stream.next()
		if !ok {
			return
		}
		if one.event != "" {
			t.Errorf("%v", one)
		}
	}
}

func TestErrorAfterTheFirstEventIsAnErrorEvent(t *testing.T) {
	g := startGateway(t, "")
	s := start(t, g.target, nil)
	go func() {
		g.events <- accepted(1)
		g.broken <- status.Error(codes.Internal, "password=hunter2")
	}()
	stream := framesOf(send(t, s, "POST", "/v1/runs:askStream", question))
	stream.event(t)
	one := stream.event(t)
	if one.event != "error" || !strings.Contains(one.data, `"status":"INTERNAL"`) ||
		strings.Contains(one.data, "hunter2") {
		t.Errorf("%v", one)
	}
}

func TestResuming(t *testing.T) {
	for name, one := range map[string]struct {
		path, lastEventID string
		after             [2]int64
	}{
		"by header":          {"/v1/runs/r1:watch", "7", [2]int64{7, 0}},
		"in an answer":       {"/v1/runs/r1:watch", "7.120", [2]int64{7, 120}},
		"by query":           {"/v1/runs/r1:watch?after_sequence=3&after_offset=5", "", [2]int64{3, 5}},
		"the further counts": {"/v1/runs/r1:watch?after_sequence=3&after_offset=5", "7", [2]int64{7, 0}},
		"in either":          {"/v1/runs/r1:watch?after_sequence=7&after_offset=5", "7.4", [2]int64{7, 5}},
	} {
		t.Run(name, func(t *testing.T) {
			g := startGateway(t, "")
			s := start(t, g.target, nil)
			go func() { g.events <- finished(9) }()
			response := send(t, s, "GET", one.path, "", header("Last-Event-ID", one.lastEventID))
			if event := framesOf(response).event(t); !strings.HasPrefix(event.id, "9") {
				t.Errorf("%v", event)
			}
			g.mu.Lock()
			defer g.mu.Unlock()
			if !slices.Equal(g.watched, [][2]int64{one.after}) {
				t.Errorf("%v", g.watched)
			}
		})
	}
}

func TestResumingAFinishedRunAtItsEndIsNoContent(t *testing.T) {
	g := startGateway(t, "")
	g.ended = true
	s := start(t, g.target, nil)
	response := send(t, s, "GET", "/v1/runs/r1:watch", "", header("Last-Event-ID", "9"))
	if response.StatusCode != http.StatusNoContent {
		t.Error(response.Status)
	}
}

func TestErrorsBeforeTheFirstEventHaveTheirStatus(t *testing.T) {
	g := startGateway(t, "")
	s := start(t, g.target, nil)
	for path, want := range map[string]int{
		"/v1/runs/unknown:watch": 404, "/v1/runs/r1:watch?after_sequence=-1": 400,
	} {
		if got := send(t, s, "GET", path, "").StatusCode; got != want {
			t.Errorf("%s: %d", path, got)
		}
	}
	for query, field := range map[string]string{
		"?after_offset=x": "after_offset", "?after_sequence=1.5": "after_sequence", "": "Last-Event-ID",
	} {
		response := send(t, s, "GET", "/v1/runs/r1:watch"+query, "", header("Last-Event-ID", "7.x"))
		if got := read(t, response); response.StatusCode != 400 || !strings.Contains(got, field) {
			t.Errorf("%s: %s %s", query, response.Status, got)
		}
	}
	for body, want := range map[string]int{`{"question": ""}`: 400, `{"unknown": 1}`: 400} {
		if got := send(t, s, "POST", "/v1/runs:askStream", body).StatusCode; got != want {
			t.Errorf("%s: %d", body, got)
		}
	}
	late := send(t, s, "POST", "/v1/runs:askStream", question, header("Grpc-Timeout", "1n"))
	if late.StatusCode != http.StatusGatewayTimeout {
		t.Error(late.Status)
	}
	g.server.Stop()
	response := send(t, s, "POST", "/v1/runs:askStream", question)
	if response.StatusCode != http.StatusServiceUnavailable {
		t.Error(response.Status)
	}
}

func TestASilentStreamHasHeartbeats(t *testing.T) {
	g := startGateway(t, "")
	s := start(t, g.target, func(set *settings.Settings) { set.Heartbeat = 0.01 })
	stream := framesOf(send(t, s, "GET", "/v1/runs/r1:watch", ""))
	for range 3 {
		if one, ok := stream.next(); !ok || one.comment == "" {
			t.Errorf("%v", one)
		}
	}
}

func TestDisconnectedClientCancelsTheCall(t *testing.T) {
	g := startGateway(t, "")
	s := start(t, g.target, nil)
	go func() { g.events <- accepted(1) }()
	response := send(t, s, "POST", "/v1/runs:askStream", question)
	framesOf(response).event(t)
	_ = response.Body.Close()
	<-g.left
}

func TestClientThatReadsNothingIsDisconnected(t *testing.T) {
	g := startGateway(t, "")
	s := start(t, g.target, func(set *settings.Settings) { set.WriteTimeout = 0.05 })
	send(t, s, "GET", "/v1/runs/r1:watch", "") // its body is not read
	large := strings.Repeat("x", 1<<18)
	for sequence := int64(1); ; sequence++ {
		select {
		case g.events <- delta(sequence, (sequence-1)<<18, large):
		case <-g.left:
			return
		}
	}
}

func TestStreamsAboveTheLimitAreRefused(t *testing.T) {
	g := startGateway(t, "")
	s := start(t, g.target, func(set *settings.Settings) { set.MaxStreams = 1; set.Heartbeat = 0.01 })
	framesOf(send(t, s, "GET", "/v1/runs/r1:watch", "")).next()
	response := send(t, s, "GET", "/v1/runs/r1:watch", "")
	if response.StatusCode != 429 || response.Header.Get("Retry-After") == "" {
		t.Error(response.Status, response.Header)
	}
}

func TestDrainEndsStreamsAndFinishesRequests(t *testing.T) {
	g := startGateway(t, "")
	s := start(t, g.target, func(set *settings.Settings) { set.Heartbeat = 0.01 })
	response := send(t, s, "GET", "/v1/runs/r1:watch", "")
	stream := framesOf(response)
	stream.next()
	s.Stop()
	last := frame{}
	for {
		one, ok := stream.next()
		if !ok {
			break
		}
		last = one
	}
	if !strings.HasPrefix(last.comment, "stopping") {
		t.Errorf("%v", last)
	}
}

func TestTargetsMayBeSocketsAndNames(t *testing.T) {
	path := "unix:" + filepath.Join(t.TempDir(), "g.sock")
	for _, target := range []string{path, ""} {
		g := startGateway(t, target)
		if target == "" {
			target = "dns:///" + g.target
		}
		if got := send(t, start(t, target, nil), "GET", "/v1/runs", "").StatusCode; got != 200 {
			t.Errorf("%s: %d", target, got)
		}
	}
}

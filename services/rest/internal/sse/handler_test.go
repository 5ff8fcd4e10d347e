package sse

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	agentv1 "bos/rest/gen/bos/agent/v1"
	gatewayv1 "bos/rest/gen/bos/gateway/v1"
	"bos/rest/internal/codec"
)

// sent receives a value for each sent event.
type sent chan struct{}

func (sent) StreamOpened()  {}
func (sent) StreamClosed()  {}
func (sent) StreamRetried() {}

func (s sent) EventSent() { s <- struct{}{} }

// harness serves streams with connections to the gateway that the test provides; headers wait for the
// first event without a limit.
type harness struct {
	streams  *Streams
	stopping chan struct{}
	sent     sent
	log      bytes.Buffer
}

func newHarness() *harness {
	h := &harness{stopping: make(chan struct{}), sent: make(sent, 1)}
	h.streams = New(nil, Settings{
		Heartbeat: time.Hour, OpenWithin: time.Hour, Write: time.Hour, Leg: time.Hour,
	}, h.sent, h.stopping, slog.New(slog.NewTextHandler(&h.log, nil)))
	return h
}

func (h *harness) serve(
	ctx context.Context, method string, open func(context.Context) (receive, error),
) *httptest.ResponseRecorder {
	recorder := httptest.NewRecorder()
	request := httptest.NewRequestWithContext(ctx, method, "/v1/runs:askStream", nil)
	h.streams.stream(recorder, request, h.streams.follower(), open, kindNames(codec.Plain))
	return recorder
}

// afterOneEvent is a connection with one event, after which it calls a function of the test.
func afterOneEvent(then func(context.Context) error) func(context.Context) (receive, error) {
	return func(ctx context.Context) (receive, error) {
		first := true
		return func() (*gatewayv1.RunEvent, error) {
			if first {
				first = false
				return accepted(), nil
			}
			return nil, then(ctx)
		}, nil
	}
}

func check(t *testing.T, got *httptest.ResponseRecorder, code int, status, reason string) {
	t.Helper()
	var shape struct {
		Error struct {
			Code    int
			Status  string
			Details []struct{ Reason string }
		}
	}
	if err := json.Unmarshal(got.Body.Bytes(), &shape); err != nil {
		t.Fatalf("%d %q: %s", got.Code, got.Body, err)
	}
	if got.Code != code || shape.Error.Code != code || shape.Error.Status != status ||
		shape.Error.Details[0].Reason != reason {
		t.Errorf("%d %s", got.Code, got.Body)
	}
}

func TestShutdownBeforeTheHeadersIsAnErrorForQuestions(t *testing.T) {
	h := newHarness()
	got := h.serve(t.Context(), http.MethodPost, func(ctx context.Context) (receive, error) {
		close(h.stopping)
		<-ctx.Done()
		return nil, ctx.Err()
	})
	check(t, got, http.StatusServiceUnavailable, "UNAVAILABLE", "STOPPING")
	if got.Header().Get("Retry-After") == "" {
		t.Error(got.Header())
	}
	// Clients that watch reconnect by themselves, as long as they get a stream.
	watched := h.serve(t.Context(), http.MethodGet, nil)
	if watched.Code != http.StatusOK || !strings.Contains(watched.Body.String(), ": stopping") {
		t.Errorf("%d %s", watched.Code, watched.Body)
	}
}

func TestNoRunIsStartedDuringShutdown(t *testing.T) {
	h := newHarness()
	close(h.stopping)
	got := h.serve(t.Context(), http.MethodPost, func(context.Context) (receive, error) {
		t.Error("the gateway was asked")
		return nil, context.Canceled
	})
	check(t, got, http.StatusServiceUnavailable, "UNAVAILABLE", "STOPPING")
}

func TestDeadlineBeforeTheHeadersIsAnErrorStatus(t *testing.T) {
	ctx, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	got := newHarness().serve(ctx, http.MethodPost, func(ctx context.Context) (receive, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	check(t, got, http.StatusGatewayTimeout, "DEADLINE_EXCEEDED", "DEADLINE_EXCEEDED")
}

// ended is a context whose deadline passes when the test says so.
type ended struct {
	context.Context
	done chan struct{}
}

func (e ended) Done() <-chan struct{} { return e.done }

func (e ended) Err() error {
	select {
	case <-e.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func TestDeadlineAfterTheHeadersIsAnErrorEvent(t *testing.T) {
	h := newHarness()
	clock := ended{t.Context(), make(chan struct{})}
	got := h.serve(clock, http.MethodPost, afterOneEvent(func(ctx context.Context) error {
		<-h.sent
		close(clock.done)
		<-ctx.Done()
		return ctx.Err()
	})).Body.String()
	if !strings.Contains(got, "event: run_accepted\n") || !strings.Contains(got, "event: error\n") ||
		!strings.Contains(got, `"status":"DEADLINE_EXCEEDED"`) {
		t.Error(got)
	}
}

func TestPanicOfTheFollowerIsAnErrorAndLogged(t *testing.T) {
	h := newHarness()
	got := h.serve(t.Context(), http.MethodPost, func(context.Context) (receive, error) {
		panic("password=hunter2")
	})
	check(t, got, http.StatusInternalServerError, "INTERNAL", "INTERNAL")
	if !strings.Contains(h.log.String(), "hunter2") || strings.Contains(got.Body.String(), "hunter2") {
		t.Error(h.log.String(), got.Body)
	}
}

func TestPanicAfterTheHeadersIsAnErrorEvent(t *testing.T) {
	got := newHarness().serve(t.Context(), http.MethodPost, afterOneEvent(func(context.Context) error {
		panic("password=hunter2")
	})).Body.String()
	if !strings.Contains(got, "event: run_accepted\n") || !strings.Contains(got, "event: error\n") ||
		!strings.Contains(got, `"status":"INTERNAL"`) || strings.Contains(got, "hunter2") {
		t.Error(got)
	}
}

// unsayable is an event that cannot be encoded as JSON.
func unsayable(sequence int64) *gatewayv1.RunEvent {
	action := &agentv1.ProposedAction{ApprovalTimeout: &durationpb.Duration{Seconds: 1 << 62}}
	return &gatewayv1.RunEvent{RunId: "r1", Sequence: sequence, Event: &gatewayv1.RunEvent_ApprovalRequested{
		ApprovalRequested: &gatewayv1.ApprovalRequestedEvent{
			Approval: &gatewayv1.Approval{Actions: []*agentv1.ProposedAction{action}},
		},
	}}
}

func inTurn(events ...*gatewayv1.RunEvent) func(context.Context) (receive, error) {
	return func(ctx context.Context) (receive, error) {
		return func() (*gatewayv1.RunEvent, error) {
			if len(events) == 0 {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			next := events[0]
			events = events[1:]
			return next, nil
		}, nil
	}
}

func accepted() *gatewayv1.RunEvent {
	return &gatewayv1.RunEvent{RunId: "r1", Sequence: 1, Event: &gatewayv1.RunEvent_RunAccepted{
		RunAccepted: &gatewayv1.RunAcceptedEvent{Question: "how much?"},
	}}
}

func TestUnencodableEventEndsTheStreamWithAnErrorEvent(t *testing.T) {
	h := newHarness()
	got := h.serve(t.Context(), http.MethodGet, inTurn(accepted(), unsayable(2))).Body.String()
	if !strings.Contains(got, "event: run_accepted\n") || !strings.Contains(got, "event: error\n") ||
		!strings.Contains(got, `"status":"INTERNAL"`) || strings.Contains(got, "approval_requested") {
		t.Error(got)
	}
	if !strings.Contains(h.log.String(), "sequence=2") || !strings.Contains(h.log.String(), "run_id=r1") {
		t.Error(h.log.String())
	}
}

func TestUnencodableFirstEventIsAnErrorWithoutReconnect(t *testing.T) {
	got := newHarness().serve(t.Context(), http.MethodGet, inTurn(unsayable(2)))
	check(t, got, http.StatusInternalServerError, "INTERNAL", "INTERNAL")
}

// gone is a client that reads nothing.
type gone struct{ *httptest.ResponseRecorder }

func (gone) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestDisconnectedClientIsNotLoggedAsAnError(t *testing.T) {
	h := newHarness()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/runs/r1:watch", nil)
	w := gone{httptest.NewRecorder()}
	h.streams.stream(w, request, h.streams.follower(), inTurn(accepted(), unsayable(2)), kindNames(codec.Plain))
	if h.log.Len() != 0 {
		t.Error(h.log.String())
	}
}

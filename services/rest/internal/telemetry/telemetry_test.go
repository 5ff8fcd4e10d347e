package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

func recorded(flags trace.TraceFlags) context.Context {
	return trace.ContextWithSpanContext(context.Background(), trace.NewSpanContext(
		trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: flags}))
}

func read(m *Metrics, accept string) string {
	request := httptest.NewRequest("GET", "/metrics", nil)
	request.Header.Set("Accept", accept)
	answer := httptest.NewRecorder()
	m.Handler().ServeHTTP(answer, request)
	text, _ := io.ReadAll(answer.Body)
	return string(text)
}

const openMetrics = "application/openmetrics-text; version=1.0.0"

func TestCallsAreCountedByMethodAndCodeWithTheirTime(t *testing.T) {
	m := NewMetrics()
	calls := m.Calls()
	for _, err := range []error{nil, status.Error(codes.DeadlineExceeded, "late")} {
		ctx := calls.TagRPC(recorded(trace.FlagsSampled), &stats.RPCTagInfo{
			FullMethodName: "/bos.gateway.v1.OrchestratorService/Ask",
		})
		begun := time.Now()
		calls.HandleRPC(ctx, &stats.Begin{Client: true, BeginTime: begun})
		calls.HandleRPC(ctx, &stats.End{
			Client: true, BeginTime: begun, EndTime: begun.Add(3 * time.Millisecond), Error: err,
		})
	}
	text := read(m, "text/plain")
	method := `grpc_method="Ask",grpc_service="bos.gateway.v1.OrchestratorService",service="rest"}`
	for _, want := range []string{
		`bos_rpc_client_handled_total{grpc_code="OK",` + method + " 1",
		`bos_rpc_client_handled_total{grpc_code="DEADLINE_EXCEEDED",` + method + " 1",
		`bos_rpc_client_duration_seconds_count{` + method + " 2",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	if !strings.Contains(read(m, openMetrics), `# {trace_id="01000000000000000000000000000000"}`) {
		t.Error("no exemplar")
	}
}

func TestExemplarsAreOfRecordedTracesAlone(t *testing.T) {
	for flags, want := range map[trace.TraceFlags]bool{trace.FlagsSampled: true, 0: false} {
		m := NewMetrics()
		m.Begun(recorded(flags), "/v1/runs", "GET", false)(200)
		if has := strings.Contains(read(m, openMetrics), "trace_id="); has != want {
			t.Errorf("flags %v: exemplar %v", flags, has)
		}
	}
}

func TestLinesCarryTheTraceOfTheirContext(t *testing.T) {
	var out bytes.Buffer
	log := Logger(&out, "info").With("route", "/v1/runs")
	log.InfoContext(recorded(trace.FlagsSampled), "request")
	log.Info("elsewhere")
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	var with, without map[string]any
	if json.Unmarshal([]byte(lines[0]), &with) != nil || json.Unmarshal([]byte(lines[1]), &without) != nil {
		t.Fatal(out.String())
	}
	if with["trace_id"] != "01000000000000000000000000000000" || with["service"] != "rest" {
		t.Error(with)
	}
	if _, has := without["trace_id"]; has {
		t.Error(without)
	}
}

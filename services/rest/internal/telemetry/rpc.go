package telemetry

import (
	"context"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

const serviceName = "rest"

type methodKey struct{}

// rpcStats counts the calls that a channel makes; gRPC calls it for each.
type rpcStats struct{ metrics *Metrics }

// Calls returns what counts the calls of a gRPC channel: code and duration by method. Methods are
// those of the generated client, which bounds the labels.
func (m *Metrics) Calls() stats.Handler { return rpcStats{m} }

func (s rpcStats) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, methodKey{}, info.FullMethodName)
}

func (s rpcStats) HandleRPC(ctx context.Context, event stats.RPCStats) {
	end, ended := event.(*stats.End)
	if !ended {
		return
	}
	full, _ := ctx.Value(methodKey{}).(string)
	service, method, _ := strings.Cut(strings.TrimPrefix(full, "/"), "/")
	code := codeName(status.Code(end.Error).String())
	s.metrics.calls.WithLabelValues(serviceName, service, method, code).Inc()
	observe(ctx, s.metrics.callTime.WithLabelValues(serviceName, service, method),
		end.EndTime.Sub(end.BeginTime))
}

func (rpcStats) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (rpcStats) HandleConn(context.Context, stats.ConnStats) {}

// codeName writes a code as the services in Python do: DeadlineExceeded is DEADLINE_EXCEEDED.
func codeName(code string) string {
	if code == "OK" {
		return code
	}
	var name strings.Builder
	for i, char := range code {
		if i > 0 && char >= 'A' && char <= 'Z' {
			name.WriteByte('_')
		}
		name.WriteRune(char)
	}
	return strings.ToUpper(name.String())
}

// observe records a duration, with the trace id of a recorded trace as its exemplar.
func observe(ctx context.Context, into prometheus.Observer, took time.Duration) {
	span := trace.SpanContextFromContext(ctx)
	exemplars, able := into.(prometheus.ExemplarObserver)
	if !able || !span.IsSampled() {
		into.Observe(took.Seconds())
		return
	}
	exemplars.ObserveWithExemplar(took.Seconds(),
		prometheus.Labels{"trace_id": span.TraceID().String()})
}

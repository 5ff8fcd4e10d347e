// Package telemetry sets up logs, metrics and traces of the process, without globals.
package telemetry

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"go.opentelemetry.io/otel/attribute"
)

// Propagator extracts and injects the W3C trace context.
var Propagator = propagation.TraceContext{}

// Logger writes JSON lines with the field names of all Bos services.
func Logger(out io.Writer, level string) *slog.Logger {
	levels := map[string]slog.Level{
		"debug": slog.LevelDebug, "info": slog.LevelInfo,
		"warning": slog.LevelWarn, "error": slog.LevelError,
	}
	return slog.New(traceIDs{slog.NewJSONHandler(out, &slog.HandlerOptions{
		Level: levels[level],
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) > 0 {
				return a
			}
			switch a.Key {
			case slog.MessageKey:
				a.Key = "event"
			case slog.TimeKey:
				a.Key, a.Value = "timestamp", slog.StringValue(
					a.Value.Time().UTC().Format("2006-01-02T15:04:05.000000Z"))
			case slog.LevelKey:
				name := strings.ToLower(a.Value.String())
				if name == "warn" {
					name = "warning"
				}
				a.Value = slog.StringValue(name)
			}
			return a
		},
	})}).With("service", "rest")
}

// traceIDs adds the trace of a line's context to it.
type traceIDs struct{ slog.Handler }

func (h traceIDs) Handle(ctx context.Context, record slog.Record) error {
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		record.AddAttrs(slog.String("trace_id", span.TraceID().String()),
			slog.String("span_id", span.SpanID().String()))
	}
	return h.Handler.Handle(ctx, record)
}

func (h traceIDs) WithAttrs(attrs []slog.Attr) slog.Handler {
	return traceIDs{h.Handler.WithAttrs(attrs)}
}

func (h traceIDs) WithGroup(name string) slog.Handler { return traceIDs{h.Handler.WithGroup(name)} }

// Tracing returns the tracer provider and its shutdown function. Without an endpoint nothing is
// recorded, but an incoming trace context is propagated.
func Tracing(
	ctx context.Context, endpoint string, ratio float64,
) (trace.TracerProvider, func(context.Context) error, error) {
	if endpoint == "" {
		return noop.NewTracerProvider(), func(context.Context) error { return nil }, nil
	}
	exporter, err := otlptracegrpc.New(ctx,
		otlptracegrpc.WithEndpointURL(endpoint), otlptracegrpc.WithTimeout(3*time.Second))
	if err != nil {
		return nil, nil, err
	}
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(ratio))),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "rest"),
			attribute.String("service.namespace", "bos"),
		)),
	)
	return provider, provider.Shutdown, nil
}

var buckets = []float64{
	.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300,
}

// Metrics of the process.
type Metrics struct {
	registry *prometheus.Registry
	handled  *prometheus.CounterVec
	duration *prometheus.HistogramVec
	calls    *prometheus.CounterVec
	callTime *prometheus.HistogramVec
	inFlight prometheus.Gauge
	streams  prometheus.Gauge
	events   prometheus.Counter
	retries  prometheus.Counter
}

// NewMetrics registers all metrics.
func NewMetrics() *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		handled: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "bos_rest_requests_total",
			Help: "Requests answered, by HTTP status",
		}, []string{"route", "method", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "bos_rest_request_duration_seconds",
			Help:    "Time from the arrival of a request to the end of its answer, streams left out",
			Buckets: buckets,
		}, []string{"route", "method"}),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "bos_rpc_client_handled_total",
			Help: "RPCs completed as seen by the caller, by status code",
		}, []string{"service", "grpc_service", "grpc_method", "grpc_code"}),
		callTime: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "bos_rpc_client_duration_seconds",
			Help:    "Time of an RPC as seen by the caller, transport retries included",
			Buckets: buckets,
		}, []string{"service", "grpc_service", "grpc_method"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "bos_rest_in_flight", Help: "Requests being handled, streams included",
		}),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "bos_rest_stream_clients", Help: "Clients that follow a run",
		}),
		events: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "bos_rest_stream_events_total", Help: "Events sent to clients",
		}),
		retries: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "bos_rest_stream_retries_total",
			Help: "Streams that went on over another connection to the gateway",
		}),
	}
	m.registry.MustRegister(m.handled, m.duration, m.calls, m.callTime, m.inFlight, m.streams, m.events, m.retries,
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Handler serves the metrics to Prometheus.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{EnableOpenMetrics: true})
}

// Begun counts the start of a request; call the result at its end. The context says by which trace
// the duration is explained.
func (m *Metrics) Begun(ctx context.Context, route, method string, stream bool) func(status int) {
	begun := time.Now()
	m.inFlight.Inc()
	return func(status int) {
		m.inFlight.Dec()
		m.handled.WithLabelValues(route, method, strconv.Itoa(status)).Inc()
		if !stream {
			observe(ctx, m.duration.WithLabelValues(route, method), time.Since(begun))
		}
	}
}

// StreamOpened counts a new stream client.
func (m *Metrics) StreamOpened() { m.streams.Inc() }

// StreamClosed counts the end of a stream client.
func (m *Metrics) StreamClosed() { m.streams.Dec() }

// EventSent counts an event.
func (m *Metrics) EventSent() { m.events.Inc() }

// StreamRetried counts a stream that was resumed over another connection.
func (m *Metrics) StreamRetried() { m.retries.Inc() }

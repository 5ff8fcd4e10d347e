// Package server runs the HTTP server: start, readiness, drain, stop.
package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"bos/rest/internal/connlimit"
	"bos/rest/internal/proxytoken"
	"bos/rest/internal/settings"
	"bos/rest/internal/telemetry"
	"bos/rest/internal/upstream"
)

const (
	// Above this limit the library refuses requests itself, in plain text.
	headerHeadroom = 4
	flushTimeout   = 3 * time.Second
	// Interval of checks for replaced certificates.
	certificateRefresh = 5 * time.Second
)

// Server is a running service.
type Server struct {
	settings  settings.Settings
	log       *slog.Logger
	metrics   *telemetry.Metrics
	tracing   trace.TracerProvider
	flush     func(context.Context) error
	gateway   *grpc.ClientConn
	identity  *grpc.ClientConn   // nil if there is none
	memory    *grpc.ClientConn   // nil if there is none
	documents *grpc.ClientConn   // nil if there is none
	files     *grpc.ClientConn   // nil if there is none
	signer    *proxytoken.Signer // nil if there is no key
	// Mutual TLS with the services; nil: plain text.
	tls         *tls.Config
	credentials credentials.TransportCredentials

	http          *http.Server
	listener      net.Listener
	metricsServer *http.Server
	metricsAt     net.Listener
	stopping      chan struct{} // closed first: not ready any more
	ending        chan struct{} // closed after the drain delay: streams end
	stopOnce      sync.Once
	ended         chan error
}

// Start listens and serves until Stop.
func Start(ctx context.Context, s settings.Settings, log *slog.Logger) (*Server, error) {
	server := &Server{
		settings: s, log: log, metrics: telemetry.NewMetrics(),
		stopping: make(chan struct{}), ending: make(chan struct{}), ended: make(chan error, 2),
	}
	if err := server.start(ctx); err != nil {
		server.release()
		return nil, err
	}
	return server, nil
}

func (s *Server) start(ctx context.Context) error {
	var err error
	s.tracing, s.flush, err = telemetry.Tracing(ctx, s.settings.OTLPEndpoint, s.settings.TraceSampleRatio)
	if err != nil {
		return fmt.Errorf("BOS_OTLP_ENDPOINT: %w", err)
	}
	if s.settings.SigningKeyFile != "" {
		if s.signer, err = proxytoken.NewSigner(s.settings.SigningKeyFile, s.log); err != nil {
			return fmt.Errorf("BOS_REST_SIGNING_KEY_FILE: %w", err)
		}
	} else if s.settings.IdentityTarget != "" {
		s.log.Warn("no signing key: identity slows down all clients as one",
			"remedy", "set BOS_REST_SIGNING_KEY_FILE")
	}
	s.tls, err = upstream.Certificates{
		Certificate: s.settings.CertFile, Key: s.settings.KeyFile, Authorities: s.settings.CAFile,
		Refresh: certificateRefresh,
	}.TLS(s.log)
	if err != nil {
		return err
	}
	s.credentials = upstream.Credentials(s.tls)
	if s.gateway, err = s.dial(s.settings.GatewayTarget); err != nil {
		return fmt.Errorf("BOS_REST_GATEWAY_TARGET: %w", err)
	}
	if s.settings.IdentityTarget != "" {
		if s.identity, err = s.dial(s.settings.IdentityTarget); err != nil {
			return fmt.Errorf("BOS_REST_IDENTITY_TARGET: %w", err)
		}
	}
	if s.settings.MemoryTarget != "" {
		if s.memory, err = s.dial(s.settings.MemoryTarget); err != nil {
			return fmt.Errorf("BOS_REST_MEMORY_TARGET: %w", err)
		}
	}
	if s.settings.DocumentsTarget != "" {
		if s.documents, err = s.dial(s.settings.DocumentsTarget); err != nil {
			return fmt.Errorf("BOS_REST_DOCUMENTS_TARGET: %w", err)
		}
	}
	if s.settings.FilesTarget != "" {
		if s.files, err = s.dial(s.settings.FilesTarget); err != nil {
			return fmt.Errorf("BOS_REST_FILES_TARGET: %w", err)
		}
	}
	handler, err := s.handler()
	if err != nil {
		return err
	}
	address := net.JoinHostPort(s.settings.Host, strconv.Itoa(int(s.settings.Port)))
	if s.listener, err = net.Listen("tcp", address); err != nil {
		return fmt.Errorf("BOS_REST_HOST, BOS_REST_PORT: %s cannot be bound: %w", address, err)
	}
	connections := connlimit.New(s.settings.MaxConnections)
	s.http = s.newHTTP(connections.Serving(handler))
	connections.Join(s.http)
	if s.settings.MetricsAddress != "" {
		if s.metricsAt, err = net.Listen("tcp", s.settings.MetricsAddress); err != nil {
			return fmt.Errorf("BOS_REST_METRICS_ADDRESS: cannot be bound: %w", err)
		}
		mux := http.NewServeMux()
		mux.Handle("GET /metrics", s.metrics.Handler())
		s.metricsServer = s.newHTTP(mux)
		go s.serve(s.metricsServer, s.metricsAt)
	}
	go s.serve(s.http, s.listener)
	return nil
}

func (s *Server) dial(target string) (*grpc.ClientConn, error) {
	return upstream.Dial(target, upstream.Timeouts{
		Call: s.settings.CallTimeout.Duration(), Run: s.settings.RunTimeout.Duration(),
	}, s.credentials, s.signer, s.metrics.Calls(), otelgrpc.WithTracerProvider(s.tracing), otelgrpc.WithPropagators(telemetry.Propagator))
}

// newHTTP sets no timeout for whole requests or responses: guards and streams set their own.
func (s *Server) newHTTP(handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: s.settings.ReadTimeout.Duration(),
		IdleTimeout:       s.settings.IdleTimeout.Duration(),
		MaxHeaderBytes:    headerHeadroom * s.settings.MaxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
}

func (s *Server) serve(server *http.Server, listener net.Listener) {
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		s.ended <- err
	}
}

// Address returns the listening address, as host:port.
func (s *Server) Address() string { return s.listener.Addr().String() }

// MetricsAddress returns the address of /metrics if it is a separate one.
func (s *Server) MetricsAddress() string {
	if s.metricsAt == nil {
		return ""
	}
	return s.metricsAt.Addr().String()
}

// Ended receives the error if the server stops by itself.
func (s *Server) Ended() <-chan error { return s.ended }

// Stop drains and stops the server: not ready any more, streams end so that clients reconnect to
// another instance, requests in flight have the grace period to finish and are then cancelled.
func (s *Server) Stop() {
	s.stopOnce.Do(s.stop)
}

func (s *Server) stop() {
	close(s.stopping)
	s.log.Info("draining", "delay_s", s.settings.DrainDelay, "grace_s", s.settings.Grace)
	time.Sleep(s.settings.DrainDelay.Duration())
	close(s.ending)
	ctx, cancel := context.WithTimeout(context.Background(), s.settings.Grace.Duration())
	defer cancel()
	err := s.http.Shutdown(ctx)
	if err != nil {
		_ = s.http.Close()
	}
	s.release()
	s.log.Info("stopped", "in_time", err == nil)
}

func (s *Server) release() {
	if s.metricsServer != nil {
		_ = s.metricsServer.Close()
	}
	for _, listener := range []net.Listener{s.listener, s.metricsAt} {
		if listener != nil {
			_ = listener.Close()
		}
	}
	for _, channel := range []*grpc.ClientConn{
		s.gateway, s.identity, s.memory, s.documents, s.files,
	} {
		if channel != nil {
			_ = channel.Close()
		}
	}
	if s.flush != nil {
		ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
		defer cancel()
		_ = s.flush(ctx)
	}
}

func (s *Server) isStopping() bool {
	select {
	case <-s.stopping:
		return true
	default:
		return false
	}
}

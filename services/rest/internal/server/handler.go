package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"

	auditv1 "bos/rest/gen/bos/audit/v1"
	documentsv1 "bos/rest/gen/bos/documents/v1"
	filesv1 "bos/rest/gen/bos/files/v1"
	gatewayv1 "bos/rest/gen/bos/gateway/v1"
	identityv1 "bos/rest/gen/bos/identity/v1"
	memoryv1 "bos/rest/gen/bos/memory/v1"
	"bos/rest/internal/apierror"
	"bos/rest/internal/browser"
	"bos/rest/internal/codec"
	"bos/rest/internal/concurrency"
	"bos/rest/internal/console"
	"bos/rest/internal/guard"
	"bos/rest/internal/openapi"
	"bos/rest/internal/protocols"
	"bos/rest/internal/sse"
	"bos/rest/internal/telemetry"
	"bos/rest/internal/waiting"
)

const (
	gatewayService   = "bos.gateway.v1.OrchestratorService"
	approvalService  = "bos.gateway.v1.ApprovalService"
	feedbackService  = "bos.gateway.v1.FeedbackService"
	verifiedService  = "bos.gateway.v1.VerifiedQueryService"
	webhookService   = "bos.gateway.v1.WebhookService"
	operatorService  = "bos.gateway.v1.OperatorService"
	identityService  = "bos.identity.v1.IdentityService"
	adminService     = "bos.identity.v1.AdministrationService"
	accountService   = "bos.identity.v1.AccountService"
	keyService       = "bos.identity.v1.ApiKeyService"
	connService      = "bos.identity.v1.ConnectionService"
	openIDService    = "bos.identity.v1.OpenIdService"
	memoryService    = "bos.memory.v1.MemoryService"
	documentsService = "bos.documents.v1.DocumentsService"
	ingestionService = "bos.documents.v1.IngestionService"
	auditService     = "bos.audit.v1.AuditService"
	fileService      = "bos.files.v1.FileService"
	healthTimeout    = 2 * time.Second
	bodyGrace        = 2 * time.Second
	openWithin       = time.Second
	firstWait        = 100 * time.Millisecond
	longestWait      = 5 * time.Second
)

// handler assembles the HTTP handler: guards, own paths, streams, the generated mux.
func (s *Server) handler() (http.Handler, error) {
	document, err := openapi.Load(s.offers, s.ownRoutes())
	if err != nil {
		return nil, err
	}
	sessions, err := s.sessions()
	if err != nil {
		return nil, err
	}
	services, err := s.services(sessions)
	if err != nil {
		return nil, err
	}
	brand, err := console.LoadBrand(s.settings.BrandName, s.settings.BrandLogoFile)
	if err != nil {
		return nil, fmt.Errorf("Configuration is not usable. %w", err)
	}
	pages, err := console.Open(brand)
	if err != nil {
		return nil, err
	}
	root := http.NewServeMux()
	root.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { say(w, "alive") })
	root.HandleFunc("GET /readyz", s.ready)
	root.Handle("GET /openapi.json", document)
	root.HandleFunc("GET /docs", openapi.Docs)
	root.HandleFunc("GET /docs/", openapi.Docs)
	if s.metricsHere() {
		root.Handle("GET /metrics", s.metrics.Handler())
	}
	proxies, err := s.settings.Proxies()
	if err != nil {
		return nil, err
	}
	keys, err := guard.OpenKeys(
		string(s.settings.StaticKey), s.settings.StaticKeysFile,
		s.settings.FilesRefresh.Duration(), s.log,
	)
	if err != nil {
		return nil, err
	}
	known, asked := concurrency.NewKnown(), s.settings.IdentityTarget != ""
	root.Handle("/", guard.Chain(services,
		sessions.Credential,
		guard.Credential(keys, asked),
		mayDrain,
		guard.Body(waiting.New(waiting.Limits{
			Bodies: s.settings.MaxBodies, Bytes: s.settings.MaxBodiesBytes,
			Within: s.settings.ReadTimeout.Duration(),
			Rate:   s.settings.MinBodyRate, Grace: bodyGrace,
		}), s.settings.MaxBodyBytes),
		// A request takes a place once key and body are complete, so slow senders hold none.
		guard.Concurrency(
			concurrency.New(s.settings.MaxRequests, known, guard.TooMany("TOO_MANY_REQUESTS",
				"Too many requests are handled at once; try again later.", time.Second)),
			concurrency.New(s.settings.MaxStreams, known, guard.TooMany("TOO_MANY_STREAMS",
				"Too many streams are open at once; try again later.", 5*time.Second)),
			keys.Given() || !asked,
		),
		s.protocols(),
		codec.Choose,
	))
	return guard.Chain(root,
		connection(s.settings.ReadTimeout.Duration(), s.settings.WriteTimeout.Duration(),
			drainLimits{bytes: drainBytes, within: drainWithin, atOnce: mostDrains}),
		guard.Match(document, pages.Route),
		guard.Client(proxies),
		s.traced,
		observed(s.log, s.metrics),
		guard.SafeHeaders,
		guard.Headers(s.settings.MaxHeaderBytes),
		guard.Hosts(s.settings.AllowedHosts, s.settings.Loopback()),
		guard.Origins(s.settings.AllowedOrigins),
		guard.Routes,
		withPages(pages),
	), nil
}

// withPages serves the console before the mux, which would redirect some of its paths.
func withPages(pages http.Handler) guard.Middleware {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if guard.IsPage(r) {
				pages.ServeHTTP(w, r)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// ownRoutes are the paths that are not in the contracts.
func (s *Server) ownRoutes() []openapi.OwnRoute {
	templates := append([]string{"/openapi.json"}, openapi.DocsPaths...)
	if s.metricsHere() {
		templates = append(templates, "/metrics")
	}
	var routes []openapi.OwnRoute
	for _, template := range templates {
		routes = append(routes, openapi.OwnRoute{
			Template: template, Operations: map[string]*openapi.Operation{http.MethodGet: {}},
		})
	}
	if s.settings.ProtocolsTarget != "" {
		routes = append(routes, protocols.Routes()...)
	}
	return routes
}

// protocols is the way to the service of other protocols, if there is one.
func (s *Server) protocols() guard.Middleware {
	if s.settings.ProtocolsTarget == "" {
		return func(next http.Handler) http.Handler { return next }
	}
	proxy := protocols.New(protocols.Settings{
		Target: s.settings.ProtocolsTarget, TLS: s.tls, Signer: s.signer,
		Write: s.settings.WriteTimeout.Duration(), Run: s.settings.RunTimeout.Duration(),
		Propagator: telemetry.Propagator,
	}, s.log)
	known := protocols.KnownCallers(
		gatewayv1.NewOrchestratorServiceClient(s.gateway), s.settings.CallTimeout.Duration())
	return func(next http.Handler) http.Handler { return known(proxy.Serve(next)) }
}

func (s *Server) metricsHere() bool {
	return s.settings.MetricsAddress == "" && s.settings.Loopback()
}

func (s *Server) offers(service string) bool {
	switch service {
	case gatewayService, approvalService, feedbackService, operatorService, verifiedService,
		webhookService, auditService:
		return true
	case identityService, adminService, accountService, keyService, connService,
		openIDService:
		return s.identity != nil
	case memoryService:
		return s.memory != nil
	case documentsService, ingestionService:
		return s.documents != nil
	case fileService:
		return s.files != nil
	default:
		return false
	}
}

// sessions signs browsers in.
func (s *Server) sessions() (*browser.Browser, error) {
	var identity identityv1.IdentityServiceClient
	var openID identityv1.OpenIdServiceClient
	if s.identity != nil {
		identity = identityv1.NewIdentityServiceClient(s.identity)
		openID = identityv1.NewOpenIdServiceClient(s.identity)
	}
	return browser.New(browser.Settings{
		KeysFile: s.settings.SessionKeysFile, Refresh: s.settings.FilesRefresh.Duration(),
		Loopback: s.settings.Loopback(), Context: s.settings.ConsoleContext,
		TraceURL: s.settings.TraceURL, Dashboards: s.settings.GrafanaURL,
		Within: s.settings.CallTimeout.Duration(),
	}, gatewayv1.NewOrchestratorServiceClient(s.gateway), identity, openID, s.log)
}

// services is the generated mux with the streams before it.
func (s *Server) services(sessions *browser.Browser) (http.Handler, error) {
	mux := runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, codec.New(codec.Plain)),
		// codec.Choose names one of these in each request.
		runtime.WithMarshalerOption(codec.Plain.Key(), codec.New(codec.Plain)),
		runtime.WithMarshalerOption(codec.PlainObjects.Key(), codec.New(codec.PlainObjects)),
		runtime.WithMarshalerOption(codec.Protobuf.Key(), codec.New(codec.Protobuf)),
		runtime.WithForwardResponseOption(submitted),
		// Authorization is passed on by default. No other header becomes metadata, and no metadata
		// of the services becomes a header.
		runtime.WithIncomingHeaderMatcher(noHeader),
		runtime.WithOutgoingHeaderMatcher(noHeader),
		runtime.WithOutgoingTrailerMatcher(noHeader),
		runtime.WithDisablePathLengthFallback(),
		runtime.WithDisableHTTPMethodOverride(),
		runtime.WithErrorHandler(func(
			_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter,
			_ *http.Request, err error,
		) {
			apierror.Write(w, err)
		}),
		runtime.WithRoutingErrorHandler(func(
			_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter,
			_ *http.Request, _ int,
		) {
			// The guard refuses unknown routes; a path that only the mux does not know is malformed.
			apierror.Write(w, apierror.New(http.StatusNotFound, codes.NotFound, "PATH_NOT_FOUND",
				"There is no such path; /docs shows those that exist."))
		}),
	)
	// Their context ends the use of a connection, not the connection, which the server closes.
	ctx := context.Background()
	if err := gatewayv1.RegisterOrchestratorServiceHandler(ctx, mux, s.gateway); err != nil {
		return nil, err
	}
	if err := gatewayv1.RegisterOperatorServiceHandler(ctx, mux, s.gateway); err != nil {
		return nil, err
	}
	if err := gatewayv1.RegisterApprovalServiceHandler(ctx, mux, s.gateway); err != nil {
		return nil, err
	}
	if err := gatewayv1.RegisterFeedbackServiceHandler(ctx, mux, s.gateway); err != nil {
		return nil, err
	}
	if err := gatewayv1.RegisterVerifiedQueryServiceHandler(ctx, mux, s.gateway); err != nil {
		return nil, err
	}
	if err := gatewayv1.RegisterWebhookServiceHandler(ctx, mux, s.gateway); err != nil {
		return nil, err
	}
	if err := auditv1.RegisterAuditServiceHandlerClient(ctx, mux, s.trails()); err != nil {
		return nil, err
	}
	if err := sessions.Register(mux); err != nil {
		return nil, err
	}
	if err := registerDecision(mux, gatewayv1.NewApprovalServiceClient(s.gateway)); err != nil {
		return nil, err
	}
	if err := registerRun(mux, gatewayv1.NewOrchestratorServiceClient(s.gateway)); err != nil {
		return nil, err
	}
	if err := registerFile(
		mux, gatewayv1.NewOrchestratorServiceClient(s.gateway), s.settings.CallTimeout.Duration(),
		s.settings.WriteTimeout.Duration(),
	); err != nil {
		return nil, err
	}
	if s.identity != nil {
		if err := errors.Join(
			identityv1.RegisterIdentityServiceHandler(ctx, mux, s.identity),
			identityv1.RegisterAdministrationServiceHandler(ctx, mux, s.identity),
			identityv1.RegisterAccountServiceHandler(ctx, mux, s.identity),
			identityv1.RegisterApiKeyServiceHandler(ctx, mux, s.identity),
			identityv1.RegisterConnectionServiceHandler(ctx, mux, s.identity),
			identityv1.RegisterOpenIdServiceHandler(ctx, mux, s.identity),
			registerExport(
				mux, identityv1.NewAccountServiceClient(s.identity),
				s.settings.CallTimeout.Duration(), s.settings.WriteTimeout.Duration(),
			),
		); err != nil {
			return nil, err
		}
	}
	if s.memory != nil {
		if err := memoryv1.RegisterMemoryServiceHandler(ctx, mux, s.memory); err != nil {
			return nil, err
		}
	}
	streams := sse.New(gatewayv1.NewOrchestratorServiceClient(s.gateway), sse.Settings{
		Heartbeat:  s.settings.Heartbeat.Duration(),
		OpenWithin: openWithin,
		Write:      s.settings.WriteTimeout.Duration(),
		Leg:        s.settings.RunTimeout.Duration(),
		Attempts:   s.settings.ReconnectAttempts,
		First:      firstWait,
		Cap:        longestWait,
	}, s.metrics, s.ending, s.log)
	if s.documents != nil {
		client := documentsv1.NewDocumentsServiceClient(s.documents)
		if err := errors.Join(
			documentsv1.RegisterDocumentsServiceHandler(ctx, mux, s.documents),
			documentsv1.RegisterIngestionServiceHandler(ctx, mux, s.documents),
			streams.RegisterDocument(mux, client),
			registerUpload(mux, client, uploadLimits{
				bytes: s.settings.MaxUploadBytes, within: s.settings.UploadTimeout.Duration(),
				rate: s.settings.MinBodyRate, grace: bodyGrace,
			}),
		); err != nil {
			return nil, err
		}
	}
	if s.files != nil {
		client := filesv1.NewFileServiceClient(s.files)
		if err := errors.Join(
			filesv1.RegisterFileServiceHandler(ctx, mux, s.files),
			registerWorkspaceFile(
				mux, client, s.settings.CallTimeout.Duration(), s.settings.WriteTimeout.Duration(),
			),
			registerWorkspaceUpload(mux, client, uploadLimits{
				bytes: s.settings.MaxUploadBytes, within: s.settings.UploadTimeout.Duration(),
				rate: s.settings.MinBodyRate, grace: bodyGrace,
			}),
		); err != nil {
			return nil, err
		}
	}
	return mux, streams.Register(mux)
}

func noHeader(string) (string, bool) { return "", false }

func (s *Server) traced(next http.Handler) http.Handler {
	named := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		trace.SpanFromContext(r.Context()).SetAttributes(
			attribute.String("http.route", guard.RouteOf(r)))
		next.ServeHTTP(w, r)
	})
	handler := otelhttp.NewHandler(named, "request",
		otelhttp.WithTracerProvider(s.tracing),
		otelhttp.WithPropagators(telemetry.Propagator),
		otelhttp.WithSpanNameFormatter(func(_ string, r *http.Request) string {
			return r.Method + " " + guard.RouteOf(r)
		}),
		otelhttp.WithFilter(func(r *http.Request) bool {
			route := guard.RouteOf(r)
			return route != "/healthz" && route != "/readyz" && route != "/metrics"
		}),
		// Callers choose neither the id of our traces nor whether these are recorded.
		otelhttp.WithPublicEndpointFn(func(*http.Request) bool { return !s.settings.TrustTraces }),
	)
	if s.settings.TrustTraces || s.settings.OTLPEndpoint != "" {
		return handler
	}
	// Without recording there is no span for a link, and the incoming context would be passed on.
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, field := range telemetry.Propagator.Fields() {
			r.Header.Del(field)
		}
		handler.ServeHTTP(w, r)
	})
}

// ready is the readiness check for load balancers.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	failure := apierror.New(http.StatusServiceUnavailable, codes.Unavailable,
		"STOPPING", "The service is stopping.")
	if !s.isStopping() {
		ctx, cancel := context.WithTimeout(r.Context(), healthTimeout)
		defer cancel()
		check, err := grpc_health_v1.NewHealthClient(s.gateway).Check(ctx,
			&grpc_health_v1.HealthCheckRequest{Service: gatewayService})
		if err == nil && check.GetStatus() == grpc_health_v1.HealthCheckResponse_SERVING {
			say(w, "ready")
			return
		}
		failure = apierror.New(http.StatusServiceUnavailable, codes.Unavailable,
			"GATEWAY_NOT_READY", "The gateway does not answer.")
	}
	apierror.Write(w, failure)
}

func say(w http.ResponseWriter, state string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(`{"status": "` + state + `"}` + "\n"))
}

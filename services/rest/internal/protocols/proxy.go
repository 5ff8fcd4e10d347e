package protocols

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"google.golang.org/grpc/codes"

	"bos/rest/internal/apierror"
	"bos/rest/internal/guard"
	"bos/rest/internal/proxytoken"
)

const (
	dialTimeout = 5 * time.Second
	idleTimeout = 20 * time.Second // shorter than the service keeps a connection
	mostIdle    = 64
	publicURL   = "Bos-Public-Url"
)

// Headers of a request that reach the service; all others stay here.
var passedOn = []string{
	"Accept", "Authorization", "Content-Type", "Last-Event-Id", "Idempotency-Key",
	"Mcp-Protocol-Version", "Mcp-Session-Id", "Mcp-Method", "Mcp-Name", "A2a-Version", "A2a-Extensions",
}

// Headers of an answer that the client gets, beside those that this gateway sets itself.
var passedBack = []string{
	"Content-Type", "Location", "Mcp-Session-Id", "A2a-Version", "A2a-Extensions",
	"Retry-After", "Www-Authenticate", "X-Request-Id",
}

// Settings of a proxy.
type Settings struct {
	// Target is host:port of the service.
	Target string
	// TLS of calls; nil for plain text.
	TLS *tls.Config
	// Signer signs the client's address; nil for none.
	Signer *proxytoken.Signer
	// Write is the time for a client to take a piece of an answer.
	Write time.Duration
	// Run is the time for a whole answer.
	Run time.Duration
	// Propagator writes the trace context of calls.
	Propagator propagation.TextMapPropagator
}

// Proxy passes requests on to the protocols service.
type Proxy struct {
	settings Settings
	reverse  *httputil.ReverseProxy
	log      *slog.Logger
}

// New returns a proxy; it connects with the first request.
func New(settings Settings, log *slog.Logger) *Proxy {
	scheme := "http"
	if settings.TLS != nil {
		scheme = "https"
	}
	p := &Proxy{settings: settings, log: log}
	target := &url.URL{Scheme: scheme, Host: settings.Target}
	p.reverse = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { p.rewrite(r, target) },
		Transport: &http.Transport{
			DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
			TLSClientConfig:     settings.TLS,
			TLSHandshakeTimeout: dialTimeout,
			IdleConnTimeout:     idleTimeout,
			MaxIdleConnsPerHost: mostIdle,
			DisableCompression:  true,
		},
		FlushInterval:  -1, // events go out as they come
		ModifyResponse: onlyKnownHeaders,
		ErrorHandler:   p.failed,
		ErrorLog:       slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	return p
}

// Serve hands requests to paths of protocols to the proxy, and all others to the next handler.
func (p *Proxy) Serve(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !guard.IsProtocol(r) {
			next.ServeHTTP(w, r)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), p.settings.Run)
		defer cancel()
		p.reverse.ServeHTTP(&timed{ResponseWriter: w, write: p.settings.Write}, r.WithContext(ctx))
	})
}

func (p *Proxy) rewrite(r *httputil.ProxyRequest, target *url.URL) {
	r.SetURL(target)
	given := r.In.Header
	r.Out.Header = http.Header{}
	for _, name := range passedOn {
		if values := given.Values(name); len(values) > 0 {
			r.Out.Header[http.CanonicalHeaderKey(name)] = values
		}
	}
	// An empty one keeps the library from naming itself.
	r.Out.Header.Set("User-Agent", "")
	r.Out.Header.Set(publicURL, origin(r.In))
	if p.settings.Signer != nil {
		if token, err := p.settings.Signer.Token(r.In.Context()); err == nil && token != "" {
			r.Out.Header.Set(proxytoken.Header, token)
		}
	}
	p.settings.Propagator.Inject(r.In.Context(), propagation.HeaderCarrier(r.Out.Header))
}

// onlyKnownHeaders keeps the service's headers from standing beside those set here.
func onlyKnownHeaders(answer *http.Response) error {
	kept := http.Header{}
	for _, name := range passedBack {
		if values := answer.Header.Values(name); len(values) > 0 {
			kept[http.CanonicalHeaderKey(name)] = values
		}
	}
	answer.Header = kept
	return nil
}

func (p *Proxy) failed(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil && context.Cause(r.Context()) == context.Canceled {
		return // the client has left
	}
	p.log.Warn("the protocols service does not answer", "problem", err.Error())
	apierror.Write(w, apierror.New(http.StatusServiceUnavailable, codes.Unavailable,
		"PROTOCOLS_NOT_READY", "The service for this protocol does not answer; try again later."))
}

// timed gives the client time for each piece of an answer.
type timed struct {
	http.ResponseWriter
	write time.Duration
}

func (t *timed) Write(data []byte) (int, error) {
	_ = http.NewResponseController(t.ResponseWriter).SetWriteDeadline(time.Now().Add(t.write))
	return t.ResponseWriter.Write(data)
}

// Unwrap lets http.ResponseController reach the original writer.
func (t *timed) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// Package guard checks requests before they are handled: host and origin, size, path, media type and
// key. Refusals have the JSON shape of all errors.
package guard

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"bos/rest/internal/apierror"
)

// Middleware wraps a handler.
type Middleware func(http.Handler) http.Handler

// Chain wraps a handler in middleware, the first outermost.
func Chain(handler http.Handler, concerns ...Middleware) http.Handler {
	for _, concern := range slices.Backward(concerns) {
		handler = concern(handler)
	}
	return handler
}

// Headers refuses requests whose line and headers together are larger than limit bytes.
func Headers(limit int) Middleware {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			size := len(r.Method) + len(r.RequestURI) + len(r.Host)
			for name, values := range r.Header {
				for _, value := range values {
					size += len(name) + len(value) + len(": \r\n")
				}
			}
			if size > limit {
				apierror.Write(w, apierror.New(http.StatusRequestHeaderFieldsTooLarge,
					codes.InvalidArgument, "HEADERS_TOO_LARGE",
					"The request line and headers are larger than "+strconv.Itoa(limit)+" bytes."))
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// Hosts refuses requests with other Host names, against DNS rebinding: a foreign page could otherwise
// reach a local service by a name that resolves to this machine. Without names, onlyLoopback accepts
// loopback names and addresses; otherwise any name is accepted.
func Hosts(names []string, onlyLoopback bool) Middleware {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			host := hostName(r.Host)
			accepted := !onlyLoopback || isLoopback(host)
			if len(names) > 0 {
				accepted = slices.ContainsFunc(names, func(name string) bool {
					return strings.EqualFold(name, host)
				})
			}
			if !accepted {
				apierror.Write(w, apierror.New(http.StatusForbidden, codes.PermissionDenied,
					"HOST_NOT_ALLOWED", "This service does not answer for that host name; "+
						"BOS_REST_ALLOWED_HOSTS lists the names it answers for."))
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

func hostName(hostPort string) string {
	if host, _, err := net.SplitHostPort(hostPort); err == nil {
		return strings.TrimSuffix(host, ".")
	}
	return strings.TrimSuffix(strings.Trim(hostPort, "[]"), ".")
}

func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.IsLoopback()
}

const (
	corsMethods = "GET, POST, PUT, PATCH, DELETE"
	corsHeaders = "Authorization, Content-Type, If-None-Match, Last-Event-ID, Traceparent, Tracestate"
	corsExposed = "ETag, Location, Retry-After, WWW-Authenticate"
)

// Origins refuses pages of origins other than this one and the allowed ones, and answers CORS
// preflights of the latter. A request without an Origin header is no cross-site call of a page.
func Origins(allowed []string) Middleware {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			origin := r.Header.Get("Origin")
			if len(allowed) > 0 {
				w.Header().Add("Vary", "Origin")
			}
			if origin == "" || sameOrigin(origin, r.Host) {
				next.ServeHTTP(w, r)
				return
			}
			if !slices.Contains(allowed, origin) {
				apierror.Write(w, apierror.New(http.StatusForbidden, codes.PermissionDenied,
					"ORIGIN_NOT_ALLOWED", "Pages of that origin may not call this service; "+
						"BOS_REST_ALLOWED_ORIGINS lists those that may."))
				return
			}
			w.Header().Set("Access-Control-Allow-Origin", origin)
			w.Header().Set("Access-Control-Expose-Headers", corsExposed)
			if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
				w.Header().Set("Access-Control-Allow-Methods", corsMethods)
				w.Header().Set("Access-Control-Allow-Headers", corsHeaders)
				w.Header().Set("Access-Control-Max-Age", "600")
				w.WriteHeader(http.StatusNoContent)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// sameOrigin compares by host and port: behind a proxy that ends TLS the scheme is not known.
func sameOrigin(origin, host string) bool {
	parsed, err := url.Parse(origin)
	return err == nil && parsed.Host != "" && strings.EqualFold(parsed.Host, host)
}

// TooMany is the error if all places are taken.
func TooMany(reason, text string, retry time.Duration) error {
	return apierror.New(http.StatusTooManyRequests, codes.ResourceExhausted, reason, text,
		&errdetails.RetryInfo{RetryDelay: durationpb.New(retry)})
}

// SafeHeaders sets security headers on every response.
func SafeHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Cache-Control", "no-store")
		header.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("Referrer-Policy", "no-referrer")
		next.ServeHTTP(w, r)
	})
}

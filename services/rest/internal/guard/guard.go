// Package guard refuses requests before anything is done for them: by host and origin, size, path,
// media type and key. Every refusal has the one JSON shape of errors.
package guard

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"mime"
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

// Middleware is one concern around a handler.
type Middleware func(http.Handler) http.Handler

// Chain puts concerns around a handler, the first outermost.
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

// Hosts refuses requests for other names, so that a foreign page cannot reach a local service by a
// name of its own that resolves to this machine (DNS rebinding). Without names, onlyLoopback
// accepts loopback names and addresses, and otherwise any name is accepted.
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
	corsHeaders = "Authorization, Content-Type, Last-Event-ID, Traceparent, Tracestate"
	corsExposed = "Retry-After, WWW-Authenticate"
)

// Origins refuses pages of other origins than this one and those allowed, and answers the
// preflights of those allowed. A request without an Origin header is no page's cross-site call.
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

// Key refuses callers without the key; an empty key leaves the question to the services.
func Key(key string) Middleware {
	want := sha256.Sum256([]byte(key))
	return func(next http.Handler) http.Handler {
		if key == "" {
			return next
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
			// Digests have one length, so the comparison reveals nothing of the key.
			digest := sha256.Sum256([]byte(strings.TrimSpace(given)))
			same := subtle.ConstantTimeCompare(digest[:], want[:]) == 1
			if !strings.EqualFold(scheme, "bearer") || !same {
				reason, text := "API_KEY_INVALID", "The API key is not valid."
				if scheme == "" {
					reason = "UNAUTHENTICATED"
					text = "An API key is needed: send `Authorization: Bearer <key>`."
				}
				apierror.Write(w,
					apierror.New(http.StatusUnauthorized, codes.Unauthenticated, reason, text))
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// Concurrency refuses requests above a number of them at once, with refusal. It counts those that it
// is for; the others have places of their own.
func Concurrency(limit int, isFor func(*http.Request) bool, refusal error) Middleware {
	places := make(chan struct{}, limit)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !isFor(r) {
				next.ServeHTTP(w, r)
				return
			}
			select {
			case places <- struct{}{}:
				defer func() { <-places }()
				next.ServeHTTP(w, r)
			default:
				apierror.Write(w, refusal)
			}
		})
	}
}

// TooMany says that there is no place for now.
func TooMany(reason, text string, retry time.Duration) error {
	return apierror.New(http.StatusTooManyRequests, codes.ResourceExhausted, reason, text,
		&errdetails.RetryInfo{RetryDelay: durationpb.New(retry)})
}

// Body reads the whole body, bounded in size and time, and refuses what is not one JSON value.
// What follows may take as long as it likes: the time limit ends with the body.
func Body(limit int64, within time.Duration) Middleware {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Body == nil || r.Body == http.NoBody {
				next.ServeHTTP(w, r)
				return
			}
			controller := http.NewResponseController(w)
			_ = controller.SetReadDeadline(time.Now().Add(within))
			body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
			if err != nil {
				refuseBody(w, err, limit)
				return
			}
			_ = controller.SetReadDeadline(time.Time{})
			if len(body) > 0 {
				if err := checkBody(r.Header.Get("Content-Type"), body); err != nil {
					apierror.Write(w, err)
					return
				}
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			next.ServeHTTP(w, r)
		})
	}
}

func refuseBody(w http.ResponseWriter, err error, limit int64) {
	var tooLarge *http.MaxBytesError
	var network net.Error
	switch {
	case errors.As(err, &tooLarge):
		apierror.Write(w, apierror.New(http.StatusRequestEntityTooLarge, codes.InvalidArgument,
			"BODY_TOO_LARGE",
			"The body is larger than "+strconv.FormatInt(limit, 10)+" bytes."))
	case errors.As(err, &network) && network.Timeout():
		w.Header().Set("Connection", "close")
		apierror.Write(w, apierror.New(http.StatusRequestTimeout, codes.DeadlineExceeded,
			"BODY_TOO_SLOW", "The body did not arrive in time."))
	default:
		apierror.Write(w, apierror.New(http.StatusBadRequest, codes.InvalidArgument,
			"INVALID_ARGUMENT", "The body could not be read."))
	}
}

func checkBody(contentType string, body []byte) error {
	mediaType, _, err := mime.ParseMediaType(contentType)
	if err != nil || mediaType != "application/json" {
		return apierror.New(http.StatusUnsupportedMediaType, codes.InvalidArgument,
			"BODY_NOT_JSON", "Send JSON, with the header `Content-Type: application/json`.")
	}
	if json.Valid(body) {
		return nil
	}
	message := "The body is not one JSON value."
	var any any
	var syntax *json.SyntaxError
	if errors.As(json.Unmarshal(body, &any), &syntax) {
		message = "The body is not one JSON value: " + syntax.Error() +
			" at byte " + strconv.FormatInt(syntax.Offset, 10) + "."
	}
	return apierror.New(http.StatusBadRequest, codes.InvalidArgument, "BODY_NOT_JSON", message)
}

// SafeHeaders are for every answer.
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

package server

import (
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"

	"google.golang.org/grpc/codes"

	"bos/rest/internal/apierror"
	"bos/rest/internal/guard"
	"bos/rest/internal/telemetry"
)

// answer records the status of a response.
type answer struct {
	http.ResponseWriter
	status int
}

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(data []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	return a.ResponseWriter.Write(data)
}

// Unwrap lets http.ResponseController flush and set deadlines.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

var knownMethods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"}

// observed counts requests, and turns a panic into an error response and a log line.
func observed(log *slog.Logger, metrics *telemetry.Metrics) guard.Middleware {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			method := r.Method
			if !slices.Contains(knownMethods, method) {
				method = "other" // labels are bounded, what clients send is not
			}
			seen := &answer{ResponseWriter: w}
			ended := metrics.Begun(r.Context(), guard.RouteOf(r), method, guard.IsStream(r))
			defer func() {
				if defect := recover(); defect != nil {
					if defect == http.ErrAbortHandler {
						ended(499)
						panic(defect)
					}
					log.Error("request failed", "route", guard.RouteOf(r), "defect", defect,
						"stack", string(debug.Stack()))
					if seen.status == 0 {
						apierror.Write(seen, apierror.New(http.StatusInternalServerError,
							codes.Internal, "INTERNAL", apierror.Neutral))
					}
				}
				if seen.status == 0 {
					seen.status = http.StatusOK
				}
				ended(seen.status)
				level := slog.LevelDebug
				if seen.status >= 500 {
					level = slog.LevelWarn
				}
				log.Log(r.Context(), level, "request", "method", method,
					"route", guard.RouteOf(r), "status", seen.status)
			}()
			next.ServeHTTP(seen, r)
		})
	}
}

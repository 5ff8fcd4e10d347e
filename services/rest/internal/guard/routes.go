package guard

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc/codes"

	"bos/rest/internal/apierror"
	"bos/rest/internal/openapi"
)

type routeKey struct{}

// RouteOf returns the template of the request's path, such as /v1/runs/{run_id}; "other" if there is
// none. Metrics and spans are named by it, which bounds their number.
func RouteOf(r *http.Request) string {
	if route, ok := r.Context().Value(routeKey{}).(*openapi.Route); ok && route != nil {
		return route.Template
	}
	return "other"
}

// IsStream reports whether the response is a stream.
func IsStream(r *http.Request) bool {
	operation := operationOf(r)
	return operation != nil && operation.Streams
}

// IsUpload says whether the request's body is a form with a file.
func IsUpload(r *http.Request) bool {
	operation := operationOf(r)
	return operation != nil && operation.Uploads
}

// IsProtocol says whether another service speaks the protocol of the request's path.
func IsProtocol(r *http.Request) bool {
	operation := operationOf(r)
	return operation != nil && operation.Protocol
}

// IsOpen says whether the request needs no credential.
func IsOpen(r *http.Request) bool {
	operation := operationOf(r)
	return operation != nil && operation.Open
}

// operationOf returns the operation of the request; nil if there is none.
func operationOf(r *http.Request) *openapi.Operation {
	route, _ := r.Context().Value(routeKey{}).(*openapi.Route)
	return route.Operation(r.Method)
}

// IsPage reports whether the request is for a page or file of the console.
func IsPage(r *http.Request) bool {
	operation := operationOf(r)
	return operation != nil && operation.Page
}

// Match finds the route of each request, for RouteOf and later middleware. Requests for no path of
// the document have the route that pages returns.
func Match(document *openapi.Document, pages func(*http.Request) *openapi.Route) Middleware {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			route := document.Match(r.URL.Path)
			if route == nil {
				route = pages(r)
			}
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), routeKey{}, route)))
		})
	}
}

// Routes refuses unknown paths, methods that a path does not have, and unknown query parameters.
func Routes(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isText(r.URL.Path) {
			apierror.Write(w, apierror.New(http.StatusBadRequest, codes.InvalidArgument,
				"INVALID_ARGUMENT", "The path is not UTF-8, or holds a zero character."))
			return
		}
		route, _ := r.Context().Value(routeKey{}).(*openapi.Route)
		if route == nil {
			apierror.Write(w, apierror.New(http.StatusNotFound, codes.NotFound, "PATH_NOT_FOUND",
				"There is no such path; /docs shows those that exist."))
			return
		}
		operation := route.Operation(r.Method)
		if get := route.Operation(http.MethodGet); r.Method == http.MethodHead && get != nil && !get.Streams {
			// The library sends no body, as it looks at the original request method.
			operation = get
			r = r.WithContext(r.Context())
			r.Method = http.MethodGet
		}
		if operation == nil {
			w.Header().Set("Allow", strings.Join(route.Methods(), ", "))
			apierror.Write(w, apierror.New(http.StatusMethodNotAllowed, codes.Unimplemented,
				"METHOD_NOT_ALLOWED", "This path has other methods: "+
					strings.Join(route.Methods(), ", ")+"."))
			return
		}
		if err := checkQuery(r.URL.RawQuery, operation); err != nil {
			apierror.Write(w, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func checkQuery(raw string, operation *openapi.Operation) error {
	if operation.Page {
		return nil
	}
	given, err := url.ParseQuery(raw)
	if err != nil {
		return apierror.New(http.StatusBadRequest, codes.InvalidArgument, "INVALID_ARGUMENT",
			"The query is not well formed.")
	}
	for name, values := range given {
		if !isText(name) {
			return apierror.New(http.StatusBadRequest, codes.InvalidArgument, "INVALID_ARGUMENT",
				"The name of a parameter is not UTF-8, or holds a zero character.")
		}
		parameter, known := operation.Query[name]
		switch {
		case !known && !operation.Protocol:
			return apierror.Field(name, "is not a parameter of this path")
		case len(values) > 1 && !operation.Protocol && !parameter.IsList():
			return apierror.Field(name, "must be given once")
		}
		for _, value := range values {
			if !isText(value) {
				return apierror.Field(name, "must be UTF-8, without a zero character")
			}
			if problem := parameter.Problem(value); problem != "" {
				return apierror.Field(name, problem)
			}
		}
	}
	return nil
}

// isText reports whether messages and stores can hold the text.
func isText(text string) bool { return utf8.ValidString(text) && !strings.ContainsRune(text, 0) }

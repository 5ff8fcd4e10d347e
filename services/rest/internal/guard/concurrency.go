package guard

import (
	"net/http"

	"bos/rest/internal/apierror"
	"bos/rest/internal/concurrency"
)

// Concurrency limits concurrent requests and streams. If sure is set, credentials were
// checked before or checks are off; otherwise services check them.
func Concurrency(requests, streams *concurrency.Limiter, sure bool) Middleware {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			visitor := concurrency.Visitor{
				Network: NetworkOf(r), Credential: credentialOf(r), Sure: sure,
			}
			if operation := operationOf(r); operation != nil && operation.Open {
				visitor.Open = r.Method + " " + RouteOf(r)
			}
			of := requests
			if IsStream(r) || IsUpload(r) { // both may take minutes
				of = streams
			}
			ctx, leave, err := of.Take(r.Context(), visitor)
			if err != nil {
				apierror.Write(w, err)
				return
			}
			defer leave()
			next.ServeHTTP(w, r.WithContext(ctx))
		})
	}
}

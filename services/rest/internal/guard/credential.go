package guard

import (
	"net/http"
	"strings"

	"google.golang.org/grpc/codes"

	"bos/rest/internal/apierror"
)

// Credential refuses requests by their Authorization header, before anything more of them is read.
//
// With static keys, requests without one of them are refused. Without, services check the credential;
// here exactly one well-formed credential is required, on all paths except the open ones of the
// contracts. If asked is not set, authentication is off in the services as well. Open paths of this
// gateway itself, by which browsers sign in, never need one.
func Credential(keys *Keys, asked bool) Middleware {
	check := func(r *http.Request, given string) error { return formOf(r, given, asked) }
	if keys.Given() {
		check = keyOf(keys)
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			given := r.Header.Values("Authorization")
			err := error(nil)
			if isOwnOpen(r) && len(given) == 0 {
				next.ServeHTTP(w, r)
				return
			}
			if len(given) > 1 {
				// Implementations differ in which of several headers counts.
				err = unauthenticated("CREDENTIAL_AMBIGUOUS", "Send one Authorization header.")
			} else {
				err = check(r, strings.Join(given, ""))
			}
			if err != nil {
				apierror.Write(w, err)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

func isOwnOpen(r *http.Request) bool {
	operation := operationOf(r)
	return operation != nil && operation.Open && operation.Service == "" && !operation.Protocol
}

func keyOf(keys *Keys) func(*http.Request, string) error {
	return func(_ *http.Request, header string) error {
		scheme, given, _ := strings.Cut(header, " ")
		same := keys.hold(strings.TrimSpace(given))
		switch {
		case strings.EqualFold(scheme, "bearer") && same:
			return nil
		case scheme == "":
			return unauthenticated("CREDENTIAL_MISSING",
				"An API key is needed: send `Authorization: Bearer <key>`.")
		default:
			return unauthenticated("API_KEY_INVALID", "The API key is not valid.")
		}
	}
}

func formOf(r *http.Request, header string, asked bool) error {
	operation := operationOf(r)
	if !asked || (operation != nil && operation.Open) {
		return nil
	}
	scheme, given, _ := strings.Cut(header, " ")
	switch {
	case header == "":
		return unauthenticated("CREDENTIAL_MISSING",
			"Not signed in: send `Authorization: Bearer <token>`.")
	case !strings.EqualFold(scheme, "bearer") || !isToken(strings.TrimSpace(given)):
		return unauthenticated("TOKEN_INVALID",
			"The token is not valid, or no longer. Sign in again.")
	default:
		return nil
	}
}

// credentialOf returns the credential of the request; empty if there is none.
func credentialOf(r *http.Request) string {
	_, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.TrimSpace(given)
}

// isToken reports whether text may be a key or an access token: visible characters, no space.
func isToken(text string) bool {
	for _, one := range []byte(text) {
		if one <= ' ' || one > '~' {
			return false
		}
	}
	return text != ""
}

func unauthenticated(reason, text string) error {
	return apierror.New(http.StatusUnauthorized, codes.Unauthenticated, reason, text)
}

package guard

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"

	"bos/rest/internal/apierror"
	"bos/rest/internal/proxytoken"
)

// Client finds the address that each request comes from, for ClientOf and for the services. What
// X-Forwarded-For says is believed as far as proxies of ours wrote it, those in trusted: it is read
// from its end.
func Client(trusted []netip.Prefix) Middleware {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !slices.ContainsFunc(r.Header.Values("X-Forwarded-For"), isOdd) {
				address := addressOf(r, trusted)
				next.ServeHTTP(w, r.WithContext(proxytoken.WithClient(r.Context(), address)))
				return
			}
			// On the way to the services the whole header would be dropped, and with it the word of a
			// proxy that the request comes from elsewhere.
			apierror.Write(w, apierror.New(http.StatusBadRequest, codes.InvalidArgument,
				"INVALID_ARGUMENT", "X-Forwarded-For must hold visible ASCII characters."))
		})
	}
}

// isOdd says whether a header's value holds anything but visible ASCII characters and spaces.
func isOdd(value string) bool {
	return strings.ContainsFunc(value, func(one rune) bool { return one < ' ' || one > '~' })
}

// ClientOf is the address of the request's client; empty if it is not known.
func ClientOf(r *http.Request) string { return proxytoken.ClientOf(r.Context()) }

func addressOf(r *http.Request, trusted []netip.Prefix) string {
	address := parsed(r.RemoteAddr)
	isTrusted := func() bool {
		return slices.ContainsFunc(trusted, func(one netip.Prefix) bool { return one.Contains(address) })
	}
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, hop := range slices.Backward(hops) {
		if !isTrusted() || strings.TrimSpace(hop) == "" {
			break
		}
		address = parsed(strings.TrimSpace(hop))
	}
	// A proxy of this machine that names nobody: the client may be anybody, and must not pass for
	// somebody of this machine, who may register.
	if !address.IsValid() || (address.IsLoopback() && isTrusted()) {
		return ""
	}
	return address.String()
}

// parsed reads an address with or without a port; what is none is not valid.
func parsed(text string) netip.Addr {
	address, err := netip.ParseAddr(strings.Trim(text, "[]"))
	if err != nil {
		withPort, _ := netip.ParseAddrPort(text)
		address = withPort.Addr()
	}
	return address.Unmap().WithZone("")
}

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
				if isPassedOn(r) {
					// In one line: of several the first alone would go on.
					hops := append(r.Header.Values("X-Forwarded-For"), "unknown")
					r.Header.Set("X-Forwarded-For", strings.Join(hops, ", "))
				}
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

// passedOn are headers by which proxies say that a request is somebody else's, beside all that begin
// with X-Forwarded-.
var passedOn = []string{"Forwarded", "Via", "X-Real-Ip", "X-Client-Ip", "X-Cluster-Client-Ip",
	"X-Original-Forwarded-For", "X-Original-Host", "Cf-Connecting-Ip", "True-Client-Ip",
	"Fastly-Client-Ip", "X-Envoy-External-Address"}

// isPassedOn says whether a proxy has passed the request on, trusted or not. Then nobody upstream is
// to take its client for somebody of this machine, whatever is claimed of it; a lie in these headers
// takes rights away and gives none. The address above, by which guesses are counted, stays as it is.
func isPassedOn(r *http.Request) bool {
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Forwarded-") || slices.Contains(passedOn, name) {
			return true
		}
	}
	return false
}

// ClientOf is the address of the request's client; empty if it is not known.
func ClientOf(r *http.Request) string { return proxytoken.ClientOf(r.Context()) }

// ipv6Site is the length of the network that one IPv6 subscriber has to itself.
const ipv6Site = 64

// NetworkOf is what is counted as one origin of requests: the address of the client, of an IPv6 one
// the network that its site has. Empty if it is not known.
func NetworkOf(r *http.Request) string { return network(ClientOf(r)) }

func network(address string) string {
	parsed, err := netip.ParseAddr(address)
	if err != nil || parsed.Is4() {
		return address
	}
	site, _ := parsed.Prefix(ipv6Site)
	return site.String()
}

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

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

// Client determines the client address of each request, for ClientOf and for the services.
// X-Forwarded-For is read from its end, as far as its entries were written by trusted proxies.
func Client(trusted []netip.Prefix) Middleware {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !slices.ContainsFunc(r.Header.Values("X-Forwarded-For"), isOdd) {
				address := addressOf(r, trusted)
				if isPassedOn(r) {
					// Joined, as only the first of several headers would be passed on.
					hops := append(r.Header.Values("X-Forwarded-For"), "unknown")
					r.Header.Set("X-Forwarded-For", strings.Join(hops, ", "))
				}
				next.ServeHTTP(w, r.WithContext(proxytoken.WithClient(r.Context(), address)))
				return
			}
			// gRPC would drop the whole header, and with it the sign that the request was proxied.
			apierror.Write(w, apierror.New(http.StatusBadRequest, codes.InvalidArgument,
				"INVALID_ARGUMENT", "X-Forwarded-For must hold visible ASCII characters."))
		})
	}
}

// isOdd reports whether a header's value has characters other than visible ASCII and spaces.
func isOdd(value string) bool {
	return strings.ContainsFunc(value, func(one rune) bool { return one < ' ' || one > '~' })
}

// passedOn lists headers that mark proxied requests, beside those that begin with X-Forwarded-.
var passedOn = []string{"Forwarded", "Via", "X-Real-Ip", "X-Client-Ip", "X-Cluster-Client-Ip",
	"X-Original-Forwarded-For", "X-Original-Host", "Cf-Connecting-Ip", "True-Client-Ip",
	"Fastly-Client-Ip", "X-Envoy-External-Address"}

// isPassedOn reports whether a proxy, trusted or not, forwarded the request. Services must then not
// treat the client as local; a forged header only removes rights. The client address, which limits
// guessing, is not affected.
func isPassedOn(r *http.Request) bool {
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Forwarded-") || slices.Contains(passedOn, name) {
			return true
		}
	}
	return false
}

// ClientOf returns the address of the request's client; empty if it is not known.
func ClientOf(r *http.Request) string { return proxytoken.ClientOf(r.Context()) }

// ipv6Site is the prefix length of the network of one IPv6 subscriber.
const ipv6Site = 64

// NetworkOf returns the origin that limits are counted by: the client's address, or for IPv6 the
// network of its site. Empty if it is not known.
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
	// A local proxy that names no client: the client must not count as local, since local clients may
	// register.
	if !address.IsValid() || (address.IsLoopback() && isTrusted()) {
		return ""
	}
	return address.String()
}

// parsed parses an address with or without a port; the result is invalid if it is none.
func parsed(text string) netip.Addr {
	address, err := netip.ParseAddr(strings.Trim(text, "[]"))
	if err != nil {
		withPort, _ := netip.ParseAddrPort(text)
		address = withPort.Addr()
	}
	return address.Unmap().WithZone("")
}

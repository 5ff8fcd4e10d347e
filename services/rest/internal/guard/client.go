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
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, hop := range slices.Backward(hops) {
		isProxy := slices.ContainsFunc(trusted, func(network netip.Prefix) bool {
			return network.Contains(address)
		})
		if !isProxy || strings.TrimSpace(hop) == "" {
			break
		}
		address = parsed(strings.TrimSpace(hop))
	}
	if !address.IsValid() {
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

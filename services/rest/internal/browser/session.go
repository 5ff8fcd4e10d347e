package browser

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	identityv1 "bos/rest/gen/bos/identity/v1"
	"bos/rest/internal/apierror"
)

const (
	// CSRFHeader must come with requests that change something, as no page of another origin can send it
	// without asking first.
	CSRFHeader = "Bos-Browser"

	sessionCookie = "bos_session"
	openIDCookie  = "bos_sign_in"
	// A browser keeps cookies of this prefix for one host and over TLS alone.
	hostPrefix = "__Host-"
	// Keys do not end by themselves, so sessions of theirs do.
	keySession = 12 * time.Hour
	// Access tokens are renewed this long before they end, or after three quarters of a short life, as
	// clocks differ and calls take time.
	renewAhead = 60 * time.Second
)

// session is the content of the cookie. The names are short because each request carries them.
type session struct {
	// Credential is sent to the services: an access token, or a key.
	Credential string `json:"c"`
	// Renewal is when it is to be renewed, in seconds of Unix time, and CredentialEnd when services
	// refuse it; 0: never.
	Renewal       int64 `json:"n,omitempty"`
	CredentialEnd int64 `json:"x,omitempty"`
	// Refresh is the refresh token; empty for keys.
	Refresh string `json:"r,omitempty"`
	// End is when the session is over.
	End int64 `json:"e"`
}

func sessionOf(tokens *identityv1.Tokens, now time.Time) session {
	life := tokens.GetAccessTokenLifetime().AsDuration()
	return session{
		Credential:    tokens.GetAccessToken(),
		Renewal:       now.Add(life - min(renewAhead, life/4)).Unix(),
		CredentialEnd: now.Add(life).Unix(),
		Refresh:       tokens.GetRefreshToken(),
		End:           tokens.GetRefreshTokenExpireTime().AsTime().Unix(),
	}
}

func keySessionOf(key string, now time.Time) session {
	return session{Credential: key, End: now.Add(keySession).Unix()}
}

func (s session) isOver(now time.Time) bool { return now.Unix() >= s.End }

// isDue reports whether the access token is to be renewed.
func (s session) isDue(now time.Time) bool { return s.Renewal > 0 && now.Unix() >= s.Renewal }

// hasEnded reports whether services refuse the access token by now.
func (s session) hasEnded(now time.Time) bool {
	return s.CredentialEnd > 0 && now.Unix() >= s.CredentialEnd
}

// cookieName returns the name of a cookie for the host that the browser asked. On this machine there
// is no TLS, and cookies do not tell ports apart: names do.
func cookieName(r *http.Request, name string) string {
	host, port, err := net.SplitHostPort(r.Host)
	if err != nil {
		host, port = strings.Trim(r.Host, "[]"), ""
	}
	if !isLoopback(host) {
		return hostPrefix + name
	}
	if port == "" {
		return name
	}
	return name + "_" + port
}

func isLoopback(host string) bool {
	if strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.IsLoopback()
}

// setCookie keeps text in the browser until end; a past end removes it.
func setCookie(w http.ResponseWriter, r *http.Request, name, text string, life time.Duration) {
	named := cookieName(r, name)
	seconds := int(life.Seconds())
	if seconds <= 0 {
		seconds = -1 // remove it now
	}
	http.SetCookie(w, &http.Cookie{
		Name: named, Value: text, Path: "/", MaxAge: seconds, HttpOnly: true,
		Secure: strings.HasPrefix(named, hostPrefix), SameSite: http.SameSiteStrictMode,
	})
}

// checkOrigin refuses requests that another page than one of this origin may have caused. Cookies are
// sent along by browsers, so what a cookie authorises is asked for by our own pages alone:
//
//   - Sec-Fetch-Site, which all current browsers send, must say same-origin, or none for what a person
//     opened themselves. Other ports of this machine are the same site, and not the same origin.
//   - Origin, if there is one, must be ours, although other origins may call with a key.
//   - What changes something carries a header that pages of other origins cannot send.
func checkOrigin(r *http.Request) error {
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	site := r.Header.Get("Sec-Fetch-Site")
	opened := site == "none" && reads
	origin := r.Header.Get("Origin")
	if (site != "" && site != "same-origin" && !opened) || (origin != "" && !isOurs(origin, r)) {
		return apierror.New(http.StatusForbidden, codes.PermissionDenied, "CROSS_SITE",
			"Pages of other origins may not use this session.")
	}
	if !reads && r.Header.Get(CSRFHeader) == "" {
		return apierror.New(http.StatusForbidden, codes.PermissionDenied, "CSRF_HEADER_MISSING",
			"With a session cookie, send the header `Bos-Browser: 1`.")
	}
	return nil
}

// isOurs compares hosts, and beyond this machine asks for TLS, without which there is no cookie.
func isOurs(origin string, r *http.Request) bool {
	parsed, err := url.Parse(origin)
	if err != nil || parsed.Host == "" || !strings.EqualFold(parsed.Host, r.Host) {
		return false
	}
	return parsed.Scheme == "https" || !strings.HasPrefix(cookieName(r, ""), hostPrefix)
}

func expired() error {
	return apierror.New(http.StatusUnauthorized, codes.Unauthenticated, "SESSION_EXPIRED",
		"The session is over. Sign in again.")
}

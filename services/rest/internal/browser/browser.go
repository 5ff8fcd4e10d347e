package browser

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	gatewayv1 "bos/rest/gen/bos/gateway/v1"
	identityv1 "bos/rest/gen/bos/identity/v1"
	"bos/rest/internal/apierror"
	"bos/rest/internal/guard"
)

// Settings of the sessions of browsers.
type Settings struct {
	// KeysFile holds the keys that seal cookies; empty: one of this process.
	KeysFile string
	// Refresh is the time between two looks at that file.
	Refresh time.Duration
	// Loopback is set if only this machine can reach the service, which then signs in by links.
	Loopback bool
	// Context is a JSON object that pages send with each question; empty: none.
	Context string
	// TraceURL is the address of a trace, with {trace_id} for its id; empty: not known.
	TraceURL string
	// Dashboards is the base address of Grafana that pages link to; empty: none.
	Dashboards string
	// Within is the time of a call of a service.
	Within time.Duration
}

// Browser signs people in by cookies.
type Browser struct {
	settings Settings
	gateway  gatewayv1.OrchestratorServiceClient
	identity identityv1.IdentityServiceClient // nil if there is none
	openID   identityv1.OpenIdServiceClient   // nil if there is none
	sealer   *sealer
	renewals *renewals
	links    *links
	now      func() time.Time
}

// New returns the sessions; identity and openID are nil where there is no identity.
func New(
	settings Settings, gateway gatewayv1.OrchestratorServiceClient,
	identity identityv1.IdentityServiceClient, openID identityv1.OpenIdServiceClient, log *slog.Logger,
) (*Browser, error) {
	made, err := newSealer(settings.KeysFile, settings.Refresh, log)
	if err != nil {
		return nil, err
	}
	return &Browser{
		settings: settings, gateway: gateway, identity: identity, openID: openID, sealer: made,
		renewals: newRenewals(identity, time.Now), links: newLinks(time.Now), now: time.Now,
	}, nil
}

// Credential gives requests with a session cookie the credential of the session, renewed if it is due.
// What has an Authorization header, or needs no credential, is left as it is.
func (b *Browser) Credential(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.Header.Values("Authorization")) > 0 || guard.IsOpen(r) {
			next.ServeHTTP(w, r)
			return
		}
		if _, err := r.Cookie(cookieName(r, sessionCookie)); err != nil {
			next.ServeHTTP(w, r)
			return
		}
		if err := checkOrigin(r); err != nil {
			apierror.Write(w, err)
			return
		}
		current, err := b.current(w, r)
		if err != nil {
			apierror.Write(w, err)
			return
		}
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+current.Credential)
		next.ServeHTTP(w, r)
	})
}

// current returns the session of the request's cookie, whose access token it renews when that is due.
func (b *Browser) current(w http.ResponseWriter, r *http.Request) (session, error) {
	var found session
	cookie, err := r.Cookie(cookieName(r, sessionCookie))
	if err != nil || !b.sealer.open(sessionCookie, cookie.Value, &found) || found.isOver(b.now()) {
		return session{}, expired()
	}
	if !found.isDue(b.now()) {
		return found, nil
	}
	if b.identity == nil {
		return session{}, expired()
	}
	renewed, err := b.renewals.of(r.Context(), found)
	switch {
	case err == nil:
		return renewed, b.keep(w, r, renewed)
	case status.Code(err) == codes.Unauthenticated:
		setCookie(w, r, sessionCookie, "", 0)
		return session{}, expired()
	case found.hasEnded(b.now()):
		return session{}, err
	default:
		return found, nil // identity is away; the token is still good
	}
}

// keep stores the session in the browser.
func (b *Browser) keep(w http.ResponseWriter, r *http.Request, one session) error {
	sealed, err := b.sealer.seal(sessionCookie, one)
	if err != nil {
		return err
	}
	setCookie(w, r, sessionCookie, sealed, time.Unix(one.End, 0).Sub(b.now()))
	return nil
}

// accepts reports whether the gateway takes a key; one that is not for this call is a key all the same.
func (b *Browser) accepts(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(ctx, b.settings.Within)
	defer cancel()
	if key != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+key)
	}
	_, err := b.gateway.ListAgents(ctx, &gatewayv1.ListAgentsRequest{})
	if status.Code(err) == codes.PermissionDenied {
		return nil
	}
	return err
}

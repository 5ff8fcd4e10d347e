package browser

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	identityv1 "bos/rest/gen/bos/identity/v1"
	"bos/rest/internal/apierror"
)

const (
	// Path is where a page reads whether a user is signed in.
	Path = "/v1/browserSession"
	// ReturnPath is the page that an OpenID provider sends the browser back to.
	ReturnPath = "/sign-in/openid"

	openIDLife    = 10 * time.Minute
	clientName    = "Web console"
	mostClient    = 128
	stateSignedIn = "SIGNED_IN"
	stateOut      = "SIGNED_OUT"
	stateOpen     = "NOT_NEEDED"
)

// Register serves the paths of sessions.
func (b *Browser) Register(mux *runtime.ServeMux) error {
	own := func(work func(http.ResponseWriter, *http.Request) error) runtime.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request, _ map[string]string) {
			// A page of another origin must not sign users in or out, either.
			err := checkOrigin(r)
			if err == nil {
				err = work(w, r)
			}
			if err != nil {
				apierror.Write(w, err)
			}
		}
	}
	return errors.Join(
		mux.HandlePath(http.MethodGet, Path, own(b.get)),
		mux.HandlePath(http.MethodPost, Path+":logIn", own(b.logIn)),
		mux.HandlePath(http.MethodPost, Path+":redeem", own(b.redeem)),
		mux.HandlePath(http.MethodPost, Path+":beginOpenId", own(b.beginOpenID)),
		mux.HandlePath(http.MethodPost, Path+":finishOpenId", own(b.finishOpenID)),
		mux.HandlePath(http.MethodPost, Path+":logOut", own(b.logOut)),
		mux.HandlePath(http.MethodPost, Path+":createLink",
			func(w http.ResponseWriter, r *http.Request, _ map[string]string) {
				if err := b.createLink(w, r); err != nil {
					apierror.Write(w, err)
				}
			}),
	)
}

// state is the answer of all paths but two.
type state struct {
	State string `json:"state"`
	// ExpireTime is when the session is over unless it is used before.
	ExpireTime *time.Time `json:"expire_time,omitempty"`
	SignIn     ways       `json:"sign_in"`
	// Context is what pages send with each question.
	Context json.RawMessage `json:"context,omitempty"`
	// TraceURL is the address of a trace, with {trace_id} for its id.
	TraceURL string `json:"trace_url,omitempty"`
	// DashboardsURL is where Grafana is, for pages of operators.
	DashboardsURL string `json:"dashboards_url,omitempty"`
}

// ways are the sign-in methods offered here.
type ways struct {
	Password bool       `json:"password"`
	APIKey   bool       `json:"api_key"`
	Link     bool       `json:"link"`
	OpenID   *openIDWay `json:"open_id,omitempty"`
}

type openIDWay struct {
	Name string `json:"name"`
}

func (b *Browser) get(w http.ResponseWriter, r *http.Request) error {
	answer := b.signedOut(r.Context())
	if _, err := r.Cookie(cookieName(r, sessionCookie)); err == nil {
		current, err := b.current(w, r)
		if err != nil && status.Code(err) != codes.Unauthenticated {
			return err
		}
		if err == nil {
			return b.signedIn(w, answer.SignIn, current)
		}
	}
	if b.identity != nil {
		return write(w, answer) // authentication is on
	}
	err := b.accepts(r.Context(), "")
	if err == nil {
		answer.State, answer.Context = stateOpen, json.RawMessage(b.settings.Context)
		answer.TraceURL = b.settings.TraceURL
		answer.DashboardsURL = b.settings.Dashboards
	} else if status.Code(err) != codes.Unauthenticated {
		return err
	}
	return write(w, answer)
}

func (b *Browser) ways(ctx context.Context) ways {
	found := ways{Password: b.identity != nil, APIKey: true, Link: b.settings.Loopback}
	if b.openID == nil {
		return found
	}
	provider, err := b.openID.GetOpenIdProvider(ctx, &identityv1.GetOpenIdProviderRequest{})
	if err == nil && provider.GetAvailable() {
		found.OpenID = &openIDWay{provider.GetName()}
	}
	return found
}

func (b *Browser) logIn(w http.ResponseWriter, r *http.Request) error {
	var given struct {
		Username string `json:"username"`
		Password string `json:"password"`
		APIKey   string `json:"api_key"`
	}
	if err := decode(r, &given); err != nil {
		return err
	}
	if given.APIKey != "" {
		if given.Username != "" || given.Password != "" {
			return apierror.Field("api_key", "must not come with username or password")
		}
		return b.logInByKey(w, r, given.APIKey)
	}
	if b.identity == nil {
		return apierror.Field("api_key", "is needed: there are no accounts here")
	}
	answer, err := b.identity.LogIn(r.Context(), &identityv1.LogInRequest{
		Username: given.Username, Password: given.Password, ClientName: clientOf(r),
	})
	if err != nil {
		return err
	}
	return b.begin(w, r, sessionOf(answer.GetTokens(), b.now()))
}

func (b *Browser) logInByKey(w http.ResponseWriter, r *http.Request, key string) error {
	if strings.ContainsFunc(key, func(one rune) bool { return one <= ' ' || one > '~' }) {
		return apierror.Field("api_key", "must be visible ASCII characters without spaces")
	}
	if err := b.accepts(r.Context(), key); err != nil {
		return err
	}
	return b.begin(w, r, keySessionOf(key, b.now()))
}

// begin answers with a new session.
func (b *Browser) begin(w http.ResponseWriter, r *http.Request, one session) error {
	if err := b.keep(w, r, one); err != nil {
		return err
	}
	return b.signedIn(w, b.ways(r.Context()), one)
}

func (b *Browser) logOut(w http.ResponseWriter, r *http.Request) error {
	var given struct{}
	if err := decode(r, &given); err != nil {
		return err
	}
	var found session
	cookie, err := r.Cookie(cookieName(r, sessionCookie))
	if err == nil && b.identity != nil && b.sealer.open(sessionCookie, cookie.Value, &found) && found.Refresh != "" {
		if _, err := b.identity.LogOut(r.Context(),
			&identityv1.LogOutRequest{RefreshToken: found.Refresh}); err != nil {
			return err // the cookie stays, so that it can be tried again
		}
	}
	setCookie(w, r, sessionCookie, "", 0)
	return write(w, b.signedOut(r.Context()))
}

// createLink makes a code for who calls with a key in the Authorization header; on this machine alone,
// as a link that came by mail would sign its reader in as another user.
func (b *Browser) createLink(w http.ResponseWriter, r *http.Request) error {
	var given struct{}
	if err := decode(r, &given); err != nil {
		return err
	}
	_, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	key = strings.TrimSpace(key)
	if !b.settings.Loopback || key == "" {
		return apierror.New(http.StatusBadRequest, codes.FailedPrecondition, "LINKS_NOT_OFFERED",
			"Links that sign in are made on the machine itself, by who holds a key of it.")
	}
	if err := b.accepts(r.Context(), key); err != nil {
		return err
	}
	code, end := b.links.make(key)
	return write(w, struct {
		Code       string    `json:"code"`
		ExpireTime time.Time `json:"expire_time"`
	}{code, end.UTC().Truncate(time.Second)})
}

func (b *Browser) redeem(w http.ResponseWriter, r *http.Request) error {
	var given struct {
		Code string `json:"code"`
	}
	if err := decode(r, &given); err != nil {
		return err
	}
	key, valid := b.links.redeem(given.Code)
	if !valid {
		return apierror.New(http.StatusUnauthorized, codes.Unauthenticated, "LINK_INVALID",
			"The link was used, or is too old; `bos console` makes another one.")
	}
	return b.logInByKey(w, r, key)
}

// openIDSignIn is what a browser keeps while it is at the provider's pages.
type openIDSignIn struct {
	Handle string `json:"h"`
	State  string `json:"s"`
}

func (b *Browser) beginOpenID(w http.ResponseWriter, r *http.Request) error {
	var given struct{}
	if err := decode(r, &given); err != nil {
		return err
	}
	if b.openID == nil {
		return noOpenID()
	}
	answer, err := b.openID.BeginOpenIdLogIn(r.Context(),
		&identityv1.BeginOpenIdLogInRequest{RedirectUri: originOf(r) + ReturnPath})
	if err != nil {
		return err
	}
	there, err := url.Parse(answer.GetAuthorizationUrl())
	if err != nil {
		return err
	}
	sealed, err := b.sealer.seal(openIDCookie, openIDSignIn{answer.GetHandle(), there.Query().Get("state")})
	if err != nil {
		return err
	}
	setCookie(w, r, openIDCookie, sealed, openIDLife)
	return write(w, struct {
		AuthorizationURL string `json:"authorization_url"`
	}{answer.GetAuthorizationUrl()})
}

func (b *Browser) finishOpenID(w http.ResponseWriter, r *http.Request) error {
	var given struct {
		Code   string `json:"code"`
		State  string `json:"state"`
		Issuer string `json:"issuer"`
	}
	if err := decode(r, &given); err != nil {
		return err
	}
	if b.openID == nil {
		return noOpenID()
	}
	var begun openIDSignIn
	cookie, err := r.Cookie(cookieName(r, openIDCookie))
	if err != nil || !b.sealer.open(openIDCookie, cookie.Value, &begun) ||
		begun.State == "" || begun.State != given.State {
		return apierror.New(http.StatusUnauthorized, codes.Unauthenticated, "SIGN_IN_NOT_BEGUN",
			"Signing in was not begun in this browser, or too long ago; begin again.")
	}
	if given.Code == "" {
		return apierror.Field("code", "is missing")
	}
	setCookie(w, r, openIDCookie, "", 0)
	answer, err := b.openID.FinishOpenIdLogIn(r.Context(), &identityv1.FinishOpenIdLogInRequest{
		Handle: begun.Handle, Code: given.Code, State: given.State, Issuer: given.Issuer,
		ClientName: clientOf(r),
	})
	if err != nil {
		return err
	}
	return b.begin(w, r, sessionOf(answer.GetLogIn().GetTokens(), b.now()))
}

func noOpenID() error {
	return apierror.New(http.StatusBadRequest, codes.FailedPrecondition, "OPENID_NOT_OFFERED",
		"No OpenID provider is configured here.")
}

// originOf returns the origin of the page; beyond this machine browsers keep our cookies over TLS alone.
func originOf(r *http.Request) string {
	if strings.HasPrefix(cookieName(r, ""), hostPrefix) {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// clientOf names the browser in the list of a user's sessions.
func clientOf(r *http.Request) string {
	shown := strings.Map(func(one rune) rune {
		if one > unicode.MaxASCII || !unicode.IsPrint(one) {
			return -1
		}
		return one
	}, r.UserAgent())
	if shown == "" {
		return clientName
	}
	return (clientName + ": " + shown)[:min(mostClient, len(clientName)+2+len(shown))]
}

func (b *Browser) signedOut(ctx context.Context) state {
	return state{State: stateOut, SignIn: b.ways(ctx)}
}

func (b *Browser) signedIn(w http.ResponseWriter, in ways, one session) error {
	end := time.Unix(one.End, 0).UTC()
	return write(w, state{
		stateSignedIn, &end, in, json.RawMessage(b.settings.Context), b.settings.TraceURL, b.settings.Dashboards,
	})
}

func write(w http.ResponseWriter, answer any) error {
	text, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(text, '\n'))
	return nil
}

// decode reads a JSON object without unknown fields.
func decode(r *http.Request, into any) error {
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	err := decoder.Decode(into)
	var tooLarge *http.MaxBytesError
	switch {
	case err == nil && !decoder.More():
		return nil
	case errors.As(err, &tooLarge):
		return err
	default:
		return status.Error(codes.InvalidArgument, "The body must be a JSON object of the documented fields.")
	}
}

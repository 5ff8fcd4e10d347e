package server

import (
	"encoding/base64"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"bos/rest/internal/settings"
)

// withAccounts is REST before a gateway and identity; keys are checked by these.
func withAccounts(t *testing.T, set func(*settings.Settings)) (*Server, *gateway, *accounts) {
	t.Helper()
	g := startGateway(t, "")
	a, identity := startAccounts(t)
	s := start(t, g.target, func(read *settings.Settings) {
		read.StaticKey, read.IdentityTarget = "", identity
		if set != nil {
			set(read)
		}
	})
	return s, g, a
}

// page sends what a page of the console sends, with the cookies of a browser.
func page(t *testing.T, s *Server, method, path, body string, jar map[string]*http.Cookie, options ...option) *http.Response {
	t.Helper()
	own := []option{
		func(r *http.Request) { r.Header.Del("Authorization") },
		header("Sec-Fetch-Site", "same-origin"), header("User-Agent", "Mozilla/5.0 \xff(X11)"),
		func(r *http.Request) {
			for _, each := range jar {
				r.AddCookie(&http.Cookie{Name: each.Name, Value: each.Value})
			}
		},
	}
	if method != http.MethodGet {
		own = append(own, header("Bos-Browser", "1"), header("Origin", "http://"+s.Address()))
	}
	got := send(t, s, method, path, body, append(own, options...)...)
	for _, each := range got.Cookies() {
		if each.MaxAge < 0 {
			delete(jar, each.Name)
		} else {
			jar[each.Name] = each
		}
	}
	return got
}

const (
	sessionAt = "/v1/browserSession"
	adaLogsIn = `{"username": "ada", "password": "secret"}`
)

func logIn(t *testing.T, s *Server) map[string]*http.Cookie {
	t.Helper()
	jar := map[string]*http.Cookie{}
	if got := page(t, s, "POST", sessionAt+":logIn", adaLogsIn, jar); got.StatusCode != http.StatusOK {
		t.Fatal(got.Status, read(t, got))
	}
	if len(jar) != 1 {
		t.Fatalf("%d cookies", len(jar))
	}
	return jar
}

func reasonOf(t *testing.T, response *http.Response) string {
	t.Helper()
	var found struct {
		Error struct{ Details []struct{ Reason string } }
	}
	if err := json.Unmarshal([]byte(read(t, response)), &found); err != nil || len(found.Error.Details) == 0 {
		return response.Status
	}
	return found.Error.Details[0].Reason
}

func authorizationOf(g *gateway) string {
	return strings.Join(g.seenMetadata().Get("authorization"), "; ")
}

func stateOf(t *testing.T, response *http.Response) string {
	t.Helper()
	var found struct{ State string }
	_ = json.Unmarshal([]byte(read(t, response)), &found)
	return found.State
}

func TestCookieOfALogInStandsForTheAccessTokenThatItHides(t *testing.T) {
	s, g, a := withAccounts(t, nil)
	jar := logIn(t, s)
	_, port, _ := net.SplitHostPort(s.Address())
	cookie := jar["bos_session_"+port]
	if cookie == nil || !cookie.HttpOnly || cookie.Secure || cookie.SameSite != http.SameSiteStrictMode ||
		cookie.Path != "/" || cookie.Domain != "" || cookie.MaxAge < 3500 || cookie.MaxAge > 3600 {
		t.Fatalf("%+v", jar)
	}
	for _, secret := range []string{"access-1", "refresh-1"} {
		decoded, _ := base64.RawURLEncoding.DecodeString(cookie.Value)
		if strings.Contains(cookie.Value, secret) || strings.Contains(string(decoded), secret) {
			t.Error("the cookie shows a token")
		}
	}
	if got := page(t, s, "GET", "/v1/runs", "", jar); got.StatusCode != 200 || authorizationOf(g) != "Bearer access-1" {
		t.Error(got.Status, authorizationOf(g))
	}
	if got := page(t, s, "POST", "/v1/runs:ask", `{"question": "?"}`, jar); got.StatusCode != 200 {
		t.Error(got.Status, read(t, got))
	}
	if got := page(t, s, "GET", sessionAt, "", jar); stateOf(t, got) != "SIGNED_IN" {
		t.Error("not signed in")
	}
	if a.names[0] != "Web console: Mozilla/5.0 (X11)" {
		t.Errorf("the session is named %q", a.names[0])
	}
	// A key in the header counts, and the cookie not at all.
	if got := page(t, s, "GET", "/v1/runs", "", jar, header("Authorization", "Bearer other-key")); got.StatusCode != 200 ||
		authorizationOf(g) != "Bearer other-key" {
		t.Error(got.Status, authorizationOf(g))
	}
}

func TestCookieBeyondThisMachineIsForOneHostOverTLS(t *testing.T) {
	s, _, _ := withAccounts(t, func(set *settings.Settings) { set.AllowedHosts = []string{"bos.example.org"} })
	jar := map[string]*http.Cookie{}
	got := page(t, s, "POST", sessionAt+":logIn", adaLogsIn, jar,
		header("Host", "bos.example.org"), header("Origin", "https://bos.example.org"))
	cookie := jar["__Host-bos_session"]
	if got.StatusCode != 200 || cookie == nil || !cookie.Secure || !cookie.HttpOnly || cookie.Path != "/" || cookie.Domain != "" {
		t.Errorf("%s %+v", got.Status, jar)
	}
	plain := page(t, s, "POST", sessionAt+":logIn", adaLogsIn, jar,
		header("Host", "bos.example.org"), header("Origin", "http://bos.example.org"))
	if plain.StatusCode != 403 || reasonOf(t, plain) != "CROSS_SITE" {
		t.Error("a page without TLS:", plain.Status)
	}
}

func TestRefusedLogInSetsNoCookie(t *testing.T) {
	s, _, _ := withAccounts(t, nil)
	for body, want := range map[string]string{
		`{"username": "ada", "password": "wrong"}`: "LOGIN_FAILED",
		`{"username": "ada", "secret": "secret"}`:  "INVALID_ARGUMENT",
		`{"api_key": "a key"}`:                     "INVALID_ARGUMENT",
		`{"api_key": "expired"}`:                   "CREDENTIAL_INVALID",
		`{"api_key": "a-key", "username": "ada"}`:  "INVALID_ARGUMENT",
		`[]`: "INVALID_ARGUMENT",
	} {
		jar := map[string]*http.Cookie{}
		if got := page(t, s, "POST", sessionAt+":logIn", body, jar); reasonOf(t, got) != want || len(jar) > 0 {
			t.Errorf("%s: %s %v", body, got.Status, jar)
		}
	}
}

func TestRequestsThatAnotherPageMayHaveCausedAreRefused(t *testing.T) {
	s, g, _ := withAccounts(t, func(set *settings.Settings) { set.AllowedOrigins = []string{"https://friend.example"} })
	jar := logIn(t, s)
	ask := `{"question": "?"}`
	without := func(name string) option { return func(r *http.Request) { r.Header.Del(name) } }
	for name, each := range map[string]struct {
		method, path, body, want string
		option                   option
	}{
		"no header":             {"POST", "/v1/runs:ask", ask, "CSRF_HEADER_MISSING", without("Bos-Browser")},
		"log out, no header":    {"POST", sessionAt + ":logOut", "{}", "CSRF_HEADER_MISSING", without("Bos-Browser")},
		"log in, no header":     {"POST", sessionAt + ":logIn", adaLogsIn, "CSRF_HEADER_MISSING", without("Bos-Browser")},
		"another site":          {"POST", "/v1/runs:ask", ask, "CROSS_SITE", header("Sec-Fetch-Site", "cross-site")},
		"log in, another site":  {"POST", sessionAt + ":logIn", adaLogsIn, "CROSS_SITE", header("Sec-Fetch-Site", "cross-site")},
		"another port":          {"GET", "/v1/runs", "", "CROSS_SITE", header("Sec-Fetch-Site", "same-site")},
		"read by another site":  {"GET", "/v1/runs", "", "CROSS_SITE", header("Sec-Fetch-Site", "cross-site")},
		"typed change":          {"POST", "/v1/runs:ask", ask, "CROSS_SITE", header("Sec-Fetch-Site", "none")},
		"origin with a key":     {"POST", "/v1/runs:ask", ask, "CROSS_SITE", header("Origin", "https://friend.example")},
		"unknown origin":        {"POST", "/v1/runs:ask", ask, "ORIGIN_NOT_ALLOWED", header("Origin", "https://attacker.example")},
		"opaque origin":         {"POST", "/v1/runs:ask", ask, "ORIGIN_NOT_ALLOWED", header("Origin", "null")},
		"session by other site": {"GET", sessionAt, "", "CROSS_SITE", header("Sec-Fetch-Site", "cross-site")},
	} {
		before := authorizationOf(g)
		if got := page(t, s, each.method, each.path, each.body, jar, each.option); got.StatusCode != 403 ||
			reasonOf(t, got) != each.want || authorizationOf(g) != before {
			t.Errorf("%s: %s, not %s", name, got.Status, each.want)
		}
	}
	// What a user opens by hand is read, and old browsers say nothing of the site.
	for _, option := range []option{header("Sec-Fetch-Site", "none"), without("Sec-Fetch-Site")} {
		if got := page(t, s, "GET", "/v1/runs", "", jar, option); got.StatusCode != 200 {
			t.Error(got.Status)
		}
	}
	preflight := page(t, s, "OPTIONS", "/v1/runs:ask", "", jar, header("Origin", "https://friend.example"),
		header("Access-Control-Request-Method", "POST"))
	if allowed := preflight.Header.Get("Access-Control-Allow-Headers"); strings.Contains(allowed, "Bos-Browser") ||
		preflight.Header.Get("Access-Control-Allow-Credentials") != "" {
		t.Errorf("pages of other origins may use the session: %v", preflight.Header)
	}
}

func TestTokensAreRenewedOnceForAllRequestsOfABrowser(t *testing.T) {
	s, g, a := withAccounts(t, nil)
	a.life = 0
	jar := logIn(t, s)
	a.mu.Lock()
	a.life = 10 * time.Minute
	a.mu.Unlock()
	sent := map[string]*http.Cookie{}
	for name, each := range jar {
		sent[name] = each
	}
	var group sync.WaitGroup
	answers := make([]*http.Response, 12)
	for i := range answers {
		group.Go(func() {
			own := map[string]*http.Cookie{}
			for name, each := range sent {
				own[name] = each
			}
			answers[i] = page(t, s, "GET", "/v1/runs", "", own)
		})
	}
	group.Wait()
	for _, each := range answers {
		if each.StatusCode != 200 || len(each.Cookies()) != 1 {
			t.Fatal(each.Status, each.Cookies())
		}
		jar[each.Cookies()[0].Name] = each.Cookies()[0]
	}
	if a.issued != 2 {
		t.Errorf("tokens were issued %d times", a.issued)
	}
	if got := page(t, s, "GET", "/v1/runs", "", jar); got.StatusCode != 200 || authorizationOf(g) != "Bearer access-2" ||
		len(got.Cookies()) != 0 {
		t.Error(got.Status, authorizationOf(g), got.Cookies())
	}
}

func TestEndedSessionSaysSoAndIsTakenFromTheBrowser(t *testing.T) {
	s, g, a := withAccounts(t, nil)
	a.life = 0
	jar := logIn(t, s)
	a.mu.Lock()
	a.valid = map[string]bool{}
	a.mu.Unlock()
	before := authorizationOf(g)
	if got := page(t, s, "GET", "/v1/runs", "", jar); got.StatusCode != 401 || reasonOf(t, got) != "SESSION_EXPIRED" ||
		len(jar) != 0 || authorizationOf(g) != before {
		t.Error(got.Status, jar)
	}
	if got := page(t, s, "GET", "/v1/runs", "", jar); got.StatusCode != 401 || reasonOf(t, got) != "CREDENTIAL_MISSING" {
		t.Error(got.Status)
	}
	if got := page(t, s, "GET", sessionAt, "", jar); stateOf(t, got) != "SIGNED_OUT" {
		t.Error("signed in")
	}
}

func TestForgedCookiesAreRefused(t *testing.T) {
	s, g, _ := withAccounts(t, nil)
	jar := logIn(t, s)
	other, _, _ := withAccounts(t, nil)
	foreign := logIn(t, other)
	var name, value string
	for _, each := range jar {
		name, value = each.Name, each.Value
	}
	changed := []byte(value)
	changed[len(changed)/2] ^= 1
	plain := base64.RawURLEncoding.EncodeToString([]byte(`{"c":"a-key","e":99999999999}`))
	forged := []string{"", "x", string(changed), plain, value[:len(value)-2]}
	for _, each := range foreign {
		forged = append(forged, each.Value)
	}
	before := authorizationOf(g)
	for _, each := range forged {
		own := map[string]*http.Cookie{name: {Name: name, Value: each}}
		if got := page(t, s, "GET", "/v1/runs", "", own); got.StatusCode != 401 || reasonOf(t, got) != "SESSION_EXPIRED" {
			t.Errorf("%q: %s", each, got.Status)
		}
	}
	if authorizationOf(g) != before {
		t.Error("a forged cookie reached the gateway")
	}
}

func TestIdentityAwayEndsNoSession(t *testing.T) {
	s, _, a := withAccounts(t, nil)
	a.life = 0
	jar := logIn(t, s)
	a.mu.Lock()
	a.away = true
	a.mu.Unlock()
	if got := page(t, s, "GET", "/v1/runs", "", jar); got.StatusCode != 503 || len(jar) != 1 {
		t.Error(got.Status, jar)
	}
	a.mu.Lock()
	a.away = false
	a.mu.Unlock()
	if got := page(t, s, "GET", "/v1/runs", "", jar); got.StatusCode != 200 {
		t.Error(got.Status)
	}
}

func TestLogOutEndsTheSessionAtIdentity(t *testing.T) {
	s, _, a := withAccounts(t, nil)
	jar := logIn(t, s)
	got := page(t, s, "POST", sessionAt+":logOut", "{}", jar)
	if got.StatusCode != 200 || stateOf(t, got) != "SIGNED_OUT" || len(jar) != 0 || strings.Join(a.logOuts, " ") != "refresh-1" {
		t.Error(got.Status, jar, a.logOuts)
	}
	if got := page(t, s, "POST", sessionAt+":logOut", "{}", jar); got.StatusCode != 200 || len(a.logOuts) != 1 {
		t.Error("signing out again:", got.Status, a.logOuts)
	}
}

func TestLinkSignsABrowserInOnceOnThisMachineAlone(t *testing.T) {
	g := startGateway(t, "")
	s := start(t, g.target, nil) // with a static key
	made := send(t, s, "POST", sessionAt+":createLink", "{}")
	var link struct{ Code string }
	if err := json.Unmarshal([]byte(read(t, made)), &link); err != nil || len(link.Code) < 43 {
		t.Fatal(made.Status, err)
	}
	redeem := `{"code": "` + link.Code + `"}`
	jar := map[string]*http.Cookie{}
	if got := page(t, s, "POST", sessionAt+":redeem", redeem, jar); got.StatusCode != 200 || stateOf(t, got) != "SIGNED_IN" {
		t.Fatal(got.Status)
	}
	if got := page(t, s, "GET", "/v1/runs", "", jar); got.StatusCode != 200 || authorizationOf(g) != "Bearer "+key {
		t.Error(got.Status)
	}
	for _, body := range []string{redeem, `{"code": ""}`, `{"code": "guessed"}`} {
		own := map[string]*http.Cookie{}
		if got := page(t, s, "POST", sessionAt+":redeem", body, own); got.StatusCode != 401 || reasonOf(t, got) != "LINK_INVALID" || len(own) > 0 {
			t.Errorf("%s: %s", body, got.Status)
		}
	}
	if got := send(t, s, "POST", sessionAt+":createLink", "{}", header("Authorization", "")); got.StatusCode != 401 {
		t.Error("without a key:", got.Status)
	}
	open := start(t, g.target, func(set *settings.Settings) { set.Host = "0.0.0.0" })
	_, port, _ := net.SplitHostPort(open.Address())
	if got := send(t, open, "POST", sessionAt+":createLink", "{}", header("Host", "127.0.0.1:"+port)); got.StatusCode != 400 ||
		reasonOf(t, got) != "LINKS_NOT_OFFERED" {
		t.Error("beyond this machine:", got.Status)
	}
}

func TestAPIKeySignsInWhereThereAreNoAccounts(t *testing.T) {
	g := startGateway(t, "")
	s := start(t, g.target, nil)
	jar := map[string]*http.Cookie{}
	if got := page(t, s, "GET", sessionAt, "", jar); got.StatusCode != 200 {
		t.Fatal(got.Status)
	}
	if got := page(t, s, "POST", sessionAt+":logIn", `{"api_key": "`+key+`"}`, jar); got.StatusCode != 200 || len(jar) != 1 {
		t.Fatal(got.Status)
	}
	if got := page(t, s, "GET", "/v1/runs", "", jar); got.StatusCode != 200 {
		t.Error(got.Status)
	}
	wrong := map[string]*http.Cookie{}
	_ = page(t, s, "POST", sessionAt+":logIn", `{"api_key": "another-key-of-some-length"}`, wrong)
	if got := page(t, s, "GET", "/v1/runs", "", wrong); got.StatusCode != 401 {
		t.Error("another key:", got.Status)
	}
}

func TestOpenIDSignInIsFinishedInTheBrowserThatBeganIt(t *testing.T) {
	s, g, a := withAccounts(t, nil)
	jar := map[string]*http.Cookie{}
	began := page(t, s, "POST", sessionAt+":beginOpenId", "{}", jar)
	text := read(t, began)
	if began.StatusCode != 200 || !strings.Contains(text, `"authorization_url":"https://issuer.example/`) ||
		strings.Contains(text, "the-handle") || a.begun != "http://"+s.Address()+"/sign-in/openid" {
		t.Fatal(began.Status, text, a.begun)
	}
	for _, body := range []string{`{"code": "good", "state": "other"}`, `{"code": "good", "state": ""}`} {
		if got := page(t, s, "POST", sessionAt+":finishOpenId", body, jar); reasonOf(t, got) != "SIGN_IN_NOT_BEGUN" {
			t.Errorf("%s: %s", body, got.Status)
		}
	}
	finish := `{"code": "good", "state": "abc"}`
	if got := page(t, s, "POST", sessionAt+":finishOpenId", finish, map[string]*http.Cookie{}); reasonOf(t, got) != "SIGN_IN_NOT_BEGUN" {
		t.Error("in another browser:", got.Status)
	}
	if got := page(t, s, "POST", sessionAt+":finishOpenId", finish, jar); got.StatusCode != 200 || len(jar) != 1 {
		t.Fatal(got.Status, read(t, got), jar)
	}
	if got := page(t, s, "GET", "/v1/runs", "", jar); got.StatusCode != 200 || authorizationOf(g) != "Bearer access-1" {
		t.Error(got.Status)
	}
}

func TestReplacedSealingKeysOpenWhatTheFormerOneSealed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys")
	line := func(letter string) string {
		return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(letter, 32))) + "\n"
	}
	put := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(line("a"))
	with := func(set *settings.Settings) { set.SessionKeysFile = file }
	s, _, _ := withAccounts(t, with)
	jar := logIn(t, s)
	put(line("b") + line("a"))
	again, g, _ := withAccounts(t, with)
	_, old, _ := net.SplitHostPort(s.Address())
	_, port, _ := net.SplitHostPort(again.Address())
	moved := map[string]*http.Cookie{"x": {Name: "bos_session_" + port, Value: jar["bos_session_"+old].Value}}
	if got := page(t, again, "GET", "/v1/runs", "", moved); got.StatusCode != 200 || authorizationOf(g) != "Bearer access-1" {
		t.Error(got.Status)
	}
	put(line("b"))
	last, _, _ := withAccounts(t, with)
	_, port, _ = net.SplitHostPort(last.Address())
	moved["x"].Name = "bos_session_" + port
	if got := page(t, last, "GET", "/v1/runs", "", moved); got.StatusCode != 401 {
		t.Error("after the key was removed:", got.Status)
	}
}

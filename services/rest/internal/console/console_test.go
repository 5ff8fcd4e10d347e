package console

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
)

func build(index string) fstest.MapFS {
	return fstest.MapFS{
		"index.html":             {Data: []byte(index)},
		"index.html.br":          {Data: []byte("brotli of index")},
		"index.html.gz":          {Data: []byte("gzip of index")},
		"favicon.svg":            {Data: []byte("<svg/>")},
		"assets/app-1a2b.js":     {Data: []byte("run()")},
		"assets/app-1a2b.js.br":  {Data: []byte("brotli of app")},
		"assets/app-1a2b.js.gz":  {Data: []byte("gzip of app")},
		"assets/font-3c4d.woff2": {Data: []byte("font")},
		".gitignore":             {Data: []byte("*")},
	}
}

func opened(t *testing.T, files fstest.MapFS) *Console {
	t.Helper()
	made, err := New(files, Brand{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// get sends headers as "Name: value"; the response is nil if the console has no route for it.
func get(console *Console, path string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for _, each := range headers {
		name, value, _ := strings.Cut(each, ": ")
		r.Header.Set(name, value)
	}
	if console.Route(r) == nil {
		return nil
	}
	recorder := httptest.NewRecorder()
	console.ServeHTTP(recorder, r)
	return recorder
}

const html = "Accept: text/html,*/*;q=0.8"

func TestPagesAreAnyPathOutsideTheAPIThatABrowserOpens(t *testing.T) {
	console := opened(t, build("<html>"))
	for _, path := range []string{"/", "/index.html", "/runs/1?panel=graph", "/sign-in/openid?code=1", "/versions"} {
		if got := get(console, path, html); got == nil || got.Body.String() != "<html>" {
			t.Errorf("%s is not a page: %v", path, got)
		}
	}
	for _, path := range []string{
		"/v1/unknown", "/v1/runs", "/api/x", "/query", "/hitl/x", "/docs", "/docs/x", "/mcp", "/a2a/v1/x",
		"/.well-known/x", "/healthz", "/metrics", "/openapi.json", "/assets/app-gone.js",
	} {
		if got := get(console, path, html); got != nil {
			t.Errorf("%s is taken for a page", path)
		}
	}
	if got := get(console, "/runs/1", "Accept: application/json"); got != nil {
		t.Error("a script's call is answered by a page")
	}
	for _, path := range []string{"/index.html.br", "/.gitignore", "/assets/app-1a2b.js.gz"} {
		if got := get(console, path); got != nil {
			t.Errorf("%s is offered", path)
		}
	}
	if console.Route(httptest.NewRequest(http.MethodPost, "/", nil)) != nil {
		t.Error("a POST is answered by a page")
	}
}

func TestHashedFilesAreCachedForeverAndPagesAskedForAnew(t *testing.T) {
	console := opened(t, build("<html>"))
	for path, want := range map[string]string{
		"/assets/app-1a2b.js": immutable, "/assets/font-3c4d.woff2": immutable,
		"/": "no-cache", "/runs/1": "no-cache", "/favicon.svg": "no-cache",
	} {
		got := get(console, path, html)
		if cache := got.Header().Get("Cache-Control"); cache != want {
			t.Errorf("%s: Cache-Control %q, not %q", path, cache, want)
		}
		tag := got.Header().Get("ETag")
		if again := get(console, path, html, "If-None-Match: W/"+tag); again.Code != 304 || again.Body.Len() > 0 {
			t.Errorf("%s: %d for a known tag", path, again.Code)
		}
		if other := get(console, path, html, `If-None-Match: "other"`); other.Code != 200 {
			t.Errorf("%s: %d for another tag", path, other.Code)
		}
	}
}

func TestCompressedFormsAreSentToClientsThatAcceptThem(t *testing.T) {
	console := opened(t, build("<html>"))
	tags := map[string]bool{}
	for accepted, want := range map[string]string{
		"gzip, deflate, br": "br", "gzip": "gzip", "br;q=0, gzip;q=0.5": "gzip", "": "", "zstd": "",
	} {
		got := get(console, "/assets/app-1a2b.js", "Accept-Encoding: "+accepted)
		if encoding := got.Header().Get("Content-Encoding"); encoding != want {
			t.Errorf("%q is answered in %q", accepted, encoding)
		}
		if vary := got.Header().Get("Vary"); vary != "Accept-Encoding" {
			t.Errorf("Vary: %q", vary)
		}
		if kind := got.Header().Get("Content-Type"); kind != "text/javascript; charset=utf-8" {
			t.Errorf("Content-Type: %q", kind)
		}
		tags[want+got.Header().Get("ETag")] = true
	}
	if len(tags) != 3 {
		t.Errorf("each form has a tag of its own: %v", tags)
	}
}

func TestPagesAllowNothingInlineAndNoOtherHost(t *testing.T) {
	console := opened(t, build("<html>"))
	policy := get(console, "/", html).Header().Get("Content-Security-Policy")
	for _, part := range []string{
		"default-src 'none'", "script-src 'self';", "style-src 'self';", "base-uri 'none'", "frame-ancestors 'none'",
		"worker-src 'self';", "require-trusted-types-for 'script'; trusted-types bos",
	} {
		if !strings.Contains(policy, part) {
			t.Errorf("the policy lacks %s: %s", part, policy)
		}
	}
	if !strings.HasSuffix(policy, "trusted-types bos") {
		t.Errorf("pages may make other policies: %s", policy)
	}
	if strings.Contains(policy, "unsafe") || strings.Contains(policy, "http") || strings.Contains(policy, "*") {
		t.Errorf("the policy is loose: %s", policy)
	}
}

func TestNonceIsAnotherForEachResponseAndNotStored(t *testing.T) {
	console := opened(t, build(`<meta name="csp-nonce" content="`+NoncePlaceholder+`">`))
	seen := map[string]bool{}
	for range 3 {
		got := get(console, "/runs/1", html, "Accept-Encoding: br")
		_, rest, _ := strings.Cut(got.Header().Get("Content-Security-Policy"), "style-src 'self' 'nonce-")
		nonce, _, found := strings.Cut(rest, "'")
		if !found || len(nonce) < 22 || !strings.Contains(got.Body.String(), `content="`+nonce+`"`) {
			t.Fatalf("the page does not name the nonce of its policy: %q, %s", nonce, got.Body)
		}
		if got.Header().Get("ETag") != "" || got.Header().Get("Cache-Control") == "no-cache" {
			t.Errorf("a page with a nonce may be stored: %v", got.Header())
		}
		seen[nonce] = true
	}
	if len(seen) != 3 {
		t.Errorf("a nonce was used again: %v", seen)
	}
}

func TestBuildWithoutAnIndexIsRefused(t *testing.T) {
	if _, err := New(fstest.MapFS{"a.js": {Data: []byte("1")}}, Brand{}); err == nil {
		t.Error("it was accepted")
	}
}

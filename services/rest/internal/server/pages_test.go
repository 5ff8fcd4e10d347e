package server

import (
	"net/http"
	"strings"
	"testing"
)

func TestConsoleIsServedWithoutACredentialBesideTheAPI(t *testing.T) {
	s := start(t, startGateway(t, "").target, nil)
	browser := []option{header("Authorization", ""), header("Accept", "text/html")}
	for _, path := range []string{"/", "/runs/r1?panel=graph&panel=log"} {
		page := send(t, s, "GET", path, "", browser...)
		if page.StatusCode != http.StatusOK || !strings.Contains(read(t, page), "<html") {
			t.Errorf("%s: %d", path, page.StatusCode)
		}
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
		} {
			if got := page.Header.Get(name); got != want {
				t.Errorf("%s: %s: %q", path, name, got)
			}
		}
		if page.Header.Get("Permissions-Policy") == "" {
			t.Error("Permissions-Policy is missing")
		}
	}
	if got := send(t, s, "HEAD", "/", "", browser...); got.StatusCode != http.StatusOK || got.ContentLength <= 0 {
		t.Errorf("HEAD: %d, %d bytes", got.StatusCode, got.ContentLength)
	}
	// The API stays as it is for any Accept header.
	for path, want := range map[string]int{"/v1/unknown": 404, "/v1/runs": 401, "/assets/gone.js": 404} {
		got := send(t, s, "GET", path, "", browser...)
		if got.StatusCode != want || got.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %s", path, got.StatusCode, got.Header.Get("Content-Type"))
		}
		if policy := got.Header.Get("Content-Security-Policy"); policy != "default-src 'none'; frame-ancestors 'none'" {
			t.Errorf("%s: policy %q", path, policy)
		}
	}
	if got := send(t, s, "GET", "/runs/r1", "", header("Accept", "application/json")); got.StatusCode != 404 {
		t.Errorf("a script's call of an unknown path: %d", got.StatusCode)
	}
	if got := send(t, s, "POST", "/", "{}", browser...); got.StatusCode != 404 {
		t.Errorf("POST: %d", got.StatusCode)
	}
	foreign := append(browser, header("Host", "attacker.example"))
	if got := send(t, s, "GET", "/", "", foreign...); got.StatusCode != http.StatusForbidden {
		t.Errorf("a foreign host name: %d", got.StatusCode)
	}
}

package server

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	gatewayv1 "bos/rest/gen/bos/gateway/v1"
	"bos/rest/internal/settings"
)

// ListAgents refuses one key, as a gateway with identity does.
func (g *gateway) ListAgents(
	ctx context.Context, _ *gatewayv1.ListAgentsRequest,
) (*gatewayv1.ListAgentsResponse, error) {
	g.seen(ctx)
	if strings.Join(g.seenMetadata().Get("authorization"), "") == "Bearer expired" {
		return nil, refused(codes.Unauthenticated, "CREDENTIAL_INVALID")
	}
	return &gatewayv1.ListAgentsResponse{}, nil
}

// behind is a service of protocols with one answer to everything, and REST in front of it.
func behind(t *testing.T, answer http.HandlerFunc, set func(*settings.Settings)) (*Server, *gateway) {
	t.Helper()
	service := httptest.NewServer(answer)
	t.Cleanup(service.Close)
	g := startGateway(t, "")
	return start(t, g.target, func(s *settings.Settings) {
		s.ProtocolsTarget = strings.TrimPrefix(service.URL, "http://")
		if set != nil {
			set(s)
		}
	}), g
}

func withoutKey(s *settings.Settings) {
	s.StaticKey, s.IdentityTarget = "", "127.0.0.1:1"
}

func TestProtocolsGetTheRequestWithTheHeadersOfTheirProtocolsAlone(t *testing.T) {
	var got *http.Request
	var body string
	s, _ := behind(t, func(w http.ResponseWriter, r *http.Request) {
		content, _ := io.ReadAll(r.Body)
		got, body = r, string(content)
		w.Header().Set("Mcp-Session-Id", "s1")
		w.Header().Set("Set-Cookie", "a=b")
		w.Header().Set("Cache-Control", "public")
		w.WriteHeader(http.StatusAccepted)
	}, nil)
	response := send(t, s, http.MethodPost, "/v1/responses?include=a&include=b", `{"input": "hi"}`,
		header("Mcp-Protocol-Version", "2026-07-28"), header("Cookie", "c=d"),
		header("Bos-Proxy-Token", "forged"), header("Bos-Public-Url", "http://evil.example"),
		header("X-Forwarded-For", "9.9.9.9"))
	if response.StatusCode != http.StatusAccepted || body != `{"input": "hi"}` {
		t.Fatalf("status %d, body %q", response.StatusCode, body)
	}
	if got.URL.RequestURI() != "/v1/responses?include=a&include=b" {
		t.Errorf("called as %s", got.URL.RequestURI())
	}
	for name, want := range map[string]string{
		"Authorization": "Bearer " + key, "Mcp-Protocol-Version": "2026-07-28",
		"Bos-Public-Url": "http://" + s.Address(), "Cookie": "", "Bos-Proxy-Token": "",
		"X-Forwarded-For": "", "User-Agent": "",
	} {
		if found := got.Header.Get(name); found != want {
			t.Errorf("%s: %q, want %q", name, found, want)
		}
	}
	for name, want := range map[string]string{
		"Mcp-Session-Id": "s1", "Set-Cookie": "", "Cache-Control": "no-store",
	} {
		if found := strings.Join(response.Header.Values(name), ","); found != want {
			t.Errorf("%s of the answer: %q, want %q", name, found, want)
		}
	}
}

func TestProtocolsStreamEventsAsTheyCome(t *testing.T) {
	more := make(chan struct{})
	s, _ := behind(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "event: one\ndata: 1\n\n")
		_ = http.NewResponseController(w).Flush()
		<-more
		_, _ = io.WriteString(w, "event: two\ndata: 2\n\n")
	}, nil)
	events := framesOf(send(t, s, http.MethodPost, "/v1/responses", `{}`))
	if first := events.event(t); first.event != "one" {
		t.Errorf("first came %+v", first)
	}
	close(more)
	if second := events.event(t); second.event != "two" {
		t.Errorf("then came %+v", second)
	}
}

func TestAClientOfAProtocolThatLeavesEndsItsRequest(t *testing.T) {
	ended := make(chan struct{})
	s, _ := behind(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, ": here\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(ended)
	}, nil)
	response := send(t, s, http.MethodPost, "/v1/responses", `{}`)
	_, _ = response.Body.Read(make([]byte, 1))
	_ = response.Body.Close()
	<-ended
}

func TestTheGatewayJudgesCallersBeforeProtocolsGreetThem(t *testing.T) {
	s, _ := behind(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	}, withoutKey)
	good := header("Authorization", "Bearer good-key")
	expired := header("Authorization", "Bearer expired")
	for _, one := range []struct {
		path   string
		option option
		want   int
	}{
		{"/mcp", good, http.StatusNoContent},
		{"/mcp", expired, http.StatusUnauthorized},
		{"/v1/models", good, http.StatusNoContent},
		{"/v1/models", expired, http.StatusUnauthorized},
		{"/.well-known/agent-card.json", func(r *http.Request) { r.Header.Del("Authorization") },
			http.StatusNoContent},
	} {
		if response := send(t, s, http.MethodGet, one.path, "", one.option); response.StatusCode != one.want {
			t.Errorf("%s: status %d, want %d", one.path, response.StatusCode, one.want)
		}
	}
	header := send(t, s, http.MethodGet, "/mcp", "", expired).Header.Get("WWW-Authenticate")
	want := `Bearer resource_metadata="http://` + s.Address() + `/.well-known/oauth-protected-resource/mcp"`
	if header != want {
		t.Errorf("WWW-Authenticate of MCP: %s", header)
	}
}

func TestProtocolsThatDoNotAnswerAreSaidToBeAway(t *testing.T) {
	g := startGateway(t, "")
	away := start(t, g.target, func(s *settings.Settings) { s.ProtocolsTarget = "127.0.0.1:1" })
	if response := send(t, away, http.MethodGet, "/v1/models", ""); response.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("status %d", response.StatusCode)
	}
	none := start(t, g.target, nil)
	if response := send(t, none, http.MethodGet, "/v1/models", ""); response.StatusCode != http.StatusNotFound {
		t.Errorf("without protocols: status %d", response.StatusCode)
	}
}

func TestProtocolsTakeTheMediaTypeOfTheirProtocolAndOtherPathsDoNot(t *testing.T) {
	s, _ := behind(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	}, nil)
	for _, one := range []struct {
		path, mediaType, body string
		want                  int
	}{
		{"/a2a/v1/message:send", "application/a2a+json", `{}`, http.StatusNoContent},
		{"/a2a/v1/message:send", "application/a2a+json; charset=utf-8", `{}`, http.StatusNoContent},
		{"/a2a/v1/message:send", "application/json", `{}`, http.StatusNoContent},
		{"/a2a/v1/message:send", "application/a2a+json", `{`, http.StatusBadRequest},
		{"/a2a/v1/message:send", "text/plain", `{}`, http.StatusUnsupportedMediaType},
		{"/v1/runs", "application/a2a+json", `{"question": "q"}`, http.StatusUnsupportedMediaType},
	} {
		response := send(t, s, http.MethodPost, one.path, one.body, header("Content-Type", one.mediaType))
		if response.StatusCode != one.want {
			t.Errorf("%s as %s: status %d, want %d", one.path, one.mediaType, response.StatusCode, one.want)
		}
	}
}

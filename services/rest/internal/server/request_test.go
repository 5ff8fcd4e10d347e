package server

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"bos/rest/internal/settings"
)

type shape struct {
	Error struct {
		Code    int
		Status  string
		Message string
		Details []struct {
			Type            string `json:"@type"`
			Reason          string
			FieldViolations []struct{ Field string } `json:"field_violations"`
		}
	}
}

func read(t *testing.T, response *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestAllErrorsHaveTheSameShape(t *testing.T) {
	g := startGateway(t, "")
	s := start(t, g.target, nil)
	for name, one := range map[string]struct {
		method, path, body string
		option             option
		code               int
		status, reason     string
		field              string
	}{
		"no key":            {"GET", "/v1/runs", "", header("Authorization", ""), 401, "UNAUTHENTICATED", "CREDENTIAL_MISSING", ""},
		"wrong key":         {"GET", "/v1/runs", "", header("Authorization", "Bearer nonsense"), 401, "UNAUTHENTICATED", "API_KEY_INVALID", ""},
		"foreign host":      {"GET", "/v1/runs", "", header("Host", "evil.example"), 403, "PERMISSION_DENIED", "HOST_NOT_ALLOWED", ""},
		"foreign origin":    {"GET", "/v1/runs", "", header("Origin", "http://evil.example"), 403, "PERMISSION_DENIED", "ORIGIN_NOT_ALLOWED", ""},
		"origin null":       {"GET", "/v1/runs", "", header("Origin", "null"), 403, "PERMISSION_DENIED", "ORIGIN_NOT_ALLOWED", ""},
		"unknown path":      {"GET", "/v2/runs", "", nil, 404, "NOT_FOUND", "PATH_NOT_FOUND", ""},
		"wrong method":      {"DELETE", "/v1/runs", "", nil, 405, "UNIMPLEMENTED", "METHOD_NOT_ALLOWED", ""},
		"unknown parameter": {"GET", "/v1/runs?size=1", "", nil, 400, "INVALID_ARGUMENT", "INVALID_ARGUMENT", "size"},
		"wrong parameter":   {"GET", "/v1/runs?page_size=x", "", nil, 400, "INVALID_ARGUMENT", "INVALID_ARGUMENT", "page_size"},
		"parameter twice":   {"GET", "/v1/runs?page_size=1&page_size=2", "", nil, 400, "INVALID_ARGUMENT", "INVALID_ARGUMENT", "page_size"},
		"unknown field":     {"POST", "/query", `{"question": "x", "colour": 1}`, nil, 400, "INVALID_ARGUMENT", "INVALID_ARGUMENT", "colour"},
		"wrong type":        {"POST", "/query", `{"max_turns": "x"}`, nil, 400, "INVALID_ARGUMENT", "INVALID_ARGUMENT", "max_turns"},
		"wrong shape":       {"POST", "/query", `{"context": "today"}`, nil, 400, "INVALID_ARGUMENT", "INVALID_ARGUMENT", "context"},
		"shape in a stream": {"POST", "/query/stream", `{"timeout": 30}`, nil, 400, "INVALID_ARGUMENT", "INVALID_ARGUMENT", "timeout"},
		"shape of a whole":  {"POST", "/query", `["x"]`, nil, 400, "INVALID_ARGUMENT", "INVALID_ARGUMENT", ""},
		"not JSON":          {"POST", "/query", `{"question": `, nil, 400, "INVALID_ARGUMENT", "BODY_NOT_JSON", ""},
		"two values":        {"POST", "/query", `{} {}`, nil, 400, "INVALID_ARGUMENT", "BODY_NOT_JSON", ""},
		"another type":      {"POST", "/query", question, header("Content-Type", "text/plain"), 415, "INVALID_ARGUMENT", "BODY_NOT_JSON", ""},
		"large body":        {"POST", "/query", `{"question": "` + strings.Repeat("x", 2<<20) + `"}`, nil, 413, "INVALID_ARGUMENT", "BODY_TOO_LARGE", ""},
		"large headers":     {"GET", "/v1/runs", "", header("X-Large", strings.Repeat("x", 20000)), 431, "INVALID_ARGUMENT", "HEADERS_TOO_LARGE", ""},
		"said by a service": {"POST", "/query", `{"question": "full"}`, nil, 429, "RESOURCE_EXHAUSTED", "TOO_MANY_RUNS", ""},
		"a defect":          {"POST", "/query", `{"question": "defect"}`, nil, 500, "INTERNAL", "INTERNAL", ""},
		"said by gRPC":      {"POST", "/query", `{"question": "foreign"}`, nil, 503, "UNAVAILABLE", "UNAVAILABLE", ""},
		"two keys":          {"GET", "/v1/runs", "", func(r *http.Request) { r.Header.Add("Authorization", "Bearer other") }, 401, "UNAUTHENTICATED", "CREDENTIAL_AMBIGUOUS", ""},
		"the key twice":     {"GET", "/v1/runs", "", func(r *http.Request) { r.Header.Add("authorization", "Bearer "+key) }, 401, "UNAUTHENTICATED", "CREDENTIAL_AMBIGUOUS", ""},
		"two keys in one":   {"GET", "/v1/runs", "", header("Authorization", "Bearer "+key+", Bearer "+key), 401, "UNAUTHENTICATED", "API_KEY_INVALID", ""},
		"deep JSON":         {"POST", "/query", deep(31), nil, 400, "INVALID_ARGUMENT", "BODY_TOO_DEEP", ""},
		"deeper JSON":       {"POST", "/query", deep(9000), nil, 400, "INVALID_ARGUMENT", "BODY_TOO_DEEP", ""},
		"JSON without end":  {"POST", "/query", deep(20000), nil, 400, "INVALID_ARGUMENT", "BODY_NOT_JSON", ""},
		"no UTF-8":          {"POST", "/query", "{\"question\": \"\xff\"}", nil, 400, "INVALID_ARGUMENT", "BODY_NOT_JSON", ""},
		"half a character":  {"POST", "/query", `{"question": "\ud800"}`, nil, 400, "INVALID_ARGUMENT", "INVALID_ARGUMENT", ""},
		"odd client":        {"GET", "/v1/runs", "", header("X-Forwarded-For", "\xff, 203.0.113.5"), 400, "INVALID_ARGUMENT", "INVALID_ARGUMENT", ""},
		"client with a tab": {"GET", "/v1/runs", "", header("X-Forwarded-For", "a\tb, 203.0.113.5"), 400, "INVALID_ARGUMENT", "INVALID_ARGUMENT", ""},
		"path without text": {"GET", "/v1/runs/%ff", "", nil, 400, "INVALID_ARGUMENT", "INVALID_ARGUMENT", ""},
		"path with zero":    {"GET", "/v1/runs/%00", "", nil, 400, "INVALID_ARGUMENT", "INVALID_ARGUMENT", ""},
		"stream of no text": {"GET", "/v1/runs/%c3%28:watch", "", nil, 400, "INVALID_ARGUMENT", "INVALID_ARGUMENT", ""},
		"query of no text":  {"GET", "/v1/runs?page_token=%ff", "", nil, 400, "INVALID_ARGUMENT", "INVALID_ARGUMENT", "page_token"},
		"query with zero":   {"GET", "/v1/runs?page_token=%00", "", nil, 400, "INVALID_ARGUMENT", "INVALID_ARGUMENT", "page_token"},
		"name of no text":   {"GET", "/v1/runs?%ff=1", "", nil, 400, "INVALID_ARGUMENT", "INVALID_ARGUMENT", ""},
		"not offered":       {"POST", "/v1/plans:generate", `{"question": "x"}`, nil, 501, "UNIMPLEMENTED", "UNIMPLEMENTED", ""},
	} {
		t.Run(name, func(t *testing.T) {
			option := one.option
			if option == nil {
				option = func(*http.Request) {}
			}
			response := send(t, s, one.method, one.path, one.body, option)
			text := read(t, response)
			var got shape
			if err := json.Unmarshal([]byte(text), &got); err != nil {
				t.Fatalf("%s: %s", err, text)
			}
			if response.StatusCode != one.code || got.Error.Code != one.code ||
				got.Error.Status != one.status || got.Error.Message == "" ||
				got.Error.Details[0].Reason != one.reason {
				t.Errorf("%s %s", response.Status, text)
			}
			if one.field != "" && got.Error.Details[1].FieldViolations[0].Field != one.field {
				t.Error(text)
			}
			for _, secret := range []string{"hunter2", "10.1.2.3", "strconv", "proto:"} {
				if strings.Contains(text, secret) {
					t.Errorf("%q is in %s", secret, text)
				}
			}
			if response.Header.Get("Content-Type") != "application/json" {
				t.Error(response.Header)
			}
		})
	}
}

// deep is a question with lists and objects nested to a depth.
func deep(levels int) string {
	return `{"question": "x", "context": {"a": ` + strings.Repeat("[", levels-2) +
		strings.Repeat("]", levels-2) + "}}"
}

func TestJSONIsAcceptedUpToTheNestingLimit(t *testing.T) {
	g := startGateway(t, "")
	s := start(t, g.target, nil)
	response := send(t, s, "POST", "/query", deep(30))
	if response.StatusCode != 200 {
		t.Error(response.Status, read(t, response))
	}
	if flat := strings.Repeat("[", 99); send(t, s, "POST", "/query",
		`{"question": "`+flat+`\"`+flat+`"}`).StatusCode != 200 {
		t.Error("brackets in a text count as levels")
	}
}

func TestHeadersOfErrors(t *testing.T) {
	g := startGateway(t, "")
	s := start(t, g.target, nil)
	full := send(t, s, "POST", "/query", `{"question": "full"}`)
	if got := full.Header.Get("Retry-After"); got != "2" {
		t.Errorf("Retry-After %q for 1.5 s", got)
	}
	if got := send(t, s, "DELETE", "/v1/runs", "").Header.Get("Allow"); got != "GET, POST" {
		t.Errorf("Allow %q", got)
	}
	unknown := send(t, s, "GET", "/v1/runs", "", header("Authorization", ""))
	if got := unknown.Header.Get("WWW-Authenticate"); got != "Bearer" {
		t.Errorf("WWW-Authenticate %q", got)
	}
}

func TestResponsesHaveSchemaNamesAndEmptyFields(t *testing.T) {
	g := startGateway(t, "")
	s := start(t, g.target, nil)
	for _, path := range []string{"/v1/runs:ask", "/query"} {
		if got := read(t, send(t, s, "POST", path, question)); !strings.Contains(got, `"run_id":`) {
			t.Errorf("%s: %s", path, got)
		}
	}
	var page map[string]any
	text := read(t, send(t, s, "GET", "/v1/runs?page_token=q", ""))
	if err := json.Unmarshal([]byte(text), &page); err != nil {
		t.Fatal(err)
	}
	if runs, there := page["runs"].([]any); !there || len(runs) != 0 || page["next_page_token"] != "q" {
		t.Error(text)
	}
}

func TestOnlyTheCredentialOfTheHeadersIsPassedOn(t *testing.T) {
	g := startGateway(t, "")
	s := start(t, g.target, nil)
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	send(t, s, "GET", "/v1/runs", "", header("Traceparent", trace), header("Tracestate", "a=b"),
		header("Grpc-Metadata-Bos-Run-Token", "forged"), header("Bos-Run-Token", "forged"),
		header("Grpc-Metadata-Bos-Proxy-Token", "forged"), header("Bos-Proxy-Token", "forged"),
		header("Grpc-Metadata-Authorization", "Bearer forged"),
		header("X-Forwarded-For", "9.9.9.9"), header("Cookie", "a=b"))
	seen := g.seenMetadata()
	if got := seen.Get("authorization"); !slices.Equal(got, []string{"Bearer " + key}) {
		t.Errorf("authorization %q", got)
	}
	for name, values := range seen {
		switch name {
		case "authorization", ":authority", "content-type", "user-agent", "grpc-accept-encoding":
		case "x-forwarded-for", "x-forwarded-host": // the mux's own, which no service believes
		default:
			t.Errorf("%s went on: %q", name, values)
		}
	}
}

func TestCallersTracesAreContinuedOnlyBehindATrustedProxy(t *testing.T) {
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for name, one := range map[string]struct {
		trusted   bool
		collector string
		continued bool
	}{
		"trusted":             {true, "", true},
		"trusted, recorded":   {true, "http://127.0.0.1:1", true},
		"untrusted":           {false, "", false},
		"untrusted, recorded": {false, "http://127.0.0.1:1", false},
	} {
		t.Run(name, func(t *testing.T) {
			g := startGateway(t, "")
			s := start(t, g.target, func(set *settings.Settings) {
				set.TrustTraces, set.OTLPEndpoint, set.TraceSampleRatio = one.trusted, one.collector, 0
			})
			send(t, s, "GET", "/v1/runs", "", header("Traceparent", trace))
			sent := strings.Join(g.seenMetadata().Get("traceparent"), " ")
			if strings.Contains(sent, trace[3:35]) != one.continued {
				t.Errorf("traceparent %q", sent)
			}
			if !one.continued && strings.HasSuffix(sent, "-01") {
				t.Errorf("the caller decided that it is recorded: %q", sent)
			}
		})
	}
}

func TestAllowedHostsAndOrigins(t *testing.T) {
	g := startGateway(t, "")
	plain := start(t, g.target, nil)
	for _, host := range []string{"localhost", "localhost:99", "127.0.0.1", "[::1]:8000", "127.9.9.9"} {
		if got := send(t, plain, "GET", "/v1/runs", "", header("Host", host)).StatusCode; got != 200 {
			t.Errorf("%s: %d", host, got)
		}
	}
	same := send(t, plain, "GET", "/v1/runs", "", header("Origin", "http://"+plain.Address()))
	if same.StatusCode != 200 {
		t.Error(same.Status)
	}
	listed := start(t, g.target, func(set *settings.Settings) {
		set.AllowedHosts = []string{"bos.example.org"}
		set.AllowedOrigins = []string{"https://page.example.org"}
	})
	for host, want := range map[string]int{"bos.example.org": 200, "localhost": 403} {
		if got := send(t, listed, "GET", "/v1/runs", "", header("Host", host)).StatusCode; got != want {
			t.Errorf("%s: %d", host, got)
		}
	}
	preflight := send(t, listed, "OPTIONS", "/v1/runs", "", header("Host", "bos.example.org"),
		header("Origin", "https://page.example.org"), header("Access-Control-Request-Method", "GET"),
		header("Authorization", ""))
	if preflight.StatusCode != 204 ||
		preflight.Header.Get("Access-Control-Allow-Origin") != "https://page.example.org" {
		t.Error(preflight.Status, preflight.Header)
	}
}

func TestReadiness(t *testing.T) {
	g := startGateway(t, "")
	s := start(t, g.target, nil)
	if got := send(t, s, "GET", "/readyz", "").StatusCode; got != 200 {
		t.Error(got)
	}
	g.server.Stop()
	if got := send(t, s, "GET", "/readyz", "").StatusCode; got != 503 {
		t.Error(got)
	}
	if got := send(t, s, "GET", "/healthz", "").StatusCode; got != 200 {
		t.Error(got)
	}
	close(s.stopping)
	s.stopOnce.Do(func() {})
	if got := read(t, send(t, s, "GET", "/readyz", "")); !strings.Contains(got, "STOPPING") {
		t.Error(got)
	}
	s.release()
	_ = s.http.Close()
}

func TestShutdownCancelsRequestsAfterTheGracePeriod(t *testing.T) {
	g := startGateway(t, "")
	s := start(t, g.target, nil)
	go func() {
		request, _ := http.NewRequest("POST", "http://"+s.Address()+"/query",
			strings.NewReader(`{"question": "wait"}`))
		request.Header.Set("Authorization", "Bearer "+key)
		request.Header.Set("Content-Type", "application/json")
		if response, err := http.DefaultClient.Do(request); err == nil {
			_ = response.Body.Close()
		}
	}()
	for g.seenMetadata() == nil { // until the call has arrived
		send(t, s, "GET", "/healthz", "")
	}
	s.Stop()
	<-g.left
}

func TestDocsPagesLoadNothingFromOtherHosts(t *testing.T) {
	g := startGateway(t, "")
	s := start(t, g.target, nil)
	page := send(t, s, "GET", "/docs", "", header("Authorization", ""))
	policy := page.Header.Get("Content-Security-Policy")
	if page.StatusCode != 200 || !strings.Contains(policy, "script-src 'self';") {
		t.Error(page.Status, policy)
	}
	text := read(t, page)
	if strings.Contains(text, "http://") || strings.Contains(text, "https://") {
		t.Error(text)
	}
	for _, path := range []string{"/docs/page.js", "/docs/page.css", "/docs/swagger-ui.css",
		"/docs/swagger-ui-bundle.js", "/openapi.json"} {
		if got := send(t, s, "GET", path, "").StatusCode; got != 200 {
			t.Errorf("%s: %d", path, got)
		}
	}
}

func TestDocumentHoldsOnlyOfferedOperations(t *testing.T) {
	g := startGateway(t, "")
	paths := func(s *Server) []string {
		var document struct{ Paths map[string]any }
		if err := json.Unmarshal([]byte(read(t, send(t, s, "GET", "/openapi.json", ""))), &document); err != nil {
			t.Fatal(err)
		}
		var found []string
		for path := range document.Paths {
			found = append(found, path)
		}
		return found
	}
	without := paths(start(t, g.target, nil))
	with := paths(start(t, g.target, func(set *settings.Settings) { set.IdentityTarget = g.target }))
	for _, path := range []string{"/v1/runs:ask", "/v1/runs:askStream", "/v1/runs/{run_id}:watch",
		"/v1/runs/{run_id}:cancel", "/query", "/query/stream", "/api/generate-plan", "/healthz"} {
		if !slices.Contains(without, path) {
			t.Errorf("%s is missing in %q", path, without)
		}
	}
	if slices.Contains(without, "/v1/sessions") || !slices.Contains(with, "/v1/sessions") {
		t.Error("identity's paths are there with identity and not without")
	}
}

func TestMetricsAreLabelledByRouteAndNotByPath(t *testing.T) {
	g := startGateway(t, "")
	s := start(t, g.target, nil)
	send(t, s, "GET", "/v1/runs/some-run", "")
	send(t, s, "GET", "/v9/else", "")
	text := read(t, send(t, s, "GET", "/metrics", ""))
	for _, want := range []string{
		`bos_rest_requests_total{code="200",method="GET",route="/v1/runs/{run_id}"} 1`,
		`bos_rest_requests_total{code="404",method="GET",route="other"} 1`,
		"bos_rest_stream_clients 0",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s", want)
		}
	}
	elsewhere := start(t, g.target, func(set *settings.Settings) { set.MetricsAddress = "127.0.0.1:0" })
	if got := send(t, elsewhere, "GET", "/metrics", "").StatusCode; got != 404 {
		t.Error(got)
	}
	other, err := http.Get("http://" + elsewhere.MetricsAddress() + "/metrics")
	if err != nil || other.StatusCode != 200 {
		t.Error(err, other)
	}
	_ = other.Body.Close()
}

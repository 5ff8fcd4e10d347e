package server

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	identityv1 "bos/rest/gen/bos/identity/v1"
	generated "bos/rest/gen/openapi"
	"bos/rest/internal/settings"
)

const patience = 60 * time.Second

// slow sends headers and one byte of the body, and waits until that byte is read.
func slow(t *testing.T, s *Server, path, headers string) *bufio.Reader {
	t.Helper()
	connection, err := net.Dial("tcp", s.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	if err := connection.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	_, err = connection.Write([]byte("POST " + path + " HTTP/1.1\r\nHost: localhost\r\n" + headers +
		"Content-Type: application/json\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n"))
	if err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(connection)
	line, err := reader.ReadString('\n') // comes with the first look at the body
	if err == nil && strings.Contains(line, "100 Continue") {
		_, err = connection.Write([]byte("{"))
		if err == nil {
			_, err = reader.ReadString('\n')
		}
	} else {
		reader = bufio.NewReader(io.MultiReader(strings.NewReader(line), reader))
	}
	if err != nil {
		t.Fatal(err)
	}
	return reader
}

func answerOf(t *testing.T, reader *bufio.Reader) (*http.Response, string) {
	t.Helper()
	response, err := http.ReadResponse(reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	return response, read(t, response)
}

const goodKey = "Authorization: Bearer " + key + "\r\n"

func TestSlowBodiesTakeNoPlacesOfRequestsOrStreams(t *testing.T) {
	g := startGateway(t, "")
	s := start(t, g.target, func(set *settings.Settings) {
		set.MaxRequests, set.MaxStreams, set.ReadTimeout = 1, 1, 3600
	})
	for range 5 {
		slow(t, s, "/query", goodKey)
		slow(t, s, "/v1/runs:askStream", goodKey)
	}
	if got := send(t, s, "POST", "/query", question).StatusCode; got != 200 {
		t.Error(got)
	}
	go func() { g.events <- finished(1) }()
	if one := framesOf(send(t, s, "POST", "/v1/runs:askStream", question)).event(t); one.id == "" {
		t.Errorf("%v", one)
	}
}

func TestBodyWithTheOldestProgressIsRefused(t *testing.T) {
	g := startGateway(t, "")
	s := start(t, g.target, func(set *settings.Settings) {
		set.MaxBodies, set.ReadTimeout, set.MinBodyRate = 3, 3600, 1e-6
	})
	first := slow(t, s, "/query", goodKey)
	for range 2 {
		slow(t, s, "/query", goodKey)
	}
	for range 3 { // a complete body displaces one of them, and then takes no place
		if got := send(t, s, "POST", "/query", question).StatusCode; got != 200 {
			t.Error(got)
		}
	}
	response, text := answerOf(t, first)
	if response.StatusCode != 429 || !strings.Contains(text, "TOO_MANY_BODIES") ||
		response.Header.Get("Retry-After") == "" || !response.Close {
		t.Error(response.Status, text)
	}
}

func TestBodiesOfOneIPv6SiteAreRefusedForOthers(t *testing.T) {
	g := startGateway(t, "")
	s := start(t, g.target, func(set *settings.Settings) {
		set.MaxBodies, set.ReadTimeout, set.MinBodyRate = 3, 3600, 1e-6
		set.TrustedProxies = []string{"127.0.0.1/32"}
	})
	from := func(address string) string { return goodKey + "X-Forwarded-For: " + address + "\r\n" }
	slow(t, s, "/query", from("2001:db8:0:1::1"))
	cut := make(chan error, 3)
	for _, address := range []string{"2001:db8::1", "2001:db8::2", "2001:db8::3"} {
		reader := slow(t, s, "/query", from(address))
		go func() { // whose byte came last is not said
			response, err := http.ReadResponse(reader, nil)
			if err == nil && response.StatusCode != http.StatusTooManyRequests {
				err = errors.New(response.Status)
			}
			cut <- err
		}()
	}
	if err := <-cut; err != nil {
		t.Error(err)
	}
}

func TestBodyBelowTheMinimumRateIsRefusedEarly(t *testing.T) {
	g := startGateway(t, "")
	s := start(t, g.target, func(set *settings.Settings) { set.ReadTimeout = 3600 })
	response, text := answerOf(t, slow(t, s, "/query", goodKey)) // after two seconds
	if response.StatusCode != 408 || !strings.Contains(text, "BODY_TOO_SLOW") {
		t.Error(response.Status, text)
	}
}

func TestRequestWithoutKeyIsRefusedBeforeItsBody(t *testing.T) {
	g := startGateway(t, "")
	withKey := start(t, g.target, func(set *settings.Settings) { set.ReadTimeout = 3600 })
	users := start(t, g.target, func(set *settings.Settings) {
		set.ReadTimeout, set.StaticKey, set.IdentityTarget = 3600, "", g.target
	})
	for name, one := range map[string]struct {
		s               *Server
		headers, reason string
	}{
		"none":           {withKey, "", "CREDENTIAL_MISSING"},
		"wrong":          {withKey, "Authorization: Bearer no\r\n", "API_KEY_INVALID"},
		"two":            {withKey, goodKey + "AUTHORIZATION: Bearer " + key + "\r\n", "CREDENTIAL_AMBIGUOUS"},
		"anonymous":      {users, "", "CREDENTIAL_MISSING"},
		"another scheme": {users, "Authorization: Basic dTpw\r\n", "TOKEN_INVALID"},
		"no token":       {users, "Authorization: Bearer\r\n", "TOKEN_INVALID"},
		"two tokens":     {users, "Authorization: Bearer a b\r\n", "TOKEN_INVALID"},
	} {
		t.Run(name, func(t *testing.T) {
			response, text := answerOf(t, slow(t, one.s, "/v1/runs:ask", one.headers))
			if response.StatusCode != 401 || !strings.Contains(text, one.reason) || !response.Close {
				t.Error(response.Status, text)
			}
		})
	}
}

func TestResponseBeforeTheWholeBodyClosesTheConnection(t *testing.T) {
	g := startGateway(t, "")
	s := start(t, g.target, func(set *settings.Settings) { set.ReadTimeout = 3600 })
	connection, err := net.Dial("tcp", s.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	if err := connection.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err = connection.Write([]byte("POST /query HTTP/1.1\r\nHost: localhost\r\n" +
		"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")); err != nil {
		t.Fatal(err)
	}
	received, err := io.ReadAll(connection)
	if err != nil || !strings.HasPrefix(string(received), "HTTP/1.1 401 ") {
		t.Errorf("%v: %q", err, received)
	}
}

func TestOpenRoutesAreThoseOfTheContracts(t *testing.T) {
	g := startGateway(t, "")
	s := start(t, g.target, func(set *settings.Settings) {
		set.StaticKey, set.IdentityTarget, set.MemoryTarget = "", g.target, g.target
		set.DocumentsTarget = g.target
	})
	var document struct {
		Paths map[string]map[string]struct {
			Service  string `json:"x-service"`
			Security *[]any
		}
	}
	if err := json.Unmarshal([]byte(read(t, send(t, s, "GET", "/openapi.json", ""))), &document); err != nil {
		t.Fatal(err)
	}
	open := map[string]bool{}
	for template, operations := range document.Paths {
		path := regexp.MustCompile(`\{[^}]+\}`).ReplaceAllString(template, "x1")
		for verb, operation := range operations {
			if operation.Service == "" {
				continue
			}
			verb = strings.ToUpper(verb)
			got := send(t, s, verb, path, "", header("Authorization", ""),
				func(r *http.Request) { r.Header.Del("Authorization") }).StatusCode
			if isOpen := operation.Security != nil; isOpen != (got != 401) {
				t.Errorf("%s %s: %d", verb, template, got)
			} else if isOpen {
				open[verb+" "+template] = true
			}
		}
	}
	for _, must := range []string{"POST /v1/users", "POST /v1/sessions:logIn",
		"POST /v1/sessions:beginOpenId", "POST /v1/sessions:finishOpenId", "GET /.well-known/jwks.json"} {
		if !open[must] {
			t.Errorf("%s is not open", must)
		}
	}
	for name := range open {
		if !strings.Contains(name, "/v1/users") && !strings.Contains(name, "/v1/sessions:") &&
			!strings.Contains(name, "/.well-known/") && name != "GET /v1/openIdProvider" {
			t.Errorf("%s is open", name)
		}
	}
}

func TestEveryServiceWithPathsIsOffered(t *testing.T) {
	g := startGateway(t, "")
	s := start(t, g.target, func(set *settings.Settings) {
		set.IdentityTarget, set.MemoryTarget = g.target, g.target
		set.DocumentsTarget, set.FilesTarget = g.target, g.target
	})
	for _, service := range servicesInTheDocument(t) {
		if !s.offers(service) {
			t.Errorf("%s has HTTP paths and is not registered", service)
		}
	}
}

func TestBodiesForIdentityAreSmall(t *testing.T) {
	g := startGateway(t, "")
	s := start(t, g.target, func(set *settings.Settings) { set.IdentityTarget = g.target })
	body := func(size int) string { return `{"a": "` + strings.Repeat("x", size) + `"}` }
	for size, want := range map[int]int{63 * 1024: 400, 64 * 1024: 413} {
		if got := send(t, s, "POST", "/v1/sessions:logIn", body(size)).StatusCode; got != want {
			t.Errorf("%d bytes: %d", size, got)
		}
	}
	if got := send(t, s, "POST", "/query", body(64*1024)).StatusCode; got != 400 {
		t.Errorf("a question of that size: %d", got)
	}
}

func servicesInTheDocument(t *testing.T) []string {
	t.Helper()
	var document struct {
		Paths map[string]map[string]struct {
			Service string `json:"x-service"`
		}
	}
	if err := json.Unmarshal(generated.Document, &document); err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, operations := range document.Paths {
		for _, operation := range operations {
			if operation.Service != "" && !slices.Contains(found, operation.Service) {
				found = append(found, operation.Service)
			}
		}
	}
	if len(found) < 4 {
		t.Fatal(found)
	}
	return found
}

// account is a fake of identity.
type account struct {
	identityv1.UnimplementedIdentityServiceServer
	seen chan metadata.MD
}

func (a *account) LogIn(ctx context.Context, _ *identityv1.LogInRequest) (*identityv1.LogInResponse, error) {
	sent, _ := metadata.FromIncomingContext(ctx)
	a.seen <- sent
	return &identityv1.LogInResponse{}, nil
}

func startIdentity(t *testing.T) (*account, string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	a := &account{seen: make(chan metadata.MD, 1)}
	identityv1.RegisterIdentityServiceServer(server, a)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return a, listener.Addr().String()
}

func writeKey(t *testing.T, path string) ed25519.PublicKey {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return public
}

type claims struct {
	Iss, Adr string
	Aud      []string
	Iat, Exp int64
}

func claimsOf(t *testing.T, token string, public ed25519.PublicKey) claims {
	t.Helper()
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatalf("%q is no token", token)
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil || !ed25519.Verify(public, []byte(parts[0]+"."+parts[1]), signature) {
		t.Fatalf("%q is not signed by the key", token)
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	var found claims
	if err := json.Unmarshal(text, &found); err != nil {
		t.Fatal(err)
	}
	return found
}

func TestServicesReceiveTheSignedClientAddress(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key.pem")
	public := writeKey(t, path)
	identity, target := startIdentity(t)
	for name, one := range map[string]struct {
		proxies   []string
		forwarded []string
		want      string
	}{
		"no proxy is trusted":       {nil, []string{"9.9.9.9"}, "127.0.0.1"},
		"no header":                 {nil, nil, "127.0.0.1"},
		"a proxy without a client":  {[]string{"127.0.0.0/8"}, nil, ""},
		"a proxy that names itself": {[]string{"127.0.0.0/8"}, []string{"127.0.0.1"}, ""},
		"a proxy with a blank":      {[]string{"127.0.0.0/8"}, []string{" "}, ""},
		"a proxy elsewhere":         {[]string{"10.0.0.0/8"}, nil, "127.0.0.1"},
		"a proxy is believed":       {[]string{"127.0.0.0/8"}, []string{"9.9.9.9"}, "9.9.9.9"},
		"the last hop counts":       {[]string{"127.0.0.0/8"}, []string{"1.1.1.1, 9.9.9.9"}, "9.9.9.9"},
		"in two headers":            {[]string{"127.0.0.0/8"}, []string{"1.1.1.1", "9.9.9.9"}, "9.9.9.9"},
		"behind two proxies":        {[]string{"127.0.0.0/8", "10.0.0.0/8"}, []string{"9.9.9.9, 10.1.1.1"}, "9.9.9.9"},
		"with a port":               {[]string{"127.0.0.0/8"}, []string{"9.9.9.9:80"}, "9.9.9.9"},
		"one site of IPv6":          {[]string{"127.0.0.0/8"}, []string{"[2001:db8::1]:80"}, "2001:db8::1"},
		"IPv4 in another notation":  {[]string{"127.0.0.0/8"}, []string{"::ffff:9.9.9.9"}, "9.9.9.9"},
		"what is no address":        {[]string{"127.0.0.0/8"}, []string{"9.9.9.9, unknown"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, target, func(set *settings.Settings) {
				set.IdentityTarget, set.SigningKeyFile, set.TrustedProxies = target, path, one.proxies
			})
			got := send(t, s, "POST", "/v1/sessions:logIn", "{}", func(r *http.Request) {
				r.Header["X-Forwarded-For"] = one.forwarded
			})
			if got.StatusCode != 200 {
				t.Fatal(got.Status)
			}
			sent := <-identity.seen
			tokens := sent.Get("bos-proxy-token")
			if len(tokens) != 1 {
				t.Fatalf("%v", sent)
			}
			said := claimsOf(t, tokens[0], public)
			now := time.Now().Unix()
			if said.Adr != one.want || said.Iss != "bos-rest" || strings.Join(said.Aud, " ") != "bos" ||
				said.Exp-said.Iat != 60 || said.Iat > now || said.Exp <= now {
				t.Errorf("%+v", said)
			}
		})
	}
}

func TestStreamsAreSignedAsWell(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key.pem")
	public := writeKey(t, path)
	g := startGateway(t, "")
	s := start(t, g.target, func(set *settings.Settings) { set.SigningKeyFile = path })
	go func() { g.events <- finished(1) }()
	framesOf(send(t, s, "POST", "/v1/runs:askStream", question)).event(t)
	tokens := g.seenMetadata().Get("bos-proxy-token")
	if len(tokens) != 1 || claimsOf(t, tokens[0], public).Adr != "127.0.0.1" {
		t.Errorf("%q", tokens)
	}
}

func TestClientThatReadsNoResponsesIsDisconnected(t *testing.T) {
	g := startGateway(t, "")
	s := start(t, g.target, func(set *settings.Settings) { set.WriteTimeout = 0.05 })
	connection, err := net.Dial("tcp", s.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	if err := connection.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	request := []byte("GET /v2/runs HTTP/1.1\r\nHost: localhost\r\n\r\n")
	for { // one after another; what is refused is written as well
		if _, err := connection.Write(request); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("still connected")
			}
			return
		}
	}
}

func TestProxiedRequestIsNotTreatedAsLocal(t *testing.T) {
	identity, target := startIdentity(t)
	s := start(t, target, func(set *settings.Settings) { set.IdentityTarget = target })
	for header, value := range map[string]string{
		"X-Real-IP": "203.0.113.7", "x-real-ip": "127.0.0.1", "Forwarded": "for=203.0.113.7", "Via": "1.1 proxy",
		"X-Forwarded-Proto": "https", "X-Forwarded-For": "127.0.0.1", "CF-Connecting-IP": "203.0.113.7",
	} {
		got := send(t, s, "POST", "/v1/sessions:logIn", "{}",
			func(r *http.Request) { r.Header.Set(header, value) })
		sent := <-identity.seen
		if hops := strings.Join(sent.Get("x-forwarded-for"), ","); !strings.Contains(hops, "unknown") {
			t.Errorf("%s: %d, %q", header, got.StatusCode, hops)
		}
	}
	send(t, s, "POST", "/v1/sessions:logIn", "{}")
	if hops := strings.Join((<-identity.seen).Get("x-forwarded-for"), ","); hops != "127.0.0.1" {
		t.Errorf("a call of this machine: %q", hops)
	}
}

package server

import (
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	gatewayv1 "bos/rest/gen/bos/gateway/v1"
	identityv1 "bos/rest/gen/bos/identity/v1"
	"bos/rest/internal/settings"
)

// madeUp returns credentials that are all different.
const madeUp = "made-up-"

// crowded is a fake of services that answer unknown callers slowly.
type crowded struct {
	gatewayv1.UnimplementedOrchestratorServiceServer
	identityv1.UnimplementedIdentityServiceServer
	target  string
	waiting chan struct{}
	answer  chan struct{}
	revoked atomic.Bool
}

func startCrowded(t *testing.T) *crowded {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	c := &crowded{
		target: listener.Addr().String(), waiting: make(chan struct{}), answer: make(chan struct{}),
	}
	gatewayv1.RegisterOrchestratorServiceServer(server, c)
	identityv1.RegisterIdentityServiceServer(server, c)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return c
}

// judge accepts the good key at once, unless it is revoked, and is slow for all others.
func (c *crowded) judge(ctx context.Context) error {
	sent, _ := metadata.FromIncomingContext(ctx)
	if strings.Join(sent.Get("authorization"), "") == "Bearer "+key && !c.revoked.Load() {
		return nil
	}
	c.waiting <- struct{}{}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-c.answer:
		return refused(codes.Unauthenticated, "TOKEN_INVALID")
	}
}

func (c *crowded) ListRuns(
	ctx context.Context, _ *gatewayv1.ListRunsRequest,
) (*gatewayv1.ListRunsResponse, error) {
	return &gatewayv1.ListRunsResponse{}, c.judge(ctx)
}

func (c *crowded) WatchRun(
	_ *gatewayv1.WatchRunRequest, stream gatewayv1.OrchestratorService_WatchRunServer,
) error {
	if err := c.judge(stream.Context()); err != nil {
		return err
	}
	return stream.Send(&gatewayv1.WatchRunResponse{Event: finished(1)})
}

func (c *crowded) LogIn(
	ctx context.Context, _ *identityv1.LogInRequest,
) (*identityv1.LogInResponse, error) {
	return &identityv1.LogInResponse{}, c.judge(ctx)
}

// reply is the final response to an unknown caller.
type reply struct {
	status int
	text   string
}

// unknown sends requests of unknown callers, which the services answer slowly.
func (c *crowded) unknown(t *testing.T, s *Server, count int, method, path, credential string) <-chan reply {
	t.Helper()
	answers := make(chan reply, count)
	for number := range count {
		go func() {
			body := io.Reader(http.NoBody)
			if method == http.MethodPost {
				body = strings.NewReader("{}")
			}
			r, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.Address()+path, body)
			if err != nil {
				panic(err)
			}
			r.Header.Set("Content-Type", "application/json")
			switch credential {
			case "":
			case madeUp:
				r.Header.Set("Authorization", "Bearer "+madeUp+strconv.Itoa(number))
			default:
				r.Header.Set("Authorization", "Bearer "+credential)
			}
			response, err := http.DefaultClient.Do(r)
			if err != nil {
				return // the test is over
			}
			text, _ := io.ReadAll(response.Body)
			_ = response.Body.Close()
			answers <- reply{response.StatusCode, string(text)}
		}()
	}
	for range count {
		<-c.waiting
	}
	return answers
}

func TestKnownCallersAreNotDisplacedByUnknownOnes(t *testing.T) {
	const places = 50
	for name, one := range map[string]struct{ method, path, credential, asked, reason string }{
		"wrong tokens":            {"GET", "/v1/runs", "wrong", "/v1/runs", "TOO_MANY_REQUESTS"},
		"made-up keys":            {"GET", "/v1/runs", madeUp, "/v1/runs", "TOO_MANY_REQUESTS"},
		"open calls":              {"POST", "/v1/sessions:logIn", "", "/v1/runs", "TOO_MANY_REQUESTS"},
		"open calls with tokens":  {"POST", "/v1/sessions:logIn", "wrong", "/v1/runs", "TOO_MANY_REQUESTS"},
		"streams of made-up keys": {"GET", "/v1/runs/r1:watch", madeUp, "/v1/runs/r1:watch", "TOO_MANY_STREAMS"},
		"streams of wrong tokens": {"GET", "/v1/runs/r1:watch", "wrong", "/v1/runs/r1:watch", "TOO_MANY_STREAMS"},
	} {
		t.Run(name, func(t *testing.T) {
			c := startCrowded(t)
			s := start(t, c.target, func(set *settings.Settings) {
				set.StaticKey, set.IdentityTarget = "", c.target
				set.MaxRequests, set.MaxStreams = places, places
			})
			ask := func() int {
				response := send(t, s, "GET", one.asked, "")
				read(t, response) // whose end is the end of its place
				return response.StatusCode
			}
			if got := ask(); got != 200 {
				t.Fatal(got)
			}
			answers := c.unknown(t, s, places, one.method, one.path, one.credential)
			if got := ask(); got != 200 {
				t.Error(got)
			}
			displaced := <-answers
			// A stream that has sent its headers reports it as its last event.
			if (displaced.status != 429 && displaced.status != 200) ||
				!strings.Contains(displaced.text, one.reason) {
				t.Errorf("%+v", displaced)
			}
			for range 10 { // an unknown caller that left frees its place
				if got := ask(); got != 200 {
					t.Error(got)
				}
			}
			if len(answers) != 0 {
				t.Error("others had to go as well")
			}
		})
	}
}

func TestRefusedCredentialIsUnknownAgain(t *testing.T) {
	c := startCrowded(t)
	s := start(t, c.target, func(set *settings.Settings) {
		set.StaticKey, set.IdentityTarget, set.MaxRequests = "", c.target, 2
	})
	if got := send(t, s, "GET", "/v1/runs", "").StatusCode; got != 200 {
		t.Fatal(got)
	}
	c.revoked.Store(true)
	revoked := c.unknown(t, s, 1, "GET", "/v1/runs", key)
	c.answer <- struct{}{}
	if got := <-revoked; got.status != 401 {
		t.Errorf("%+v", got)
	}
	c.unknown(t, s, 2, "GET", "/v1/runs", madeUp)
	status := make(chan int)
	go func() { status <- send(t, s, "GET", "/v1/runs", "").StatusCode }()
	select {
	case got := <-status:
		if got != 429 {
			t.Error(got)
		}
	case <-c.waiting:
		t.Error("it has the place of another")
		c.answer <- struct{}{}
		<-status
	}
}

func TestUnknownCallerDisplacesOneOfManyWithTheSameToken(t *testing.T) {
	c := startCrowded(t)
	s := start(t, c.target, func(set *settings.Settings) {
		set.StaticKey, set.IdentityTarget, set.MaxRequests = "", c.target, 3
	})
	answers := c.unknown(t, s, 3, "GET", "/v1/runs", "wrong")
	one := send(t, s, "GET", "/v1/runs", "", header("Authorization", "Bearer wrong"))
	if one.StatusCode != 429 || one.Header.Get("Retry-After") == "" {
		t.Error(one.Status, one.Header)
	}
	if len(answers) != 0 {
		t.Error("it has the place of another")
	}
	if got := send(t, s, "GET", "/v1/runs", "").StatusCode; got != 200 {
		t.Error(got)
	}
}

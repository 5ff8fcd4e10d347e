package server

import (
	"context"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	identityv1 "bos/rest/gen/bos/identity/v1"
)

// accounts is a real gRPC server of identity with one account, ada.
type accounts struct {
	identityv1.UnimplementedIdentityServiceServer
	identityv1.UnimplementedOpenIdServiceServer

	mu      sync.Mutex
	life    time.Duration // of access tokens
	issued  int
	valid   map[string]bool // refresh tokens that were not used
	away    bool
	logOuts []string
	begun   string
	names   []string
}

func startAccounts(t *testing.T) (*accounts, string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	a := &accounts{life: 10 * time.Minute, valid: map[string]bool{}}
	identityv1.RegisterIdentityServiceServer(server, a)
	identityv1.RegisterOpenIdServiceServer(server, a)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return a, listener.Addr().String()
}

func (a *accounts) tokens() *identityv1.Tokens {
	a.issued++
	number := strconv.Itoa(a.issued)
	a.valid["refresh-"+number] = true
	return &identityv1.Tokens{
		AccessToken: "access-" + number, AccessTokenLifetime: durationpb.New(a.life),
		RefreshToken:           "refresh-" + number,
		RefreshTokenExpireTime: timestamppb.New(time.Now().Add(time.Hour)),
	}
}

func (a *accounts) LogIn(_ context.Context, request *identityv1.LogInRequest) (*identityv1.LogInResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.names = append(a.names, request.GetClientName())
	if request.GetUsername() != "ada" || request.GetPassword() != "secret" {
		return nil, refused(codes.Unauthenticated, "LOGIN_FAILED")
	}
	return &identityv1.LogInResponse{Tokens: a.tokens()}, nil
}

func (a *accounts) RefreshSession(
	_ context.Context, request *identityv1.RefreshSessionRequest,
) (*identityv1.RefreshSessionResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.away {
		return nil, refused(codes.Unavailable, "STORE_AWAY")
	}
	if !a.valid[request.GetRefreshToken()] {
		return nil, refused(codes.Unauthenticated, "SESSION_ENDED")
	}
	delete(a.valid, request.GetRefreshToken())
	return &identityv1.RefreshSessionResponse{Tokens: a.tokens()}, nil
}

func (a *accounts) LogOut(_ context.Context, request *identityv1.LogOutRequest) (*identityv1.LogOutResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.logOuts = append(a.logOuts, request.GetRefreshToken())
	delete(a.valid, request.GetRefreshToken())
	return &identityv1.LogOutResponse{}, nil
}

func (a *accounts) GetOpenIdProvider(
	context.Context, *identityv1.GetOpenIdProviderRequest,
) (*identityv1.GetOpenIdProviderResponse, error) {
	return &identityv1.GetOpenIdProviderResponse{Available: true, Name: "Example"}, nil
}

func (a *accounts) BeginOpenIdLogIn(
	_ context.Context, request *identityv1.BeginOpenIdLogInRequest,
) (*identityv1.BeginOpenIdLogInResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.begun = request.GetRedirectUri()
	return &identityv1.BeginOpenIdLogInResponse{
		Handle: "the-handle", AuthorizationUrl: "https://issuer.example/authorize?state=abc&nonce=n",
	}, nil
}

func (a *accounts) FinishOpenIdLogIn(
	_ context.Context, request *identityv1.FinishOpenIdLogInRequest,
) (*identityv1.FinishOpenIdLogInResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if request.GetHandle() != "the-handle" || request.GetCode() != "good" || request.GetState() != "abc" {
		return nil, refused(codes.Unauthenticated, "OPENID_FAILED")
	}
	return &identityv1.FinishOpenIdLogInResponse{Outcome: &identityv1.FinishOpenIdLogInResponse_LogIn{
		LogIn: &identityv1.LogInResponse{Tokens: a.tokens()},
	}}, nil
}

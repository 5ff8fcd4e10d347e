// Package upstream calls the services: load-balanced gRPC channels, a deadline on every call, and
// errors that are safe to show to clients.
package upstream

import (
	"context"
	"errors"
	"io"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"bos/rest/internal/concurrency"
	"bos/rest/internal/proxytoken"
)

const (
	maxMessageBytes = 16 * 1024 * 1024
	// Reads are retried. Questions and changes are not: clients repeat them with their request id.
	serviceConfig = `{
		"loadBalancingConfig": [{"round_robin": {}}],
		"methodConfig": [{
			"name": [
				{"service": "bos.gateway.v1.OrchestratorService", "method": "GetRun"},
				{"service": "bos.gateway.v1.OrchestratorService", "method": "ListRuns"},
				{"service": "bos.gateway.v1.OrchestratorService", "method": "ListAgents"},
				{"service": "bos.gateway.v1.OperatorService", "method": "ListUserRuns"},
				{"service": "bos.gateway.v1.OperatorService", "method": "GetUserRun"},
				{"service": "bos.gateway.v1.OperatorService", "method": "ListUserApprovals"},
				{"service": "bos.gateway.v1.OperatorService", "method": "GetSpend"},
				{"service": "bos.gateway.v1.OperatorService", "method": "GetStorage"},
				{"service": "bos.gateway.v1.ApprovalService", "method": "ListApprovals"},
				{"service": "bos.gateway.v1.ApprovalService", "method": "GetApproval"},
				{"service": "bos.gateway.v1.WebhookService", "method": "ListWebhooks"},
				{"service": "bos.gateway.v1.WebhookService", "method": "GetWebhook"},
				{"service": "bos.gateway.v1.WebhookService", "method": "ListWebhookDeliveries"}
			],
			"retryPolicy": {
				"maxAttempts": 3, "initialBackoff": "0.1s", "maxBackoff": "1s",
				"backoffMultiplier": 3, "retryableStatusCodes": ["UNAVAILABLE"]
			}
		}]
	}`
	askMethod = "/bos.gateway.v1.OrchestratorService/Ask"
)

// Timeouts are the default and maximum deadlines of calls.
type Timeouts struct {
	// Call is for calls that do not wait for a run.
	Call time.Duration
	// Run is for calls that wait for a run.
	Run time.Duration
}

// Dial returns a channel to a target; it connects on first use. Its calls carry a token of signer, if
// there is one.
func Dial(
	target string, timeouts Timeouts, creds credentials.TransportCredentials,
	signer *proxytoken.Signer, calls stats.Handler, options ...otelgrpc.Option,
) (*grpc.ClientConn, error) {
	return grpc.NewClient(target,
		grpc.WithTransportCredentials(creds),
		grpc.WithDefaultServiceConfig(serviceConfig),
		grpc.WithNoProxy(),
		grpc.WithStatsHandler(otelgrpc.NewClientHandler(options...)),
		// Behind it: the trace of a call is in its context then.
		grpc.WithStatsHandler(calls),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageBytes)),
		grpc.WithConnectParams(grpc.ConnectParams{
			// Reconnects to a restarted gateway within two seconds.
			Backoff: backoff.Config{
				BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2,
				MaxDelay: 2 * time.Second,
			},
			MinConnectTimeout: 5 * time.Second,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: 30 * time.Second, Timeout: 10 * time.Second, PermitWithoutStream: true,
		}),
		grpc.WithUnaryInterceptor(func(
			ctx context.Context, method string, request, reply any, conn *grpc.ClientConn,
			invoke grpc.UnaryInvoker, options ...grpc.CallOption,
		) error {
			limit := timeouts.Call
			if method == askMethod {
				limit = timeouts.Run
			}
			ctx, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			ctx, err := signed(ctx, signer)
			if err != nil {
				return err
			}
			err = invoke(ctx, method, request, reply, conn, options...)
			judge(ctx, err)
			return Translate(ctx, err)
		}),
		grpc.WithStreamInterceptor(func(
			ctx context.Context, description *grpc.StreamDesc, conn *grpc.ClientConn, method string,
			open grpc.Streamer, options ...grpc.CallOption,
		) (grpc.ClientStream, error) {
			ctx, err := signed(ctx, signer)
			if err != nil {
				return nil, err
			}
			stream, err := open(ctx, description, conn, method, options...)
			if err != nil {
				return nil, err
			}
			return &judged{ClientStream: stream, ctx: ctx}, nil
		}),
	)
}

// judge records whether a service accepted the caller's credential, by the outcome of a call.
func judge(ctx context.Context, err error) {
	switch status.Code(err) {
	case codes.OK:
		concurrency.Accepted(ctx)
	case codes.Unauthenticated:
		concurrency.Rejected(ctx)
	}
}

// judged is a stream whose first message or end shows whether the service accepted the credential.
type judged struct {
	grpc.ClientStream
	ctx  context.Context
	done bool
}

func (j *judged) RecvMsg(message any) error {
	err := j.ClientStream.RecvMsg(message)
	if !j.done && !errors.Is(err, io.EOF) {
		j.done = true
		judge(j.ctx, err)
	}
	return err
}

// signed adds the token to the metadata of a call. The mux's own x-forwarded-for is passed on as well:
// services use it only as a sign that a call is not local, never as the client's address.
func signed(ctx context.Context, signer *proxytoken.Signer) (context.Context, error) {
	if signer == nil {
		return ctx, nil
	}
	token, err := signer.Token(ctx)
	if err != nil || token == "" {
		return ctx, err
	}
	sent, _ := metadata.FromOutgoingContext(ctx)
	sent = metadata.Join(sent) // a copy, even of none
	sent.Set(proxytoken.Header, token)
	return metadata.NewOutgoingContext(ctx, sent), nil
}

package server

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	gatewayv1 "bos/rest/gen/bos/gateway/v1"
	"bos/rest/internal/settings"
)

const key = "a-key-of-sixteen-characters"

// gateway is a real gRPC server with answers set by the test.
type gateway struct {
	gatewayv1.UnimplementedOrchestratorServiceServer
	server *grpc.Server
	desk   *desk
	target string
	events chan *gatewayv1.RunEvent
	broken chan error
	left   chan struct{}

	mu       sync.Mutex
	metadata metadata.MD
	watched  [][2]int64
	ended    bool
	// lookUp is the last GetRun; run is what it returns, if it is set.
	lookUp *gatewayv1.GetRunRequest
	run    *gatewayv1.Run
}

func (g *gateway) seenLookUp() *gatewayv1.GetRunRequest {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lookUp
}

func startGateway(t *testing.T, target string) *gateway {
	t.Helper()
	network, address := "tcp", "127.0.0.1:0"
	if path, isUnix := strings.CutPrefix(target, "unix:"); isUnix {
		network, address = "unix", path
	} else if target != "" {
		address = target
	}
	listener, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	g := &gateway{
		server: grpc.NewServer(), desk: &desk{}, target: listener.Addr().String(),
		events: make(chan *gatewayv1.RunEvent), broken: make(chan error),
		left: make(chan struct{}, 16),
	}
	gatewayv1.RegisterOrchestratorServiceServer(g.server, g)
	gatewayv1.RegisterApprovalServiceServer(g.server, g.desk)
	alive := health.NewServer()
	alive.SetServingStatus(gatewayService, grpc_health_v1.HealthCheckResponse_SERVING)
	grpc_health_v1.RegisterHealthServer(g.server, alive)
	go func() { _ = g.server.Serve(listener) }()
	t.Cleanup(g.server.Stop)
	return g
}

func (g *gateway) seen(ctx context.Context) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.metadata, _ = metadata.FromIncomingContext(ctx)
}

func (g *gateway) seenMetadata() metadata.MD {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.metadata
}

func (g *gateway) Ask(
	ctx context.Context, request *gatewayv1.AskRequest,
) (*gatewayv1.AskResponse, error) {
	g.seen(ctx)
	switch question := request.GetRequest().GetQuestion(); question {
	case "full":
		return nil, refused(codes.ResourceExhausted, "TOO_MANY_RUNS",
			&errdetails.RetryInfo{RetryDelay: durationpb.New(1500e6)})
	case "defect":
		return nil, status.Error(codes.Internal, "password=hunter2")
	case "foreign":
		return nil, status.Error(codes.Unavailable, "dial tcp 10.1.2.3:99: refused")
	case "wait":
		<-ctx.Done()
		g.left <- struct{}{}
		return nil, ctx.Err()
	default:
		return &gatewayv1.AskResponse{Response: &gatewayv1.OrchestratorResponse{
			RunId: "r1", Answer: "You asked: " + question,
		}}, nil
	}
}

func (g *gateway) GetRun(
	_ context.Context, request *gatewayv1.GetRunRequest,
) (*gatewayv1.GetRunResponse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lookUp = request
	if g.run != nil {
		return &gatewayv1.GetRunResponse{Run: g.run}, nil
	}
	run := &gatewayv1.Run{RunId: "r1", Status: gatewayv1.RunStatus_RUN_STATUS_EXECUTING}
	if g.ended {
		run.Status = gatewayv1.RunStatus_RUN_STATUS_SUCCEEDED
		run.Response = &gatewayv1.OrchestratorResponse{}
	}
	return &gatewayv1.GetRunResponse{Run: run}, nil
}

func (g *gateway) ListRuns(
	ctx context.Context, request *gatewayv1.ListRunsRequest,
) (*gatewayv1.ListRunsResponse, error) {
	g.seen(ctx)
	return &gatewayv1.ListRunsResponse{NextPageToken: request.GetPageToken()}, nil
}

func (g *gateway) AskStream(
	request *gatewayv1.AskStreamRequest, stream gatewayv1.OrchestratorService_AskStreamServer,
) error {
	g.seen(stream.Context())
	if request.GetRequest().GetQuestion() == "" {
		return refused(codes.InvalidArgument, "INVALID_ARGUMENT", &errdetails.BadRequest{
			FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: "request.question"}},
		})
	}
	return g.send(stream.Context(), func(event *gatewayv1.RunEvent) error {
		return stream.Send(&gatewayv1.AskStreamResponse{Event: event})
	})
}

func (g *gateway) WatchRun(
	request *gatewayv1.WatchRunRequest, stream gatewayv1.OrchestratorService_WatchRunServer,
) error {
	g.mu.Lock()
	g.watched = append(g.watched,
		[2]int64{request.GetAfterSequence(), request.GetAfterOffset()})
	ended := g.ended
	g.mu.Unlock()
	if request.GetRunId() == "unknown" {
		return refused(codes.NotFound, "NOT_FOUND")
	}
	if ended {
		return nil
	}
	return g.send(stream.Context(), func(event *gatewayv1.RunEvent) error {
		return stream.Send(&gatewayv1.WatchRunResponse{Event: event})
	})
}

// send passes on events until the run ends, the stream is to break, or the client left.
func (g *gateway) send(ctx context.Context, send func(*gatewayv1.RunEvent) error) error {
	for {
		select {
		case event := <-g.events:
			if err := send(event); err != nil {
				g.left <- struct{}{}
				return err
			}
			if event.GetRunFinished() != nil {
				return nil
			}
		case err := <-g.broken:
			return err
		case <-ctx.Done():
			g.left <- struct{}{}
			return ctx.Err()
		}
	}
}

func refused(code codes.Code, reason string, details ...interface {
	ProtoMessage()
	Reset()
	String() string
}) error {
	made, err := status.New(code, "Refused on purpose.").WithDetails(
		&errdetails.ErrorInfo{Reason: reason, Domain: "bos"})
	if err != nil {
		return err
	}
	for _, detail := range details {
		if made, err = made.WithDetails(detail); err != nil {
			return err
		}
	}
	return made.Err()
}

// start runs the service in front of a target; set changes its settings.
func start(t *testing.T, target string, set func(*settings.Settings)) *Server {
	t.Helper()
	read, err := settings.Load(map[string]string{
		"BOS_REST_GATEWAY_TARGET": target, "BOS_REST_PORT": "0", "BOS_AUTH_STATIC_KEY": key,
		"BOS_REST_GRACE_S": "0.2",
	})
	if err != nil {
		t.Fatal(err)
	}
	if set != nil {
		set(&read)
	}
	server, err := Start(t.Context(), read, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	return server
}

type option func(*http.Request)

func header(name, value string) option {
	return func(r *http.Request) {
		if name == "Host" {
			r.Host = value
			return
		}
		r.Header.Set(name, value)
	}
}

// send makes one request with the key; a body is sent as JSON.
func send(t *testing.T, s *Server, method, path, body string, options ...option) *http.Response {
	t.Helper()
	var content io.Reader
	if body != "" {
		content = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.Address()+path, content)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, set := range options {
		set(r)
	}
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	return response
}

// frame is one server-sent event or comment.
type frame struct{ id, event, data, comment string }

// frames reads a stream.
type frames struct{ scanner *bufio.Scanner }

func framesOf(response *http.Response) *frames {
	scanner := bufio.NewScanner(response.Body)
	scanner.Buffer(nil, 1<<20)
	return &frames{scanner}
}

// next is the next event or comment; ok is false at the end of the stream.
func (f *frames) next() (one frame, ok bool) {
	for f.scanner.Scan() {
		name, value, _ := strings.Cut(f.scanner.Text(), ": ")
		switch {
		case f.scanner.Text() == "":
			if one != (frame{}) {
				return one, true
			}
		case name == "id":
			one.id = value
		case name == "event":
			one.event = value
		case name == "data":
			one.data += value
		case name == "":
			one.comment = value
		}
	}
	return one, false
}

func (f *frames) event(t *testing.T) frame {
	t.Helper()
	for {
		one, ok := f.next()
		if !ok {
			t.Fatal("the stream ended")
		}
		if one.event != "" {
			return one
		}
	}
}

func accepted(sequence int64) *gatewayv1.RunEvent {
	return &gatewayv1.RunEvent{RunId: "r1", Sequence: sequence, Event: &gatewayv1.RunEvent_RunAccepted{
		RunAccepted: &gatewayv1.RunAcceptedEvent{Question: "a\nb"},
	}}
}

func delta(sequence, offset int64, text string) *gatewayv1.RunEvent {
	return &gatewayv1.RunEvent{RunId: "r1", Sequence: sequence, Event: &gatewayv1.RunEvent_AnswerDelta{
		AnswerDelta: &gatewayv1.AnswerDeltaEvent{Text: text, Attempt: 1, Offset: offset},
	}}
}

func finished(sequence int64) *gatewayv1.RunEvent {
	return &gatewayv1.RunEvent{RunId: "r1", Sequence: sequence, Event: &gatewayv1.RunEvent_RunFinished{
		RunFinished: &gatewayv1.RunFinishedEvent{Response: &gatewayv1.OrchestratorResponse{
			RunId: "r1", Answer: "All.", Status: gatewayv1.RunStatus_RUN_STATUS_SUCCEEDED,
		}},
	}}
}

package sse

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	gatewayv1 "bos/rest/gen/bos/gateway/v1"
	"bos/rest/internal/apierror"
	"bos/rest/internal/codec"
	"bos/rest/internal/upstream"
)

// Settings of the streams.
type Settings struct {
	// Heartbeat is the time between comments on a silent stream.
	Heartbeat time.Duration
	// OpenWithin is the time that headers wait for the first event, so that errors have their status.
	OpenWithin time.Duration
	// Write is the time a client has to take one event.
	Write time.Duration
	// Leg is the deadline of one call to the gateway; longer streams make further calls.
	Leg time.Duration
	// Attempts in a row to resume an interrupted stream, First and Cap of the back-off between.
	Attempts   int
	First, Cap time.Duration
}

func (s Settings) wait(failures int) time.Duration {
	wait := s.First
	for range failures - 1 {
		wait = min(2*wait, s.Cap)
	}
	return wait
}

// Observer receives stream events for metrics.
type Observer interface {
	StreamOpened()
	StreamClosed()
	EventSent()
	StreamRetried()
}

// Streams serves the streaming methods of the gateway.
type Streams struct {
	client   gatewayv1.OrchestratorServiceClient
	settings Settings
	observer Observer
	stopping <-chan struct{}
	log      *slog.Logger
}

// New returns the handlers; they end their streams when stopping is closed.
func New(
	client gatewayv1.OrchestratorServiceClient, settings Settings, observer Observer,
	stopping <-chan struct{}, log *slog.Logger,
) *Streams {
	return &Streams{client, settings, observer, stopping, log}
}

// Register installs the handlers before the generated ones of the same paths.
func (s *Streams) Register(mux *runtime.ServeMux) error {
	for _, route := range []struct {
		verb, path string
		handle     func(http.ResponseWriter, *http.Request, map[string]string, naming)
		names      func(codec.Form) naming
		method     string
	}{
		{"POST", "/v1/runs:askStream", s.ask, kindNames, gatewayv1.OrchestratorService_AskStream_FullMethodName},
		{"POST", "/query/stream", s.ask, sourceNames, gatewayv1.OrchestratorService_AskStream_FullMethodName},
		{"GET", "/v1/runs/{run_id}:watch", s.watch, kindNames, gatewayv1.OrchestratorService_WatchRun_FullMethodName},
	} {
		handler := func(w http.ResponseWriter, r *http.Request, parameters map[string]string) {
			ctx, err := runtime.AnnotateContext(r.Context(), mux, r, route.method,
				runtime.WithHTTPPathPattern(route.path))
			if err != nil {
				apierror.Write(w, err)
				return
			}
			route.handle(w, r.WithContext(ctx), parameters, route.names(codec.FormOf(ctx)))
		}
		if err := mux.HandlePath(route.verb, route.path, handler); err != nil {
			return err
		}
	}
	return nil
}

func (s *Streams) ask(w http.ResponseWriter, r *http.Request, _ map[string]string, names naming) {
	request := &gatewayv1.AskStreamRequest{Request: &gatewayv1.AgentRequest{}}
	err := codec.New(codec.Plain).NewDecoder(r.Body).Decode(request.Request)
	if err != nil && !errors.Is(err, io.EOF) { // without a body the gateway says what is missing
		apierror.Write(w, status.Error(codes.InvalidArgument, err.Error()))
		return
	}
	if request.Request.GetRequestId() == "" {
		// With a request id, repeating the question after a lost connection finds the same run.
		request.Request.RequestId = "rest-" + rand.Text()
	}
	f := s.follower()
	s.stream(w, r, f, f.ask(request), names)
}

func (s *Streams) watch(
	w http.ResponseWriter, r *http.Request, parameters map[string]string, names naming,
) {
	f := s.follower()
	f.runID = parameters["run_id"]
	for _, given := range []struct {
		field string
		into  *int64
	}{{"after_sequence", &f.seen.sequence}, {"after_offset", &f.seen.offset}} {
		text := r.URL.Query().Get(given.field)
		if text == "" {
			continue
		}
		number, ok := parseCount(text)
		if !ok {
			apierror.Write(w, apierror.Field(given.field, "must be a whole number, 0 or more"))
			return
		}
		*given.into = number
	}
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		last, ok := parseCursor(id)
		if !ok {
			apierror.Write(w, apierror.Field("Last-Event-ID",
				"must be the id of the last event seen, such as 7 or 7.120"))
			return
		}
		if f.seen.before(last) {
			f.seen = last
		}
	}
	s.stream(w, r, f, f.watch, names)
}

func (s *Streams) follower() *follower {
	return &follower{
		client: s.client, settings: s.settings, onRetry: s.observer.StreamRetried, log: s.log,
	}
}

// stream writes the events of a run until the run has ended or the client has disconnected.
func (s *Streams) stream(
	w http.ResponseWriter, r *http.Request, f *follower,
	open func(context.Context) (receive, error), names naming,
) {
	one := &stream{
		out: newWriter(w, s.settings.Write), follower: f, names: names, streams: s,
		asks: r.Method == http.MethodPost,
	}
	select {
	case <-s.stopping: // before a run begins
		one.stop(w)
		return
	default:
	}
	s.observer.StreamOpened()
	defer s.observer.StreamClosed()
	ctx, cancel := context.WithCancel(r.Context())
	items := make(chan item, 1)
	go f.follow(ctx, open, items)
	defer func() {
		cancel()
		for range items { // waits until the follower has let go of its call
		}
	}()
	one.serve(ctx, w, items)
}

// stream is one client's stream.
type stream struct {
	out      *writer
	follower *follower
	names    naming
	streams  *Streams
	// asks is set if the client starts a run, and not if it watches one.
	asks bool
}

// stop ends the stream at shutdown.
func (s *stream) stop(w http.ResponseWriter) {
	if s.asks && !s.out.opened {
		apierror.Write(w, apierror.New(http.StatusServiceUnavailable, codes.Unavailable, "STOPPING",
			"The service is stopping.", &errdetails.RetryInfo{RetryDelay: durationpb.New(time.Second)}))
		return
	}
	// An EventSource reconnects after the end of a stream, but not after an error status.
	_ = s.out.comment("stopping; come back")
}

// leave ends the stream of a client that disconnected, whose deadline passed, or that was displaced.
func (s *stream) leave(ctx context.Context, w http.ResponseWriter) {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) && upstream.Displaced(ctx) == nil {
		return
	}
	s.fail(w, upstream.Translate(ctx, status.FromContextError(ctx.Err()).Err()))
}

// fail reports an error, by HTTP status if the headers are not sent yet.
func (s *stream) fail(w http.ResponseWriter, err error) {
	if !s.out.opened {
		apierror.Write(w, err)
		return
	}
	_ = s.out.event("", "error", apierror.JSON(err))
}

func (s *stream) serve(ctx context.Context, w http.ResponseWriter, items <-chan item) {
	opening := time.NewTimer(s.streams.settings.OpenWithin)
	defer opening.Stop()
	heartbeat := time.NewTicker(s.streams.settings.Heartbeat)
	defer heartbeat.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			s.leave(ctx, w)
			return
		case <-s.streams.stopping:
			s.stop(w)
			return
		case <-opening.C:
			s.follower.shown.Store(true)
			err = s.out.open()
		case <-heartbeat.C:
			s.follower.shown.Store(true)
			err = s.out.comment("still here")
		case next, more := <-items:
			if !more {
				s.leave(ctx, w)
				return
			}
			heartbeat.Reset(s.streams.settings.Heartbeat)
			if last := s.handle(w, next); last {
				return
			}
		}
		if err != nil {
			return // the client is gone or takes nothing
		}
	}
}

// handle writes one item; it returns true after the last, and if nothing more can be written.
func (s *stream) handle(w http.ResponseWriter, next item) bool {
	switch {
	case next.event != nil:
		s.follower.shown.Store(true)
		err := s.event(next.event, next.at)
		if err != nil && s.out.failed == nil { // the client is there, and the event is no JSON
			s.streams.log.Error("event cannot be sent", "run_id", next.event.GetRunId(),
				"sequence", next.event.GetSequence(), "error", err)
			s.fail(w, err)
		}
		return err != nil || next.event.GetRunFinished() != nil
	case next.ended != nil && !s.out.opened:
		w.WriteHeader(http.StatusNoContent) // by which browsers know that there is no more
	case next.ended != nil:
		_ = s.done(next.ended.GetRunId(), next.ended.GetStatus())
	case next.interrupted && s.out.opened:
		_ = s.out.comment("interrupted; come back")
	default:
		s.fail(w, next.err)
	}
	return true
}

func (s *stream) event(event *gatewayv1.RunEvent, at cursor) error {
	messages, err := s.names(event)
	if err != nil || len(messages) == 0 {
		return err
	}
	last := len(messages) - 1
	for _, earlier := range messages[:last] {
		if err := s.out.event("", earlier.name, earlier.data); err != nil {
			return err
		}
	}
	if err := s.out.event(at.String(), messages[last].name, messages[last].data); err != nil {
		return err
	}
	s.streams.observer.EventSent()
	if finished := event.GetRunFinished(); finished != nil && messages[last].name != doneName {
		return s.done(event.GetRunId(), finished.GetResponse().GetStatus())
	}
	return nil
}

// done is the last event of a stream whose run has ended.
func (s *stream) done(runID string, outcome gatewayv1.RunStatus) error {
	data, err := json.Marshal(map[string]string{"run_id": runID, "status": outcome.String()})
	if err != nil {
		return err
	}
	return s.out.event("", doneName, data)
}

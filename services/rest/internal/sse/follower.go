package sse

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	gatewayv1 "bos/rest/gen/bos/gateway/v1"
	"bos/rest/internal/apierror"
	"bos/rest/internal/upstream"
)

// A call that lasted this long does not count as a failed attempt.
const goodLeg = 30 * time.Second

// item is an event, the end of the run, or the error that stops the follower.
type item struct {
	event *gatewayv1.RunEvent
	// at is the cursor after the event.
	at cursor
	// ended is set when the run has ended and all events were seen before.
	ended *gatewayv1.Run
	err   error
	// interrupted is set if the run continues and only the connection is lost.
	interrupted bool
}

// follower reads the events of a run and the text of its answer exactly once, across reconnects to the
// gateway.
type follower struct {
	client   gatewayv1.OrchestratorServiceClient
	settings Settings
	onRetry  func()
	log      *slog.Logger
	// shown is set once the headers are sent; before that, errors are reported by HTTP status.
	shown atomic.Bool

	runID string
	seen  cursor
}

// receive returns the next event of one connection.
type receive func() (*gatewayv1.RunEvent, error)

func eventsOf[M interface{ GetEvent() *gatewayv1.RunEvent }](next func() (M, error)) receive {
	return func() (*gatewayv1.RunEvent, error) {
		message, err := next()
		return message.GetEvent(), err
	}
}

func (f *follower) ask(request *gatewayv1.AskStreamRequest) func(context.Context) (receive, error) {
	return func(ctx context.Context) (receive, error) {
		stream, err := f.client.AskStream(ctx, request)
		if err != nil {
			return nil, err
		}
		return eventsOf(stream.Recv), nil
	}
}

func (f *follower) watch(ctx context.Context) (receive, error) {
	stream, err := f.client.WatchRun(ctx, &gatewayv1.WatchRunRequest{
		RunId: f.runID, AfterSequence: f.seen.sequence, AfterOffset: f.seen.offset,
	})
	if err != nil {
		return nil, err
	}
	return eventsOf(stream.Recv), nil
}

// follow sends items until the run has ended, an error occurs, or ctx is done; then it closes items.
// Unless ctx is done, the last item is a run_finished event, ended, or err.
func (f *follower) follow(
	ctx context.Context, open func(context.Context) (receive, error), items chan<- item,
) {
	defer close(items)
	send := func(one item) bool {
		select {
		case items <- one:
			return true
		case <-ctx.Done():
			return false
		}
	}
	defer func() {
		// An unrecovered panic in this goroutine would end the process.
		if defect := recover(); defect != nil {
			f.log.Error("stream failed", "defect", defect, "stack", string(debug.Stack()))
			send(item{err: apierror.New(http.StatusInternalServerError, codes.Internal, "INTERNAL",
				apierror.Neutral)})
		}
	}()
	failures := 0
	for {
		begun := time.Now()
		events, err := f.leg(ctx, open, send)
		if err == nil || ctx.Err() != nil {
			return // the run ended, or the client disconnected
		}
		if events > 0 || time.Since(begun) > goodLeg {
			failures = 0
		}
		if errors.Is(err, io.EOF) {
			if events == 0 && f.seen.sequence > 0 {
				if run := f.endedRun(ctx); run != nil {
					send(item{ended: run})
					return
				}
			}
		} else if !lost(err) {
			send(item{err: upstream.Translate(ctx, err)})
			return
		}
		failures++
		if f.runID == "" || (events == 0 && !f.shown.Load()) || failures >= f.settings.Attempts {
			if errors.Is(err, io.EOF) {
				err = status.Error(codes.Unavailable, "")
			}
			send(item{err: upstream.Translate(ctx, err), interrupted: true})
			return
		}
		f.onRetry()
		if !pause(ctx, f.settings.wait(failures)) {
			return
		}
		open = f.watch
	}
}

// leg sends the events of one connection. It returns the number of new ones, and nil after the last
// event of the run, or the error that ended the connection before.
func (f *follower) leg(
	ctx context.Context, open func(context.Context) (receive, error), send func(item) bool,
) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, f.settings.Leg)
	defer cancel()
	next, err := open(ctx)
	if err != nil {
		return 0, err
	}
	for events := 0; ; {
		event, err := next()
		if err != nil {
			return events, err
		}
		if !f.seen.take(event) {
			continue
		}
		f.runID = event.GetRunId()
		events++
		if !send(item{event: event, at: f.seen}) {
			return events, context.Canceled
		}
		if event.GetRunFinished() != nil {
			return events, nil
		}
	}
}

// endedRun returns the run if it has ended; nil if not, or if that cannot be found out.
func (f *follower) endedRun(ctx context.Context) *gatewayv1.Run {
	answer, err := f.client.GetRun(ctx, &gatewayv1.GetRunRequest{RunId: f.runID})
	if err != nil || answer.GetRun().GetResponse() == nil {
		return nil
	}
	return answer.GetRun()
}

// lost reports whether the run may continue although the call ended. A bare CANCELLED means that the
// server shut down; DEADLINE_EXCEEDED is the end of a leg.
func lost(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
		return true
	default:
		return false
	}
}

func pause(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

package upstream

import (
	"context"
	"errors"
	"net/http"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"bos/rest/internal/apierror"
)

// What to say about a status that gRPC or a proxy made up: its own text may hold addresses.
var foreign = map[codes.Code]struct {
	code   codes.Code
	reason string
	text   string
}{
	codes.InvalidArgument:  {codes.InvalidArgument, "INVALID_ARGUMENT", "A service refused the request as invalid."},
	codes.OutOfRange:       {codes.InvalidArgument, "INVALID_ARGUMENT", "A service refused a value as out of range."},
	codes.NotFound:         {codes.NotFound, "NOT_FOUND", "A service did not find what was asked for."},
	codes.AlreadyExists:    {codes.AlreadyExists, "ALREADY_EXISTS", "It exists already."},
	codes.PermissionDenied: {codes.PermissionDenied, "PERMISSION_DENIED", "A service did not permit the call."},
	codes.Unauthenticated:  {codes.Unauthenticated, "UNAUTHENTICATED", "A service did not accept the credentials."},
	codes.FailedPrecondition: {codes.FailedPrecondition, "FAILED_PRECONDITION",
		"A service is not in a state for it."},
	codes.ResourceExhausted: {codes.ResourceExhausted, "RESOURCE_EXHAUSTED",
		"A service refused the call: the message is too large or too many calls run at once."},
	codes.Unavailable:      {codes.Unavailable, "UNAVAILABLE", "The gateway is not reachable at the moment."},
	codes.DeadlineExceeded: {codes.DeadlineExceeded, "DEADLINE_EXCEEDED", "The time for the call ran out."},
	// Nobody here cancelled it, so the server went away with the call.
	codes.Canceled:      {codes.Unavailable, "UNAVAILABLE", "A service ended the call; it may be restarting."},
	codes.Aborted:       {codes.Aborted, "ABORTED", "A service aborted the call."},
	codes.Unimplemented: {codes.Unimplemented, "UNIMPLEMENTED", "A service does not offer this method."},
}

const statusClientClosedRequest = 499

// Displaced is what to tell a client whose request had to make way; nil if it had not.
func Displaced(ctx context.Context) error {
	var failure *apierror.Failure
	if errors.As(context.Cause(ctx), &failure) {
		return failure
	}
	return nil
}

// Translate makes err fit for a client: what a Bos service said stays, what anybody else said is
// replaced by our own words. nil stays nil.
func Translate(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if displaced := Displaced(ctx); displaced != nil {
		return displaced
	}
	found := status.Convert(err)
	if apierror.Reason(found) != "" {
		return err
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return apierror.New(statusClientClosedRequest, codes.Canceled, "CANCELLED",
			"The client ended the call.")
	}
	known, ok := foreign[found.Code()]
	if !ok {
		return apierror.New(http.StatusInternalServerError, codes.Internal, "INTERNAL",
			apierror.Neutral).Status.Err()
	}
	return apierror.New(0, known.code, known.reason, known.text).Status.Err()
}

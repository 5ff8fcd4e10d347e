// Package apierror writes all errors as JSON of one shape:
//
//	{"error": {"code": 404, "status": "NOT_FOUND", "message": "...", "details": [...]}}
//
// That is google.rpc.Status as in Google's HTTP APIs; `code` is the HTTP status.
package apierror

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"regexp"
	"strconv"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/protoadapt"
)

// Domain is that of our own reasons in google.rpc.ErrorInfo.
const Domain = "bos"

// Failure is an error with an HTTP status other than that of its gRPC code.
type Failure struct {
	HTTP   int
	Status *status.Status
}

func (f *Failure) Error() string { return f.Status.Message() }

// GRPCStatus lets status.FromError find the status.
func (f *Failure) GRPCStatus() *status.Status { return f.Status }

// New returns a failure of this service.
//
// reason identifies the failure and is stable; message is one sentence for users.
func New(httpStatus int, grpcCode codes.Code, reason, message string, details ...protoadapt.MessageV1) *Failure {
	made := status.New(grpcCode, message)
	all := append([]protoadapt.MessageV1{&errdetails.ErrorInfo{Reason: reason, Domain: Domain}}, details...)
	if with, err := made.WithDetails(all...); err == nil {
		made = with
	}
	return &Failure{HTTP: httpStatus, Status: made}
}

// Field returns a failure of one field of a request.
func Field(field, description string) *Failure {
	return New(http.StatusBadRequest, codes.InvalidArgument, "INVALID_ARGUMENT",
		field+": "+description, violation(field, description))
}

func violation(field, description string) *errdetails.BadRequest {
	return &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
		{Field: field, Description: description},
	}}
}

// Of returns the HTTP status and the gRPC status with details that a client gets for err.
//
// Errors from services have passed upstream.Translate, so an error without ErrorInfo was made by the
// REST layer while it read the request; its text is about the request only.
func Of(err error) (int, *status.Status) {
	var failure *Failure
	if errors.As(err, &failure) {
		return failure.HTTP, failure.Status
	}
	found := status.Convert(err)
	if Reason(found) == "" {
		if found.Code() != codes.InvalidArgument {
			found = New(0, codes.Internal, "INTERNAL", Neutral).Status
		} else {
			found = unreadable(found.Message()).Status
		}
	}
	return runtime.HTTPStatusFromCode(found.Code()), found
}

// Neutral is the message for internal errors.
const Neutral = "Something went wrong inside the service. The failure has been logged."

// Reason is the reason of the status; empty if it does not come from Bos.
func Reason(s *status.Status) string {
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.Domain == Domain {
			return info.Reason
		}
	}
	return ""
}

// The JSON decoder names the field in its text only.
var fieldInText = regexp.MustCompile(`field "?([A-Za-z_][\w.\[\]]*)"?`)

func unreadable(message string) *Failure {
	if found := fieldInText.FindStringSubmatch(message); found != nil {
		return New(http.StatusBadRequest, codes.InvalidArgument, "INVALID_ARGUMENT",
			message, violation(found[1], message))
	}
	return New(http.StatusBadRequest, codes.InvalidArgument, "INVALID_ARGUMENT", message)
}

// JSON returns the response body of an error.
func JSON(err error) []byte {
	httpStatus, found := Of(err)
	details := []json.RawMessage{}
	for _, detail := range found.Proto().GetDetails() {
		// Details of unknown types are left out.
		if text, err := (protojson.MarshalOptions{UseProtoNames: true}).Marshal(detail); err == nil {
			details = append(details, text)
		}
	}
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false) // it is no HTML, and says so
	if err := encoder.Encode(envelope{inner{
		httpStatus, code.Code(int32(found.Code())).String(), found.Message(), details,
	}}); err != nil {
		panic(err) // strings, an int and valid JSON always marshal
	}
	return bytes.TrimSuffix(body.Bytes(), []byte("\n"))
}

type envelope struct {
	Error inner `json:"error"`
}

type inner struct {
	Code    int               `json:"code"`
	Status  string            `json:"status"`
	Message string            `json:"message"`
	Details []json.RawMessage `json:"details"`
}

// Write answers with an error.
func Write(w http.ResponseWriter, err error) {
	httpStatus, found := Of(err)
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	if httpStatus == http.StatusUnauthorized && header.Get("WWW-Authenticate") == "" {
		header.Set("WWW-Authenticate", "Bearer")
	}
	for _, detail := range found.Details() {
		if retry, ok := detail.(*errdetails.RetryInfo); ok {
			seconds := math.Ceil(retry.GetRetryDelay().AsDuration().Seconds())
			header.Set("Retry-After", strconv.Itoa(int(max(0, seconds))))
		}
	}
	body := append(JSON(err), '\n')
	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(httpStatus)
	_, _ = w.Write(body)
}

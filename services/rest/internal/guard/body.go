package guard

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"bos/rest/internal/apierror"
	"bos/rest/internal/waiting"
)

const (
	// Requests to identity are short, and some need no credential.
	identityServices  = "bos.identity."
	identityBodyBytes = 64 * 1024
	// Deeper values exceed the nesting limit of messages: each level is up to three levels there, and
	// stored or forwarded messages wrap them in more.
	maxDepth = 30
	// The type of A2A's bodies over HTTP.
	protocolJSON = "application/a2a+json"
)

// Body reads the whole body in the room, and refuses all but one JSON value. The room's time limit
// ends with the body and does not apply to the handlers after it. Uploads pass: their handler has
// bounds of its own.
func Body(room *waiting.Room, limit int64) Middleware {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Body == nil || r.Body == http.NoBody || IsUpload(r) {
				next.ServeHTTP(w, r) // a handler of uploads sets bounds of its own
				return
			}
			most := mostBytes(r, limit)
			if r.ContentLength > most {
				apierror.Write(w, tooLarge(most))
				return
			}
			body, err := room.Read(w, r, NetworkOf(r), most)
			if err != nil {
				apierror.Write(w, unread(err))
				return
			}
			if len(body) > 0 {
				if err := checkBody(r.Header.Get("Content-Type"), IsProtocol(r), body); err != nil {
					apierror.Write(w, err)
					return
				}
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			next.ServeHTTP(w, r)
		})
	}
}

func mostBytes(r *http.Request, limit int64) int64 {
	if operation := operationOf(r); operation != nil &&
		strings.HasPrefix(operation.Service, identityServices) {
		return min(limit, identityBodyBytes)
	}
	return limit
}

func tooLarge(limit int64) error {
	return apierror.New(http.StatusRequestEntityTooLarge, codes.InvalidArgument, "BODY_TOO_LARGE",
		"The body is larger than "+strconv.FormatInt(limit, 10)+" bytes.")
}

// unread returns the error for an incomplete body.
func unread(err error) error {
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return tooLarge(large.Limit)
	case errors.Is(err, waiting.ErrSlow):
		return apierror.New(http.StatusRequestTimeout, codes.DeadlineExceeded,
			"BODY_TOO_SLOW", "The body did not arrive in time.")
	case errors.Is(err, waiting.ErrCut):
		return apierror.New(http.StatusTooManyRequests, codes.ResourceExhausted, "TOO_MANY_BODIES",
			"Too many bodies are under way at once, and this one came on too slowly; try again later.",
			&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Second)})
	default:
		return apierror.New(http.StatusBadRequest, codes.InvalidArgument,
			"INVALID_ARGUMENT", "The body could not be read.")
	}
}

// checkBody refuses what is not JSON by its type or by its content. Protocols have a type of a protocol
// of theirs as well.
func checkBody(contentType string, protocol bool, body []byte) error {
	mediaType, _, err := mime.ParseMediaType(contentType)
	if err != nil || mediaType != "application/json" && !(protocol && mediaType == protocolJSON) {
		return apierror.New(http.StatusUnsupportedMediaType, codes.InvalidArgument,
			"BODY_NOT_JSON", "Send JSON, with the header `Content-Type: application/json`.")
	}
	message := ""
	switch {
	case !utf8.Valid(body):
		message = "The body is not UTF-8."
	case !json.Valid(body):
		message = "The body is not one JSON value."
		var any any
		var syntax *json.SyntaxError
		if errors.As(json.Unmarshal(body, &any), &syntax) {
			message = "The body is not one JSON value: " + syntax.Error() +
				" at byte " + strconv.FormatInt(syntax.Offset, 10) + "."
		}
	case depthOf(body) > maxDepth:
		return apierror.New(http.StatusBadRequest, codes.InvalidArgument, "BODY_TOO_DEEP",
			"The body is nested deeper than "+strconv.Itoa(maxDepth)+" levels.")
	default:
		return nil
	}
	return apierror.New(http.StatusBadRequest, codes.InvalidArgument, "BODY_NOT_JSON", message)
}

// depthOf returns the nesting depth of valid JSON.
func depthOf(body []byte) int {
	depth, deepest, inText := 0, 0, false
	for i := 0; i < len(body); i++ {
		switch one := body[i]; {
		case inText && one == '\\':
			i++
		case one == '"':
			inText = !inText
		case inText:
		case one == '{' || one == '[':
			depth++
			deepest = max(deepest, depth)
		case one == '}' || one == ']':
			depth--
		}
	}
	return deepest
}

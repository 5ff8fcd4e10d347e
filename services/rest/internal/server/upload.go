package server

import (
	"context"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	documentsv1 "bos/rest/gen/bos/documents/v1"
	"bos/rest/internal/apierror"
	"bos/rest/internal/codec"
	"bos/rest/internal/upstream"
)

const (
	uploadPath      = "/v1/documents"
	otherUploadPath = "/upload"
	pieceBytes      = 256 * 1024
	sendWithin      = time.Second
	// The header fields of a form, all together.
	fieldBytes = 4 * 1024
)

// uploadLimits bound one upload.
type uploadLimits struct {
	// bytes of the whole form.
	bytes int64
	// within is the time that all of it has to arrive.
	within time.Duration
	// rate is the bytes a second that it has to make on the average, once grace is over.
	rate  float64
	grace time.Duration
}

// registerUpload offers UploadDocument as a form with a file, which passes through in pieces.
func registerUpload(
	mux *runtime.ServeMux, client documentsv1.DocumentsServiceClient, limits uploadLimits,
) error {
	for _, path := range []string{uploadPath, otherUploadPath} {
		if err := mux.HandlePath(http.MethodPost, path,
			func(w http.ResponseWriter, r *http.Request, _ map[string]string) {
				ctx, err := runtime.AnnotateContext(r.Context(), mux, r,
					documentsv1.DocumentsService_UploadDocument_FullMethodName,
					runtime.WithHTTPPathPattern(path))
				if err != nil {
					apierror.Write(w, err)
					return
				}
				// The call ends with this function, in any case: what was sent is dropped.
				ctx, cancel := context.WithTimeout(ctx, limits.within)
				defer cancel()
				answer, err := upload(ctx, w, r, client, limits)
				if err != nil {
					apierror.Write(w, err)
					return
				}
				codec.Write(w, r, answer)
			}); err != nil {
			return err
		}
	}
	return nil
}

func upload(
	ctx context.Context, w http.ResponseWriter, r *http.Request,
	client documentsv1.DocumentsServiceClient, limits uploadLimits,
) (*documentsv1.UploadDocumentResponse, error) {
	paced, form, err := openForm(w, r, limits)
	if err != nil {
		return nil, err
	}
	header, file, err := beginForm(form)
	if err != nil {
		return nil, formError(err)
	}
	call, err := client.UploadDocument(ctx)
	if err != nil {
		return nil, upstream.Translate(ctx, err)
	}
	first := &documentsv1.UploadDocumentRequest{
		Part: &documentsv1.UploadDocumentRequest_Upload{Upload: header},
	}
	if err := call.Send(first); err != nil {
		return nil, uploadRefused(ctx, call)
	}
	err = eachPiece(file, func(piece []byte) error {
		if call.Send(&documentsv1.UploadDocumentRequest{
			Part: &documentsv1.UploadDocumentRequest_Content{Content: piece},
		}) != nil {
			return uploadRefused(ctx, call)
		}
		return nil
	})
	// Only a form that is whole is a document.
	if err == nil {
		err = formEnds(form)
	}
	if err != nil {
		return nil, formError(err)
	}
	_ = paced.controller.SetReadDeadline(time.Time{})
	answer, err := call.CloseAndRecv()
	if err != nil {
		return nil, upstream.Translate(ctx, err)
	}
	return answer, nil
}

// eachPiece hands a file over as it comes: full pieces, or what there is by the time that the service
// wants to hear more.
func eachPiece(file io.Reader, send func([]byte) error) error {
	piece, held, sent := make([]byte, pieceBytes), 0, time.Now()
	for {
		n, err := file.Read(piece[held:])
		held += n
		ended := err == io.EOF
		if held > 0 && (ended || held == len(piece) || time.Since(sent) > sendWithin) {
			if err := send(piece[:held]); err != nil {
				return err
			}
			held, sent = 0, time.Now()
		}
		if ended {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// uploadRefused is why the service takes no more of it.
func uploadRefused(
	ctx context.Context, call documentsv1.DocumentsService_UploadDocumentClient,
) error {
	_, err := call.CloseAndRecv()
	return upstream.Translate(ctx, emptyIsLost(err))
}

// beginForm reads the fields before the file, and returns the file's part to be read.
func beginForm(form *multipart.Reader) (*documentsv1.DocumentUpload, *multipart.Part, error) {
	header := &documentsv1.DocumentUpload{}
	left := int64(fieldBytes)
	seen := map[string]bool{}
	for {
		part, err := form.NextRawPart()
		if err == io.EOF {
			return nil, nil, apierror.Field("file", "is missing")
		}
		if err != nil {
			return nil, nil, err
		}
		name := part.FormName()
		if seen[name] {
			return nil, nil, apierror.Field(name, "must be given once")
		}
		seen[name] = true
		if name == "file" {
			header.Name = fileName(part)
			return header, part, nil
		}
		text, err := io.ReadAll(io.LimitReader(part, left+1))
		if err != nil {
			return nil, nil, err
		}
		if left -= int64(len(text)); left < 0 {
			return nil, nil, apierror.Field(name, "is too long")
		}
		if !utf8.Valid(text) {
			return nil, nil, apierror.Field(name, "must be UTF-8")
		}
		switch name {
		case "document_type":
			header.DocumentType = string(text)
		case "document_date":
			header.DocumentDate = string(text)
		default:
			return nil, nil, apierror.Field("form",
				"knows document_type, document_date and file, in this order")
		}
	}
}

// fileName is what the form calls the file; the service takes folders out of it.
func fileName(part *multipart.Part) string {
	_, parameters, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
	name := parameters["filename"]
	if err != nil || name == "" || !utf8.ValidString(name) {
		return "document"
	}
	return name
}

func uploadTooLarge(limit int64) error {
	return apierror.New(http.StatusRequestEntityTooLarge, codes.InvalidArgument, "BODY_TOO_LARGE",
		"The upload is larger than "+strconv.FormatInt(limit, 10)+" bytes.")
}

// formError is why a form did not become whole.
func formError(err error) error {
	var large *http.MaxBytesError
	var network net.Error
	var ours *apierror.Failure
	_, said := status.FromError(err)
	switch {
	case errors.As(err, &ours), said:
		return err
	case errors.As(err, &large):
		return uploadTooLarge(large.Limit)
	case errors.As(err, &network) && network.Timeout():
		return apierror.New(http.StatusRequestTimeout, codes.DeadlineExceeded,
			"BODY_TOO_SLOW", "The upload did not arrive in time.")
	default:
		return apierror.New(http.StatusBadRequest, codes.InvalidArgument,
			"INVALID_ARGUMENT", "The form could not be read.")
	}
}

// pacedBody gives each read until the time at which so many bytes must have come.
type pacedBody struct {
	source     io.Reader
	limits     uploadLimits
	controller *http.ResponseController
	begun      time.Time
	read       int64
}

func (p *pacedBody) Read(into []byte) (int, error) {
	earned := time.Duration(float64(p.read) / p.limits.rate * float64(time.Second))
	_ = p.controller.SetReadDeadline(p.begun.Add(min(p.limits.within, p.limits.grace+earned)))
	n, err := p.source.Read(into)
	p.read += int64(n)
	return n, err
}

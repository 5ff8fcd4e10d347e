package server

import (
	"context"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strconv"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc/codes"

	filesv1 "bos/rest/gen/bos/files/v1"
	"bos/rest/internal/apierror"
	"bos/rest/internal/codec"
	"bos/rest/internal/upstream"
)

const (
	workspacePath     = "/v1/files"
	workspaceFilePath = "/v1/files/{name}"
)

// registerWorkspaceFile serves a file of the workspace as it is, with time limits for the whole file and
// for writing each piece.
func registerWorkspaceFile(
	mux *runtime.ServeMux, client filesv1.FileServiceClient, limit, piece time.Duration,
) error {
	return mux.HandlePath(http.MethodGet, workspaceFilePath,
		func(w http.ResponseWriter, r *http.Request, parameters map[string]string) {
			ctx, err := runtime.AnnotateContext(r.Context(), mux, r,
				filesv1.FileService_DownloadFile_FullMethodName,
				runtime.WithHTTPPathPattern(workspaceFilePath))
			if err != nil {
				apierror.Write(w, err)
				return
			}
			ctx, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			request := &filesv1.DownloadFileRequest{Name: parameters["name"]}
			if version := r.URL.Query().Get("version"); version != "" {
				number, err := strconv.ParseInt(version, 10, 32)
				if err != nil {
					apierror.Write(w, apierror.Field("version", "must be the number of a version"))
					return
				}
				request.Version = int32(number)
			}
			call, err := client.DownloadFile(ctx, request)
			var part *filesv1.DownloadFileResponse
			if err == nil {
				part, err = call.Recv()
			}
			if err != nil {
				apierror.Write(w, upstream.Translate(ctx, emptyIsLost(err)))
				return
			}
			file := part.GetFile()
			describeFile(w.Header(), file.GetName(), file.GetMediaType(), file.GetSizeBytes())
			out := http.NewResponseController(w)
			for err == nil {
				_ = out.SetWriteDeadline(time.Now().Add(piece))
				if _, err = w.Write(part.GetContent()); err == nil {
					part, err = call.Recv()
				}
			}
			// An interrupted file is shorter than its Content-Length, so clients notice.
		})
}

// registerWorkspaceUpload offers UploadFile as a form with a file, which passes through in pieces.
func registerWorkspaceUpload(
	mux *runtime.ServeMux, client filesv1.FileServiceClient, limits uploadLimits,
) error {
	return mux.HandlePath(http.MethodPost, workspacePath,
		func(w http.ResponseWriter, r *http.Request, _ map[string]string) {
			ctx, err := runtime.AnnotateContext(r.Context(), mux, r,
				filesv1.FileService_UploadFile_FullMethodName,
				runtime.WithHTTPPathPattern(workspacePath))
			if err != nil {
				apierror.Write(w, err)
				return
			}
			// The call ends with this function, in any case: what was sent is dropped.
			ctx, cancel := context.WithTimeout(ctx, limits.within)
			defer cancel()
			answer, err := workspaceUpload(ctx, w, r, client, limits)
			if err != nil {
				apierror.Write(w, err)
				return
			}
			codec.Write(w, r, answer)
		})
}

func workspaceUpload(
	ctx context.Context, w http.ResponseWriter, r *http.Request,
	client filesv1.FileServiceClient, limits uploadLimits,
) (*filesv1.UploadFileResponse, error) {
	paced, form, err := openForm(w, r, limits)
	if err != nil {
		return nil, err
	}
	file, err := form.NextRawPart()
	if err == io.EOF || (err == nil && file.FormName() != "file") {
		err = apierror.Field("form", "holds one part, called file")
	}
	if err != nil {
		return nil, formError(err)
	}
	call, err := client.UploadFile(ctx)
	if err != nil {
		return nil, upstream.Translate(ctx, err)
	}
	refused := func() error {
		_, err := call.CloseAndRecv()
		return upstream.Translate(ctx, emptyIsLost(err))
	}
	first := &filesv1.UploadFileRequest{Part: &filesv1.UploadFileRequest_Upload{
		Upload: &filesv1.FileUpload{Name: fileName(file)},
	}}
	if err := call.Send(first); err != nil {
		return nil, refused()
	}
	err = eachPiece(file, func(piece []byte) error {
		if call.Send(&filesv1.UploadFileRequest{
			Part: &filesv1.UploadFileRequest_Content{Content: piece},
		}) != nil {
			return refused()
		}
		return nil
	})
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

// openForm begins to read a form, within its limits.
func openForm(
	w http.ResponseWriter, r *http.Request, limits uploadLimits,
) (*pacedBody, *multipart.Reader, error) {
	kind, parameters, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/form-data" || parameters["boundary"] == "" {
		return nil, nil, apierror.New(http.StatusUnsupportedMediaType, codes.InvalidArgument,
			"BODY_NOT_A_FORM", "Send the file as `multipart/form-data`, in a part called `file`.")
	}
	if r.ContentLength > limits.bytes {
		return nil, nil, uploadTooLarge(limits.bytes)
	}
	paced := &pacedBody{
		source: http.MaxBytesReader(w, r.Body, limits.bytes), limits: limits, begun: time.Now(),
		controller: http.NewResponseController(w),
	}
	return paced, multipart.NewReader(paced, parameters["boundary"]), nil
}

// formEnds is nil for a form that is whole: its last boundary, and nothing behind the file. The library
// wraps the io.EOF of a form that lacks it.
func formEnds(form *multipart.Reader) error {
	_, err := form.NextRawPart()
	if err == io.EOF {
		return nil
	}
	if err == nil {
		err = apierror.Field("file", "must be the last part of the form")
	}
	return err
}

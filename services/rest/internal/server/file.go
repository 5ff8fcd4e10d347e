package server

import (
	"context"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"

	commonv1 "bos/rest/gen/bos/common/v1"
	gatewayv1 "bos/rest/gen/bos/gateway/v1"
	"bos/rest/internal/apierror"
	"bos/rest/internal/upstream"
)

const filePath = "/v1/runs/{run_id}/files/{digest}"

// Media types that browsers only show or save. All others, such as HTML and SVG with scripts, are sent
// as plain bytes, since a program chose both content and media type.
var harmlessTypes = map[string]string{
	"application/json": "application/json",
	"application/pdf":  "application/pdf",
	"image/gif":        "image/gif",
	"image/jpeg":       "image/jpeg",
	"image/png":        "image/png",
	"image/webp":       "image/webp",
	"text/csv":         "text/csv; charset=utf-8",
	"text/plain":       "text/plain; charset=utf-8",
}

// registerFile serves DownloadFile as a file instead of a stream of messages, with time limits for the
// whole file and for writing each piece.
func registerFile(
	mux *runtime.ServeMux, client gatewayv1.OrchestratorServiceClient, limit, piece time.Duration,
) error {
	return mux.HandlePath(http.MethodGet, filePath,
		func(w http.ResponseWriter, r *http.Request, parameters map[string]string) {
			ctx, err := runtime.AnnotateContext(r.Context(), mux, r,
				gatewayv1.OrchestratorService_DownloadFile_FullMethodName,
				runtime.WithHTTPPathPattern(filePath))
			if err != nil {
				apierror.Write(w, err)
				return
			}
			ctx, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			call, err := client.DownloadFile(ctx, &gatewayv1.DownloadFileRequest{
				RunId: parameters["run_id"], Digest: parameters["digest"],
			})
			var part *gatewayv1.DownloadFileResponse
			if err == nil {
				part, err = call.Recv()
			}
			if err != nil {
				apierror.Write(w, upstream.Translate(ctx, emptyIsLost(err)))
				return
			}
			describe(w.Header(), part.GetFile())
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

// emptyIsLost is the error for a stream that ended before its first message.
func emptyIsLost(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

func describe(header http.Header, file *commonv1.Artefact) {
	describeFile(header, file.GetName(), file.GetMediaType(), file.GetSizeBytes())
}

// describeFile has a file saved and nothing of it run.
func describeFile(header http.Header, name, mediaType string, size int64) {
	kind, harmless := harmlessTypes[mediaType]
	if !harmless {
		kind = "application/octet-stream"
	}
	header.Set("Content-Type", kind)
	header.Set("Content-Length", strconv.FormatInt(size, 10))
	saved := mime.FormatMediaType("attachment", map[string]string{"filename": name})
	if saved == "" {
		saved = "attachment"
	}
	header.Set("Content-Disposition", saved)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	header.Set("Cache-Control", "private, no-store")
}

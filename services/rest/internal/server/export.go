package server

import (
	"archive/zip"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"

	identityv1 "bos/rest/gen/bos/identity/v1"
	"bos/rest/internal/apierror"
	"bos/rest/internal/upstream"
)

const exportPath = "/v1/users/me:export"

// registerExport serves ExportAccount as one streamed zip file, with time limits for the whole file and
// for writing each piece.
func registerExport(
	mux *runtime.ServeMux, client identityv1.AccountServiceClient, limit, piece time.Duration,
) error {
	return mux.HandlePath(http.MethodGet, exportPath,
		func(w http.ResponseWriter, r *http.Request, _ map[string]string) {
			ctx, err := runtime.AnnotateContext(r.Context(), mux, r,
				identityv1.AccountService_ExportAccount_FullMethodName,
				runtime.WithHTTPPathPattern(exportPath))
			if err != nil {
				apierror.Write(w, err)
				return
			}
			ctx, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			call, err := client.ExportAccount(ctx, &identityv1.ExportAccountRequest{})
			var part *identityv1.ExportAccountResponse
			if err == nil {
				part, err = call.Recv()
			}
			if err != nil {
				apierror.Write(w, upstream.Translate(ctx, emptyIsLost(err)))
				return
			}
			header := w.Header()
			header.Set("Content-Type", "application/zip")
			header.Set("Content-Disposition", `attachment; filename="account.zip"`)
			header.Set("X-Content-Type-Options", "nosniff")
			header.Set("Cache-Control", "private, no-store")
			out := http.NewResponseController(w)
			archive, path := zip.NewWriter(w), ""
			var entry io.Writer
			for err == nil {
				_ = out.SetWriteDeadline(time.Now().Add(piece))
				if entry == nil || part.GetPath() != path {
					path = part.GetPath()
					entry, err = archive.Create(path)
				}
				if err == nil {
					_, err = entry.Write(part.GetContent())
				}
				if err == nil {
					part, err = call.Recv()
				}
			}
			if !errors.Is(err, io.EOF) || archive.Close() != nil {
				// The archive lacks its directory, so clients notice that it is incomplete.
				panic(http.ErrAbortHandler)
			}
		})
}

package sse

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc/status"

	documentsv1 "bos/rest/gen/bos/documents/v1"
	"bos/rest/internal/apierror"
	"bos/rest/internal/codec"
	"bos/rest/internal/upstream"
)

const (
	documentPath = "/v1/documents/{document_id}:watch"
	documentName = "document"
)

// change is what a watched document's stream brought: the document, or why there is no more.
type change struct {
	document *documentsv1.Document
	err      error
}

// RegisterDocument puts the changes of a document, as events, in front of the generated handler.
// They have no ids: a client that comes back is sent the document as it is then.
func (s *Streams) RegisterDocument(
	mux *runtime.ServeMux, client documentsv1.DocumentsServiceClient,
) error {
	return mux.HandlePath(http.MethodGet, documentPath,
		func(w http.ResponseWriter, r *http.Request, parameters map[string]string) {
			ctx, err := runtime.AnnotateContext(r.Context(), mux, r,
				documentsv1.DocumentsService_WatchDocument_FullMethodName,
				runtime.WithHTTPPathPattern(documentPath))
			if err != nil {
				apierror.Write(w, err)
				return
			}
			s.document(ctx, w, client, parameters["document_id"])
		})
}

func (s *Streams) document(
	ctx context.Context, w http.ResponseWriter, client documentsv1.DocumentsServiceClient, id string,
) {
	s.observer.StreamOpened()
	defer s.observer.StreamClosed()
	ctx, cancel := context.WithTimeout(ctx, s.settings.Leg)
	changes := make(chan change, 1)
	go watchDocument(ctx, client, id, changes)
	defer func() {
		cancel()
		for range changes { // waits until the call was let go of
		}
	}()
	out := newWriter(w, s.settings.Write)
	fail := func(err error) {
		if !out.opened {
			apierror.Write(w, err)
			return
		}
		_ = out.event("", "error", apierror.JSON(err))
	}
	opening := time.NewTimer(s.settings.OpenWithin)
	defer opening.Stop()
	heartbeat := time.NewTicker(s.settings.Heartbeat)
	defer heartbeat.Stop()
	ended := false
	for {
		var err error
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) || upstream.Displaced(ctx) != nil {
				fail(upstream.Translate(ctx, status.FromContextError(ctx.Err()).Err()))
			}
			return
		case <-s.stopping:
			_ = out.comment("stopping; come back")
			return
		case <-opening.C:
			err = out.open()
		case <-heartbeat.C:
			err = out.comment("still here")
		case next, more := <-changes:
			switch {
			case !more:
				return
			case next.document != nil:
				heartbeat.Reset(s.settings.Heartbeat)
				ended = isOver(next.document)
				err = s.sendDocument(ctx, out, next.document)
			case errors.Is(next.err, io.EOF) && ended:
				_ = out.event("", doneName, []byte("{}"))
				return
			case errors.Is(next.err, io.EOF), lost(next.err) && out.opened:
				_ = out.comment("interrupted; come back")
				return
			default:
				fail(upstream.Translate(ctx, next.err))
				return
			}
		}
		if err != nil {
			return // the client is gone or takes nothing
		}
	}
}

func (s *Streams) sendDocument(
	ctx context.Context, out *writer, document *documentsv1.Document,
) error {
	data, err := codec.FormOf(ctx).JSON(document)
	if err != nil {
		s.log.Error("document cannot be sent", "error", err)
		return out.event("", "error", apierror.JSON(err))
	}
	if err := out.event("", documentName, data); err != nil {
		return err
	}
	s.observer.EventSent()
	return nil
}

// watchDocument sends changes until there is an error, io.EOF included; then it closes them.
func watchDocument(
	ctx context.Context, client documentsv1.DocumentsServiceClient, id string, changes chan<- change,
) {
	defer close(changes)
	send := func(one change) bool {
		select {
		case changes <- one:
			return true
		case <-ctx.Done():
			return false
		}
	}
	call, err := client.WatchDocument(ctx, &documentsv1.WatchDocumentRequest{DocumentId: id})
	for err == nil {
		var answer *documentsv1.WatchDocumentResponse
		if answer, err = call.Recv(); err == nil && !send(change{document: answer.GetDocument()}) {
			return
		}
	}
	send(change{err: err})
}

func isOver(document *documentsv1.Document) bool {
	switch document.GetState() {
	case documentsv1.DocumentState_DOCUMENT_STATE_READY,
		documentsv1.DocumentState_DOCUMENT_STATE_FAILED:
		return true
	default:
		return false
	}
}

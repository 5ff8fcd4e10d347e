package server

import (
	"context"
	"io"
	"net/http"
	"time"
)

const (
	// Time for the rest of a request body after the response, so that the sender receives the response
	// and not a connection reset.
	lingers = 500 * time.Millisecond

	// Many clients read nothing before they have sent everything. An accepted body costs more than a
	// discarded one, so that these limits open nothing that an allowed body does not.
	drainBytes  = 64 << 20
	drainWithin = 5 * time.Second
	mostDrains  = 64
)

// drainLimits bound how much is discarded of bodies that were refused before their end.
type drainLimits struct {
	bytes  int64
	within time.Duration
	// atOnce of all connections; without a place among them the connection is closed as it is.
	atOnce int
}

// connection sets the deadlines of a connection per request: for writing, from the first byte of the
// response on, and for a body that no handler reads. The time to produce a response is limited by the
// deadlines of calls; streams set a deadline for each event.
//
// What is left of a body that was refused is discarded within limits, if the caller was allowed to send
// one: a connection closed with bytes unread is reset, and many clients then lose the response.
func connection(read, write time.Duration, limits drainLimits) func(http.Handler) http.Handler {
	drains := make(chan struct{}, limits.atOnce)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			answer := &bounded{ResponseWriter: w, controller: http.NewResponseController(w), write: write}
			answer.now() // for `100 Continue`
			if r.Body != nil && r.Body != http.NoBody {
				// The library reads the rest of the body. Handlers that read it set deadlines of their own.
				_ = answer.controller.SetReadDeadline(time.Now().Add(read))
				answer.body = &watched{ReadCloser: r.Body, awaits: r.Header.Get("Expect") != ""}
				r = r.WithContext(context.WithValue(r.Context(), bodyKey{}, answer.body))
				r.Body = answer.body
			}
			next.ServeHTTP(answer, r)
			answer.begin()
			answer.now() // for what is still to be flushed
			if answer.body.isLeft() {
				select {
				case drains <- struct{}{}:
					answer.drain(limits)
					<-drains
				default:
				}
			}
			if answer.body != nil && !answer.body.ended {
				_ = answer.controller.SetReadDeadline(time.Now().Add(lingers))
			}
		})
	}
}

type bodyKey struct{}

// mayDrain marks requests that have passed the checks before it: what is left of their bodies may be
// read. A request without a credential is none of them.
func mayDrain(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, given := r.Context().Value(bodyKey{}).(*watched); given {
			body.allowed = r.Header.Get("Authorization") != ""
		}
		next.ServeHTTP(w, r)
	})
}

// watched records what became of a body.
type watched struct {
	io.ReadCloser
	begun, ended, failed bool
	// awaits: its sender waits for `100 Continue`.
	awaits bool
	// allowed: its sender may send one.
	allowed bool
}

func (w *watched) Read(into []byte) (int, error) {
	w.begun = true
	n, err := w.ReadCloser.Read(into)
	w.ended = w.ended || err == io.EOF
	w.failed = w.failed || (err != nil && err != io.EOF)
	return n, err
}

// isLeft reports whether more is to come that may be discarded. A body that came too slowly is not.
func (w *watched) isLeft() bool {
	return w != nil && w.allowed && !w.ended && !w.failed && (w.begun || !w.awaits)
}

type bounded struct {
	http.ResponseWriter
	controller *http.ResponseController
	write      time.Duration
	body       *watched
	begun      bool
}

func (b *bounded) now() { _ = b.controller.SetWriteDeadline(time.Now().Add(b.write)) }

// begin is called before the first byte of the answer.
func (b *bounded) begin() {
	if b.begun {
		return
	}
	b.begun = true
	b.now()
	if b.body != nil && !b.body.ended {
		// A response to an incomplete request closes the connection, as the rest may never arrive.
		b.Header().Set("Connection", "close")
	}
}

// drain sends the response and discards the rest of the body, until the client has sent all or left.
func (b *bounded) drain(limits drainLimits) {
	if b.controller.Flush() != nil {
		return
	}
	_ = b.controller.SetReadDeadline(time.Now().Add(limits.within))
	_, _ = io.CopyN(io.Discard, b.body, limits.bytes)
}

func (b *bounded) WriteHeader(status int) {
	b.begin()
	b.ResponseWriter.WriteHeader(status)
}

func (b *bounded) Write(data []byte) (int, error) {
	b.begin()
	return b.ResponseWriter.Write(data)
}

// Unwrap lets http.ResponseController reach the original writer.
func (b *bounded) Unwrap() http.ResponseWriter { return b.ResponseWriter }

package server

import (
	"io"
	"net/http"
	"time"
)

// Time for the rest of a request body after the response, so that the sender receives the response and
// not a connection reset.
const lingers = 500 * time.Millisecond

// connection sets the deadlines of a connection per request: for writing, from the first byte of the
// response on, and for a body that no handler reads. The time to produce a response is limited by the
// deadlines of calls; streams set a deadline for each event.
func connection(read, write time.Duration) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			answer := &bounded{ResponseWriter: w, controller: http.NewResponseController(w), write: write}
			answer.now() // for `100 Continue`
			if r.Body != nil && r.Body != http.NoBody {
				// The library reads the rest of the body. Handlers that read it set deadlines of their own.
				_ = answer.controller.SetReadDeadline(time.Now().Add(read))
				answer.body = &watched{ReadCloser: r.Body}
				r.Body = answer.body
			}
			next.ServeHTTP(answer, r)
			answer.begin()
			answer.now() // for what is still to be flushed
			if answer.body != nil && !answer.body.ended {
				_ = answer.controller.SetReadDeadline(time.Now().Add(lingers))
			}
		})
	}
}

// watched records whether a body was read to its end.
type watched struct {
	io.ReadCloser
	ended bool
}

func (w *watched) Read(into []byte) (int, error) {
	n, err := w.ReadCloser.Read(into)
	w.ended = w.ended || err == io.EOF
	return n, err
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

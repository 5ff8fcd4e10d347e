package server

import (
	"io"
	"net/http"
	"time"
)

// So long the rest of a body may still come whose request is answered, so that its sender sees the
// answer and not a broken connection.
const lingers = 500 * time.Millisecond

// connection bounds what a request may take of its connection: time to write, from the first byte of
// the answer on, and time for a body that nobody reads. How long making an answer takes is for the
// deadlines of calls to say; streams set a time for each of their events.
func connection(read, write time.Duration) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			answer := &bounded{ResponseWriter: w, controller: http.NewResponseController(w), write: write}
			answer.now() // for `100 Continue`
			if r.Body != nil && r.Body != http.NoBody {
				// The library reads what a handler left. Whoever reads the body sets times of its own.
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

// watched knows whether a body was read to its end.
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
		// An answer to half a request is the last one: the other half may never come.
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

// Unwrap lets http.ResponseController see through.
func (b *bounded) Unwrap() http.ResponseWriter { return b.ResponseWriter }

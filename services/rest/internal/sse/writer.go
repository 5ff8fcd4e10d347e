// Package sse sends the events of runs to HTTP clients as server-sent events. It replaces the streams
// of the generated mux, which do not start before the first message, and have neither heartbeats nor
// Last-Event-ID.
package sse

import (
	"bytes"
	"net/http"
	"strconv"
	"time"
)

// Reconnection time of browsers.
const retryMillis = 2000

// writer writes events and flushes each. If a client takes longer than the limit for one, this and all
// later writes return an error.
type writer struct {
	response   http.ResponseWriter
	controller *http.ResponseController
	limit      time.Duration
	opened     bool
	failed     error
	buffer     bytes.Buffer
}

func newWriter(response http.ResponseWriter, limit time.Duration) *writer {
	return &writer{
		response: response, controller: http.NewResponseController(response), limit: limit,
	}
}

// open sends the headers and a first comment, so that clients and proxies see the open stream.
func (w *writer) open() error {
	if w.opened {
		return w.failed
	}
	w.opened = true
	header := w.response.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no")
	w.deadline()
	w.response.WriteHeader(http.StatusOK)
	w.buffer.WriteString("retry: " + strconv.Itoa(retryMillis) + "\n: open\n\n")
	return w.flush()
}

// comment sends text that clients ignore.
func (w *writer) comment(text string) error {
	if err := w.open(); err != nil {
		return err
	}
	w.buffer.WriteString(": " + text + "\n\n")
	return w.flush()
}

// event sends one event; an empty id means that it has none. data is one line of JSON.
func (w *writer) event(id, name string, data []byte) error {
	if err := w.open(); err != nil {
		return err
	}
	if id != "" {
		w.buffer.WriteString("id: " + id + "\n")
	}
	w.buffer.WriteString("event: " + name + "\n")
	for line := range bytes.SplitSeq(data, []byte("\n")) {
		w.buffer.WriteString("data: ")
		w.buffer.Write(line)
		w.buffer.WriteByte('\n')
	}
	w.buffer.WriteByte('\n')
	return w.flush()
}

func (w *writer) flush() error {
	if w.failed != nil {
		return w.failed
	}
	w.deadline()
	_, w.failed = w.response.Write(w.buffer.Bytes())
	if w.failed == nil {
		w.failed = w.controller.Flush()
	}
	w.buffer.Reset()
	if w.buffer.Cap() > keptBytes {
		w.buffer = bytes.Buffer{} // one large event must not be paid for by an idle hour
	}
	return w.failed
}

const keptBytes = 8 * 1024

func (w *writer) deadline() {
	// Only a test's recorder has no deadlines.
	_ = w.controller.SetWriteDeadline(time.Now().Add(w.limit))
}

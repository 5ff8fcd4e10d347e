package connlimit

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// guest is a connection that knows whether it was closed.
type guest struct {
	net.Conn
	closed bool
}

func (g *guest) Close() error {
	g.closed = true
	return nil
}

// room is a limiter behind the hooks that it gives a server.
type room struct {
	t       *testing.T
	limiter *Limiter
	server  http.Server
}

func newRoom(t *testing.T, most int) *room {
	r := &room{t: t, limiter: New(most)}
	r.limiter.Join(&r.server)
	return r
}

func (r *room) comes() *guest {
	one := &guest{}
	r.server.ConnState(one, http.StateNew)
	return one
}

// serves handles a request of a connection; during is what happens meanwhile.
func (r *room) serves(one *guest, during func()) {
	r.server.ConnState(one, http.StateActive)
	handler := r.limiter.Serving(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { during() }))
	request := httptest.NewRequestWithContext(
		r.server.ConnContext(r.t.Context(), one), http.MethodGet, "/", nil)
	handler.ServeHTTP(httptest.NewRecorder(), request)
	r.server.ConnState(one, http.StateIdle)
}

func (r *room) are(closed bool, guests ...*guest) {
	r.t.Helper()
	for i, each := range guests {
		if each.closed != closed {
			r.t.Errorf("number %d is closed: %v", i, each.closed)
		}
	}
}

func TestLongestIdleConnectionIsClosedForANewOne(t *testing.T) {
	r := newRoom(t, 2)
	first, second := r.comes(), r.comes()
	r.are(false, first, second)
	third := r.comes()
	r.are(true, first)
	r.are(false, second, third)
	r.comes()
	r.are(true, second)
	r.are(false, third)
}

func TestFirstByteOfHeadersKeepsNoConnection(t *testing.T) {
	r := newRoom(t, 1)
	slow := r.comes()
	r.server.ConnState(slow, http.StateActive)
	r.comes()
	r.are(true, slow)
}

func TestConnectionIsIdleAgainAfterItsRequest(t *testing.T) {
	r := newRoom(t, 2)
	busy, idle := r.comes(), r.comes()
	r.serves(busy, func() {
		next := r.comes()
		r.are(true, idle)
		r.are(false, busy, next)
		idle = next
	})
	// It was waited for after the other, so the other goes first.
	r.comes()
	r.are(true, idle)
	r.are(false, busy)
	r.comes()
	r.are(true, busy)
}

func TestFinishedConnectionsTakeNoPlace(t *testing.T) {
	for _, state := range []http.ConnState{http.StateClosed, http.StateHijacked} {
		r := newRoom(t, 1)
		for range 3 {
			one := r.comes()
			r.server.ConnState(one, state)
			r.are(false, one)
			r.server.ConnState(one, http.StateIdle) // too late
		}
		if len(r.limiter.all) != 0 || r.limiter.waiting.Len() != 0 {
			t.Error(len(r.limiter.all), r.limiter.waiting.Len())
		}
	}
}

func TestNewConnectionGoesWhereAllOthersAreInUse(t *testing.T) {
	r := newRoom(t, 1)
	busy := r.comes()
	r.serves(busy, func() {
		next := r.comes()
		r.are(true, next)
	})
	r.are(false, busy)
}

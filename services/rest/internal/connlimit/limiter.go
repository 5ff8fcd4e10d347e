// Package connlimit limits the connections of a server: above the limit, the connection that has been idle
// longest is closed. A connection is idle until it has sent the headers of a request.
package connlimit

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"sync"
)

type key struct{}

// Limiter counts connections from accept on.
type Limiter struct {
	most    int
	mutex   sync.Mutex
	all     map[net.Conn]*list.Element // nil: a request of it is being answered
	waiting *list.List                 // of net.Conn, idle longest first
}

// New returns a limiter of connections.
func New(most int) *Limiter {
	return &Limiter{most: most, all: map[net.Conn]*list.Element{}, waiting: list.New()}
}

// Join makes server count its connections here. Its handler must be one that Serving returned.
func (c *Limiter) Join(server *http.Server) {
	server.ConnState = c.changed
	server.ConnContext = func(ctx context.Context, connection net.Conn) context.Context {
		return context.WithValue(ctx, key{}, connection)
	}
}

// Serving wraps next; while it handles a request, the connection is not closed for others.
func (c *Limiter) Serving(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if connection, given := r.Context().Value(key{}).(net.Conn); given {
			c.serve(connection)
		}
		next.ServeHTTP(w, r)
	})
}

func (c *Limiter) changed(connection net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		if longest := c.came(connection); longest != nil {
			_ = longest.Close()
		}
	case http.StateIdle:
		c.waitFor(connection)
	case http.StateHijacked, http.StateClosed:
		c.went(connection)
	case http.StateActive: // with the first byte of its headers, which is not enough
	}
}

// came counts a connection, and returns the one to close for it.
func (c *Limiter) came(connection net.Conn) net.Conn {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.all[connection] = c.waiting.PushBack(connection)
	if len(c.all) <= c.most {
		return nil
	}
	longest, _ := c.waiting.Remove(c.waiting.Front()).(net.Conn)
	delete(c.all, longest)
	return longest
}

func (c *Limiter) serve(connection net.Conn) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if place := c.all[connection]; place != nil {
		c.waiting.Remove(place)
		c.all[connection] = nil
	}
}

func (c *Limiter) waitFor(connection net.Conn) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if place, counted := c.all[connection]; counted && place == nil {
		c.all[connection] = c.waiting.PushBack(connection)
	}
}

func (c *Limiter) went(connection net.Conn) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if place := c.all[connection]; place != nil {
		c.waiting.Remove(place)
	}
	delete(c.all, connection)
}

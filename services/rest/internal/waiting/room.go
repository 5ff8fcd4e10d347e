// Package waiting buffers request bodies until they are complete, within limits of number, bytes and
// time. At a limit the address that holds most loses a body, so that slow senders only harm
// themselves.
package waiting

import (
	"container/list"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

var (
	// ErrCut means that a body was cut in favour of others.
	ErrCut = errors.New("the body made way for others")
	// ErrSlow means that a body exceeded its time, or fell below the minimum rate.
	ErrSlow = errors.New("the body came too slowly")
)

const (
	firstBytes = 2048
	mostAtOnce = 64 * 1024
)

// Limits of a room.
type Limits struct {
	// Bodies at a time, and bytes buffered for them.
	Bodies int
	Bytes  int64
	// Within is the time for one body.
	Within time.Duration
	// Rate is the minimum average rate in bytes per second, after Grace.
	Rate  float64
	Grace time.Duration
}

// Room holds incomplete bodies.
type Room struct {
	limits Limits
	mutex  sync.Mutex
	bodies int
	bytes  int64
	// shares by address, of addresses with a body here.
	shares map[string]*share
}

// share holds the bodies of one address in the order of their last progress.
type share struct {
	bodies *list.List
	bytes  int64
}

// body is one incomplete body.
type body struct {
	room    *Room
	address string
	place   *list.Element
	begun   time.Time
	moved   time.Time
	held    int64
	content []byte
	whole   bool
	cut     bool
	// limit sets the deadline for the next bytes.
	limit func(time.Time)
}

// New returns an empty room.
func New(limits Limits) *Room {
	return &Room{limits: limits, shares: map[string]*share{}}
}

// Read returns the whole body of a request of at most `most` bytes. The error is ErrCut, ErrSlow, an
// *http.MaxBytesError, or one of the connection.
//
// All bodies are admitted. Above a limit, the body with the oldest progress of the address that holds
// most is cut, so an address with less than an equal share loses nothing to others.
func (r *Room) Read(w http.ResponseWriter, request *http.Request, address string, most int64) ([]byte, error) {
	controller := http.NewResponseController(w)
	one := r.enter(address, func(until time.Time) { _ = controller.SetReadDeadline(until) })
	defer one.leave()
	source := http.MaxBytesReader(w, request.Body, most)
	for {
		if len(one.content) == cap(one.content) {
			one.grow()
		}
		if !one.await() {
			return nil, ErrCut
		}
		n, err := source.Read(one.content[len(one.content):cap(one.content)])
		one.content = one.content[:len(one.content)+n]
		if err == io.EOF {
			one.whole = true
			return one.content, nil
		}
		if err != nil {
			return nil, one.reason(err)
		}
	}
}

func (r *Room) enter(address string, limit func(time.Time)) *body {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	now := time.Now()
	one := &body{room: r, address: address, begun: now, moved: now, limit: limit}
	own := r.shares[address]
	if own == nil {
		own = &share{bodies: list.New()}
		r.shares[address] = own
	}
	one.place = own.bodies.PushBack(one)
	r.bodies++
	for r.bodies > r.limits.Bodies {
		r.cut(func(s *share) int64 { return int64(s.bodies.Len()) })
	}
	return one
}

// cut ends the body with the oldest progress of the largest share. There must be one, and the mutex
// must be held.
func (r *Room) cut(measure func(*share) int64) {
	var one *body
	most := int64(-1)
	for _, each := range r.shares {
		stillest, _ := each.bodies.Front().Value.(*body)
		size := measure(each)
		// Among equal shares the one with the oldest progress, and so never the new one.
		if size > most || (size == most && stillest.moved.Before(one.moved)) {
			one, most = stillest, size
		}
	}
	one.cut = true
	r.remove(one)
	one.limit(time.Unix(1, 0)) // ends the read that it is in
}

// remove removes a body, once. The mutex must be held.
func (r *Room) remove(one *body) {
	own := r.shares[one.address]
	if one.place == nil || own == nil {
		return
	}
	own.bodies.Remove(one.place)
	one.place = nil
	own.bytes -= one.held
	r.bytes -= one.held
	r.bodies--
	if own.bodies.Len() == 0 {
		delete(r.shares, one.address)
	}
}

// grow reserves more bytes for a body; other bodies, or itself, may be cut for them.
func (b *body) grow() {
	more := min(max(firstBytes, cap(b.content)), mostAtOnce)
	grown := make([]byte, len(b.content), cap(b.content)+more)
	copy(grown, b.content)
	b.content = grown
	b.room.mutex.Lock()
	defer b.room.mutex.Unlock()
	if b.cut {
		return
	}
	added := int64(cap(grown)) - b.held
	b.held += added
	b.room.shares[b.address].bytes += added
	b.room.bytes += added
	for b.room.bytes > b.room.limits.Bytes && b.room.bodies > 0 {
		b.room.cut(func(s *share) int64 { return s.bytes })
	}
}

// await records progress of the body and sets the deadline for its next bytes; false if it was cut.
func (b *body) await() bool {
	b.room.mutex.Lock()
	defer b.room.mutex.Unlock()
	if b.cut {
		return false
	}
	b.moved = time.Now()
	b.room.shares[b.address].bodies.MoveToBack(b.place)
	earned := time.Duration(float64(len(b.content)) / b.room.limits.Rate * float64(time.Second))
	b.limit(b.begun.Add(min(b.room.limits.Within, b.room.limits.Grace+earned)))
	return true
}

// reason returns why reading failed.
func (b *body) reason(err error) error {
	b.room.mutex.Lock()
	defer b.room.mutex.Unlock()
	var network net.Error
	switch {
	case b.cut:
		return ErrCut
	case errors.As(err, &network) && network.Timeout():
		return ErrSlow
	default:
		return err
	}
}

// leave frees the place. A complete body clears the deadline; the rest of an incomplete one must not
// hold the connection.
func (b *body) leave() {
	b.room.mutex.Lock()
	defer b.room.mutex.Unlock()
	if b.whole && !b.cut {
		b.limit(time.Time{})
	}
	b.room.remove(b)
}

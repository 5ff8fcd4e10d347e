// Package concurrency limits concurrent requests. If all places are taken, callers known to the services
// displace unknown ones, and unknown ones with few places displace those with most.
package concurrency

import (
	"context"
	"crypto/sha256"
	"sync"
)

// Visitor identifies the caller of a request, as far as this gateway can.
type Visitor struct {
	// Network of its address.
	Network string
	// Credential of the request, to be checked by a service. Empty: none is needed.
	Credential string
	// Open is the called method, if that needs no credential.
	Open string
	// Sure is set if no service checks the credential: it was checked here, or checks are off.
	Sure bool
}

// subject distinguishes unknown callers of a network: their credential, or the open method.
func (v Visitor) subject() string {
	if v.Open != "" {
		return "method " + v.Open
	}
	credential := sha256.Sum256([]byte(v.Credential))
	return "credential " + string(credential[:])
}

type key struct{}

// Limiter is a limited number of places for concurrent requests.
type Limiter struct {
	most    int
	known   *Known
	refusal error

	mutex   sync.Mutex
	taken   int
	unknown *unknownCallers
}

// visit is one request that has a place.
type visit struct {
	places  *Limiter
	network string
	subject string
	open    bool
	// number increases with the time of arrival.
	number uint64
	// unknown is set until a service accepts its credential.
	unknown bool
	// gone is set once it has lost its place.
	gone   bool
	cancel context.CancelCauseFunc
}

// New returns places that share the known credentials with others. Requests without a place, or
// displaced from theirs, fail with refusal.
func New(most int, known *Known, refusal error) *Limiter {
	p := &Limiter{most: most, known: known, refusal: refusal, unknown: newUnknownCallers()}
	known.notify = append(known.notify, p.accept)
	return p
}

// Take gives a request a place until leave is called. The returned context is for its handling: it is
// cancelled, with the refusal as its cause, if the request is displaced.
func (p *Limiter) Take(ctx context.Context, visitor Visitor) (_ context.Context, leave func(), err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	one := &visit{places: p, network: visitor.Network, open: visitor.Open != "", cancel: cancel}
	if !visitor.Sure {
		one.subject = visitor.subject()
		one.unknown = one.open || !p.known.hold(one.subject)
	}
	displaced := p.enter(one)
	if displaced != nil {
		displaced.cancel(p.refusal)
	}
	if displaced == one {
		return nil, nil, p.refusal
	}
	return context.WithValue(ctx, key{}, one), func() { p.leave(one); cancel(nil) }, nil
}

// enter gives a visit a place, and returns the displaced visit, if any, which can be itself.
func (p *Limiter) enter(one *visit) *visit {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.taken++
	if one.unknown {
		p.unknown.add(one)
	}
	if p.taken <= p.most {
		return nil
	}
	displaced := p.unknown.mostRecentOfTheMost()
	if displaced == nil {
		displaced = one
	}
	p.release(displaced)
	return displaced
}

func (p *Limiter) leave(one *visit) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.release(one)
}

// release frees a place, once. The mutex must be held.
func (p *Limiter) release(one *visit) {
	if one.gone {
		return
	}
	one.gone = true
	p.taken--
	if one.unknown {
		p.unknown.remove(one)
	}
}

// accept marks all visits with the credential as known.
func (p *Limiter) accept(subject string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, each := range p.unknown.with(subject) {
		p.unknown.remove(each)
		each.unknown = false
	}
}

// Accepted records that a service accepted the credential of the request of ctx.
func Accepted(ctx context.Context) {
	if one := judged(ctx); one != nil {
		one.places.known.accept(one.subject)
	}
}

// Rejected records that a service refused the credential.
func Rejected(ctx context.Context) {
	if one := judged(ctx); one != nil {
		one.places.known.forget(one.subject)
	}
}

// judged returns the visit whose credential services check; nil if they check none.
func judged(ctx context.Context) *visit {
	one, _ := ctx.Value(key{}).(*visit)
	if one == nil || one.open || one.subject == "" {
		return nil
	}
	return one
}

// Package places bounds the requests that are answered at once. Where all places are taken, callers
// whom the services know displace strangers, and strangers who hold few displace those who hold most.
package places

import (
	"context"
	"crypto/sha256"
	"sync"
)

// Visitor is who asks for a place, as far as this gateway can tell.
type Visitor struct {
	// Network is where it comes from.
	Network string
	// Credential that it shows, and which a service has to judge. Empty: none is wanted.
	Credential string
	// Open names the method that it calls, if that is open to anybody.
	Open string
	// Sure says that there is nothing to judge: its key was checked here, or nobody checks any.
	Sure bool
}

// subject is what the strangers of a network are told apart by: their credential, or the open method.
func (v Visitor) subject() string {
	if v.Open != "" {
		return "method " + v.Open
	}
	credential := sha256.Sum256([]byte(v.Credential))
	return "credential " + string(credential[:])
}

type key struct{}

// Places are so many.
type Places struct {
	most    int
	known   *Known
	refusal error

	mutex     sync.Mutex
	taken     int
	strangers *strangers
}

// visit is one request that has a place.
type visit struct {
	places  *Places
	network string
	subject string
	open    bool
	// number is higher the later it came.
	number uint64
	// stranger is set as long as no service has accepted its credential.
	stranger bool
	// gone is set once it has no place any more.
	gone   bool
	cancel context.CancelCauseFunc
}

// New returns places whose callers become known together with those of all places that share known.
// Who finds none, or is displaced, is told refusal.
func New(most int, known *Known, refusal error) *Places {
	p := &Places{most: most, known: known, refusal: refusal, strangers: newStrangers()}
	known.tell = append(known.tell, p.accept)
	return p
}

// Take gives a visitor a place until leave is called. The context is for what is done there: it ends,
// with the refusal as its cause, if the place goes to somebody else.
func (p *Places) Take(ctx context.Context, visitor Visitor) (_ context.Context, leave func(), err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	one := &visit{places: p, network: visitor.Network, open: visitor.Open != "", cancel: cancel}
	if !visitor.Sure {
		one.subject = visitor.subject()
		one.stranger = one.open || !p.known.hold(one.subject)
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

// enter gives one a place, and returns whoever has none for that: another visit, or one itself.
func (p *Places) enter(one *visit) *visit {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.taken++
	if one.stranger {
		p.strangers.add(one)
	}
	if p.taken <= p.most {
		return nil
	}
	displaced := p.strangers.mostRecentOfTheMost()
	if displaced == nil {
		displaced = one
	}
	p.release(displaced)
	return displaced
}

func (p *Places) leave(one *visit) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.release(one)
}

// release gives a place back, once. Called with the mutex held.
func (p *Places) release(one *visit) {
	if one.gone {
		return
	}
	one.gone = true
	p.taken--
	if one.stranger {
		p.strangers.remove(one)
	}
}

// accept makes everybody here known who shows the credential.
func (p *Places) accept(subject string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, each := range p.strangers.with(subject) {
		p.strangers.remove(each)
		each.stranger = false
	}
}

// Accepted notes that a service took the credential of the request that ctx is of.
func Accepted(ctx context.Context) {
	if one := judged(ctx); one != nil {
		one.places.known.accept(one.subject)
	}
}

// Rejected notes that a service did not take it, or takes it no longer.
func Rejected(ctx context.Context) {
	if one := judged(ctx); one != nil {
		one.places.known.forget(one.subject)
	}
}

// judged is the visit whose credential the services judge; nil if they judge none.
func judged(ctx context.Context) *visit {
	one, _ := ctx.Value(key{}).(*visit)
	if one == nil || one.open || one.subject == "" {
		return nil
	}
	return one
}

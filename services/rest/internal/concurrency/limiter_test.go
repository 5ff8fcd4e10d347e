package concurrency

import (
	"context"
	"errors"
	"strconv"
	"testing"
)

var errFull = errors.New("all places are taken")

// guest is a request with a place.
type guest struct {
	t     *testing.T
	ctx   context.Context
	leave func()
}

func (g guest) stays() {
	g.t.Helper()
	if g.ctx.Err() != nil {
		g.t.Error("it had to go")
	}
}

func (g guest) went() {
	g.t.Helper()
	if !errors.Is(context.Cause(g.ctx), errFull) {
		g.t.Error("it stays:", context.Cause(g.ctx))
	}
}

func enters(t *testing.T, p *Limiter, visitor Visitor) guest {
	t.Helper()
	ctx, leave, err := p.Take(t.Context(), visitor)
	if err != nil {
		t.Fatalf("%+v: %v", visitor, err)
	}
	return guest{t, ctx, leave}
}

func isRefused(t *testing.T, p *Limiter, visitor Visitor) {
	t.Helper()
	if _, _, err := p.Take(t.Context(), visitor); !errors.Is(err, errFull) {
		t.Errorf("%+v: %v", visitor, err)
	}
}

func with(network, credential string) Visitor {
	return Visitor{Network: network, Credential: credential}
}

// known returns a visitor whose credential was accepted.
func known(t *testing.T, p *Limiter, network, credential string) Visitor {
	t.Helper()
	one := enters(t, p, with(network, credential))
	Accepted(one.ctx)
	one.leave()
	return with(network, credential)
}

func TestKnownCallersDisplaceUnknownOnes(t *testing.T) {
	p := New(3, NewKnown(), errFull)
	ada := known(t, p, "here", "of ada")
	first := enters(t, p, with("here", "wrong"))
	second := enters(t, p, with("here", "wrong"))
	third := enters(t, p, with("here", "wrong"))
	enters(t, p, ada)
	third.went() // the most recent: services answer what they have begun
	third.leave()
	enters(t, p, ada)
	second.went()
	first.stays()
	ours := enters(t, p, ada)
	first.went()
	isRefused(t, p, ada)
	isRefused(t, p, with("elsewhere", "wrong"))
	ours.leave()
	enters(t, p, with("elsewhere", "wrong"))
}

func TestDisplacedRequestReleasesNoPlace(t *testing.T) {
	p := New(1, NewKnown(), errFull)
	ada := known(t, p, "here", "of ada")
	unknown := enters(t, p, with("here", "wrong"))
	enters(t, p, ada)
	unknown.leave()
	unknown.leave()
	isRefused(t, p, ada)
}

func TestNetworksWithFewVisitsDisplaceThoseWithMost(t *testing.T) {
	p := New(5, NewKnown(), errFull)
	var many []guest
	for i := range 4 {
		many = append(many, enters(t, p, with("many", strconv.Itoa(i))))
	}
	few := enters(t, p, with("few", "one"))
	isRefused(t, p, with("many", "one more"))
	other := enters(t, p, with("other", "one"))
	many[3].went()
	enters(t, p, with("third", "one"))
	many[2].went()
	isRefused(t, p, with("many", "one more")) // which would have most of all
	for _, each := range []guest{many[0], many[1], few, other} {
		each.stays()
	}
}

func TestNoRequestIsDisplacedAmongEquals(t *testing.T) {
	p := New(3, NewKnown(), errFull)
	var guests []guest
	for i := range 3 {
		guests = append(guests, enters(t, p, with(strconv.Itoa(i), "wrong")))
	}
	isRefused(t, p, with("next", "wrong"))
	for _, each := range guests {
		each.stays()
	}
}

func TestMostFrequentSubjectOfANetworkIsDisplaced(t *testing.T) {
	logIn, register := Visitor{Network: "here", Open: "POST logIn"}, Visitor{Network: "here", Open: "POST users"}
	for name, one := range map[string]struct{ flood, other Visitor }{
		"equal credentials, another":    {with("here", "wrong"), with("here", "of ada")},
		"equal credentials, none":       {with("here", "wrong"), logIn},
		"an open method, a credential":  {logIn, with("here", "of ada")},
		"an open method, another":       {logIn, register},
		"an open method by credentials": {Visitor{Network: "here", Open: "POST logIn", Credential: "a"}, register},
	} {
		t.Run(name, func(t *testing.T) {
			p := New(3, NewKnown(), errFull)
			for range 2 {
				enters(t, p, one.flood)
			}
			last := enters(t, p, one.flood)
			isRefused(t, p, one.flood)
			other := enters(t, p, one.other)
			last.went()
			isRefused(t, p, one.flood)
			other.stays()
		})
	}
}

func TestAcceptedCredentialIsKnownInAllPlaces(t *testing.T) {
	everybody := NewKnown()
	requests, streams := New(2, everybody, errFull), New(2, everybody, errFull)
	watches := []guest{
		enters(t, streams, with("here", "of ada")), enters(t, streams, with("elsewhere", "of ada")),
	}
	isRefused(t, streams, with("here", "of ada"))
	known(t, requests, "here", "of ada")
	isRefused(t, streams, with("third", "of ben"))
	isRefused(t, streams, with("here", "of ada"))
	watches[0].stays()
	watches[1].stays()
	watches[1].leave()
	enters(t, streams, with("here", "of ada"))
}

func TestRejectedCredentialIsUnknownAgain(t *testing.T) {
	p := New(1, NewKnown(), errFull)
	ada := known(t, p, "here", "of ada")
	one := enters(t, p, ada)
	Rejected(one.ctx)
	one.leave()
	enters(t, p, with("here", "wrong"))
	isRefused(t, p, ada)
}

func TestOpenMethodsMakeNoCredentialKnown(t *testing.T) {
	open := Visitor{Network: "here", Open: "POST logIn", Credential: "made up"}
	for name, visitor := range map[string]Visitor{"open": open, "sure": {Network: "here", Sure: true}} {
		t.Run(name, func(t *testing.T) {
			p := New(1, NewKnown(), errFull)
			one := enters(t, p, visitor)
			Accepted(one.ctx)
			Rejected(one.ctx)
			one.leave()
			enters(t, p, with("here", "wrong"))
			isRefused(t, p, open)
			isRefused(t, p, with("here", "made up"))
			isRefused(t, p, with("here", ""))
		})
	}
	Accepted(t.Context()) // of a call that no request is behind
	Rejected(t.Context())
}

func TestCallersOfAnOpenMethodAreUnknown(t *testing.T) {
	p := New(2, NewKnown(), errFull)
	logIn := Visitor{Network: "here", Open: "POST logIn"}
	one, other := enters(t, p, logIn), enters(t, p, logIn)
	Accepted(one.ctx) // a session was made, and says nothing of the next caller
	enters(t, p, Visitor{Network: "here", Sure: true})
	other.went()
	one.stays()
}

func TestLocallyCheckedCallerIsKnown(t *testing.T) {
	p := New(1, NewKnown(), errFull)
	sure := Visitor{Network: "here", Sure: true}
	unknown := enters(t, p, with("here", "wrong"))
	enters(t, p, sure)
	unknown.went()
	isRefused(t, p, sure)
}

func TestNumberOfRememberedCredentialsIsLimited(t *testing.T) {
	everybody := NewKnown()
	everybody.accept("first")
	for i := range mostKnown - 1 {
		everybody.accept(strconv.Itoa(i))
	}
	if !everybody.hold("first") { // and now the one that was used most recently
		t.Error("forgotten too early")
	}
	everybody.accept("one more")
	if len(everybody.places) != mostKnown || everybody.recent.Len() != mostKnown ||
		everybody.hold("0") || !everybody.hold("first") || !everybody.hold("one more") {
		t.Error(len(everybody.places), everybody.recent.Len())
	}
}

func TestFinishedVisitsAreForgotten(t *testing.T) {
	p := New(2, NewKnown(), errFull)
	for i := range 3 {
		one := enters(t, p, with(strconv.Itoa(i), "a"))
		two := enters(t, p, with(strconv.Itoa(i), "b"))
		one.leave()
		two.leave()
	}
	if p.taken != 0 || len(p.unknown.networks) != 0 {
		t.Error(p.taken, p.unknown.networks)
	}
}

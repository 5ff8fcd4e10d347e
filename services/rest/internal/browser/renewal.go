package browser

import (
	"context"
	"crypto/sha256"
	"sync"
	"time"

	identityv1 "bos/rest/gen/bos/identity/v1"
)

const (
	// A browser sends several requests at once with the same cookie, and those under way have the old
	// one for a while: all of them get what the first one got.
	renewalKept  = 30 * time.Second
	mostRenewals = 4096
	renewWithin  = 10 * time.Second
)

// renewals exchanges refresh tokens, each once: identity takes a second use for a theft.
type renewals struct {
	identity identityv1.IdentityServiceClient
	now      func() time.Time

	mutex sync.Mutex
	byKey map[[sha256.Size]byte]*renewal
}

type renewal struct {
	done  chan struct{}
	begun time.Time
	made  session
	err   error
}

func newRenewals(identity identityv1.IdentityServiceClient, now func() time.Time) *renewals {
	return &renewals{identity: identity, now: now, byKey: map[[sha256.Size]byte]*renewal{}}
}

// of returns the session with new tokens. It goes on if the client leaves, as the next one needs it.
func (r *renewals) of(ctx context.Context, old session) (session, error) {
	key := sha256.Sum256([]byte(old.Refresh))
	one, first := r.enter(key)
	if first {
		go func() {
			defer close(one.done)
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), renewWithin)
			defer cancel()
			answer, err := r.identity.RefreshSession(ctx,
				&identityv1.RefreshSessionRequest{RefreshToken: old.Refresh})
			if err != nil {
				one.err = err
				r.forget(key, one) // identity accepts the token again if its answer was lost
				return
			}
			one.made = sessionOf(answer.GetTokens(), r.now())
		}()
	}
	select {
	case <-one.done:
		return one.made, one.err
	case <-ctx.Done():
		return session{}, context.Cause(ctx)
	}
}

func (r *renewals) enter(key [sha256.Size]byte) (one *renewal, first bool) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	now := r.now()
	for known, each := range r.byKey {
		if now.Sub(each.begun) > renewalKept {
			delete(r.byKey, known)
		}
	}
	if one = r.byKey[key]; one != nil {
		return one, false
	}
	one = &renewal{done: make(chan struct{}), begun: now}
	if len(r.byKey) < mostRenewals {
		r.byKey[key] = one
	}
	return one, true
}

func (r *renewals) forget(key [sha256.Size]byte, one *renewal) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.byKey[key] == one {
		delete(r.byKey, key)
	}
}

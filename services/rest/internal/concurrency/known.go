package concurrency

import (
	"container/list"
	"sync"
)

// mostKnown is the maximum number of remembered credentials (LRU).
const mostKnown = 16384

// Known holds digests of credentials that services accepted. It grants no access: each request is
// checked by its service.
type Known struct {
	mutex  sync.Mutex
	places map[string]*list.Element
	recent *list.List // of string, used most recently first
	// notify holds the callbacks for a new one.
	notify []func(subject string)
}

// NewKnown returns an empty set. All Limiter must share it before the first request.
func NewKnown() *Known {
	return &Known{places: map[string]*list.Element{}, recent: list.New()}
}

func (k *Known) hold(subject string) bool {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	place, held := k.places[subject]
	if held {
		k.recent.MoveToFront(place)
	}
	return held
}

func (k *Known) accept(subject string) {
	if k.add(subject) {
		for _, each := range k.notify {
			each(subject)
		}
	}
}

// add stores a credential; returns whether it is new.
func (k *Known) add(subject string) bool {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	if _, held := k.places[subject]; held {
		return false
	}
	k.places[subject] = k.recent.PushFront(subject)
	if len(k.places) > mostKnown {
		oldest, _ := k.recent.Remove(k.recent.Back()).(string)
		delete(k.places, oldest)
	}
	return true
}

func (k *Known) forget(subject string) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	if place, held := k.places[subject]; held {
		k.recent.Remove(place)
		delete(k.places, subject)
	}
}

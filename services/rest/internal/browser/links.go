package browser

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"sync"
	"time"
)

const (
	linkLife  = 15 * time.Minute
	mostLinks = 32
	codeBytes = 32
)

// links are codes that sign a browser in once, for people of this machine who hold a key.
type links struct {
	now func() time.Time

	mutex sync.Mutex
	made  map[[sha256.Size]byte]link
}

type link struct {
	key string
	end time.Time
}

func newLinks(now func() time.Time) *links {
	return &links{now: now, made: map[[sha256.Size]byte]link{}}
}

// make returns a code for a key; beyond the limit the code that ends first is void.
func (l *links) make(key string) (code string, end time.Time) {
	random := make([]byte, codeBytes)
	_, _ = rand.Read(random)
	code, end = base64.RawURLEncoding.EncodeToString(random), l.now().Add(linkLife)
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.expire()
	for len(l.made) >= mostLinks {
		var first [sha256.Size]byte
		earliest := end
		for digest, each := range l.made {
			if !each.end.After(earliest) {
				first, earliest = digest, each.end
			}
		}
		delete(l.made, first)
	}
	l.made[sha256.Sum256([]byte(code))] = link{key, end}
	return code, end
}

// redeem returns the key of a code, once.
func (l *links) redeem(code string) (key string, valid bool) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.expire()
	digest := sha256.Sum256([]byte(code))
	found, valid := l.made[digest]
	delete(l.made, digest)
	return found.key, valid
}

func (l *links) expire() {
	now := l.now()
	for digest, each := range l.made {
		if !now.Before(each.end) {
			delete(l.made, digest)
		}
	}
}

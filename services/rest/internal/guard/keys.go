package guard

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"log/slog"
	"strings"
	"time"

	"bos/rest/internal/watched"
)

const (
	shortestKey = 16
	mostKeys    = 32
)

type digest [sha256.Size]byte

// Keys are the static API keys: one of a variable, and those of a replaceable file.
type Keys struct {
	fixed []digest
	file  *watched.File[[]digest]
}

// OpenKeys reads the keys; either may be empty.
func OpenKeys(key, file string, refresh time.Duration, log *slog.Logger) (*Keys, error) {
	keys := &Keys{}
	if key != "" {
		keys.fixed = []digest{sha256.Sum256([]byte(key))}
	}
	if file == "" {
		return keys, nil
	}
	var err error
	keys.file, err = watched.Open(file, "BOS_AUTH_STATIC_KEYS_FILE", digests, refresh, log)
	return keys, err
}

// Given reports whether keys are checked here.
func (k *Keys) Given() bool { return len(k.fixed) > 0 || k.file != nil }

func (k *Keys) hold(key string) bool {
	held := k.fixed
	if k.file != nil {
		held = append(held[:len(held):len(held)], k.file.Current()...)
	}
	// Digests have equal length, so the comparison takes constant time.
	given := sha256.Sum256([]byte(key))
	same := 0
	for _, each := range held {
		same |= subtle.ConstantTimeCompare(given[:], each[:])
	}
	return same == 1
}

func digests(text []byte) ([]digest, error) {
	var found []digest
	for _, line := range bytes.Split(text, []byte("\n")) {
		key := strings.TrimSpace(string(line))
		if key == "" {
			continue
		}
		if len(key) < shortestKey || !isToken(key) {
			return nil, errors.New("the file must hold one key a line, each of at least 16 characters " +
				"without spaces")
		}
		found = append(found, sha256.Sum256([]byte(key)))
	}
	if len(found) == 0 || len(found) > mostKeys {
		return nil, errors.New("the file must hold one key a line, at least one and at most 32")
	}
	return found, nil
}

// Package browser signs people in by a cookie of their browser. The cookie holds their tokens, sealed,
// so that no script, no page and no other service ever has one; nothing is stored here.
package browser

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"time"

	"bos/rest/internal/watched"
)

const (
	sealKeyBytes = 32
	mostSealKeys = 8
)

var errSealKeys = errors.New("the file must hold one key a line, each 32 bytes in Base64, at most 8; " +
	"make one with `openssl rand -base64 32`")

// sealer encrypts and authenticates contents of cookies (AES-256-GCM). The first key seals, all open.
type sealer struct {
	fixed []cipher.AEAD
	file  *watched.File[[]cipher.AEAD]
}

// newSealer reads the keys of a file, which may be replaced; without one it makes a key for this process.
func newSealer(file string, refresh time.Duration, log *slog.Logger) (*sealer, error) {
	if file == "" {
		key := make([]byte, sealKeyBytes)
		_, _ = rand.Read(key)
		made, err := aead(key)
		return &sealer{fixed: []cipher.AEAD{made}}, err
	}
	opened, err := watched.Open(file, "BOS_REST_SESSION_KEYS_FILE", sealKeys, refresh, log)
	return &sealer{file: opened}, err
}

func sealKeys(text []byte) ([]cipher.AEAD, error) {
	var found []cipher.AEAD
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		key, err := base64.StdEncoding.DecodeString(line)
		if err != nil || len(key) != sealKeyBytes {
			return nil, errSealKeys
		}
		made, err := aead(key)
		if err != nil {
			return nil, errSealKeys
		}
		found = append(found, made)
	}
	if len(found) == 0 || len(found) > mostSealKeys {
		return nil, errSealKeys
	}
	return found, nil
}

func aead(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

func (s *sealer) keys() []cipher.AEAD {
	if s.file != nil {
		return s.file.Current()
	}
	return s.fixed
}

// seal returns value as text for a cookie; purpose keeps a cookie from being taken for another.
func (s *sealer) seal(purpose string, value any) (string, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(
		s.keys()[0].Seal(nil, nil, text, []byte(purpose))), nil
}

// open reads what seal returned; false if it was made by another key, for another purpose, or changed.
func (s *sealer) open(purpose, sealed string, into any) bool {
	data, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil {
		return false
	}
	for _, key := range s.keys() {
		if text, err := key.Open(nil, nil, data, []byte(purpose)); err == nil {
			return json.Unmarshal(text, into) == nil
		}
	}
	return false
}

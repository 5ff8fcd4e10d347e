// Package proxytoken signs the client's address for the services, in a token of this gateway.
package proxytoken

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

const (
	// Header is the name of the metadata that carries a token.
	Header = "bos-proxy-token"

	issuer   = "bos-rest"
	audience = "bos"
	life     = 60 * time.Second
	// An address has one token per step, so that services can cache its verification.
	step    = 15 * time.Second
	refresh = 5 * time.Second
	keyID   = 16
)

type clientKey struct{}

// WithClient returns a context whose calls carry the client's address; empty if it is not known.
func WithClient(ctx context.Context, address string) context.Context {
	return context.WithValue(ctx, clientKey{}, address)
}

// ClientOf returns the address given to WithClient; empty if there is none.
func ClientOf(ctx context.Context) string {
	address, _ := ctx.Value(clientKey{}).(string)
	return address
}

// Signer signs tokens. Its key file may be replaced while it is in use.
type Signer struct {
	file   string
	log    *slog.Logger
	now    func() time.Time
	mutex  sync.Mutex
	held   held
	looked time.Time
}

type held struct {
	key     ed25519.PrivateKey
	header  string
	changed time.Time
	size    int64
}

// NewSigner reads the key: Ed25519, as PEM.
func NewSigner(file string, log *slog.Logger) (*Signer, error) {
	read, err := load(file)
	if err != nil {
		return nil, err
	}
	return &Signer{file: file, log: log, now: time.Now, held: read, looked: time.Now()}, nil
}

// Token returns the token for a call made in ctx; empty if ctx belongs to no client's request.
func (s *Signer) Token(ctx context.Context) (string, error) {
	address, given := ctx.Value(clientKey{}).(string)
	if !given {
		return "", nil
	}
	issued := s.now().Truncate(step)
	claims, err := json.Marshal(map[string]any{
		"iss": issuer, "aud": []string{audience}, "adr": address,
		"iat": issued.Unix(), "exp": issued.Add(life).Unix(),
	})
	if err != nil {
		return "", err
	}
	current := s.current()
	signed := current.header + "." + base64.RawURLEncoding.EncodeToString(claims)
	signature := ed25519.Sign(current.key, []byte(signed))
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature), nil
}

// current returns the key in the file, or the last valid one.
func (s *Signer) current() held {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.now().Sub(s.looked) < refresh {
		return s.held
	}
	s.looked = s.now()
	found, err := os.Stat(s.file)
	if err == nil && found.ModTime().Equal(s.held.changed) && found.Size() == s.held.size {
		return s.held
	}
	read, err := load(s.file)
	if err != nil {
		s.log.Error("signing key not replaced", "problem", err.Error())
		return s.held
	}
	s.log.Info("signing key replaced")
	s.held = read
	return read
}

func load(file string) (held, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return held{}, errors.New("the file cannot be read")
	}
	found, err := os.Stat(file)
	if err != nil {
		return held{}, errors.New("the file cannot be read")
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return held{}, errors.New("the file holds no private key in PEM form")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	key, ok := parsed.(ed25519.PrivateKey)
	if err != nil || !ok {
		return held{}, errors.New("the key is no Ed25519 key; " +
			"make one with `openssl genpkey -algorithm ed25519`")
	}
	public, _ := key.Public().(ed25519.PublicKey)
	digest := sha256.Sum256(public)
	header := fmt.Sprintf(`{"alg":"EdDSA","typ":"JWT","kid":%q}`, hex.EncodeToString(digest[:])[:keyID])
	return held{
		key: key, header: base64.RawURLEncoding.EncodeToString([]byte(header)),
		changed: found.ModTime(), size: found.Size(),
	}, nil
}

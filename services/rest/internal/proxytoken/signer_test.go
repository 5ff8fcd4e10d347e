package proxytoken

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func write(t *testing.T, path string, key any) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func newKey(t *testing.T) ed25519.PrivateKey {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return private
}

func token(t *testing.T, s *Signer, ctx context.Context) string {
	t.Helper()
	made, err := s.Token(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func TestTokenIsReusedPerAddressAndDiffersBetweenAddresses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key.pem")
	write(t, path, newKey(t))
	s, err := NewSigner(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1_800_000_000, 0)
	s.now = func() time.Time { return now }
	here := WithClient(t.Context(), "10.0.0.1")
	first := token(t, s, here)
	now = now.Add(step - time.Second)
	if token(t, s, here) != first {
		t.Error("another token for the same address")
	}
	if token(t, s, WithClient(t.Context(), "10.0.0.2")) == first {
		t.Error("another address has the same token")
	}
	now = now.Add(time.Second)
	if token(t, s, here) == first {
		t.Error("the token is never replaced")
	}
	if token(t, s, t.Context()) != "" {
		t.Error("an anonymous call has a token")
	}
}

func TestReplacedKeySignsWithoutRestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key.pem")
	write(t, path, newKey(t))
	s, err := NewSigner(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	s.now = func() time.Time { return now }
	header := func() string {
		now = now.Add(refresh)
		part, _, _ := strings.Cut(token(t, s, WithClient(t.Context(), "10.0.0.1")), ".")
		return part
	}
	first := header()
	if err := os.WriteFile(path, []byte("half a key"), 0o600); err != nil {
		t.Fatal(err)
	}
	if header() != first {
		t.Error("a broken file changed the key")
	}
	write(t, path, newKey(t))
	if header() == first {
		t.Error("the old key still signs")
	}
}

func TestInvalidKeyFilesAreRefused(t *testing.T) {
	folder := t.TempDir()
	foreign, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	other, empty := filepath.Join(folder, "rsa.pem"), filepath.Join(folder, "empty.pem")
	write(t, other, foreign)
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{other, empty, filepath.Join(folder, "missing.pem")} {
		if _, err := NewSigner(path, slog.New(slog.DiscardHandler)); err == nil {
			t.Errorf("%s was accepted", path)
		}
	}
}

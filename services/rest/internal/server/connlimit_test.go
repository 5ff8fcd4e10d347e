package server

import (
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"bos/rest/internal/settings"
)

// silent connects and sends only this text.
func silent(t *testing.T, s *Server, said string) net.Conn {
	t.Helper()
	connection, err := net.Dial("tcp", s.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	if err := connection.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := connection.Write([]byte(said)); err != nil {
		t.Fatal(err)
	}
	return connection
}

// ended waits until the server closes a connection.
func ended(t *testing.T, connection net.Conn) {
	t.Helper()
	_, err := io.Copy(io.Discard, connection)
	if timeout, is := err.(net.Error); is && timeout.Timeout() {
		t.Error("the connection is still open")
	}
}

func TestIdleConnectionsAreClosedForNewOnes(t *testing.T) {
	g := startGateway(t, "")
	s := start(t, g.target, func(set *settings.Settings) {
		set.MaxConnections, set.ReadTimeout, set.IdleTimeout = 20, 3600, 3600
	})
	for _, said := range []string{"", "G", "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: "} {
		var limiter []net.Conn
		for range 100 {
			limiter = append(limiter, silent(t, s, said))
		}
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
		for range 10 {
			response, err := client.Get("http://" + s.Address() + "/healthz")
			if err != nil {
				t.Fatal(err)
			}
			if response.StatusCode != http.StatusOK {
				t.Error(response.Status)
			}
			_ = response.Body.Close()
		}
		for _, each := range limiter[:80] {
			ended(t, each)
		}
	}
}

func TestConnectionInUseIsNotClosedForNewOnes(t *testing.T) {
	g := startGateway(t, "")
	s := start(t, g.target, func(set *settings.Settings) {
		set.MaxConnections, set.ReadTimeout = 3, 3600
	})
	body := slow(t, s, "/v1/runs:ask", goodKey) // its headers are there, its body is not
	for range 20 {
		silent(t, s, "")
	}
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		_, _ = body.ReadByte()
	}()
	ended(t, silent(t, s, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
	select {
	case <-finished:
		t.Error("the connection was closed under its request")
	default:
	}
}

func TestKeysOfAFileAreTakenAndRefusedAsItHoldsThem(t *testing.T) {
	const old, young = "the-old-key-of-ada", "the-new-key-of-ada"
	file := filepath.Join(t.TempDir(), "keys")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(old + "\n")
	g := startGateway(t, "")
	s := start(t, g.target, func(set *settings.Settings) {
		set.StaticKeysFile, set.FilesRefresh = file, 1e-9
	})
	status := func(credential string) int {
		t.Helper()
		request, err := http.NewRequest(http.MethodGet, "http://"+s.Address()+"/v1/runs/none", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+credential)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		return response.StatusCode
	}
	for _, one := range []struct {
		content          string
		old, young, held bool
	}{
		{old, true, false, true},
		{old + "\r\n\n" + young, true, true, true},
		{"", true, true, true},
		{"short", true, true, true},
		{"two words of sixteen", true, true, true},
		{young, false, true, true},
	} {
		write(one.content)
		for credential, taken := range map[string]bool{old: one.old, young: one.young, key: one.held} {
			if found := status(credential) != http.StatusUnauthorized; found != taken {
				t.Errorf("%q: %s is taken: %v", one.content, credential, found)
			}
		}
	}
	write("short")
	if _, err := Start(t.Context(), s.settings, s.log); err == nil {
		t.Error("a file without keys is refused at the start")
	}
}

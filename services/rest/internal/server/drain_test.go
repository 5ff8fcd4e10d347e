package server

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"bos/rest/internal/settings"
)

// More than the buffers of a connection take on both sides.
const beyondBuffers = 48 << 20

// sendFirst sends a whole request and reads nothing before; the error is that of sending.
func sendFirst(t *testing.T, address, credential, head string, size int) (*http.Response, error) {
	t.Helper()
	connection, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	_ = connection.SetDeadline(time.Now().Add(patience))
	_, err = fmt.Fprintf(connection, "%s\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n",
		head, address, credential, size)
	if err != nil {
		t.Fatal(err)
	}
	piece := make([]byte, 1<<20)
	for left := size; left > 0; left -= len(piece) {
		if _, err := connection.Write(piece[:min(left, len(piece))]); err != nil {
			return nil, err
		}
	}
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	return response, nil
}

func TestAClientThatSendsEverythingFirstReadsWhyItsBodyWasRefused(t *testing.T) {
	s, _ := withDocuments(t, func(set *settings.Settings) { set.MaxUploadBytes = 100_000 })
	for name, head := range map[string]string{
		"a question": "POST /query HTTP/1.1\r\nContent-Type: application/json",
		"an upload":  "POST /v1/documents HTTP/1.1\r\nContent-Type: multipart/form-data; boundary=x",
	} {
		response, err := sendFirst(t, s.Address(), key, head, beyondBuffers)
		if err != nil {
			t.Errorf("%s: %s", name, err)
			continue
		}
		text := read(t, response)
		if response.StatusCode != http.StatusRequestEntityTooLarge || !response.Close ||
			!strings.Contains(text, "BODY_TOO_LARGE") {
			t.Errorf("%s: %s %s", name, response.Status, text)
		}
		if response, err = sendFirst(t, s.Address(), "nonsense-nonsense", head, beyondBuffers); err == nil {
			t.Errorf("%s of an unknown caller was read to its end: %s", name, response.Status)
		}
	}
}

func TestOnlySoMuchOfARefusedBodyIsDiscarded(t *testing.T) {
	refuse := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusRequestEntityTooLarge)
	})
	const limit = 2 * beyondBuffers
	for name, one := range map[string]struct {
		limits drainLimits
		read   bool
	}{
		"within the limits": {drainLimits{limit, patience, 1}, true},
		"too large":         {drainLimits{1 << 20, patience, 1}, false},
		"for too long":      {drainLimits{limit, 0, 1}, false},
		"too many at once":  {drainLimits{limit, patience, 0}, false},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(connection(patience, patience, one.limits)(mayDrain(refuse)))
			t.Cleanup(server.Close)
			response, err := sendFirst(t, server.Listener.Addr().String(), key, "POST / HTTP/1.1", beyondBuffers)
			if (err == nil) != one.read {
				t.Fatal(err)
			}
			if one.read && response.StatusCode != http.StatusRequestEntityTooLarge {
				t.Error(response.Status)
			}
		})
	}
}

func TestNoBodyIsAskedForBehindARefusal(t *testing.T) {
	s := start(t, startGateway(t, "").target, nil)
	connection, err := net.Dial("tcp", s.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	_ = connection.SetDeadline(time.Now().Add(patience))
	_, _ = fmt.Fprintf(connection, "POST /query HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n",
		s.Address(), key, beyondBuffers)
	all, err := io.ReadAll(connection)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(all), "HTTP/1.1 413 ") || strings.Contains(string(all), "100 Continue") {
		t.Errorf("%q", all)
	}
}

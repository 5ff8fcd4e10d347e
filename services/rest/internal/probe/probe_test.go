package probe

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"bos/rest/internal/settings"
)

// listening serves what a gateway says to /readyz, and returns settings that lead there.
func listening(t *testing.T, status int, allowed ...string) settings.Settings {
	t.Helper()
	served := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		if len(allowed) > 0 && r.Host != allowed[0] {
			status = http.StatusForbidden
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte("STOPPING"))
	}))
	t.Cleanup(served.Close)
	host, port, _ := net.SplitHostPort(served.Listener.Addr().String())
	number, _ := strconv.ParseUint(port, 10, 16)
	return settings.Settings{Host: host, Port: uint16(number), AllowedHosts: allowed}
}

func TestReadyGatewayPassesTheProbe(t *testing.T) {
	if err := Ready(context.Background(), listening(t, http.StatusOK)); err != nil {
		t.Error(err)
	}
}

func TestGatewayOnAllAddressesIsAskedOverLoopback(t *testing.T) {
	s := listening(t, http.StatusOK)
	s.Host = "0.0.0.0"
	if err := Ready(context.Background(), s); err != nil {
		t.Error(err)
	}
}

func TestGatewayWithNamedHostsIsAskedByOneOfThem(t *testing.T) {
	if err := Ready(context.Background(), listening(t, http.StatusOK, "bos.example.org")); err != nil {
		t.Error(err)
	}
}

func TestGatewayThatStopsFailsTheProbeWithItsReason(t *testing.T) {
	err := Ready(context.Background(), listening(t, http.StatusServiceUnavailable))
	if err == nil || !strings.Contains(err.Error(), "503") || !strings.Contains(err.Error(), "STOPPING") {
		t.Errorf("got %v", err)
	}
}

func TestGatewayThatIsNotThereFailsTheProbe(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := taken.Addr().(*net.TCPAddr).Port
	taken.Close()
	if Ready(context.Background(), settings.Settings{Host: "127.0.0.1", Port: uint16(port)}) == nil {
		t.Error("no server listens there")
	}
}

// Package probe asks a running gateway whether it is ready, for container engines that run a command:
// the image holds no other program that could.
package probe

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"bos/rest/internal/settings"
)

const (
	timeout   = 4 * time.Second
	mostBytes = 1024
)

// Ready asks /readyz of the gateway with these settings, over loopback where it listens everywhere.
//
// Returns why it is not ready.
func Ready(ctx context.Context, s settings.Settings) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	address := "http://" + net.JoinHostPort(host(s.Host), strconv.Itoa(int(s.Port))) + "/readyz"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	// Where host names are limited, that of this machine need not be among them.
	if len(s.AllowedHosts) > 0 {
		request.Host = s.AllowedHosts[0]
	}
	// Not by a proxy of the environment: what is asked is on this machine.
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, mostBytes))
		return fmt.Errorf("%s: %s %s", address, response.Status, text)
	}
	return nil
}

func host(bound string) string {
	address := net.ParseIP(bound)
	if address != nil && address.IsUnspecified() {
		return "127.0.0.1"
	}
	return bound
}

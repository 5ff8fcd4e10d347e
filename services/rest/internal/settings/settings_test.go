package settings

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestTheReadmeListsEveryVariable(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), Reference()) {
		t.Errorf("README.md must hold this table:\n%s", Reference())
	}
}

func TestRefusals(t *testing.T) {
	for name, one := range map[string]struct {
		variables map[string]string
		names     string
	}{
		"nothing":              {map[string]string{}, "BOS_REST_GATEWAY_TARGET"},
		"not a number":         {map[string]string{"BOS_REST_PORT": "secret-text"}, "BOS_REST_PORT: must be a whole number"},
		"open without a key":   {map[string]string{"BOS_REST_HOST": "0.0.0.0"}, "BOS_REST_HOST"},
		"short key":            {map[string]string{"BOS_AUTH_STATIC_KEY": "secret-text"}, "BOS_AUTH_STATIC_KEY"},
		"origin with a path":   {map[string]string{"BOS_REST_ALLOWED_ORIGINS": "https://a.b/c"}, "BOS_REST_ALLOWED_ORIGINS"},
		"trace without its id": {map[string]string{"BOS_REST_TRACE_URL": "https://traces.example/"}, "BOS_REST_TRACE_URL"},
		"trace in a script":    {map[string]string{"BOS_REST_TRACE_URL": "javascript:{trace_id}"}, "BOS_REST_TRACE_URL"},
		"no time to heartbeat": {map[string]string{"BOS_REST_HEARTBEAT_S": "0"}, "BOS_REST_HEARTBEAT_S: must be above 0"},
		"no room for a body":   {map[string]string{"BOS_REST_MAX_BODY_BYTES": "1023"}, "BOS_REST_MAX_BODY_BYTES: must be at least 1024"},
		"no stream at all":     {map[string]string{"BOS_REST_MAX_STREAMS": "0"}, "BOS_REST_MAX_STREAMS: must be at least 1"},
		"identity for all":     {map[string]string{"BOS_REST_HOST": "0.0.0.0", "BOS_REST_IDENTITY_TARGET": "127.0.0.1:2"}, "BOS_REST_SIGNING_KEY_FILE: must be set"},
		"a proxy by name":      {map[string]string{"BOS_REST_TRUSTED_PROXIES": "10.0.0.0/8,secret-text"}, "BOS_REST_TRUSTED_PROXIES"},
		"no rate at all":       {map[string]string{"BOS_REST_MIN_BODY_RATE": "0"}, "BOS_REST_MIN_BODY_RATE: must be above 0"},
		"less than no time":    {map[string]string{"BOS_REST_GRACE_S": "-1"}, "BOS_REST_GRACE_S: must be at least 0"},
	} {
		t.Run(name, func(t *testing.T) {
			if name != "nothing" {
				one.variables["BOS_REST_GATEWAY_TARGET"] = "127.0.0.1:1"
			}
			_, err := Load(one.variables)
			if err == nil || !strings.Contains(err.Error(), one.names) ||
				strings.Contains(err.Error(), "secret-text") {
				t.Error(err)
			}
		})
	}
}

func TestNumbersAtTheirBounds(t *testing.T) {
	if _, err := Load(map[string]string{
		"BOS_REST_GATEWAY_TARGET": "127.0.0.1:1", "BOS_REST_HEARTBEAT_S": "0.01",
		"BOS_REST_MAX_BODY_BYTES": "1024", "BOS_REST_MAX_STREAMS": "1", "BOS_REST_GRACE_S": "0",
	}); err != nil {
		t.Error(err)
	}
}

func TestNetworkAddressNeedsAKeyAndEmptyMeansUnset(t *testing.T) {
	read, err := Load(map[string]string{
		"BOS_REST_GATEWAY_TARGET": "dns:///gateway:80", "BOS_REST_HOST": "0.0.0.0",
		"BOS_AUTH_STATIC_KEY": "sixteen-characters", "BOS_REST_PORT": "",
	})
	if err != nil || read.Port != 8000 || read.Loopback() {
		t.Error(err, read)
	}
	if printed := fmt.Sprintf("%v %+v %#v %s", read, read, read, read.StaticKey); strings.Contains(printed, "sixteen") {
		t.Error(printed)
	}
}

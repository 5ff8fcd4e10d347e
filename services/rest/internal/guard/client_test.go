package guard

import "testing"

func TestIPv6SiteCountsAsOneOrigin(t *testing.T) {
	for address, want := range map[string]string{
		"2001:db8::1":      "2001:db8::/64",
		"2001:db8::ffff:1": "2001:db8::/64",
		"2001:db8:0:1::1":  "2001:db8:0:1::/64",
		"203.0.113.7":      "203.0.113.7",
		"203.0.113.8":      "203.0.113.8",
		"":                 "",
	} {
		if got := network(address); got != want {
			t.Errorf("%q counts as %q, not %q", address, got, want)
		}
	}
}

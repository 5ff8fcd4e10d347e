from __future__ import annotations

from ipaddress import ip_network

import pytest

from bos_identity.client_address import client_address, throttled_address

PROXIES = (ip_network("10.0.0.0/8"),)


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        ("ipv4:203.0.113.7:1234", "", "203.0.113.7"),
        ("ipv6:%5B2001:db8::1%5D:1234", "", "2001:db8::1"),
        ("ipv6:[::ffff:203.0.113.7]:1234", "", "203.0.113.7"),
        ("unix:/tmp/socket", "", "unknown"),
        ("ipv4:10.0.0.1:1234", "203.0.113.7", "203.0.113.7"),
        ("ipv4:10.0.0.1:1234", "203.0.113.7, 10.0.0.2", "203.0.113.7"),
        # Whoever is no proxy of ours can write what it likes.
        ("ipv4:198.51.100.1:1234", "203.0.113.7", "198.51.100.1"),
        ("ipv4:10.0.0.1:1234", "1.2.3.4, 203.0.113.7", "203.0.113.7"),
        ("ipv4:10.0.0.1:1234", "nonsense", "unknown"),
    ],
)
def test_the_nearest_address_that_is_not_ours(peer: str, forwarded: str, address: str) -> None:
    assert client_address(peer, forwarded, PROXIES) == address


def test_an_ipv6_site_is_slowed_down_as_one() -> None:
    assert throttled_address("2001:db8::1") == throttled_address("2001:db8::ffff:1")
    assert throttled_address("2001:db8::1") != throttled_address("2001:db8:0:1::1")
    assert throttled_address("203.0.113.7") != throttled_address("203.0.113.8")
